"""Coherence: the parameters of the contrastive loss, its embedding and its graph."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array, check_consistent_length

from ._base.random_streams import seeds_of
from ._base.validation import (
    AUTO,
    add_error_context,
    check_parameters,
    has_methods,
    integers,
    is_auto,
    numbers,
    shortened,
)
from .graph.neighbors import neighbor_graph
from .graph.walks import Walk
from .training.minibatches import PositivePairs, augmented

__all__ = ["Coherence"]

# The largest mean number of edges. Longer walks take much time and end at almost any row.
_LONGEST = 10_000


class Coherence(BaseEstimator):
    r"""The contrastive loss of :class:`MMDInitializer`: similar examples get similar features.

    A positive pair is two similar examples: the two ends of a random walk on the nearest-neighbour
    graph of the unlabelled data, or two views of one example (see `n_neighbors`). Let C be the
    cosine similarity of the centred last hidden activations of two examples; if they come from a
    ReLU, negative centred values are damped. With :math:`i \to i^+` a positive pair and
    :math:`i \not\sim j` any other pair the loss is

    .. math:: L_{coh} = 1 - E_i [C_{i i^+}] + \rho \, E_{i \not\sim j} [C_{ij}^2].

    This is the spectral contrastive loss [1]_; after a ReLU the damping keeps the centred features
    nearly non-negative [2]_. The loss is not part of Lee & Cho (2023), the paper that
    :class:`MMDInitializer` follows; their terms are added if their weights are set above 0.

    Parameters
    ----------
    separation : float or "auto", default="auto"
        :math:`\rho`. A large value separates many small groups of inputs, a small value few large
        ones. "auto": a fifth of the number of classes, but at least 1, if that number is known
        from ``n_classes``, the labels or the module; else 2, which suits ten classes.
    walk_length : float, default=40.0
        Mean number of edges of the walks, from 1 to 10,000. The lengths have a geometric
        distribution.
    batch_size : int, default=256
        Positive pairs a step, at least 2; capped at n_samples. If a DataLoader is streamed, a step
        takes one of its mini-batches instead.
    n_neighbors : int, default=10
        Number of nearest neighbours of each example in the graph; capped at the number of other
        distinct examples. With 0 there is no graph: a positive pair is two augmentations of one
        example, as for photographs, whose neighbours by pixels rarely share a class. Then
        `augmentation` is needed, `graph` and `embedding` must be None, and `walk_length` and
        `n_components` have no effect. At most one exact copy of an example is among its neighbours,
        and none if `n_neighbors=1`. From 100,000 distinct examples on, ``pynndescent`` (the extra
        ``neighbors``) does the search if it is installed: nearly exactly, and much faster after
        half a minute of compiling.
    n_components : int, None or "auto", default="auto"
        Number of principal components of X in which neighbours are searched. None: all columns.
        "auto": 50, but all columns if all examples have the same norm, as embeddings of an encoder
        often have; the nearest neighbours are then those with the largest cosine similarity.
    graph : sparse matrix, ndarray or None, default=None
        A graph of your own instead of the search: similarities (n_samples, n_samples) of the rows
        given to ``fit``, not negative, and larger for closer rows. Each row of the matrix may have
        a scale of its own. `n_neighbors` and `n_components` then have no effect.
    embedding : transformer or None, default=None
        Neighbours are searched in the output of this transformer. A clone is fitted to the rows
        that ``fit`` gets, as an array without column names; a
        :class:`~sklearn.frozen.FrozenEstimator` is not fitted. For images, neighbours in
        :class:`OrientedGradients` more often share a class than neighbours in pixels.
    augmentation : callable or None, default=None
        A function or nn.Module, such as a transform of torchvision or kornia. It takes a tensor (n,
        ...) on the device of training, and returns a tensor of the same shape on the same device.
        Each row is changed at random, in a way that keeps its class. Both rows of every positive
        pair are augmented in each step. It must draw from the global generators, which are seeded
        in each step and restored. It is called once for the first inputs of all pairs, and once for
        the second inputs. So even a transform with one draw per call changes the inputs of a pair
        differently. :class:`RandomAffine` is for drawings and digits, :class:`RandomView` for
        photographs. Neighbours are those of the unchanged rows.

    See Also
    --------
    MMDInitializer : Takes this as its parameter ``coherence``.
    OrientedGradients : An embedding of images.
    RandomAffine : An augmentation of images.
    RandomView : An augmentation of photographs.
    sklearn_mmdinit.losses.coherence : The loss of given activations; defines C.

    Notes
    -----
    Training minimises 16 L_coh plus 0.4 times a penalty that keeps the variance of the activations
    near 1, and the paper's terms by their weights. In ``history_`` "loss" is this sum, and
    "coherence" is L_coh alone. ``mmd_init_(views=2)`` takes the two views of a DataLoader as pairs.

    Do not choose these parameters by ``MMDInitializer.score``. The score is minus the loss, and
    these parameters change the loss itself. Choose them by the accuracy of a classifier:
    ``GridSearchCV(MLPClassifier(warm_start_from=MMDInitializer(coherence=Coherence())),
    {"warm_start_from__coherence__separation": [1.5, 2.0, 4.0]})``.

    References
    ----------
    .. [1] J. Z. HaoChen, C. Wei, A. Gaidon and T. Ma, "Provable Guarantees for
       Self-Supervised Deep Learning with Spectral Contrastive Loss", arXiv 2106.04156, 2021.
    .. [2] Y. Wang, Q. Zhang, Y. Guo and Y. Wang, "Non-negative Contrastive Learning",
       arXiv 2403.12459, 2024.

    Examples
    --------
    >>> from sklearn_mmdinit import Coherence, MMDInitializer
    >>> init = MMDInitializer(coherence=Coherence(walk_length=5.0))
    >>> init.set_params(coherence__separation=3.0).coherence
    Coherence(separation=3.0, walk_length=5.0)
    """

    _parameter_constraints: ClassVar = {
        "separation": [numbers(0), AUTO],
        "walk_length": [numbers(1, _LONGEST, "both")],
        "batch_size": [integers(2)],
        "n_neighbors": [integers(0)],
        "n_components": [integers(1), None, AUTO],
        "graph": ["sparse matrix", np.ndarray, None],
        "embedding": [has_methods("fit", "transform", "get_params", "set_params"), None],
        "augmentation": [callable, None],
    }

    def __init__(
        self,
        *,
        separation: float | str = "auto",
        walk_length: float = 40.0,
        batch_size: int = 256,
        n_neighbors: int = 10,
        n_components: int | str | None = "auto",
        graph: Any = None,
        embedding: Any = None,
        augmentation: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.separation = separation
        self.walk_length = walk_length
        self.batch_size = batch_size
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.graph = graph
        self.embedding = embedding
        self.augmentation = augmentation

    # Only scikit-learn's estimators have parameters: torchvision's transforms have another, static
    # get_params, which scikit-learn would call.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters; `deep` adds those of a parameter that is an estimator itself."""
        params: dict[str, Any] = super().get_params(deep=False)
        for name, value in [*params.items()]:
            if deep and isinstance(value, BaseEstimator):
                params |= {f"{name}__{part}": v for part, v in value.get_params().items()}
        return params

    def __sklearn_clone__(self) -> Self:
        return deepcopy(self, memo={id(self.embedding): clone(self.embedding, safe=False)})


def coherence_of(value: Any) -> Coherence | None:
    """The Coherence, or None, for a valid parameter."""
    return Coherence() if is_auto(value) else value


def brings_edges(coherence: Coherence | None) -> bool:
    """Whether the graph is a matrix. Its row i belongs to row i of X, so nothing may shuffle X."""
    return coherence is not None and coherence.graph is not None


def check_coherence(coherence: Coherence) -> None:
    """Raise an error that names the first parameter that is not valid."""
    check_parameters(coherence)
    check_choice_of_pairs(coherence, by_rows=not has_graph(coherence))


def has_graph(coherence: Coherence) -> bool:
    """Whether positive pairs are ends of walks on a graph; else a pair is one row twice."""
    return coherence.n_neighbors > 0


def check_choice_of_pairs(coherence: Coherence, by_rows: bool) -> None:
    """Raise a ValueError if two parameters choose pairs; `by_rows`: a pair is one row twice."""
    given = [name for name in ("graph", "embedding") if getattr(coherence, name) is not None]
    if len(given) + by_rows > 1:
        raise ValueError(
            "graph, embedding, and pairs of views (n_neighbors=0 or views=2) exclude each other: "
            f"leave out {' or '.join(given)}"
        )


def check_augmentation(
    coherence: Coherence,
    X: np.ndarray,
    n_pairs: int,
    as_examples: Callable[[np.ndarray], torch.Tensor],
    device: torch.device,
) -> None:
    """Try the augmentation, if any, on as many rows of X as in a step: errors come at once."""
    augmentation = coherence.augmentation
    rows = X[np.tile(np.arange(min(n_pairs, len(X))), 2)]
    pairs = augmented(augmentation, as_examples(rows).to(device), 0, 0)
    if not has_graph(coherence) and torch.equal(*pairs.chunk(2)):
        raise ValueError(
            "n_neighbors=0 needs a random augmentation, but augmentation="
            f"{shortened(repr(augmentation))} gave the same twice: pass a random one, such "
            "as RandomView(), that is in training mode. With views=2 leave n_neighbors=0 out"
        )


# The embedding and the graph


def fit_embedding(coherence: Coherence | None, X: np.ndarray, seed: int) -> Any:
    """The embedding of a checked coherence, fitted to rows X (n, ...), or None."""
    if coherence is None or coherence.embedding is None:
        return None
    embedding = clone(coherence.embedding)
    _seed_(embedding, seed)
    # A FrozenEstimator needs a y.
    _on_read_only(_name(embedding), lambda rows: embedding.fit(rows, None), X)
    return embedding


def positive_pairs(
    coherence: Coherence | None, embedding: Any, X: np.ndarray, seed: int, verbose: Any = 0
) -> PositivePairs | None:
    """Draws positive pairs of rows X (n, ...); None without a coherence."""
    if coherence is None:
        return None
    walk = walk_on(coherence, embedding, X, verbose) if has_graph(coherence) else None
    return PositivePairs(walk, float(coherence.walk_length), seed, coherence.augmentation)


def walk_on(coherence: Coherence, embedding: Any, X: np.ndarray, verbose: Any = 0) -> Walk:
    """Walks among rows X (n, ...), whose neighbours are searched in a fitted embedding."""
    name = "X" if embedding is None else f"the output of {_name(embedding)}"
    with add_error_context(f"neighbours are searched in {name}"):
        rows = X if embedding is None else _embedded(embedding, X, name)
        edges = neighbor_graph(
            rows.reshape(len(X), -1),
            n_neighbors=int(coherence.n_neighbors),
            n_components=coherence.n_components,
            graph=coherence.graph,
            verbose=verbose,
        )
        return Walk.on(edges)


def _embedded(embedding: Any, X: np.ndarray, name: str) -> np.ndarray:
    """The checked output (n, ...) of a fitted embedding for rows X (n, ...)."""
    output = _on_read_only(
        _name(embedding), lambda rows: embedding.transform(_named(rows, embedding)), X
    )
    check_consistent_length(X, output)
    rows = check_array(output, dtype=[np.float64, np.float32], allow_nd=True, input_name=name)
    return np.asarray(rows)


def _named(rows: np.ndarray, embedding: Any) -> Any:
    """Rows as a DataFrame with column names, if an embedding was fitted to one; else the rows."""
    names = getattr(embedding, "feature_names_in_", None)
    if names is None or rows.shape[1:] != (len(names),) or find_spec("pandas") is None:
        return rows
    import pandas as pd

    return pd.DataFrame(rows, columns=names)


def _name(embedding: Any) -> str:
    return f"embedding={type(embedding).__name__}"


def _on_read_only(name: str, function: Callable[[np.ndarray], Any], X: np.ndarray) -> Any:
    """``function(X)`` for a read-only view of X; an error gets a note with `name`."""
    view = X.view()
    view.flags.writeable = False
    with add_error_context(f"{name} got X as a read-only array; if it changes X, it must copy X"):
        return function(view)


def _seed_(estimator: Any, seed: int) -> None:
    """Replace every ``random_state`` that is None, except in frozen estimators."""
    if isinstance(estimator, FrozenEstimator):
        return
    parameters = estimator.get_params()
    frozen = tuple(f"{name}__" for name, v in parameters.items() if isinstance(v, FrozenEstimator))
    names = sorted(
        name
        for name, value in parameters.items()
        if value is None and name.rpartition("__")[2] == "random_state"
        if not name.startswith(frozen)
    )
    estimator.set_params(**dict(zip(names, seeds_of(seed, len(names)), strict=True)))
