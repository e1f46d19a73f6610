"""The skorch net behind a classifier: its examples, mini-batches and training.

On 50 to 400 labelled examples a step takes a few milliseconds, so the code around it decides the
speed. One index operation reads a whole mini-batch. The optimizer is PyTorch's fused one. Callbacks
of skorch whose results nobody uses are switched off.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from skorch import NeuralNet, NeuralNetClassifier
from skorch.callbacks import EarlyStopping
from skorch.utils import noop, to_tensor
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader, Dataset, Sampler

from .._base.environment import learned_is_finite
from .._base.mlp import MLP
from .._base.module_factory import uncompiled
from .._base.threads import worthwhile_threads
from .._base.validation import add_error_context, is_auto
from ..networks.passes import dense_gradients_

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
# Fused optimizers read each parameter once a step. Others read it about ten times.
_FUSED = {torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD}
_FUSED_EXCLUDES = {"optimizer__fused", "optimizer__foreach", "optimizer__differentiable"}

# Parameters of skorch that a classifier sets itself, or has under the same name.
_SET_HERE = {
    *("args", "kwargs", "module", "optimizer", "batch_size", "device", "dataset", "lr"),
    *("max_epochs", "train_split", "classes", "warm_start", "callbacks__best_epoch"),
}
_SKORCH_NAMES = {
    name
    for net_class in (NeuralNet, NeuralNetClassifier)
    for name in inspect.signature(net_class).parameters
}
_SKORCH_PARTS = {"callbacks", "criterion", "iterator_train", "iterator_valid", "optimizer"}

# Limits of a batch without gradients: examples, and numbers in them (16 MiB of float32).
_EVALUATION_ROWS = 4096
_EVALUATION_NUMBERS = 1 << 22

_SMALLEST_FLOAT32 = torch.finfo(torch.float32).tiny

# Keys of a batch's X if examples have weights.
_INPUTS, _WEIGHTS = "X", "sample_weight"


def is_skorch_param(name: str) -> bool:
    """Whether a classifier passes this parameter to skorch under the same name."""
    part, nested, _ = name.partition("__")
    is_known = name in _SKORCH_NAMES or (nested and part in _SKORCH_PARTS)
    return bool(is_known) and name not in _SET_HERE


# Examples and mini-batches


class Rows(Dataset[tuple[Any, torch.Tensor]]):
    """Examples X (n, ...), dense or CSR, their classes y and weights, and a validation set.

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
            # Scaled to mean 1, they fit float32, and the mean of weights * losses over all examples
            # is the weighted mean.
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
    """Sparse examples as a dense tensor; an integer gives one without the axis of examples."""
    if isinstance(index, int | np.integer):
        return _dense(X, [index])[0]
    return torch.from_numpy(X[np.asarray(index) if torch.is_tensor(index) else index].toarray())


def _inputs_and_weights(X: Any) -> tuple[Any, Any]:
    """The inputs of a batch, and the weights of its examples or None."""
    if isinstance(X, Mapping) and X.keys() == {_INPUTS, _WEIGHTS}:
        return X[_INPUTS], X[_WEIGHTS]
    return X, None


class _Batches(Sampler[torch.Tensor]):
    """Numbers of the examples of each mini-batch; a generator draws a new order each epoch."""

    def __init__(
        self, n_rows: int, batch_size: int, generator: torch.Generator | None, drop_last: bool
    ) -> None:
        self.n_rows, self.batch_size, self.generator = n_rows, batch_size, generator
        self.n_used = n_rows - n_rows % batch_size if drop_last else n_rows

    def __len__(self) -> int:
        return -(-self.n_used // self.batch_size)

    def __iter__(self) -> Iterator[torch.Tensor]:
        # Draws only when the first batch is asked for: DataLoader with workers makes two iterators.
        order = torch.arange(self.n_rows, device="cpu")
        if self.generator is not None:
            order = torch.randperm(self.n_rows, generator=self.generator, device="cpu")
        if self.n_used:
            yield from order[: self.n_used].split(self.batch_size)


class RowLoader(DataLoader[Any]):
    """A DataLoader of Rows that takes each mini-batch by one index operation.

    `generator` draws the order of examples if `shuffle` is set.
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        shuffle: bool = False,
        drop_last: bool = False,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        batches = _Batches(len(rows), batch_size, generator if shuffle else None, drop_last)
        # A separate generator draws the seed of workers, so that no other generator changes.
        options["generator"] = torch.Generator("cpu")
        super().__init__(rows, sampler=batches, batch_size=None, **options)

    def __iter__(self) -> Any:
        # PyTorch draws the seed of workers on its default device, which must be the generator's.
        with torch.device("cpu"):
            return super().__iter__()


# The net


def _softmax(logits: torch.Tensor) -> torch.Tensor:
    """Probabilities in float32; a function, because skops cannot load a partial with a dtype."""
    return logits.float().softmax(dim=-1)


class _Stop(BaseException):
    """Replaces the KeyboardInterrupt by which a skorch callback ends training."""


def _use_own_validation(dataset: Rows, y: Any = None, **params: Any) -> tuple[Rows, Rows | None]:
    """Skorch's ``train_split``: the examples bring their validation set along."""
    return dataset, dataset.valid


class Net(NeuralNetClassifier):
    """A skorch net whose examples may have weights in the loss."""

    def notify(self, method_name: str, **kwargs: Any) -> None:
        """Call the callbacks. If one ends training, this must not look like Ctrl-C."""
        try:
            super().notify(method_name, **kwargs)
        except KeyboardInterrupt as error:
            raise _Stop from error

    def infer(self, x: Any, **fit_params: Any) -> Any:
        """Logits of a batch, with or without weights of examples; the first part of a tuple."""
        outputs = super().infer(_inputs_and_weights(x)[0], **fit_params)
        return outputs[0] if isinstance(outputs, tuple) else outputs

    def get_loss(
        self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False, **kwargs: Any
    ) -> torch.Tensor:
        """The loss of a batch: the weighted mean over its examples if they have weights."""
        weights = _inputs_and_weights(X)[1]
        if weights is None:
            loss: torch.Tensor = super().get_loss(y_pred, y_true, X, training, **kwargs)
            return loss
        criterion, losses = self.criterion_, torch.empty(())
        reduction = getattr(criterion, "reduction", None)
        if reduction == "mean" and getattr(criterion, "weight", None) is None:
            criterion.reduction = "none"
            try:
                losses = super().get_loss(y_pred, y_true, X, training, **kwargs)
            finally:
                criterion.reduction = "mean"
        if losses.shape != y_true.shape[:1]:
            raise ValueError(
                "sample_weight and class_weight need a criterion with reduction='mean' and without "
                f"class weights of its own, got {criterion} with {reduction=}; leave reduction at "
                "'mean', and write class_weight in place of criterion__weight"
            )
        weights = to_tensor(weights, device=self.device)
        # Weights have mean 1 over all batches. So skorch's mean over batches, weighted by their
        # numbers of examples, is the weighted mean over all examples.
        if not training:
            return (weights * losses).mean()
        # Weights of a batch may all be 0 in float32. The clamp avoids 0 / 0.
        return (weights * losses).sum() / weights.sum().clamp(min=_SMALLEST_FLOAT32)


def build_net(
    make_module: Callable[[], nn.Module],
    rows: Rows,
    skorch_params: Mapping[str, Any],
    *,
    optimizer: type[torch.optim.Optimizer],
    batch_size: int,
    device: torch.device,
    seed: int,
    **params: Any,
) -> Net:
    """An initialized net for these examples; `seed` draws their order.

    The caller's `skorch_params` replace ``defaults``, and `params` replace both.
    """
    given = {name: value for name, value in skorch_params.items() if not is_auto(value)}
    n_rows = min(_EVALUATION_ROWS, _EVALUATION_NUMBERS // max(math.prod(rows.X.shape[1:]), 1))
    defaults: dict[str, Any] = {
        "verbose": 0,
        "criterion": nn.CrossEntropyLoss,
        # The softmax, whatever the criterion is, because modules return logits.
        "predict_nonlinearity": _softmax,
        "iterator_train": RowLoader,
        "iterator_train__shuffle": True,
        "iterator_valid": RowLoader,
        "iterator_valid__batch_size": max(batch_size, n_rows),
        "callbacks__valid_acc": None,
    }
    if "iterator_train" not in given:  # another iterator may not take it
        defaults["iterator_train__generator"] = torch.Generator("cpu").manual_seed(seed)
    if not given.get("verbose"):
        defaults["callbacks__print_log"] = None
    can_fuse = optimizer in _FUSED and device.type in ("cpu", "cuda")
    if can_fuse and not given.keys() & _FUSED_EXCLUDES:
        defaults["optimizer__fused"] = True
    # Copies, because skorch changes the callbacks that it gets.
    callbacks = copy.deepcopy(list(given.pop("callbacks", None) or []))
    if rows.valid is not None:
        best_epoch = EarlyStopping(patience=math.inf, threshold=0, sink=noop, load_best=True)
        callbacks.insert(0, ("best_epoch", best_epoch))
    fixed = {
        "callbacks": callbacks,
        "dataset": Rows,
        "train_split": _use_own_validation,
        "optimizer": optimizer,
        "batch_size": batch_size,
        "device": device,
        **params,
    }
    net = Net(make_module, **(defaults | given | fixed))
    parts = f"criterion={net.criterion!r}, optimizer={optimizer!r} or callbacks"
    with add_error_context(parts):
        net.initialize()
    normalizes = any(isinstance(part, _BatchNorm) for part in net.module_.modules())
    if normalizes and len(rows) > batch_size and len(rows) % batch_size == 1:
        # Batch normalization cannot train on a single last example.
        net.iterator_train__drop_last = True
    dense_gradients_(net.module_)
    return net


def train(net: Net, rows: Rows, n_epochs: int) -> None:
    """Train a net on these examples; raise a ValueError if it diverges."""
    # The largest product of an MLP decides; any other module gets PyTorch's number of threads.
    module, n_multiplications = uncompiled(net.module_), math.inf
    if isinstance(module, MLP):
        n_multiplications = net.batch_size * max(p.numel() for p in module.parameters())
    with worthwhile_threads(n_multiplications), suppress(_Stop):
        # Not net.partial_fit, which would treat Ctrl-C as a callback that ends training.
        net.notify("on_train_begin", X=rows, y=None)
        with suppress(_Stop):
            net.fit_loop(rows, None, epochs=n_epochs)
        net.notify("on_train_end", X=rows, y=None)
    for epoch in net.history_:
        epoch["batches"].clear()  # nothing reads them, and they grow with the examples
    if not learned_is_finite(net.module_):
        hint = f"try a learning_rate_init below {net.lr!r}, or standardize X"
        raise ValueError(f"the weights are no longer finite after training; {hint}")
