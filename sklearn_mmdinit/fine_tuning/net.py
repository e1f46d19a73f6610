"""The skorch net behind a classifier: its parameters, best epoch, trainings that can be undone.

On 50 to 400 labelled rows a step of the network takes a few milliseconds, so that what
stands around it decides the speed: batches are slices of tensors, the optimiser is PyTorch's
fused one, and of skorch's callbacks only those run whose numbers are used.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import torch
from sklearn.utils import check_scalar
from skorch import NeuralNet, NeuralNetClassifier
from skorch.callbacks import Callback
from skorch.utils import to_tensor
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode

from .._base.environment import learned_is_finite, seeded_generators, with_gradients
from .._base.mlp import MLP
from .._base.module_factory import FAMILIAR, uncompiled
from .._base.threads import worthwhile_threads
from .._base.validation import add_error_context, check_choice
from ..networks.info import isolated_pass
from ..networks.passes import dense_gradients_
from .rows import Orders, Rows, batches, inputs_and_weights

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
# One pass over the memory of a parameter in place of about ten.
_FUSED = {torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD}
_FUSED_EXCLUDES = {"optimizer__fused", "optimizer__foreach", "optimizer__differentiable"}

_NAMES = {
    name
    for kind in (NeuralNet, NeuralNetClassifier)
    for name in inspect.signature(kind).parameters
    if name not in {"module", "optimizer", "batch_size", "device", "args", "kwargs"}
}
_PARTS = {"callbacks", "criterion", "iterator_train", "iterator_valid", "optimizer"}

# Rows of a batch where no gradient is needed, and numbers in them (16 MiB): many, and still few
# beside the data.
_EVALUATION_BATCH = 4096
_EVALUATION_NUMBERS = 1 << 22

_TINY = torch.finfo(torch.float32).tiny


def is_skorch_param(name: str) -> bool:
    """Whether a classifier hands a parameter on to skorch under the same name."""
    part, nested, _ = name.partition("__")
    return name not in FAMILIAR and (name in _NAMES or (bool(nested) and part in _PARTS))


def find_optimizer(optimizer: Any) -> type[torch.optim.Optimizer]:
    """The optimiser a name stands for, or the class itself; a ValueError otherwise."""
    if isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer):
        return optimizer
    if isinstance(optimizer, str) and optimizer in OPTIMIZERS:
        return OPTIMIZERS[optimizer]
    valid = f"one of {sorted(OPTIMIZERS)} or a subclass of torch.optim.Optimizer"
    raise ValueError(f"optimizer must be {valid}, got {optimizer!r}")


def check_skorch_params(params: Mapping[str, Any]) -> None:
    """Raise unless skorch can take these."""
    check_scalar(params.get("verbose", 0), "verbose", Integral)
    callbacks = params.get("callbacks")
    right = callbacks is None or isinstance(callbacks, list | tuple)
    for item in (callbacks or ()) if right else ():
        pair = isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str)
        callback = item[1] if pair else item
        kind = callback if isinstance(callback, type) else type(callback)
        right = right and (issubclass(kind, Callback) or (pair and callback is None))
    if not right:
        valid = "None or a list of skorch callbacks, or pairs of a name and one or None"
        raise ValueError(f"callbacks must be {valid}, got {callbacks!r}")
    for name, value in params.items():
        own = name.startswith("callbacks__") and name.count("__") == 1
        if own and not (value is None or isinstance(value, Callback)):
            raise ValueError(f"{name} must be None or a skorch callback, got {value!r}")
    criterion = params.get("criterion")
    if isinstance(criterion, type) and issubclass(criterion, nn.NLLLoss):
        hint = "modules return logits here, of which nn.CrossEntropyLoss, the default, is the loss"
        raise ValueError(f"criterion must not be {criterion.__name__}: {hint}")
    nonlinearity = params.get("predict_nonlinearity", "auto")
    if not (nonlinearity is None or nonlinearity == "auto" or callable(nonlinearity)):
        valid = "None, 'auto' or a function"
        raise ValueError(f"predict_nonlinearity must be {valid}, got {nonlinearity!r}")


class _Stop(BaseException):
    """The KeyboardInterrupt with which a callback of skorch's, such as EarlyStopping, ends it."""


class Net(NeuralNetClassifier):
    """A net whose rows may have weights in the loss; without them skorch's own."""

    def notify(self, method_name: str, **kwargs: Any) -> None:
        try:
            super().notify(method_name, **kwargs)
        except KeyboardInterrupt as error:
            raise _Stop from error
        except KeyError as error:  # such as EarlyStopping's, of what no epoch has
            known = sorted(self.history[-1]) if self.history else []
            fails = f"a callback fails in {method_name} with KeyError: {error}"
            hint = "valid_loss as well where fit has a validation_split"
            raise ValueError(f"{fails}; an epoch has {known}, {hint}") from error

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        with add_error_context(f"iterator_train={self.iterator_train!r} or iterator_valid"):
            return super().get_iterator(dataset, training)

    def infer(self, x: Any, **fit_params: Any) -> Any:
        x = inputs_and_weights(x)[0]
        if isinstance(x, torch.Tensor) and not isinstance(uncompiled(self.module_), MLP):
            x = x.clone()  # batches may be slices of X, on which another module may work in place
        return super().infer(x, **fit_params)

    def get_loss(
        self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False, **kwargs: Any
    ) -> torch.Tensor:
        weights = inputs_and_weights(X)[1]
        if weights is None:
            with add_error_context(f"criterion={self.criterion_}"):
                loss = super().get_loss(y_pred, y_true, X, training, **kwargs)
                if loss.numel() != 1:
                    found = f"a loss of shape {tuple(loss.shape)}"
                    raise ValueError(
                        f"must return one number, as with reduction='mean', got {found}"
                    )
        else:
            losses = self._losses(weights, y_pred, y_true, X, training, **kwargs)
            weights = to_tensor(weights, device=self.device)
            # They have the mean 1 over all batches, so that skorch's mean over batches, by their
            # numbers of rows, is the weighted mean over all rows.
            loss = (weights * losses).mean()
            if training:
                # Above 0: in float32 weights may vanish beside those of other batches.
                loss = (weights * losses).sum() / weights.sum().clamp(min=_TINY)
        if training and not loss.requires_grad:
            kind = type(self.module_).__name__
            raise ValueError(f"nothing to train: no parameter of {kind} changes its outputs")
        return loss

    def _losses(self, weights: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The loss of each row, by a criterion that returns their mean."""
        if getattr(self.criterion_, "weight", None) is not None:
            hint = "give class_weight in place of criterion__weight"
            raise ValueError(f"weights of rows need a criterion without weights of its own: {hint}")
        reduction, losses = getattr(self.criterion_, "reduction", None), None
        if reduction == "mean":
            self.criterion_.reduction = "none"
            try:
                losses = super().get_loss(*args, **kwargs)
            finally:
                self.criterion_.reduction = reduction
        if losses is None or losses.shape != weights.shape:
            found = f"{self.criterion_} with {reduction=}"
            valid = "a criterion with reduction='mean', which can return a loss a row instead"
            raise ValueError(f"weights of rows need {valid}; got {found}")
        return losses


class BestEpoch(Callback):
    """Keep the parameters of the epoch with the lowest validation loss, in memory."""

    def on_train_begin(self, net: Any, **kwargs: Any) -> None:
        """Forget the run before."""
        self.epoch_: int | None = None
        self.loss_ = math.inf
        self._kept: list[torch.Tensor] = []

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Copy the parameters where they are the best so far."""
        loss = net.history[-1].get("valid_loss", math.nan)
        if loss < self.loss_:
            self.epoch_, self.loss_ = len(net.history) - 1, loss
            state = self._state(net)
            self._kept = self._kept or [torch.empty_like(tensor) for tensor in state]
            _copy_(self._kept, state)

    def on_train_end(self, net: Any, **kwargs: Any) -> None:
        """Put the best parameters back, and let go of the copy."""
        if self._kept:
            _copy_(self._state(net), self._kept)
        self._kept = []

    @staticmethod
    def _state(net: Any) -> list[torch.Tensor]:
        # A module may keep what it likes beside its tensors.
        values = net.module_.state_dict().values()
        return [value for value in values if isinstance(value, torch.Tensor)]


def _copy_(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)


def _multiplications(net: Net, rows: Rows) -> float:
    """Those of a mini-batch, in products and convolutions; infinity where they cannot be told."""
    module, device = uncompiled(net.module_), torch.device(net.device)
    if isinstance(module, MLP):  # the largest product's
        return net.batch_size * max(parameter.numel() for parameter in module.parameters())
    # PyTorch counts none of recurrent layers'.
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    if recurrent or device.type != "cpu":
        return math.inf
    X, _ = inputs_and_weights(rows[: net.batch_size][0])
    counter = FlopCounterMode(display=False)
    # What fails here fails in training, and is told there.
    with suppress(Exception), torch.no_grad(), isolated_pass(module), counter:
        copied, X = copy.deepcopy((module, X))  # a pass may change both
        copied(X)
    return counter.get_total_flops() / 2 or math.inf


def _own_validation(dataset: Rows, y: Any = None, **params: Any) -> tuple[Rows, Rows | None]:
    """Skorch's ``train_split``: the split was made before, and travels with the rows."""
    return dataset, dataset.valid


@dataclass(frozen=True)
class Settings:
    """What the parameters of a classifier stand for, beside its rows and its network."""

    optimizer: type[torch.optim.Optimizer]
    learning_rate_init: float
    batch_size: int
    device: torch.device
    n_classes: int
    row_size: int  # numbers of an example
    seed: int  # of the order of the rows, and of what the module draws
    skorch_params: Mapping[str, Any]  # under skorch's own names


def _net_options(settings: Settings, joins_last: bool) -> dict[str, Any]:
    """What a net, of Rows, is made with beside its module."""
    params = {"verbose": 0, **settings.skorch_params, "optimizer": settings.optimizer}
    if params.get("predict_nonlinearity") == "auto":
        del params["predict_nonlinearity"]
    fused = settings.optimizer in _FUSED and settings.device.type in ("cpu", "cuda")
    if fused and not params.keys() & _FUSED_EXCLUDES:
        params["optimizer__fused"] = True
    # Options of ours that another iterator does not know.
    if "iterator_train" not in params:
        params.setdefault("iterator_train__orders", Orders(settings.seed))
        params.setdefault("iterator_train__join_last", joins_last)
    evaluated = min(_EVALUATION_BATCH, _EVALUATION_NUMBERS // max(settings.row_size, 1))
    if not params["verbose"]:
        params.setdefault("callbacks__print_log", None)
    params = {
        "criterion": nn.CrossEntropyLoss,
        # Of any criterion, since modules return logits.
        "predict_nonlinearity": partial(torch.softmax, dim=-1),
        "iterator_train": batches,
        "iterator_train__shuffle": True,
        "iterator_valid": batches,
        "iterator_valid__batch_size": max(settings.batch_size, evaluated),
        "callbacks__valid_acc": None,
        **params,
    }
    # Copies: skorch changes the callbacks it is given.
    callbacks = copy.deepcopy(list(params.get("callbacks") or []))
    return params | {
        "callbacks": [("best_epoch", BestEpoch()), *callbacks],
        "train_split": _own_validation,
        "classes": list(range(settings.n_classes)),
        "lr": settings.learning_rate_init,
        "batch_size": settings.batch_size,
        "device": settings.device,
    }


class Training:
    """A net and what its next epoch goes on from: training in parts draws what one in one go does.

    Only what a caller brought, such as a module with dropout, a callback or a DataLoader, can draw
    from PyTorch's global generators; where there is nothing of the kind they are not touched, for
    they are one thread's at a time.
    """

    def __init__(
        self, settings: Settings, make: Callable[[], nn.Module], module: nn.Module
    ) -> None:
        self._batch_norm = any(isinstance(part, _BatchNorm) for part in module.modules())
        self.net = Net(make, **_net_options(settings, joins_last=self._batch_norm))
        is_mlp = isinstance(module, MLP)
        self._n_multiplications: float | None = None  # counted with the first rows
        self._seed = settings.seed
        self._draws = not is_mlp or bool(settings.skorch_params.keys() - {"verbose"})
        self._states: list[torch.Tensor] = []  # of the global generators after the last epoch

    def run(self, rows: Rows, n_epochs: int) -> None:
        """Train on rows, with the rows for validation where there are any.

        A net that was trained before is as it was where this raises or is interrupted; one whose
        first training fails is to be dropped.
        """
        net = self.net
        if self._batch_norm and min(len(rows), net.batch_size) < 2:
            found = f"{len(rows)} training rows and batch_size={net.batch_size}"
            raise ValueError(f"batch normalisation needs at least 2 training rows, got {found}")
        net.max_epochs = n_epochs
        draws = self._private_draws(torch.device(net.device))
        with with_gradients(), draws:
            undone: AbstractContextManager[None] = nullcontext()
            if net.initialized_:
                undone = self._undone_on_failure()
            else:
                with add_error_context(
                    f"criterion={net.criterion!r}, optimizer={net.optimizer!r} or callbacks"
                ):
                    net.initialize()
                known = sorted(dict(net.callbacks_))
                for name in vars(net):
                    if name.count("__") > 1 and name.startswith("callbacks__"):
                        check_choice(f"the callback in {name}", name.split("__")[1], known)
                dense_gradients_(net.module_)
            if self._n_multiplications is None:
                self._n_multiplications = _multiplications(net, rows)
            with undone, worthwhile_threads(self._n_multiplications):
                # Not partial_fit, which takes Ctrl-C for the end that a callback asked for.
                net.notify("on_train_begin", X=rows, y=None)
                with suppress(_Stop):
                    net.fit_loop(rows, None)
                net.notify("on_train_end", X=rows, y=None)
                for epoch in net.history_:
                    epoch["batches"].clear()  # they grow with the rows, and nothing reads them
                if not learned_is_finite(net.module_):
                    hint = f"lower learning_rate_init={net.lr!r} or standardise X"
                    raise ValueError(f"the weights are no longer finite after training; {hint}")

    @contextmanager
    def _private_draws(self, device: torch.device) -> Iterator[None]:
        """Draw privately from the global generators, from where the last time ended."""
        if not self._draws:
            yield
            return
        gpus = []
        if device.type == "cuda":
            gpus = [torch.cuda.current_device() if device.index is None else device.index]
        with seeded_generators(self._seed, gpus):
            if self._states:
                torch.set_rng_state(self._states[0])
            for gpu, state in zip(gpus, self._states[1:], strict=False):
                torch.cuda.set_rng_state(state, gpu)
            yield
            self._states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, gpus)]

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        """Put back what training changes in place; what callbacks of the user's keep is theirs."""
        net = self.net
        parts = [part for part in (net.module_, net.criterion_) if isinstance(part, nn.Module)]
        tensors = [t for part in parts for t in (*part.parameters(), *part.buffers())]
        before = [tensor.detach().clone() for tensor in tensors]
        optimizer = copy.deepcopy(net.optimizer_.state_dict())
        n_epochs = len(net.history_)
        orders = getattr(net, "iterator_train__orders", None)
        order = dict(vars(orders)) if isinstance(orders, Orders) else {}
        try:
            yield
        except BaseException:
            _copy_(tensors, before)
            net.optimizer_.load_state_dict(optimizer)
            del net.history_[n_epochs:]
            if order:
                vars(orders).update(order)
            raise
