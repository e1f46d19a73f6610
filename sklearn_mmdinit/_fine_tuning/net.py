"""The skorch net behind a classifier: batches without a DataLoader, the best epoch kept.

On 50 to 400 labelled rows a step of the network takes a few milliseconds, so that what
stands around it decides the speed: batches are slices of tensors, the optimiser is PyTorch's
fused one, and of skorch's callbacks only those run whose numbers are used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from skorch import NeuralNetClassifier
from skorch.utils import to_tensor
from torch import nn

from .._compute import learned_is_finite, with_gradients, worthwhile_threads
from .._modules import embeddings_named, with_dense_gradients_
from .._network import MLP, uncompiled
from .batches import Rows, batches, inputs_and_weights
from .callbacks import BestEpoch
from .network import Network
from .randomness import Orders, PrivateRandomness
from .taken_back import as_before_on_failure
from .warm_start import Start

__all__ = [
    "ROUTED_PREFIXES",
    "Training",
    "build_net",
    "check_skorch_params",
    "find_optimizer",
    "probabilities_module",
]

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
# One pass over the memory of a parameter in place of about ten.
_FUSED = {torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD}
_FUSED_DEVICES = {"cpu", "cuda"}
_FUSED_EXCLUDES = {"optimizer__fused", "optimizer__foreach", "optimizer__differentiable"}

# Parameters of skorch's that a classifier hands on under the same name.
ROUTED_PREFIXES = (
    "callbacks__",
    "criterion__",
    "iterator_train__",
    "iterator_valid__",
    "optimizer__",
)

# Arguments of skorch's that are the classifier's to set, and its own name for each.
_OWNED = {
    "batch_size": "batch_size",
    "callbacks": "callbacks",
    "callbacks__best_epoch": "validation_split",
    "classes": "y",
    "device": "device",
    "lr": "learning_rate_init",
    "max_epochs": "max_iter",
    "module__theta0": "warm_start_from",
    "optimizer": "optimizer",
    "train_split": "validation_split",
    "verbose": "verbose",
}

# Rows of a batch where no gradient is needed, and numbers in them (16 MiB): many, and still few
# beside the data.
_EVALUATION_BATCH = 4096
_EVALUATION_NUMBERS = 1 << 22

_TINY = torch.finfo(torch.float32).tiny


class _Stop(BaseException):
    """The KeyboardInterrupt with which a callback of skorch's, such as EarlyStopping, ends it."""


class _Interrupt(BaseException):
    """Ctrl-C, which skorch would take for such an end."""


class _Net(NeuralNetClassifier):
    """A net whose rows may have weights in the loss; without them skorch's own."""

    def notify(self, method_name: str, **kwargs: Any) -> None:
        try:
            super().notify(method_name, **kwargs)
        except KeyboardInterrupt as error:
            raise _Stop from error

    def fit_loop(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().fit_loop(*args, **kwargs)
        except KeyboardInterrupt as error:
            raise _Interrupt from error
        except _Stop as error:
            raise KeyboardInterrupt from error

    def infer(self, x: Any, **fit_params: Any) -> Any:
        x = inputs_and_weights(x)[0]
        if isinstance(x, torch.Tensor) and not isinstance(uncompiled(self.module_), MLP):
            x = x.clone()  # batches may be slices of X, on which another module may work in place
        with embeddings_named(self.module_):
            return super().infer(x, **fit_params)

    def get_loss(
        self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False, **kwargs: Any
    ) -> torch.Tensor:
        weights = inputs_and_weights(X)[1]
        if weights is None:
            loss = super().get_loss(y_pred, y_true, X, training, **kwargs)
            return self._trainable(loss) if training else loss
        with _one_by_one(self.criterion_):
            losses = super().get_loss(y_pred, y_true, X, training, **kwargs)
        if losses.shape != weights.shape:
            raise ValueError(
                f"weights of rows need a criterion with a loss a row, but {self.criterion_} "
                f"returns the shape {tuple(losses.shape)} for {len(weights)} rows"
            )
        weights = to_tensor(weights, device=self.device)
        if training:
            # Above 0: in float32 weights may vanish beside those of other batches.
            return self._trainable((weights * losses).sum() / weights.sum().clamp(min=_TINY))
        # They have the mean 1 over all batches, so that skorch's mean over batches, by their
        # numbers of rows, is the weighted mean over all rows.
        return (weights * losses).mean()

    def _trainable(self, loss: torch.Tensor) -> torch.Tensor:
        if not loss.requires_grad:
            raise ValueError(
                f"there is nothing to train: no parameter of {type(self.module_).__name__} that "
                "its outputs depend on requires a gradient; max_iter=0 leaves it where it starts"
            )
        return loss


@contextmanager
def _one_by_one(criterion: Any) -> Iterator[None]:
    """Let a criterion return the loss of each row."""
    reduction = getattr(criterion, "reduction", None)
    if reduction != "mean":
        raise ValueError(
            "weights of rows need a criterion with reduction='mean', got "
            f"{criterion} with reduction={reduction!r}"
        )
    criterion.reduction = "none"
    try:
        yield
    finally:
        criterion.reduction = reduction


def _own_validation(dataset: Rows, y: Any = None, **params: Any) -> tuple[Rows, Rows | None]:
    """Skorch's ``train_split``: the split was made before, and travels with the rows."""
    return dataset, dataset.valid


def find_optimizer(optimizer: Any) -> type[torch.optim.Optimizer]:
    """The optimiser a name stands for, or the class itself; a ValueError otherwise."""
    if isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer):
        return optimizer
    if isinstance(optimizer, str) and optimizer in OPTIMIZERS:
        return OPTIMIZERS[optimizer]
    raise ValueError(
        f"optimizer must be one of {sorted(OPTIMIZERS)} or a subclass of "
        f"torch.optim.Optimizer, got {optimizer!r}"
    )


def check_skorch_params(params: Mapping[str, Any], network: str) -> None:
    """Raise a ValueError if an argument for skorch is one that the classifier sets itself.

    `network` is the classifier's own parameter that says which module is trained.
    """
    owned = {name: network for name in params if name == "module" or name.startswith("module__")}
    owned |= _OWNED
    if taken := sorted(params.keys() & owned.keys()):
        raise ValueError(
            f"skorch_params may not hold {taken[0]!r}, which follows from the classifier's "
            f"own {owned[taken[0]]!r}"
        )


def build_net(
    network: Network,
    *,
    n_classes: int,
    row_size: int,
    optimizer: Any,
    learning_rate_init: float,
    batch_size: int,
    callbacks: Sequence[Any] | None,
    skorch_params: Mapping[str, Any] | None,
    device: torch.device,
    seed: int,
    verbose: int,
) -> NeuralNetClassifier:
    """A skorch net of a network, to be trained on Rows; not yet initialised."""
    params = dict(skorch_params or {})
    optimizer_class = find_optimizer(optimizer)
    if (
        optimizer_class in _FUSED
        and device.type in _FUSED_DEVICES
        and not params.keys() & _FUSED_EXCLUDES
    ):
        params["optimizer__fused"] = True
    # Options of ours that another iterator does not know.
    if "iterator_train" not in params:
        params.setdefault("iterator_train__orders", Orders(seed))
        params.setdefault("iterator_train__join_last", network.batch_norm)
    if "iterator_valid" not in params:
        params.setdefault("iterator_valid__training", False)
    defaults = {
        "criterion": nn.CrossEntropyLoss,
        "iterator_train": batches,
        "iterator_train__shuffle": True,
        "iterator_valid": batches,
        "iterator_valid__batch_size": max(
            batch_size, min(_EVALUATION_BATCH, _EVALUATION_NUMBERS // max(row_size, 1))
        ),
        "callbacks__valid_acc": None,
    }
    if not verbose:
        defaults["callbacks__print_log"] = None
    return _Net(
        module=network.module,
        **{f"module__{name}": value for name, value in network.arguments.items()},
        optimizer=optimizer_class,
        lr=learning_rate_init,
        batch_size=batch_size,
        train_split=_own_validation,
        classes=list(range(n_classes)),
        # Copies: skorch changes the callbacks it is given.
        callbacks=[("best_epoch", BestEpoch()), *copy.deepcopy(list(callbacks or []))],
        device=device,
        verbose=verbose,
        **{**defaults, **params},
    )


class Training:
    """A net and what its next epoch goes on from.

    Parameters
    ----------
    start : Start
        Where it began.
    network : Network
        What it trains.
    net : NeuralNetClassifier
        From :func:`build_net`.
    seed : int
        Of PyTorch's global generators, as far as they are used.
    foreign : bool
        Whether the net holds anything beside the network that may draw from them.
    """

    def __init__(
        self,
        start: Start,
        network: Network,
        net: NeuralNetClassifier,
        *,
        seed: int,
        foreign: bool,
    ) -> None:
        self.start = start
        self.net = net
        self._network = network
        self._randomness = PrivateRandomness(seed, needed=foreign or network.draws)

    def run(self, rows: Rows, n_epochs: int) -> None:
        """Train on rows, with the rows for validation where there are any.

        Raises
        ------
        ValueError
            If batch norm would meet a batch of one row, or the weights do not stay finite. A net
            that was trained before is then as it was.
        """
        net = self.net
        if self._network.batch_norm and min(len(rows), net.batch_size) < 2:
            raise ValueError(
                "batch normalisation needs at least 2 training rows a batch, got "
                f"{len(rows)} training rows and batch_size={net.batch_size}"
            )
        net.max_epochs = n_epochs
        with with_gradients(), self._randomness.on(torch.device(net.device)), self._threads():
            # One whose first training fails is dropped by whoever asked for it.
            kept: AbstractContextManager[None] = nullcontext()
            if net.initialized_:
                kept = as_before_on_failure(net, self._randomness)
            else:
                net.initialize()
                if not isinstance(net.optimizer_, torch.optim.SparseAdam):
                    with_dense_gradients_(net.module_)
            with kept:
                try:
                    net.partial_fit(rows, None)
                except _Interrupt as error:
                    raise KeyboardInterrupt from error
                if not learned_is_finite(net.module_.parameters()):
                    raise ValueError(
                        "the weights are no longer finite after training; lower "
                        f"learning_rate_init={net.lr!r} or standardise X"
                    )

    def _threads(self) -> AbstractContextManager[None]:
        widths = self._network.widths
        return worthwhile_threads(widths, self.net.batch_size) if widths else nullcontext()


class _Probabilities(nn.Module):
    """A module with what turns its outputs into probabilities."""

    def __init__(self, module: nn.Module, nonlinearity: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.module = module
        self.nonlinearity = nonlinearity

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.nonlinearity(self.module(X))


def probabilities_module(net: NeuralNetClassifier) -> nn.Module:
    """A module of its own, on the CPU, that computes what ``predict_proba`` of a net does."""
    module = copy.deepcopy(net.module_).cpu().eval()
    return _Probabilities(module, net._get_predict_nonlinearity()).eval()
