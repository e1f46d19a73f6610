"""The skorch net behind a classifier: its rows, mini-batches, best epoch and training.

On 50 to 400 labelled rows a step takes a few milliseconds, so the code around it decides the
speed. One index operation reads a whole mini-batch. The optimizer is PyTorch's fused one. Callbacks
of skorch whose results nobody uses are switched off.
"""

from __future__ import annotations

import copy
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from skorch import NeuralNet, NeuralNetClassifier
from skorch.callbacks import EarlyStopping, InputShapeSetter, LRScheduler
from skorch.utils import noop, to_tensor
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.flop_counter import FlopCounterMode

from .._base.environment import learned_is_finite, own_generators, with_gradients
from .._base.mlp import MLP
from .._base.module_factory import FAMILIAR, uncompiled
from .._base.threads import worthwhile_threads
from .._base.validation import AUTO, add_error_context, check_argument, is_auto, one_of
from ..networks.info import isolated_pass
from ..networks.passes import dense_gradients_, explained_single_row

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
# Fused optimizers read each parameter once a step. Others read it about ten times.
_FUSED = {torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD}
_FUSED_EXCLUDES = {"optimizer__fused", "optimizer__foreach", "optimizer__differentiable"}

# Parameters of skorch that have the same name here, and parts of skorch that take arguments.
_SKORCH_NAMES = {
    name
    for net_class in (NeuralNet, NeuralNetClassifier)
    for name in inspect.signature(net_class).parameters
    if name not in {"module", "optimizer", "batch_size", "device", "args", "kwargs"}
}
_SKORCH_PARTS = {"callbacks", "criterion", "iterator_train", "iterator_valid", "optimizer"}
# Checks of parameters for which skorch would raise late or not at all.
_CONSTRAINTS: dict[str, list[Any]] = {
    "callbacks": [list, tuple, None],
    "criterion": [callable],
    "iterator_train": [callable],
    "iterator_valid": [callable],
    "predict_nonlinearity": [callable, AUTO, None],
    "verbose": [Integral],
}

# Limits of a batch without gradients: rows, and numbers in them (16 MiB of float32).
_EVALUATION_ROWS = 4096
_EVALUATION_NUMBERS = 1 << 22

_SMALLEST_FLOAT32 = torch.finfo(torch.float32).tiny

# Keys of a batch's X if rows have weights.
_INPUTS, _WEIGHTS = "X", "sample_weight"


# Parameters


def is_skorch_param(name: str) -> bool:
    """Whether a classifier passes this parameter to skorch under the same name."""
    part, nested, _ = name.partition("__")
    is_known = name in _SKORCH_NAMES or (nested and part in _SKORCH_PARTS)
    return bool(is_known) and name not in FAMILIAR


def check_skorch_params(params: Mapping[str, Any]) -> None:
    """Raise an error that names the first of skorch's parameters that is not valid."""
    for name in params.keys() & _CONSTRAINTS.keys():
        check_argument(name, params[name], *_CONSTRAINTS[name])
    callbacks = [*(params.get("callbacks") or ())]
    for callback in [*callbacks, *(v for n, v in params.items() if n.startswith("callbacks__"))]:
        part = callback[-1] if isinstance(callback, tuple) else callback
        if isinstance(part, InputShapeSetter) or part is InputShapeSetter:
            raise ValueError(
                "callbacks must not hold an InputShapeSetter, because weights are made before it "
                "is called; give the module's class an argument n_features without a default: fit "
                "passes the number of features"
            )
    criterion = params.get("criterion")
    if isinstance(criterion, type) and issubclass(criterion, nn.NLLLoss):
        hint = "modules return logits here; use nn.CrossEntropyLoss, the default"
        raise ValueError(f"criterion must not be {criterion.__name__}: {hint}")


# Rows and mini-batches


class Rows(Dataset[tuple[Any, torch.Tensor]]):
    """Rows X (n, ...), dense or CSR, their classes y and weights.

    An item is (X, y). If there are weights, it is ({"X": X, "sample_weight": weights}, y).
    """

    def __init__(
        self,
        X: Any,
        y: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        valid: Rows | None = None,
    ) -> None:
        n_rows = X.shape[0]
        if not issparse(X):
            # Arrays reach worker processes as read-only memory maps, which torch warns about.
            X = np.ascontiguousarray(X)
            X = torch.from_numpy(X if X.flags.writeable else X.copy())
        self.X = X
        self.y = torch.from_numpy(np.zeros(n_rows, int) if y is None else np.array(y, np.int64))
        self.weights = None
        if weights is not None:
            # Scaled to mean 1, they fit float32, and the mean of weights * losses over all rows is
            # the weighted mean.
            scaled = weights / weights.mean()
            self.weights = torch.tensor(scaled, dtype=torch.float32, device="cpu")
        self.valid = valid

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: Any) -> tuple[Any, torch.Tensor]:
        X: Any = self.X[index] if isinstance(self.X, torch.Tensor) else _dense(self.X, index)
        if self.weights is not None:
            X = {_INPUTS: X, _WEIGHTS: self.weights[index]}
        return X, self.y[index]


def _dense(X: Any, index: Any) -> torch.Tensor:
    """Sparse rows as a dense tensor; an integer gives one row without the axis of rows."""
    if isinstance(index, int | np.integer):
        return _dense(X, [index])[0]
    return torch.from_numpy(X[np.asarray(index) if torch.is_tensor(index) else index].toarray())


def inputs_and_weights(X: Any) -> tuple[Any, Any]:
    """The inputs of a batch, and the weights of its rows or None."""
    if isinstance(X, Mapping) and X.keys() == {_INPUTS, _WEIGHTS}:
        return X[_INPUTS], X[_WEIGHTS]
    return X, None


class _EpochBatches(Sampler[torch.Tensor]):
    """Row numbers of each mini-batch of an epoch; a generator draws a new order each time."""

    def __init__(
        self, n_rows: int, sizes: list[int], generator: torch.Generator | None = None
    ) -> None:
        self.n_rows, self.sizes, self.generator = n_rows, sizes, generator

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[torch.Tensor]:
        # Draws only with the first batch: DataLoader with workers makes a second, unused iterator.
        order = torch.arange(self.n_rows, device="cpu")
        if self.generator is not None:
            order = torch.randperm(self.n_rows, generator=self.generator, device="cpu")
        yield from order[: sum(self.sizes)].split(self.sizes)


class RowLoader(DataLoader[Any]):
    """A DataLoader of Rows that takes each mini-batch by one index operation.

    `generator` draws the order of rows. It is pickled with the net, so that training in several
    calls has the same orders as in one. `join_last` adds a single last row to the batch before,
    because batch normalization cannot train on one row.
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        shuffle: bool = False,
        drop_last: bool = False,
        join_last: bool = False,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        n_full, n_left = divmod(len(rows), batch_size)
        sizes = [batch_size] * n_full
        if n_full and join_last and n_left == 1:
            sizes[-1] += 1
        elif n_left and not (n_full and drop_last):
            sizes.append(n_left)
        batches = _EpochBatches(len(rows), sizes, generator if shuffle else None)
        # A separate generator draws the seed of workers, so that no other generator changes.
        options["generator"] = torch.Generator("cpu")
        super().__init__(rows, sampler=batches, batch_size=None, **options)

    def __iter__(self) -> Any:
        # PyTorch draws the seed of workers on its default device, which must be the generator's.
        with torch.device("cpu"):
            return super().__iter__()


# The net


class BestEpoch(EarlyStopping):
    """Skorch's EarlyStopping, which here allows training without validation rows."""

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Copy the parameters if they are the best so far."""
        if "valid_loss" in net.history[-1]:
            super().on_epoch_end(net, **kwargs)

    def on_train_end(self, net: Any, **kwargs: Any) -> None:
        """Put the best parameters back, and drop the copy."""
        if self.best_epoch_:
            super().on_train_end(net, **kwargs)
        self.best_model_weights_ = None


class _Stop(BaseException):
    """Replaces the KeyboardInterrupt by which a skorch callback ends training."""


def _use_own_validation(dataset: Rows, y: Any = None, **params: Any) -> tuple[Rows, Rows | None]:
    """Skorch's ``train_split``: the rows bring their validation rows along."""
    return dataset, dataset.valid


class Net(NeuralNetClassifier):
    """A skorch net with weights of rows in the loss; a training that fails changes nothing.

    `seed` seeds PyTorch's global generators during training, because modules, optimizers, callbacks
    and loaders of the caller may draw from them. If nothing draws from them, pass None. Then they
    are not touched, so that several threads can train at a time.
    """

    # States of the global generators after the last training.
    generator_states_: Sequence[torch.Tensor] = ()
    # Multiplications of a pass of a mini-batch; None before the first training.
    n_multiplications_: float | None = None
    # Epochs of the history that ran to their end.
    n_finished_: int = 0

    def __init__(self, *args: Any, seed: int | None = None, **kwargs: Any) -> None:
        self.seed = seed
        # A step and a prediction set the mode of the module, so only one of them runs at a time.
        self._mode_lock = threading.RLock()
        super().__init__(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        del state["_mode_lock"]  # cannot be pickled
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._mode_lock = threading.RLock()

    def train_step(self, batch: Any, **fit_params: Any) -> Any:
        """A step of the optimizer, in training mode."""
        with self._mode_lock:
            return super().train_step(batch, **fit_params)

    def validation_step(self, batch: Any, **fit_params: Any) -> Any:
        """The loss of a batch, in evaluation mode."""
        with self._mode_lock:
            return super().validation_step(batch, **fit_params)

    def evaluation_step(self, batch: Any, training: bool = False) -> Any:
        """Logits of a batch, in evaluation mode."""
        with self._mode_lock:
            return super().evaluation_step(batch, training)

    def notify(self, method_name: str, **kwargs: Any) -> None:
        """Call the callbacks. If one ends training, this must not look like Ctrl-C."""
        try:
            super().notify(method_name, **kwargs)
        except KeyboardInterrupt as error:
            raise _Stop from error

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Count an epoch that no callback has ended early."""
        super().on_epoch_end(net, **kwargs)
        self.n_finished_ = len(self.history_)

    def infer(self, x: Any, **fit_params: Any) -> Any:
        """Logits of a batch, with or without weights of rows."""
        with explained_single_row():
            return super().infer(inputs_and_weights(x)[0], **fit_params)

    def get_loss(
        self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False, **kwargs: Any
    ) -> torch.Tensor:
        """The loss of a batch: the weighted mean over its rows if they have weights."""
        weights = inputs_and_weights(X)[1]
        if weights is None:
            loss = super().get_loss(y_pred, y_true, X, training, **kwargs)
        else:
            losses = self._losses_of_rows(y_pred, y_true, X, training, **kwargs)
            weights = to_tensor(weights, device=self.device)
            # Weights have mean 1 over all batches. So skorch's mean over batches, weighted by
            # their numbers of rows, is the weighted mean over all rows.
            loss = (weights * losses).mean()
            if training:
                # Weights of a batch may all be 0 in float32. The clamp avoids 0 / 0.
                loss = (weights * losses).sum() / weights.sum().clamp(min=_SMALLEST_FLOAT32)
        if training and not loss.requires_grad:
            name = type(self.module_).__name__
            raise ValueError(f"nothing to train: no parameter of {name} changes its outputs")
        return loss

    def _losses_of_rows(self, y_pred: Any, y_true: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The loss of each row (n,); a ValueError if the criterion cannot give it."""
        criterion = self.criterion_
        reduction = getattr(criterion, "reduction", None)
        if reduction == "mean" and getattr(criterion, "weight", None) is None:
            criterion.reduction = "none"
            try:
                losses: torch.Tensor = super().get_loss(y_pred, y_true, *args, **kwargs)
            finally:
                criterion.reduction = "mean"
            if losses.shape == y_true.shape[:1]:
                return losses
        raise ValueError(
            "weights of rows need a criterion that can give the loss of each row: it must have "
            "reduction='mean', which is set to 'none' for this, and no weight of its own; got "
            f"{criterion} with {reduction=}. Weight classes by class_weight, not criterion__weight"
        )

    def prepare(self) -> None:
        """Make the module, the criterion, the optimizer and the callbacks."""
        parts = f"criterion={self.criterion!r}, optimizer={self.optimizer!r} or callbacks"
        with with_gradients(), self._private_generators(), add_error_context(parts):
            self.initialize()
        for name, value in vars(self).items():
            if name.startswith("callbacks__") and value is not None:
                valid = one_of(dict(self.callbacks_))
                check_argument(f"the callback in {name}", name.split("__")[1], valid)
        # Batch normalization cannot train on a single last row. It can predict one only if it has
        # running statistics.
        batch_norms = [part for part in self.module_.modules() if isinstance(part, _BatchNorm)]
        if self.iterator_train is RowLoader:
            self.iterator_train__join_last = bool(batch_norms)
        if self.iterator_valid is RowLoader:
            without_statistics = [part for part in batch_norms if part.running_mean is None]
            self.iterator_valid__join_last = bool(without_statistics)
        dense_gradients_(self.module_)

    def train(self, rows: Rows, n_epochs: int) -> None:
        """Go on with training, on these rows; change nothing if it fails."""
        self.max_epochs = n_epochs
        with with_gradients(), self._private_generators(), self._undo_on_failure():
            if self.n_multiplications_ is None:
                self.n_multiplications_ = _multiplications(self, rows)
            with worthwhile_threads(self.n_multiplications_), suppress(_Stop):
                # Not partial_fit, which would treat Ctrl-C as a callback that ends training.
                with self._going_on_with_schedules():
                    self.notify("on_train_begin", X=rows, y=None)
                with suppress(_Stop):
                    self.fit_loop(rows, None)
                self.notify("on_train_end", X=rows, y=None)
            # This follows on_train_end, because BestEpoch reads the last epoch there.
            del self.history_[self.n_finished_ :]
            for epoch in self.history_:
                epoch["batches"].clear()  # nothing reads them, and they grow with the rows
            losses = [epoch["valid_loss"] for epoch in self.history_ if "valid_loss" in epoch]
            if losses and not np.isfinite(losses).any():
                hint = "scale the validation rows as X, or set validation_split=None"
                raise ValueError(f"the validation loss of every epoch is {losses[-1]}; {hint}")
            if not learned_is_finite(self.module_):
                hint = f"lower learning_rate_init={self.lr!r} or standardize X"
                raise ValueError(f"the weights are no longer finite after training; {hint}")

    @contextmanager
    def _private_generators(self) -> Iterator[None]:
        """Set PyTorch's global generators to the net's states; restore them after this block."""
        if self.seed is None:
            yield
            return
        device, gpus = torch.device(self.device), []
        if device.type == "cuda":
            gpus = [torch.cuda.current_device() if device.index is None else device.index]
        generators = [torch.default_generator, *(torch.cuda.default_generators[i] for i in gpus)]
        with own_generators(self.seed):
            for generator, state in zip(generators, self.generator_states_, strict=False):
                generator.set_state(state)
            yield
            self.generator_states_ = [generator.get_state() for generator in generators]

    def _schedules(self) -> list[tuple[LRScheduler, Any]]:
        """Skorch's callbacks that change the learning rate, and PyTorch's schedules in them."""
        callbacks = [callback for _, callback in self.callbacks_]
        return [(c, c.lr_scheduler_) for c in callbacks if isinstance(c, LRScheduler)]

    @contextmanager
    def _going_on_with_schedules(self) -> Iterator[None]:
        """Let schedules go on from the last training, although skorch makes new ones."""
        before = [(callback, schedule) for callback, schedule in self._schedules() if schedule]
        groups = [
            copy.deepcopy({name: value for name, value in group.items() if name != "params"})
            for group in self.optimizer_.param_groups
        ]
        try:
            yield
        finally:
            for callback, schedule in before:
                callback.lr_scheduler_.load_state_dict(copy.deepcopy(schedule.state_dict()))
            if before:  # a new schedule sets learning rates
                for group, values in zip(self.optimizer_.param_groups, groups, strict=True):
                    group.update(values)

    @contextmanager
    def _undo_on_failure(self) -> Iterator[None]:
        """If this block fails, undo the changes of training, except in the caller's callbacks."""
        schedules = self._schedules()
        parts = [self.module_, self.criterion_, self.optimizer_]
        parts = [part for part in parts if hasattr(part, "load_state_dict")]
        states = [copy.deepcopy(part.state_dict()) for part in parts]
        generator = getattr(self, "iterator_train__generator", torch.Generator("cpu"))
        generator_state, n_epochs = generator.get_state(), len(self.history_)
        try:
            yield
        except BaseException:
            for part, state in zip(parts, states, strict=True):
                part.load_state_dict(state)
            generator.set_state(generator_state)
            del self.history_[n_epochs:]
            self.n_finished_ = n_epochs
            for callback, schedule in schedules:
                callback.lr_scheduler_ = schedule
            raise


def build_net(
    make_module: Callable[[], nn.Module],
    skorch_params: Mapping[str, Any],
    *,
    optimizer: type[torch.optim.Optimizer],
    batch_size: int,
    device: torch.device,
    row_size: int,
    seed: int,
    module_draws: bool,
    **params: Any,
) -> Net:
    """An initialized net for Rows of `row_size` numbers.

    The caller's `skorch_params` replace ``defaults``. `params` and ``fixed`` replace both.
    `module_draws`: whether the module may draw random numbers in training.
    """
    given = {name: value for name, value in skorch_params.items() if not is_auto(value)}
    defaults: dict[str, Any] = {
        "verbose": 0,
        "criterion": nn.CrossEntropyLoss,
        # The softmax, whatever the criterion is, because modules return logits.
        "predict_nonlinearity": partial(torch.softmax, dim=-1, dtype=torch.float32),
        "iterator_train": RowLoader,
        "iterator_train__shuffle": True,
        "iterator_valid": RowLoader,
        "callbacks__valid_acc": None,
    }
    n_rows = min(_EVALUATION_ROWS, _EVALUATION_NUMBERS // max(row_size, 1))
    defaults["iterator_valid__batch_size"] = max(batch_size, n_rows)
    if "iterator_train" not in given:  # another iterator may not take it
        defaults["iterator_train__generator"] = torch.Generator("cpu").manual_seed(seed)
    if not given.get("verbose"):
        defaults["callbacks__print_log"] = None
    can_fuse = optimizer in _FUSED and device.type in ("cpu", "cuda")
    if can_fuse and not given.keys() & _FUSED_EXCLUDES:
        defaults["optimizer__fused"] = True
    # Only what the user supplies may draw from the global generators: a module, an optimizer, and
    # parts of skorch such as callbacks and loaders. If there is none of these, no seed is needed.
    is_own_optimizer = optimizer not in OPTIMIZERS.values()
    may_draw = module_draws or is_own_optimizer or bool(skorch_params.keys() - {"verbose"})
    # Copies, because skorch changes the callbacks that it gets.
    callbacks = copy.deepcopy(list(given.get("callbacks") or []))
    best_epoch = BestEpoch(patience=math.inf, threshold=0, sink=noop, load_best=True)
    fixed = {
        "callbacks": [("best_epoch", best_epoch), *callbacks],
        "dataset": Rows,
        "train_split": _use_own_validation,
        "optimizer": optimizer,
        "batch_size": batch_size,
        "device": device,
        "seed": seed if may_draw else None,
        **params,
    }
    net = Net(make_module, **(defaults | given | fixed))
    net.prepare()
    return net


def _multiplications(net: Net, rows: Rows) -> float:
    """Number of multiplications of a pass of a mini-batch; infinity if unknown."""
    module = uncompiled(net.module_)
    if isinstance(module, MLP):  # only the largest product counts
        return net.batch_size * max(parameter.numel() for parameter in module.parameters())
    # PyTorch does not count those of recurrent layers.
    is_recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    if is_recurrent or torch.device(net.device).type != "cpu":
        return math.inf
    X, _ = inputs_and_weights(rows[: net.batch_size][0])
    counter = FlopCounterMode(display=False)
    # If this pass fails, training fails too and reports it.
    with suppress(Exception), torch.no_grad(), isolated_pass(module), counter:
        module, X = copy.deepcopy((module, X))  # because a pass may change both
        module(X)
    return counter.get_total_flops() / 2 or math.inf
