"""Coherence: which functions are to be near theta0, as parameters that can be searched."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Self

import joblib
import numpy as np
from scipy.sparse import csr_array
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_memory

from ._documentation import DocumentedEstimator
from ._graph import ALGORITHMS, Walk, check_graph, count_distinct, neighbor_graph
from ._pretraining import check_choice, check_finite, check_positive

__all__ = ["Coherence", "brings_edges", "check_coherence", "coherence_of", "walk_on"]

# Steps of walks are taken one after another, and walks as long as that end anywhere.
_LONGEST = 10_000.0

_OF_THE_GRAPH = ("n_neighbors", "n_components", "shared_neighbor_power", "graph", "algorithm")


class Coherence(DocumentedEstimator):
    r"""The fourth term of :class:`MMDInitializer`: near theta0 are functions smooth on the data.

    The paper asks that any prediction be near theta0 for every single input. This term asks
    that predictions of neighbouring inputs move together, and those of unrelated inputs apart,
    when the last layer is perturbed. With C the correlation of these moves, exactly computed,
    and :math:`i \to i^+` a random walk on the nearest-neighbour graph of the unlabelled rows,

    .. math:: L_{coh} = 1 - E_i [C_{i i^+}] + \rho \, E_{i \not\sim j} [C_{ij}^2]

    is added to the paper's loss with the weight :math:`\mu`. It is the spectral contrastive
    loss [1]_ with walks in place of augmentations, and is not part of the paper.

    Parameters
    ----------
    weight : float, default=16.0
        :math:`\mu`.
    separation : float, default=2.0
        :math:`\rho`. Large: many, fine groups of inputs are told apart; small: few, coarse ones.
    walk_length : float, default=40.0
        Mean length of the walks, in edges, from 1 to 10,000; lengths are geometric.
    batch_size : int, default=256
        Walks a step, at least 2; at most the rows there are. The first ``batch_size`` rows of
        the initializer's own parameter go through the paper's terms as well.
    n_neighbors : int, default=10
        Edges of a row, to its nearest neighbours.
    n_components : int, default=50
        Principal components in which neighbours are searched; None: the features themselves.
    shared_neighbor_power : float, default=2.0
        An edge weighs one plus the number of neighbours that the two rows share, to this
        power: walks avoid bridges between dense regions. 0: all edges alike.
    graph : sparse matrix, transformer or None, default=None
        A graph of your own in place of the search: a matrix of shape (n_samples, n_samples) of
        similarities that are not negative, larger for closer rows, for the very rows given to
        ``fit``; only ratios of those of a row count. Or a transformer such as
        :class:`sklearn.neighbors.KNeighborsTransformer`: whatever a clone's ``fit_transform(X)``
        stores, distances for instance, counts as an edge. What it draws at random is always the
        same, and it has to leave X as it is.
    embedding : transformer or None, default=None
        Neighbours are searched in what it makes of the rows, in place of the rows themselves:
        a clone is fitted to the rows that ``fit`` gets, as an array without names of columns
        (a :class:`~sklearn.frozen.FrozenEstimator` is taken as it is). Of images, those in
        :class:`OrientedGradients` are more often alike. With an
        ``MMDInitializer(coherence=..., output="hidden")`` of its own it is a second round,
        among activations that a first round has learned.
    algorithm : {"auto", "exact", "approximate"}, default="auto"
        The search: scikit-learn's exact one, or that of ``pynndescent`` (the extra
        ``neighbors``); "auto" takes the latter where it is the cheaper one and is installed.
    augmentation : callable or None, default=None
        ``augmentation(rows, rng)`` takes rows (n, ...) and a :class:`numpy.random.Generator` and
        returns rows like them, each changed in a way that tasks do not mind: both ends of every
        walk are changed so in each step. :class:`RandomAffine` does it for images. Neighbours
        are those of unchanged rows.
    memory : None, str or joblib.Memory, default=None
        Cache of the neighbours that were searched.
    n_jobs : int, default=None
        Threads of the approximate search; None and -1: all. It repeats itself for equal
        ``n_jobs`` only. The exact search takes those that OpenMP may use.

    See Also
    --------
    MMDInitializer : Takes it as ``coherence``.
    OrientedGradients : Where neighbouring images are alike.
    RandomAffine : Small changes of images.
    sklearn_mmdinit.display.CoherenceDisplay : Draws C.

    Notes
    -----
    ``MMDInitializer.score`` is minus the loss that these parameters define, so that it compares
    theta0s of the same parameters only. Search them by what theta0 is for:
    ``GridSearchCV(MLPClassifier(warm_start_from=MMDInitializer(coherence=Coherence())),
    {"warm_start_from__coherence__separation": [1.5, 2.0, 4.0]})``.

    References
    ----------
    .. [1] J. Z. HaoChen, C. Wei, A. Gaidon and T. Ma, "Provable Guarantees for
       Self-Supervised Deep Learning with Spectral Contrastive Loss", arXiv 2106.04156, 2021.

    Examples
    --------
    >>> from sklearn_mmdinit import Coherence, MMDInitializer
    >>> init = MMDInitializer(coherence=Coherence(walk_length=5.0))
    >>> init.set_params(coherence__separation=3.0).coherence
    Coherence(separation=3.0, walk_length=5.0)
    """

    def __init__(
        self,
        weight: float = 16.0,
        *,
        separation: float = 2.0,
        walk_length: float = 40.0,
        batch_size: int = 256,
        n_neighbors: int = 10,
        n_components: int | None = 50,
        shared_neighbor_power: float = 2.0,
        graph: Any = None,
        embedding: Any = None,
        algorithm: str = "auto",
        augmentation: Callable[[np.ndarray, np.random.Generator], Any] | None = None,
        memory: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.weight = weight
        self.separation = separation
        self.walk_length = walk_length
        self.batch_size = batch_size
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.shared_neighbor_power = shared_neighbor_power
        self.graph = graph
        self.embedding = embedding
        self.algorithm = algorithm
        self.augmentation = augmentation
        self.memory = memory
        self.n_jobs = n_jobs

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the graph, the embedding and the augmentation among them.

        Parameters
        ----------
        **params : dict
            Values by name, such as ``embedding__cell_size``.

        Returns
        -------
        self : Coherence
            This one.

        Raises
        ------
        ValueError
            If there is no such parameter, or a nested one where there is no estimator.
        """
        for name in params:
            own, nested, _ = name.partition("__")
            value = params.get(own, getattr(self, own, None))
            if nested and hasattr(self, own) and not hasattr(value, "set_params"):
                raise ValueError(
                    f"{name} is a parameter of an estimator, and {own}={value!r} is none; set "
                    f"{own} to one as well"
                )
        return super().set_params(**params)


def check_coherence(coherence: Coherence) -> None:
    """Raise an error that names the first parameter that is not valid."""
    check_finite(coherence, "weight", zero=False)
    check_finite(coherence, "separation", "shared_neighbor_power")
    check_scalar(coherence.walk_length, "walk_length", Real, min_val=1, max_val=_LONGEST)
    if math.isnan(coherence.walk_length):
        raise ValueError(f"walk_length must be a number, got {coherence.walk_length!r}")
    check_scalar(coherence.batch_size, "batch_size", Integral, min_val=2)
    check_positive(coherence, "n_neighbors")
    if coherence.n_components is not None:
        check_positive(coherence, "n_components")
    check_choice("algorithm", coherence.algorithm, ALGORITHMS)
    if coherence.n_jobs is not None:
        check_scalar(coherence.n_jobs, "n_jobs", Integral)
        if coherence.n_jobs == 0:
            raise ValueError("n_jobs must be None or an int other than 0, got 0")
    check_graph(coherence.graph)
    check_memory(coherence.memory)
    augmentation = coherence.augmentation
    if augmentation is not None and (isinstance(augmentation, type) or not callable(augmentation)):
        raise TypeError(
            "augmentation must be None or a function of rows and a random generator, got "
            f"{augmentation!r}"
        )
    if coherence.embedding is not None:
        _check_embedding(coherence)


def _check_embedding(coherence: Coherence) -> None:
    """Raise an error if it cannot be fitted, or would be of no use."""
    embedding = coherence.embedding
    if isinstance(embedding, type) or not all(
        hasattr(embedding, name) for name in ("fit", "transform", "get_params")
    ):
        raise TypeError(
            "embedding must be None or an estimator with fit and transform, such as "
            f"MMDInitializer(coherence='auto', output='hidden'): got {embedding!r}"
        )
    last = embedding
    while isinstance(last, FrozenEstimator | Pipeline):
        last = last.estimator if isinstance(last, FrozenEstimator) else last.steps[-1][1]
    output = getattr(last, "output", None)
    if isinstance(output, str) and output == "passthrough":
        raise ValueError(
            f"embedding={type(last).__name__}(output='passthrough') hands rows on as they "
            "are; use output='hidden'"
        )
    if brings_edges(coherence):
        raise ValueError(
            "embedding is where neighbours are searched, and with a matrix as the graph none "
            "are; use one of the two"
        )


def brings_edges(coherence: Coherence) -> bool:
    """Whether its graph is a matrix, of the very rows that it is for."""
    return coherence.graph is not None and not hasattr(coherence.graph, "fit_transform")


def walk_on(coherence: Coherence, X: np.ndarray, walks: dict[str, Walk], verbose: int) -> Walk:
    """Walks on the graph of rows X (n, n_features), kept in `walks` for the next time."""
    key = _graph_key(coherence, X)
    walk = walks.get(key) if key else None
    if walk is None:
        walk = Walk.on(_graph_of(coherence, X, verbose))
        if key:
            # Two: rows that are learned from, and others that are scored in between.
            for old in [*walks][:-1]:
                walks.pop(old, None)  # which another thread may have done
            walks[key] = walk
    return walk


def _graph_key(coherence: Coherence, X: np.ndarray) -> str | None:
    """What stands for the graph of rows X; None where that cannot be said."""
    own = [getattr(coherence, name) for name in _OF_THE_GRAPH]
    try:
        key: str = joblib.hash((own, X))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None  # a transformer with a function of its own
    return key


def _graph_of(coherence: Coherence, X: np.ndarray, verbose: int) -> csr_array:
    """The graph of rows X (n, n_features), of shape (n, n)."""
    return neighbor_graph(
        X,
        n_neighbors=coherence.n_neighbors,
        n_components=coherence.n_components,
        shared_neighbor_power=coherence.shared_neighbor_power,
        graph=coherence.graph,
        algorithm=coherence.algorithm,
        n_jobs=coherence.n_jobs,
        # Always the same: theta0s of other seeds share the graph, and its place in the memory.
        seed=0,
        memory=coherence.memory,
        verbose=verbose,
    )


def coherence_of(value: Any, X: np.ndarray | None = None) -> Coherence | None:
    """What the parameter ``coherence`` stands for.

    Parameters
    ----------
    value : None, "auto" or Coherence
        Of the parameter.
    X : ndarray of shape (n, ...), default=None
        Rows there are; "auto" asks for fewer neighbours where few of them differ.

    Raises
    ------
    ValueError
        If it is something else.
    """
    if value is None or isinstance(value, Coherence):
        return value
    if isinstance(value, str) and value == "auto":
        default = Coherence()
        if X is not None:
            others = count_distinct(X, default.n_neighbors + 1) - 1
            default.n_neighbors = max(others, 1)
        return default
    raise ValueError(f'coherence must be None, "auto" or a Coherence, got {value!r}')
