"""The skorch net behind a classifier: its rows, mini-batches, best epoch and training.

On 50 to 400 labelled rows a step takes a few milliseconds, so the code around it decides the
speed: a mini-batch is indexed at once, the optimizer is PyTorch's fused one, and of skorch's
callbacks only those run whose results are used.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils import check_scalar
from skorch import NeuralNet, NeuralNetClassifier
from skorch.callbacks import Callback, EarlyStopping
from skorch.utils import noop, to_tensor
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.flop_counter import FlopCounterMode

from .._base.environment import learned_is_finite, seeded_generators, with_gradients
from .._base.mlp import MLP
from .._base.module_factory import FAMILIAR, uncompiled
from .._base.threads import worthwhile_threads
from .._base.validation import add_error_context, check_choice
from ..networks.info import isolated_pass
from ..networks.passes import dense_gradients_

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
# The fused ones read the memory of a parameter once a step instead of about ten times.
_FUSED = {torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD}
_FUSED_EXCLUDES = {"optimizer__fused", "optimizer__foreach", "optimizer__differentiable"}

# skorch's parameters that keep their names here, and its parts whose arguments users may set.
_SKORCH_NAMES = {
    name
    for net_class in (NeuralNet, NeuralNetClassifier)
    for name in inspect.signature(net_class).parameters
    if name not in {"module", "optimizer", "batch_size", "device", "args", "kwargs"}
}
_SKORCH_PARTS = {"callbacks", "criterion", "iterator_train", "iterator_valid", "optimizer"}

# Limits of a batch without gradients: rows, and numbers in them (16 MiB of float32).
_EVALUATION_ROWS = 4096
_EVALUATION_NUMBERS = 1 << 22

_SMALLEST_FLOAT32 = torch.finfo(torch.float32).tiny

# Keys of a batch's X where rows have weights.
_INPUTS, _WEIGHTS = "X", "sample_weight"


# Parameters


def is_skorch_param(name: str) -> bool:
    """Whether a classifier passes this parameter to skorch under the same name."""
    part, nested, _ = name.partition("__")
    is_known = name in _SKORCH_NAMES or (nested and part in _SKORCH_PARTS)
    return bool(is_known) and name not in FAMILIAR


def find_optimizer(optimizer: Any) -> type[torch.optim.Optimizer]:
    """The optimizer class of a name, or the class itself; a ValueError otherwise."""
    if isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer):
        return optimizer
    if isinstance(optimizer, str) and optimizer in OPTIMIZERS:
        return OPTIMIZERS[optimizer]
    valid = f"one of {sorted(OPTIMIZERS)} or a subclass of torch.optim.Optimizer"
    raise ValueError(f"optimizer must be {valid}, got {optimizer!r}")


def check_skorch_params(params: Mapping[str, Any]) -> None:
    """Raise an error that names the first of skorch's parameters that is not valid."""
    check_scalar(params.get("verbose", 0), "verbose", Integral)
    callbacks = params.get("callbacks")
    is_valid = callbacks is None or isinstance(callbacks, list | tuple)
    if not is_valid or not all(map(_is_callback_item, callbacks or ())):
        valid = "None or a list of skorch callbacks, or pairs of a name and one or None"
        raise ValueError(f"callbacks must be {valid}, got {callbacks!r}")
    for name, value in params.items():
        names_callback = name.startswith("callbacks__") and name.count("__") == 1
        if names_callback and not (value is None or isinstance(value, Callback)):
            raise ValueError(f"{name} must be None or a skorch callback, got {value!r}")
    criterion = params.get("criterion")
    if isinstance(criterion, type) and issubclass(criterion, nn.NLLLoss):
        hint = "modules return logits here, which nn.CrossEntropyLoss, the default, takes"
        raise ValueError(f"criterion must not be {criterion.__name__}: {hint}")
    nonlinearity = params.get("predict_nonlinearity", "auto")
    if not (nonlinearity is None or nonlinearity == "auto" or callable(nonlinearity)):
        valid = "None, 'auto' or a function"
        raise ValueError(f"predict_nonlinearity must be {valid}, got {nonlinearity!r}")


def _is_callback_item(item: Any) -> bool:
    """Whether skorch takes this in its list of callbacks."""
    named = isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str)
    callback = item[1] if named else item
    callback_type = callback if isinstance(callback, type) else type(callback)
    return issubclass(callback_type, Callback) or (named and callback is None)


# Rows and mini-batches


class Rows(Dataset[tuple[Any, torch.Tensor]]):
    """Rows X (n, ...), dense or CSR, their classes y and weights; an item is (X, y).

    X of an item is a dict with the weights where rows have any.
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
            # With mean 1 float32 holds them, and the mean over rows is the weighted mean.
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


def _inputs_and_weights(X: Any) -> tuple[Any, Any]:
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
        # Draws when the first batch is asked for: with workers DataLoader makes two iterators.
        order = torch.arange(self.n_rows, device="cpu")
        if self.generator is not None:
            order = torch.randperm(self.n_rows, generator=self.generator, device="cpu")
        yield from order[: sum(self.sizes)].split(self.sizes)


class RowLoader(DataLoader[Any]):
    """A DataLoader of Rows that indexes each mini-batch at once.

    `generator` draws the orders and can be pickled, so that training in parts draws what training
    in one go does. `join_last` adds a single last row to the batch before, because batch
    normalization cannot train on one row.
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
        # A generator of its own for the seed of workers, so that it draws from no other.
        options["generator"] = torch.Generator("cpu")
        super().__init__(rows, sampler=batches, batch_size=None, **options)

    def __iter__(self) -> Any:
        # PyTorch draws that seed on its default device, where a CPU generator is refused.
        with torch.device("cpu"):
            return super().__iter__()


# The net


class BestEpoch(EarlyStopping):
    """Skorch's EarlyStopping, but training without validation rows is fine."""

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
    """A net whose rows may have weights in the loss, and whose failed training leaves no trace.

    `seed` is that of PyTorch's global generators, which modules, callbacks and loaders of the
    caller may draw from while it trains. None: nothing draws from them. Then they are not
    touched, because only one thread at a time may use them.
    """

    # After the last training: states of these generators, and what `_multiplications` counts.
    generator_states_: tuple[torch.Tensor, ...] = ()
    n_multiplications_: float | None = None

    def __init__(self, *args: Any, seed: int | None = None, **kwargs: Any) -> None:
        self.seed = seed
        super().__init__(*args, **kwargs)

    def notify(self, method_name: str, **kwargs: Any) -> None:
        """Call the callbacks; one that ends training must not look like Ctrl-C."""
        try:
            super().notify(method_name, **kwargs)
        except KeyboardInterrupt as error:
            raise _Stop from error
        except KeyError as error:  # EarlyStopping raises it if an epoch has no valid_loss
            recorded = sorted(self.history[-1]) if self.history else []
            problem = f"a callback fails in {method_name} with KeyError: {error}"
            hint = f"an epoch has {recorded}, and with a validation_split valid_loss too"
            raise ValueError(f"{problem}; {hint}") from error

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """Mini-batches of a dataset."""
        with add_error_context(f"iterator_train={self.iterator_train!r} or iterator_valid"):
            return super().get_iterator(dataset, training)

    def infer(self, x: Any, **fit_params: Any) -> Any:
        """Logits of a batch, with or without weights of rows."""
        return super().infer(_inputs_and_weights(x)[0], **fit_params)

    def get_loss(
        self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False, **kwargs: Any
    ) -> torch.Tensor:
        """The loss of a batch: the weighted mean over its rows if they have weights."""
        weights = _inputs_and_weights(X)[1]
        if weights is None:
            with add_error_context(f"criterion={self.criterion_}"):
                loss = super().get_loss(y_pred, y_true, X, training, **kwargs)
                if loss.numel() != 1:
                    shape = tuple(loss.shape)
                    valid = "one number, as with reduction='mean'"
                    raise ValueError(f"criterion must return {valid}, got a loss of shape {shape}")
        else:
            losses = self._row_losses(weights, y_pred, y_true, X, training, **kwargs)
            weights = to_tensor(weights, device=self.device)
            # Weights have mean 1 over all batches. So skorch's mean over batches, weighted by
            # their numbers of rows, is the weighted mean over all rows.
            loss = (weights * losses).mean()
            if training:
                # A batch may have weights that are 0 in float32: the clamp avoids 0 / 0.
                loss = (weights * losses).sum() / weights.sum().clamp(min=_SMALLEST_FLOAT32)
        if training and not loss.requires_grad:
            name = type(self.module_).__name__
            raise ValueError(f"nothing to train: no parameter of {name} changes its outputs")
        return loss

    def _row_losses(self, weights: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The loss of each row, from a criterion that returns their mean."""
        if getattr(self.criterion_, "weight", None) is not None:
            hint = "give class_weight in place of criterion__weight"
            raise ValueError(f"weights of rows need a criterion without class weights: {hint}")
        reduction, losses = getattr(self.criterion_, "reduction", None), None
        if reduction == "mean":
            self.criterion_.reduction = "none"
            try:
                losses = super().get_loss(*args, **kwargs)
            finally:
                self.criterion_.reduction = reduction
        if losses is None or losses.shape != weights.shape:
            valid = "a criterion with reduction='mean', which can return a loss a row instead"
            given = f"{self.criterion_} with {reduction=}"
            raise ValueError(f"weights of rows need {valid}; got {given}")
        return losses

    def train(self, rows: Rows, n_epochs: int) -> None:
        """Train on rows, and go on from where the last training ended.

        If it raises or is interrupted, a net that was trained before is as it was; a net that
        was not is to be dropped.
        """
        self.max_epochs = n_epochs
        with with_gradients(), self._private_generators():
            undo = self._undo_on_failure() if self.initialized_ else nullcontext()
            if not self.initialized_:
                self._initialize_checked()
            if _has_batch_norm(self.module_) and min(len(rows), self.batch_size) < 2:
                given = f"{len(rows)} rows and batch_size={self.batch_size}"
                raise ValueError(f"batch normalization needs at least 2 training rows, got {given}")
            if self.n_multiplications_ is None:
                self.n_multiplications_ = _multiplications(self, rows)
            with undo, worthwhile_threads(self.n_multiplications_):
                # Not partial_fit, which takes Ctrl-C for a callback that ends training.
                self.notify("on_train_begin", X=rows, y=None)
                with suppress(_Stop):
                    self.fit_loop(rows, None)
                self.notify("on_train_end", X=rows, y=None)
                for epoch in self.history_:
                    epoch["batches"].clear()  # nothing reads them, and they grow with the rows
                if not learned_is_finite(self.module_):
                    hint = f"lower learning_rate_init={self.lr!r} or standardize X"
                    raise ValueError(f"the weights are no longer finite after training; {hint}")

    def _initialize_checked(self) -> None:
        """Make the module, the criterion, the optimizer and the callbacks."""
        parts = f"criterion={self.criterion!r}, optimizer={self.optimizer!r} or callbacks"
        with add_error_context(parts):
            self.initialize()
        callback_names = sorted(dict(self.callbacks_))
        for name in vars(self):
            if name.startswith("callbacks__") and name.count("__") > 1:
                check_choice(f"the callback in {name}", name.split("__")[1], callback_names)
        if self.iterator_train is RowLoader:
            self.iterator_train__join_last = _has_batch_norm(self.module_)
        dense_gradients_(self.module_)

    @contextmanager
    def _private_generators(self) -> Iterator[None]:
        """Let PyTorch's global generators go on from the last training, and restore them after."""
        if self.seed is None:
            yield
            return
        device, gpus = torch.device(self.device), []
        if device.type == "cuda":
            gpus = [torch.cuda.current_device() if device.index is None else device.index]
        with seeded_generators(self.seed, gpus):
            if self.generator_states_:
                torch.set_rng_state(self.generator_states_[0])
            for gpu, state in zip(gpus, self.generator_states_[1:], strict=False):
                torch.cuda.set_rng_state(state, gpu)
            yield
            states = (torch.get_rng_state(), *map(torch.cuda.get_rng_state, gpus))
            self.generator_states_ = states

    @contextmanager
    def _undo_on_failure(self) -> Iterator[None]:
        """Put back what training changes in place, but not what the caller's callbacks keep."""
        parts = [self.module_, self.criterion_, self.optimizer_]
        parts = [part for part in parts if hasattr(part, "load_state_dict")]
        states = [copy.deepcopy(part.state_dict()) for part in parts]
        generator = getattr(self, "iterator_train__generator", None)
        generator_state = generator.get_state() if generator is not None else None
        n_epochs = len(self.history_)
        try:
            yield
        except BaseException:
            for part, state in zip(parts, states, strict=True):
                part.load_state_dict(state)
            if generator is not None:
                generator.set_state(generator_state)
            del self.history_[n_epochs:]
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
    """A net for Rows of `row_size` numbers, whose module may draw random numbers in training.

    The caller's `skorch_params` replace defaults; `params` are fixed.
    """
    given = {"verbose": 0, **skorch_params}
    if given.get("predict_nonlinearity") == "auto":
        del given["predict_nonlinearity"]
    defaults: dict[str, Any] = {
        "criterion": nn.CrossEntropyLoss,
        # For any criterion, because modules return logits.
        "predict_nonlinearity": partial(torch.softmax, dim=-1),
        "iterator_train": RowLoader,
        "iterator_train__shuffle": True,
        "iterator_valid": RowLoader,
        "callbacks__valid_acc": None,
    }
    n_rows = min(_EVALUATION_ROWS, _EVALUATION_NUMBERS // max(row_size, 1))
    defaults["iterator_valid__batch_size"] = max(batch_size, n_rows)
    if "iterator_train" not in given:  # another iterator may not take it
        defaults["iterator_train__generator"] = torch.Generator("cpu").manual_seed(seed)
    if not given["verbose"]:
        defaults["callbacks__print_log"] = None
    can_fuse = optimizer in _FUSED and device.type in ("cpu", "cuda")
    if can_fuse and not given.keys() & _FUSED_EXCLUDES:
        defaults["optimizer__fused"] = True
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
        # The parts of this file draw from no global generator.
        "seed": seed if module_draws or skorch_params.keys() - {"verbose"} else None,
        **params,
    }
    return Net(make_module, **(defaults | given | fixed))


def _has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm) for part in module.modules())


def _multiplications(net: Net, rows: Rows) -> float:
    """Multiplications in products and convolutions of a mini-batch; infinity where unknown."""
    module = uncompiled(net.module_)
    if isinstance(module, MLP):  # those of the largest product
        return net.batch_size * max(parameter.numel() for parameter in module.parameters())
    # PyTorch does not count those of recurrent layers.
    is_recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    if is_recurrent or torch.device(net.device).type != "cpu":
        return math.inf
    X, _ = _inputs_and_weights(rows[: net.batch_size][0])
    counter = FlopCounterMode(display=False)
    # If this pass fails, training fails too and reports it.
    with suppress(Exception), torch.no_grad(), isolated_pass(module), counter:
        module, X = copy.deepcopy((module, X))  # a pass may change both
        module(X)
    return counter.get_total_flops() / 2 or math.inf
