"""The skorch net behind MLPClassifier: batches without a DataLoader, the best epoch kept.

On 50 to 400 labelled rows a step of the network takes a few milliseconds, so that what
stands around it decides the speed: batches are slices of tensors, the optimiser is PyTorch's
fused one, and of skorch's callbacks only those run whose numbers are used.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from torch import nn

from .._compute import worthwhile_threads
from .._network import Theta0, module_from_theta0, theta0_from_module
from .batches import Rows, batches

__all__ = [
    "ROUTED_PREFIXES",
    "NetAttributes",
    "build_net",
    "check_skorch_params",
    "find_optimizer",
    "train",
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

# Parameters of skorch's that MLPClassifier hands on under the same name.
ROUTED_PREFIXES = (
    "callbacks__",
    "criterion__",
    "iterator_train__",
    "iterator_valid__",
    "optimizer__",
)

# Arguments of skorch's that are MLPClassifier's to set, and its own name for each.
_OWNED = {
    "batch_size": "batch_size",
    "callbacks": "callbacks",
    "classes": "y",
    "device": "device",
    "lr": "learning_rate_init",
    "max_epochs": "max_iter",
    "module": "hidden_layer_sizes",
    "module__theta0": "warm_start_from",
    "optimizer": "optimizer",
    "train_split": "validation_split",
    "verbose": "verbose",
}

# Rows of a batch where no gradient is needed: large, and still small beside the data.
_EVALUATION_BATCH = 4096


def _own_validation(dataset: Rows, y: Any = None, **params: Any) -> tuple[Rows, Rows | None]:
    """Skorch's ``train_split``: the split was made before, and travels with the rows."""
    return dataset, dataset.valid


class BestEpoch(Callback):
    """Keep the parameters of the epoch with the lowest validation loss, in memory.

    Attributes
    ----------
    epoch_ : int or None
        The best epoch, counted from 0.
    loss_ : float
        Its validation loss.
    """

    def on_train_begin(self, net: Any, **kwargs: Any) -> None:
        """Forget the run before."""
        self.epoch_: int | None = None
        self.loss_ = math.inf
        self._kept: list[torch.Tensor] = []

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Copy the parameters where they are the best so far."""
        loss = net.history[-1].get("valid_loss", math.nan)
        if not loss < self.loss_:
            return
        self.epoch_, self.loss_ = len(net.history) - 1, loss
        state = list(net.module_.state_dict().values())
        if not self._kept:
            self._kept = [torch.empty_like(tensor) for tensor in state]
        self._copy(self._kept, state)

    def on_train_end(self, net: Any, **kwargs: Any) -> None:
        """Put the best parameters back, and let go of the copy."""
        if self._kept:
            self._copy(list(net.module_.state_dict().values()), self._kept)
        self._kept = []

    @staticmethod
    def _copy(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source)


@contextmanager
def _private_randomness(seed: int, device: torch.device, needed: bool) -> Iterator[None]:
    """Seed PyTorch's global generators for a while, and leave them as they were.

    Our own draws come from generators of their own. Only what a caller brought, a callback
    or a DataLoader, can draw from the global ones; where there is nothing of the kind they
    are not touched at all, for saving and restoring them is not safe among threads.
    """
    if not needed:
        yield
        return
    index = device.index if device.index is not None else 0
    with torch.random.fork_rng(devices=[index] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


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


def check_skorch_params(params: Mapping[str, Any]) -> None:
    """Raise a ValueError if an argument for skorch is one that MLPClassifier sets itself."""
    if taken := sorted(params.keys() & _OWNED.keys()):
        raise ValueError(
            f"skorch_params may not hold {taken[0]!r}, which follows from MLPClassifier's "
            f"own {_OWNED[taken[0]]!r}"
        )


def build_net(
    theta0: Theta0,
    *,
    optimizer: Any,
    learning_rate_init: float,
    batch_size: int,
    max_iter: int,
    callbacks: Sequence[Any] | None,
    skorch_params: Mapping[str, Any] | None,
    device: torch.device,
    seed: int,
    verbose: int,
) -> NeuralNetClassifier:
    """A skorch net that starts at theta0 and trains on Rows; not yet fitted."""
    params = dict(skorch_params or {})
    optimizer_class = find_optimizer(optimizer)
    if (
        optimizer_class in _FUSED
        and device.type in _FUSED_DEVICES
        and not params.keys() & _FUSED_EXCLUDES
    ):
        params["optimizer__fused"] = True
    if "iterator_train" not in params:  # options of ours that another iterator does not know
        params.setdefault("iterator_train__seed", seed)
        params.setdefault("iterator_train__join_last", theta0.architecture.batch_norm)
    defaults = {
        "criterion": nn.CrossEntropyLoss,
        "iterator_train": batches,
        "iterator_train__shuffle": True,
        "iterator_valid": batches,
        "iterator_valid__batch_size": max(batch_size, _EVALUATION_BATCH),
        "callbacks__valid_acc": None,
    }
    if not verbose:
        defaults["callbacks__print_log"] = None
    return NeuralNetClassifier(
        module=module_from_theta0,
        module__theta0=theta0,
        optimizer=optimizer_class,
        lr=learning_rate_init,
        batch_size=batch_size,
        max_epochs=max_iter,
        train_split=_own_validation,
        classes=list(range(theta0.architecture.n_classes)),
        # Copies: skorch changes the callbacks it is given.
        callbacks=[("best_epoch", BestEpoch()), *copy.deepcopy(list(callbacks or []))],
        device=device,
        verbose=verbose,
        **{**defaults, **params},
    )


def train(net: NeuralNetClassifier, rows: Rows, *, seed: int, foreign: bool) -> None:
    """Fit a net on rows.

    Parameters
    ----------
    net : NeuralNetClassifier
        From :func:`build_net`.
    rows : Rows
        With the rows for validation, where there are any.
    seed : int
        Of PyTorch's global generators, as far as they are used.
    foreign : bool
        Whether the net holds anything that may draw from them.

    Raises
    ------
    ValueError
        If batch norm would meet a batch of one row, or the weights do not stay finite.
    """
    architecture = net.module__theta0.architecture
    if architecture.batch_norm and min(len(rows), net.batch_size) < 2:
        raise ValueError(
            "batch_norm=True needs at least 2 training rows a batch, got "
            f"{len(rows)} training rows and batch_size={net.batch_size}"
        )
    device = torch.device(net.device)
    with (
        _private_randomness(seed, device, needed=foreign),
        worthwhile_threads(architecture.widths, net.batch_size),
    ):
        net.fit(rows, None)
        finite = all(bool(parameter.isfinite().all()) for parameter in net.module_.parameters())
    if not finite:
        raise ValueError(
            "the weights are no longer finite after training; lower learning_rate_init="
            f"{net.lr!r} or standardise X"
        )


class NetAttributes:
    """What a fitted estimator tells of its ``net_``, always of the net's present state."""

    net_: NeuralNetClassifier
    best_validation_loss_: float | None

    @property
    def module_(self) -> nn.Module:
        """The network."""
        return self.net_.module_

    @property
    def history_(self) -> Any:
        """Skorch's record of each epoch."""
        return self.net_.history_

    @property
    def loss_curve_(self) -> list[float]:
        """Training loss an epoch."""
        return [epoch["train_loss"] for epoch in self.history_]

    @property
    def validation_loss_curve_(self) -> list[float] | None:
        """Validation loss an epoch, or None without validation."""
        if self.best_validation_loss_ is None:
            return None
        return [epoch["valid_loss"] for epoch in self.history_]

    @property
    def coefs_(self) -> list[np.ndarray]:
        """Weights, (n_in, n_out) a layer."""
        return theta0_from_module(self.net_.module_).coefs

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """Biases, (n_out,) a layer."""
        return theta0_from_module(self.net_.module_).intercepts
