"""mmd_init_: pre-train a PyTorch module in place."""

from __future__ import annotations

from operator import length_hint
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ._base.environment import torch_device
from ._base.module_factory import uncompiled
from ._base.random_streams import seeds_of
from ._base.validation import check_argument, integers, is_auto, warn_user
from .coherence import Coherence, brings_edges, check_choice_of_pairs, coherence_of, has_graph
from .initializer import MMDInitializer
from .theta0 import put_arrays_
from .training.streams import LoaderEpochs, rows_of

__all__ = ["mmd_init_"]

# Size of a mini-batch of a Dataset without a DataLoader. With a coherence its `batch_size` is used
# instead.
_EXAMPLES_AT_A_TIME = 256


def mmd_init_(
    module: nn.Module, data: Any, *, views: int = 1, **params: Any
) -> list[dict[str, float]]:
    """Pre-train a module on unlabelled data, in place.

    Like the functions of :mod:`torch.nn.init` it changes the module: its weights become those of
    ``MMDInitializer(module=module, **params).fit(data).to_module()``. Its mode, its hooks and
    ``requires_grad`` of its parameters do not change. After an error or an interrupt (Ctrl-C) the
    module is unchanged, and with a ``checkpoint`` the same call continues the training.

    The module holds the result, and the function returns the history: save the weights with
    ``torch.save(module.state_dict(), path)``, or go on training the module.

    Parameters
    ----------
    module : nn.Module
        Returns logits (n, n_classes). Parameters that require no gradient do not change. Running
        statistics of normalizations become those of the data. To freeze those of a layer, put that
        layer alone in evaluation mode; ``module.eval()`` does not freeze any. A module on a GPU
        is trained there.
    data : array-like, Tensor, Dataset or DataLoader
        Unlabelled examples (n, ...). A DataLoader gives x or (x, ...), where x is a tensor of
        examples; what follows, such as labels, is not used.

        - Without a coherence, a DataLoader or IterableDataset is streamed: each epoch is a pass
          over it, and no example is kept.
        - With a coherence, it is streamed if `views` is 2 or ``coherence.n_neighbors`` is 0. A
          positive pair is the two views, or one example augmented twice.
        - With a coherence that needs a graph, one pass is read into an array in memory, because the
          graph is built on all examples. Random augmentations of the loader are drawn only once:
          pass them as ``Coherence(augmentation=...)``.
        - Any other Dataset is read once, in its order, into an array in memory.
    views : {1, 2}, default=1
        2: the DataLoader gives (a, b, ...) or ((a, b), ...), where a and b are tensors of one shape
        and type, two views of each example. These are the positive pairs of the coherence.
    **params : dict
        Parameters of :class:`MMDInitializer`, except those that describe an MLP.

    Returns
    -------
    history : list of dict
        As ``MMDInitializer.history_``: means of the loss and its terms, in a dict for each epoch
        or, where epochs are longer, for each 50 or 100 steps.

    Raises
    ------
    TypeError
        If `module` is no instance of nn.Module, or the data give no tensors.
    ValueError
        If a parameter or the data are not valid, the module cannot be perturbed, or the call is
        inside ``torch.autocast`` with float16.
    OSError
        If the checkpoint cannot be written.
    RuntimeError
        If the module was made in inference mode.

    See Also
    --------
    MMDInitializer : Describes the parameters; it does not change the module.
    MMDObjective, sklearn_mmdinit.losses.coherence : The losses, for training loops of your own.

    Notes
    -----
    The module and the scale of the data are inspected on the first 2,048 examples at most.

    With a coherence, a step takes a whole mini-batch of a streamed loader. Mini-batches with fewer
    examples than the first ones are skipped. ``coherence.batch_size`` is used only for an
    IterableDataset without a DataLoader. The paper's terms use the first ``batch_size`` examples of
    each mini-batch. Without a coherence, each mini-batch is split into mini-batches of
    ``batch_size``, and incomplete ones are skipped. Let the loader shuffle, so that each epoch
    skips other examples.

    The loader decides order, shuffling, workers and augmentation. While it is read, the global
    generators of PyTorch, Python and NumPy, and the loader's own, are seeded from `random_state`;
    afterwards they are as before. Two calls with one seed then learn the same weights, unless
    ``persistent_workers=True`` keeps the random state of workers.

    In ``with torch.autocast(device, torch.bfloat16):`` the module computes in bfloat16. The block
    must name the device of training; for another device it has no effect. Losses and weights stay
    in float32. TF32, the settings of cuDNN and the memory format of the module stay as they are.
    ``MMDInitializer.fit`` always computes in float32.

    Under ``torchrun`` each process trains alone: gradients are not averaged over ranks. Call it in
    one process beforehand and load its weights, or write a loop with
    :class:`~sklearn_mmdinit.losses.CoherenceLoss`.

    A loader without a length may never end. It works only with a coherence that needs no graph and
    ``max_iter="auto"``: training then takes up to 3,000 steps. In all other cases the dataset needs
    a ``__len__``, and an epoch has that many examples.

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
    check_argument("views", views, integers(1, 2))
    if dist.is_available() and dist.is_initialized() and dist.get_rank():
        warn_user(
            f"rank {dist.get_rank()} trains alone: mmd_init_ does not average gradients of ranks; "
            "call it in one process and load its weights, or write a loop with CoherenceLoss"
        )
    device = next((parameter.device for parameter in module.parameters()), None)
    if device is not None and device.type not in ("cpu", "meta"):
        params = {"device": str(device)} | params
    initializer = MMDInitializer(module=module, **params)
    is_dataset = isinstance(data, Dataset | DataLoader)
    if not (is_dataset or isinstance(data, list | torch.Tensor) or hasattr(data, "shape")):
        raise TypeError(
            "data must be examples in one array or tensor, a Dataset or a DataLoader, got a "
            f"{type(data).__name__}; wrap a loader of another kind in an IterableDataset, and pass "
            "DataLoader(dataset, batch_size=None)"
        )
    initializer._check_params()  # errors come before a long reading
    kind, autocast = torch_device(initializer.device).type, None
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        autocast = torch.get_autocast_dtype(kind)
    if autocast == torch.float16:
        write = f"write torch.autocast({kind!r}, torch.bfloat16)"
        raise ValueError(f"in torch.autocast with float16 small gradients become 0; {write}")
    _check_views(data, views, coherence_of(initializer.coherence))
    rows, epochs = _read_or_streamed(data, views, initializer) if is_dataset else (data, None)
    initializer._fit(rows, epochs=epochs, autocast=autocast)
    put_arrays_(uncompiled(module), initializer.theta0_.arrays)
    torch.clear_autocast_cache()  # a caller's block may keep the weights from before
    return initializer.history_


def _check_views(data: Any, views: int, coherence: Coherence | None) -> None:
    """Raise a ValueError if the data do not fit views or graph, or if two things make pairs."""
    if isinstance(data, DataLoader) and brings_edges(coherence):
        raise ValueError(
            "coherence.graph is a matrix, whose rows must be in the order of the data, but a "
            "DataLoader may shuffle; pass its Dataset"
        )
    if views == 1:
        return
    if coherence is None or not isinstance(data, DataLoader | IterableDataset):
        raise ValueError(
            "views=2 needs a coherence and a DataLoader that gives two views (a, b, ...) of each "
            f"example, got coherence={coherence} and a {type(data).__name__}; pass "
            "coherence='auto' and DataLoader(dataset, 256, shuffle=True)"
        )
    check_choice_of_pairs(coherence, by_rows=True)


def _read_or_streamed(
    data: Dataset[Any] | DataLoader[Any], views: int, initializer: MMDInitializer
) -> tuple[np.ndarray, LoaderEpochs | None]:
    """All rows of the data; or the first rows of a stream and its epochs."""
    coherence = coherence_of(initializer.coherence)
    size = coherence.batch_size if coherence else _EXAMPLES_AT_A_TIME
    loader = data if isinstance(data, DataLoader) else DataLoader(data, size)
    (seed,) = seeds_of(initializer.random_state, 1)
    for_graph = coherence is not None and views == 1 and has_graph(coherence)
    must_end = for_graph or coherence is None
    if (must_end or not is_auto(initializer.max_iter)) and length_hint(loader, -1) < 0:
        remedy = "let its dataset or sampler define __len__" + ", or omit max_iter" * (not must_end)
        raise ValueError(f"data={type(data).__name__} has no length and may never end; {remedy}")
    epochs = LoaderEpochs(loader, type(data).__name__, seed, views)
    if for_graph or not isinstance(data, DataLoader | IterableDataset):
        return np.concatenate([rows_of(examples) for (examples,) in epochs.of(0)]), None
    if epochs.size < 2:
        needs = f"a step needs several: pass a DataLoader with batch_size={size}"
        raise ValueError(f"data={epochs.name} gives mini-batches of one example, and {needs}")
    return epochs.first_rows(), epochs
