"""mmd_init_: learn the initial weights of a PyTorch module where they are."""

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

# Of a Dataset that is read without a DataLoader of the user's.
_EXAMPLES_AT_A_TIME = 256


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
        begin with one, and is read once, in its order, into an array. Of more than memory holds a
        part will do, or a NumPy memory map.
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
    check_argument("module", module, nn.Module)
    initializer = MMDInitializer(module=module, **params)
    if isinstance(data, Dataset | DataLoader):
        initializer._check_params()  # what is wrong is told before a long reading
        if isinstance(data, DataLoader) and brings_edges(coherence_of(initializer.coherence)):
            hint = "and a DataLoader may have another: pass its Dataset"
            raise ValueError(f"a graph has its order of rows, {hint}")
        data = _read(data, initializer.random_state)
    initializer.fit(data)
    put_arrays_(uncompiled(module), initializer.theta0_.arrays)
    return initializer.history_


def _read(data: Any, random_state: Any) -> np.ndarray:
    """All examples that a Dataset or a DataLoader hands out, as one array."""
    loader = data if isinstance(data, DataLoader) else DataLoader(data, _EXAMPLES_AT_A_TIME)
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    parts: list[np.ndarray] = []
    # What it draws: from the seed, and with no trace in the global generator.
    with seeded_generators(seed), add_error_context(f"{type(data).__name__} cannot be read"):
        for item in loader:
            examples = item[0] if isinstance(item, tuple | list) and item else item
            check_argument("what it hands out, or the first part of that,", examples, torch.Tensor)
            if not parts:
                with suppress(TypeError):  # nobody knows how many there are
                    check_fits_in_memory(
                        len(loader) * examples.numel(), f"{len(loader)} mini-batches"
                    )
            own = examples.float() if examples.is_floating_point() else examples
            parts.append(np.asarray(array_of(own)))
        return np.concatenate(parts)
