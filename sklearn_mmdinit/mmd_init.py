"""mmd_init_: learn the initial weights of a PyTorch module in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ._base.environment import torch_device
from ._base.module_factory import uncompiled
from ._base.random_streams import seeds_of
from ._base.validation import check_argument, check_fits_in_memory, inside_another, warn_user
from .coherence import (
    Coherence,
    brings_edges,
    choices_of_neighbors,
    coherence_of,
    has_graph,
)
from .initializer import MMDInitializer
from .theta0 import put_arrays_
from .training.streams import UNKNOWN, LoaderEpochs, rows_of

__all__ = ["mmd_init_"]

# Size of a mini-batch of a Dataset without a DataLoader. With a coherence its `batch_size` is used
# instead.
_EXAMPLES_AT_A_TIME = 256
_MUCH_MEMORY = 2**30  # bytes of examples; reading more gives a warning


def mmd_init_(module: nn.Module, data: Any, **params: Any) -> list[dict[str, float]]:
    """Learn a module's initial weights from unlabelled data, in place.

    Like the functions of :mod:`torch.nn.init` it changes the module: its weights become those of
    ``MMDInitializer(module=module, **params).fit(data).to_module()``. Its mode, its hooks and
    ``requires_grad`` of its parameters do not change. After an error or an interrupt (Ctrl-C) the
    module is unchanged, and with a ``checkpoint`` the same call goes on.

    The module holds the result, and the function returns the history: keep the weights by
    ``torch.save(module.state_dict(), path)``, or train the module on.

    Parameters
    ----------
    module : nn.Module
        Returns logits (n, n_classes). Parameters that require no gradient do not change. Running
        statistics of normalizations become those of the data. To freeze them, put the layer in
        evaluation mode and leave the module in training mode: ``module.eval()`` does not freeze
        them. A module on a GPU is trained there.
    data : array-like, Tensor, Dataset or DataLoader
        Unlabelled examples (n, ...). A Dataset or DataLoader gives tensors, or tuples whose first
        item is one.

        - Without a coherence, a DataLoader or IterableDataset is streamed: each epoch is a pass
          over it, and no row is kept.
        - With a coherence, it is streamed if it gives two views of each example, or if
          ``coherence.n_neighbors`` is 0. The two views, or an example twice, are the positive pair.
        - With another coherence and one view of each example, one pass is read into an array in
          memory, because positive pairs then come from a graph of all examples. The pass must end.
          Random augmentations of the loader are drawn only once.
        - Any other Dataset is read once, in its order, into an array in memory.
    **params : dict
        Parameters of :class:`MMDInitializer`, except those that describe a perceptron.

    Returns
    -------
    history : list of dict
        Means of the loss and its terms over each window that ended at "step". The last window may
        have fewer steps.

    Raises
    ------
    TypeError
        If `module` is no instance of nn.Module, or the data give no tensors.
    ValueError
        If a parameter or the data are not valid, the module cannot be perturbed, or a block of
        autocast has float16.

    See Also
    --------
    MMDInitializer : Describes the parameters; it does not change the module.
    MMDObjective : The paper's terms, for training loops of one's own.

    Notes
    -----
    A stream gives ``(a, b)``, or ``((a, b), labels)``, where a and b are two views: tensors of the
    same type and of one shape (n, ...) with at least two axes. In ``(x, labels)`` the labels must
    have another shape or type than x, or they are taken for a view. Without a coherence only the
    first view is used; with one, only the first two. A warning tells of views that are not used.

    With a coherence a mini-batch is what the loader gives: smaller ones than the first are left
    out, and larger ones are split. The estimate of coherence is unbiased for two examples or more.
    ``coherence.batch_size`` is used only for an IterableDataset without a DataLoader. The paper's
    terms take the first examples of each mini-batch, ``batch_size`` of them. Without a coherence,
    each mini-batch of the loader is divided into mini-batches of ``batch_size``. Incomplete ones
    are left out. Let the loader shuffle, so that each epoch leaves out other examples.

    The loader decides order, shuffling, workers and augmentation. While it is read, the global
    generators of PyTorch, Python and NumPy, and the loader's own, are seeded from `random_state`;
    afterwards they are as before. Two calls with one seed then learn the same weights, unless
    ``persistent_workers=True`` keeps the random state of workers.

    In ``with torch.autocast(device, torch.bfloat16):`` the module computes in bfloat16. It must
    name the device of training: a block for another one has no effect. Losses and weights stay in
    float32. TF32, the settings of cuDNN and the memory format of the module stay as they are.
    ``MMDInitializer.fit`` always computes in float32.

    The module is inspected on the first 2,048 examples, or on fewer if they are large. The scale
    of the data is measured on them too. With a coherence, ``max_iter="auto"`` also works for a
    loader without a length: training takes 3,000 steps. Other values of ``max_iter`` count epochs,
    so each pass must end. With ``max_iter=1`` and no length the learning rate does not fall.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit import mmd_init_
    >>> X = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> net = torch.nn.Sequential(
    ...     torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
    ... )
    >>> history = mmd_init_(net, X, n_perturbations=8, max_iter=2, random_state=0)
    >>> sorted(history[0])
    ['degeneracy', 'detachment', 'loss', 'step', 'uniformity']
    """
    check_argument("module", module, nn.Module)
    device = next((parameter.device for parameter in module.parameters()), None)
    if device is not None and device.type not in ("cpu", "meta"):
        params = {"device": str(device)} | params
    initializer = MMDInitializer(module=module, **params)
    if isinstance(data, Iterator):
        raise TypeError(
            f"data must not be an iterator, which ends after one pass, got {type(data).__name__}; "
            "pass a DataLoader, or an IterableDataset whose __iter__ is a generator function"
        )
    if isinstance(data, tuple | Mapping):
        raise TypeError(
            f"data must be examples without labels, got a {type(data).__name__} of {len(data)}; "
            "pass the item that holds the examples"
        )
    initializer._check_params()  # errors come before a long reading
    kind, autocast = torch_device(initializer.device).type, None
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        autocast = torch.get_autocast_dtype(kind)
    if autocast == torch.float16:
        raise ValueError(
            "mmd_init_ is in a block of torch.autocast with float16, in which small gradients "
            f"become 0; write torch.autocast({kind!r}, torch.bfloat16)"
        )
    rows, epochs = data, None
    with inside_another():  # after an interrupt the module must not have half-trained weights
        if isinstance(data, Dataset | DataLoader):
            rows, epochs = _read_or_streamed(data, initializer)
        initializer._fit(rows, epochs=epochs, autocast=autocast)
    put_arrays_(uncompiled(module), initializer.theta0_.arrays)
    torch.clear_autocast_cache()  # a caller's block may keep the weights from before
    return initializer.history_


def _read_or_streamed(
    data: Dataset[Any] | DataLoader[Any], initializer: MMDInitializer
) -> tuple[np.ndarray, LoaderEpochs | None]:
    """All rows of the data; or the first rows of a stream and its epochs. Sets batch sizes."""
    name, coherence = type(data).__name__, coherence_of(initializer.coherence)
    is_loader = isinstance(data, DataLoader)
    size = coherence.batch_size if coherence else _EXAMPLES_AT_A_TIME
    loader = data if isinstance(data, DataLoader) else DataLoader(data, size)
    (seed,) = seeds_of(initializer.random_state, 1)
    if is_loader and brings_edges(coherence):
        raise ValueError(
            "coherence.graph is a matrix, whose rows must be in the order of the data, but a "
            "DataLoader may shuffle; pass its Dataset"
        )
    epochs = LoaderEpochs(loader, name, seed, pairs_wanted=coherence is not None)
    is_stream = is_loader or isinstance(data, IterableDataset)
    for_graph = coherence is not None and not epochs.has_pairs and has_graph(coherence)
    if for_graph or not (is_stream or epochs.has_pairs):
        return _read(epochs, coherence), None
    if not is_stream:
        raise ValueError(
            f"data={name} gives two views of each example, and only a DataLoader says in which "
            f"order to read them; pass DataLoader(data, {size}, shuffle=True), or a Dataset that "
            "gives one view of each example"
        )
    if epochs.size < 2:
        raise ValueError(
            f"data={name} gives mini-batches of one example, and a step needs several: pass a "
            f"DataLoader with batch_size={size}"
        )
    initializer.batch_size = min(initializer.batch_size, epochs.size)
    if coherence is not None:
        initializer.coherence = _copy_for_given_pairs(coherence).set_params(batch_size=epochs.size)
        if coherence.augmentation is None and epochs.views_are_equal():
            warn_user(
                f"data={name} gives two equal views of each example in the first mini-batch, and "
                "coherence learns from what differs; let the loader draw an augmentation for each "
                "view, as in `return augment(x), augment(x)`, or pass "
                "coherence=Coherence(augmentation=augment)"
            )
    return epochs.first_rows(), epochs


def _copy_for_given_pairs(coherence: Coherence) -> Coherence:
    """A copy; a ValueError if a graph or an embedding of the coherence would choose the pairs."""
    for name, value in choices_of_neighbors(coherence).items():
        raise ValueError(
            f"coherence.{name}={value!r} chooses positive pairs, but data gives two views of each "
            f"example, which are the pairs: leave {name} out, or give one view"
        )
    copied: Coherence = clone(coherence)
    return copied


def _read(epochs: LoaderEpochs, coherence: Coherence | None) -> np.ndarray:
    """All examples of a pass, as one array."""
    if (n_rows := epochs.n_rows) < UNKNOWN:
        n_numbers = n_rows * epochs.first_rows()[0].size
        check_fits_in_memory(n_numbers, f"data of {n_rows:,} examples")
    parts, n_bytes = [], 0
    for examples, *_ in epochs.of(0):
        parts.append(rows_of(examples))
        before, n_bytes = n_bytes, n_bytes + parts[-1].nbytes
        if before < _MUCH_MEMORY <= n_bytes:
            hint = ""
            if coherence is None or not has_graph(coherence):
                hint = "; pass a DataLoader, which is streamed"
            elif not choices_of_neighbors(coherence):
                hint = "; a DataLoader is streamed if it gives two views (a, b) of each example, "
                hint += "or with Coherence(n_neighbors=0, augmentation=...)"
            warn_user(
                f"data={epochs.name} is read into memory, {_MUCH_MEMORY / 2**30:g} GiB so far{hint}"
            )
    if coherence is not None and epochs.examples_change():
        instead = "give examples without augmentation, and pass it as Coherence(augmentation=...)"
        if not has_graph(coherence):
            instead = "pass a DataLoader, which reads the examples in each epoch"
        warn_user(
            f"data={epochs.name} draws an augmentation, but gives one view of each example: with "
            "coherence each example is read once, so that its augmentation is drawn once; "
            f"{instead}"
        )
    return np.concatenate(parts)
