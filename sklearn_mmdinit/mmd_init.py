"""mmd_init_: learn the initial weights of a PyTorch module in place."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ._base.environment import array_of, seeded_generators
from ._base.module_factory import uncompiled
from ._base.validation import add_error_context, check_argument, check_fits_in_memory
from .coherence import brings_edges, coherence_of
from .initializer import MMDInitializer
from .theta0 import put_arrays_

__all__ = ["mmd_init_"]

# Examples that are read at a time from a Dataset without a DataLoader.
_EXAMPLES_AT_A_TIME = 256


def mmd_init_(module: nn.Module, data: Any, **params: Any) -> list[dict[str, float]]:
    """Learn a module's initial weights from unlabelled data, in place.

    Like the functions of :mod:`torch.nn.init` it changes the module: its weights become those of
    ``MMDInitializer(module=module, **params).fit(data).to_module()``. Its mode, its hooks and
    ``requires_grad`` of its parameters do not change. After an error the module is unchanged.

    Parameters
    ----------
    module : nn.Module
        Returns logits (n, n_classes). Parameters that require no gradient do not change. Running
        statistics of normalisations become those of the data. A normalisation in evaluation mode
        does not change if the module itself is in training mode.
    data : array-like, Tensor, Dataset or DataLoader
        Unlabelled examples (n, ...). A Dataset or DataLoader gives tensors, or tuples whose first
        item is one. It is read once, in its order, into an array in memory. For more data pass a
        part of it, a NumPy memory map, or use :class:`MMDObjective` in a loop.
    **params : dict
        Parameters of :class:`MMDInitializer`, except those that describe a perceptron.

    Returns
    -------
    history : list of dict
        Means of the loss and its terms over each window that ended at "step".

    Raises
    ------
    TypeError
        If `module` is no instance of nn.Module, or the data give no tensors.
    ValueError
        If a parameter or the data are not valid, or the module cannot be perturbed.

    See Also
    --------
    MMDInitializer : Describes the parameters; it does not change the module.
    MMDObjective : The paper's terms, for training loops of one's own.

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
    initializer = MMDInitializer(module=module, **params)
    if isinstance(data, Dataset | DataLoader):
        initializer._check_params()  # errors come before a long reading
        if isinstance(data, DataLoader) and brings_edges(coherence_of(initializer.coherence)):
            raise ValueError(
                "coherence.graph is a matrix, whose rows must be in the order of the data, but a "
                "DataLoader may shuffle; pass its Dataset"
            )
        data = _read(data, initializer.random_state)
    initializer.fit(data)
    put_arrays_(uncompiled(module), initializer.theta0_.arrays)
    return initializer.history_


def _read(data: Any, random_state: Any) -> np.ndarray:
    """All examples of a Dataset or a DataLoader, as one array."""
    loader = data if isinstance(data, DataLoader) else DataLoader(data, _EXAMPLES_AT_A_TIME)
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    parts: list[np.ndarray] = []
    # A DataLoader shuffles by PyTorch's global generator: it is seeded here and then restored.
    with seeded_generators(seed), add_error_context(f"data={type(data).__name__} cannot be read"):
        for item in loader:
            examples = item[0] if isinstance(item, tuple | list) and item else item
            if not isinstance(examples, torch.Tensor):
                kind = type(examples).__name__
                raise TypeError(
                    f"data must give tensors, or tuples whose first item is a tensor, got {kind}"
                )
            if not parts:
                with suppress(TypeError):  # a loader without a length
                    n_numbers = len(loader) * examples.numel()
                    check_fits_in_memory(n_numbers, f"data of {len(loader)} mini-batches")
            examples = examples.float() if examples.is_floating_point() else examples
            parts.append(np.asarray(array_of(examples)))
        return np.concatenate(parts)
