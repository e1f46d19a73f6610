"""mmd_init_: learn the initial weights of a PyTorch module where they are."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler

from ._core.batches import examples_of, handed_out
from ._core.estimators import check_kind, told
from ._core.numbers import seeded_generators
from ._core.source import uncompiled
from .coherence import brings_edges, coherence_of
from .initializers import MMDInitializer
from .theta0 import put_arrays_

__all__ = ["mmd_init_"]


def mmd_init_(module: nn.Module, data: Any, **params: Any) -> list[dict[str, float]]:
    """Learn a module's initial weights from unlabelled data, in place.

    In the manner of :mod:`torch.nn.init`: afterwards the module is what
    ``MMDInitializer(module=module, **params).fit(data).to_module()`` would be. Its mode, what
    requires a gradient, and its hooks are as before; after an error it is unchanged.

    Parameters
    ----------
    module : nn.Module
        Returns logits (n, n_classes). Parameters that require no gradient stay, and running
        statistics of normalisation become those of the data, but where a normalisation is in
        evaluation mode in a module that is not: those are frozen.
    data : array-like, Tensor, Dataset or DataLoader
        Unlabelled examples (n, ...). A Dataset or DataLoader hands out tensors, or tuples that
        begin with one, and is read a mini-batch at a time; with ``coherence``, which looks for
        neighbours among all, it is read once and kept. A DataLoader has its own ``batch_size`` and
        order; its mini-batches that are smaller than the first one are left out.
    **params : dict
        Parameters of :class:`MMDInitializer`, but those that describe a perceptron.

    Returns
    -------
    history : list of dict
        Means of the loss and its terms over each window that ended at "step".

    Raises
    ------
    TypeError
        If `module` is no instance of nn.Module, or data hand out no tensors.
    ValueError
        If a parameter or the data are not valid, or the module cannot be perturbed.

    See Also
    --------
    MMDInitializer : Its parameters, and the same without a change to the module.

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
    check_kind("module", module, nn.Module)
    initializer = MMDInitializer(module=module, **params)
    if isinstance(data, Dataset | DataLoader):
        _fit_stream(initializer, data, "batch_size" in params)
    else:
        initializer.fit(data)
    put_arrays_(uncompiled(module), initializer.theta0_.arrays)
    return initializer.history_


def _fit_stream(initializer: MMDInitializer, data: Any, own_batch_size: bool) -> None:
    """Fit on what a Dataset or DataLoader hands out."""
    initializer._check_params()
    coherence = coherence_of(initializer.coherence)
    seed = int(check_random_state(initializer.random_state).randint(np.iinfo(np.int32).max))
    # Orders and whatever else a Dataset draws: from the seed, and no trace in the global generator.
    with seeded_generators(seed):
        if isinstance(data, Dataset):
            loader = _loader_of(data, int(initializer.batch_size), shuffle=coherence is None)
        elif own_batch_size and coherence is None:
            raise ValueError("batch_size is the DataLoader's own here; leave it out")
        else:
            loader = data
        if coherence is not None and brings_edges(coherence) and not _in_order(loader):
            hint = "use shuffle=False and no sampler, or pass the Dataset"
            raise ValueError(
                f"a graph has its order of rows, and the sampler may have another: {hint}"
            )
        items = handed_out(loader)
        first = next(items, None)
        if first is None:
            raise ValueError(f"{type(data).__name__} hands out no examples")
        items = chain([first], items)
        if coherence is None:
            initializer._fit_loader(loader, items, examples_of(first))
            return
        # The graph needs all of them.
        parts = [examples_of(item) for item in items]
        with told(f"{type(data).__name__} cannot be read"):
            rows = _put_together(parts)
        initializer.fit(rows)


def _loader_of(dataset: Dataset[Any], batch_size: int, shuffle: bool) -> DataLoader[Any]:
    if not shuffle or isinstance(dataset, IterableDataset):
        return DataLoader(dataset, batch_size)
    with told(f"{type(dataset).__name__} cannot be read"):
        n_rows = len(dataset)  # type: ignore[arg-type]
    return DataLoader(dataset, batch_size, shuffle=n_rows > 0)


def _put_together(parts: list[np.ndarray]) -> np.ndarray:
    """Mini-batches as one array."""
    first = parts[0]
    if other := {part.shape[1:] for part in parts} - {first.shape[1:]}:
        found = f"of shape {min(other)}, and of shape {first.shape[1:]} before"
        raise ValueError(f"it hands out examples {found}")
    return np.concatenate(parts)


def _in_order(loader: DataLoader[Any]) -> bool:
    """Whether it is known to hand out the rows of its Dataset in their order."""
    if isinstance(loader.dataset, IterableDataset):
        return True  # it has the one order it comes in
    chosen = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    return isinstance(getattr(chosen, "sampler", chosen), SequentialSampler)
