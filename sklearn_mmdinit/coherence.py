"""Coherence: which functions are to be near theta0, as parameters that can be searched."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from numbers import Real
from types import CodeType, FunctionType
from typing import Any, Self

import joblib
import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_scalar
from sklearn.utils.validation import check_memory
from torch import nn

from ._base.environment import check_float32
from ._base.random_streams import rows_generator
from ._base.validation import check_finite, check_positive, inside_another, is_auto
from .graph.edges import check_graph, neighbor_graph, on_read_only, seed_
from .graph.neighbors import count_distinct
from .graph.walks import Walk
from .theta0 import arrays_of
from .training.minibatches import augmented

__all__ = ["Coherence"]

# Steps of walks are taken one after another, and walks as long as that end anywhere.
_LONGEST = 10_000.0
# Parameters that decide nothing of what is learned.
_IDLE = {"checkpoint", "memory", "n_jobs", "verbose"}


class Coherence(BaseEstimator):
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
        Edges of a row, to its nearest neighbours in the first 50 principal components; of equal
        rows to one other, and else to the nearest that differ, equal ones of them in turn. From
        100,000 rows on the search is that of ``pynndescent`` (the extra ``neighbors``) where it is
        installed: nearly exact, and much faster once it is compiled, half a minute a process.
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
    augmentation : callable or None, default=None
        ``augmentation(rows, rng)`` takes rows (n, ...) and a :class:`numpy.random.Generator` and
        returns rows like them, each changed in a way that tasks do not mind: both ends of every
        walk are changed so in each step. :class:`RandomAffine` does it for images,
        :class:`RandomCorruption` for tables. Neighbours are those of unchanged rows.
    memory : None, str or joblib.Memory, default=None
        Cache of the neighbours that were searched.

    See Also
    --------
    MMDInitializer : Takes it as ``coherence``.
    OrientedGradients : Where neighbouring images are alike.
    RandomAffine : Small changes of images.
    RandomCorruption : Entries exchanged for those of other rows.
    sklearn_mmdinit.diagnostics.coherence_kernel : C of a fitted initializer.

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
        shared_neighbor_power: float = 2.0,
        graph: Any = None,
        embedding: Any = None,
        augmentation: Callable[[np.ndarray, np.random.Generator], Any] | None = None,
        memory: Any = None,
    ) -> None:
        self.weight = weight
        self.separation = separation
        self.walk_length = walk_length
        self.batch_size = batch_size
        self.n_neighbors = n_neighbors
        self.shared_neighbor_power = shared_neighbor_power
        self.graph = graph
        self.embedding = embedding
        self.augmentation = augmentation
        self.memory = memory

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
        """
        for name in params:
            own, nested, _ = name.partition("__")
            value = params.get(own, getattr(self, own, None))
            if nested and hasattr(self, own) and not hasattr(value, "set_params"):
                raise ValueError(f"{name} is a parameter of an estimator; {own}={value!r} is none")
        return super().set_params(**params)


def coherence_of(value: Any, X: np.ndarray | None = None) -> Coherence | None:
    """What the parameter ``coherence`` stands for; "auto" is for rows X (n, ...) if given."""
    if value is None or isinstance(value, Coherence):
        return value
    if not is_auto(value):
        raise ValueError(f'coherence must be None, "auto" or a Coherence, got {value!r}')
    default = Coherence()
    if X is not None:  # fewer neighbours where few of the rows differ
        others = count_distinct(X, default.n_neighbors + 1) - 1
        default.n_neighbors = max(others, 1)
    return default


def check_coherence(coherence: Coherence) -> None:
    """Raise an error that names the first parameter that is not valid."""
    check_finite(coherence, "weight", zero=False)
    check_finite(coherence, "separation", "walk_length", "shared_neighbor_power")
    check_scalar(coherence.walk_length, "walk_length", Real, min_val=1, max_val=_LONGEST)
    check_positive(coherence, "batch_size", least=2)
    check_positive(coherence, "n_neighbors")
    check_graph(coherence.graph)
    check_memory(coherence.memory)
    augmentation = coherence.augmentation
    if augmentation is not None and (isinstance(augmentation, type) or not callable(augmentation)):
        valid = "None or a function of rows and a generator"
        raise TypeError(f"augmentation must be {valid}, got {augmentation!r}")
    if coherence.embedding is not None:
        _check_embedding(coherence)


def settings_of(coherence: Coherence | None) -> dict[str, str]:
    """What decides the fourth term, by name, in words that are the same in every process."""
    own = coherence.get_params() if coherence else {}
    named = {f"coherence__{n}": v for n, v in own.items() if n.split("__")[-1] not in _IDLE}
    return {name: _said(name, value) for name, value in named.items()}


def _said(name: str, value: Any) -> str:
    theta0 = getattr(getattr(value, "estimator", value), "theta0_", None)
    if isinstance(value, nn.Module) or theta0 is not None:
        value = dict(theta0.arrays) if theta0 else arrays_of(value)
    # Parameters of an estimator have names of their own; a frozen one has learned something.
    named = isinstance(value, BaseEstimator) and not isinstance(value, FrozenEstimator)
    if named:
        return type(value).__name__
    if (said := _hash(_code_of(value))) is None:
        raise ValueError(f"a checkpoint cannot tell {name}={value!r} from another: name its parts")
    return said


def _code_of(value: Any) -> Any:
    """What a function does, and with what, since a name may come to stand for another."""
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, [_code_of(const) for const in value.co_consts]
    if not isinstance(value, FunctionType):
        return value
    held = [cell.cell_contents for cell in value.__closure__ or ()]
    parts = value.__code__, value.__defaults__, value.__kwdefaults__, *held
    return [_code_of(part) for part in parts]


def _check_embedding(coherence: Coherence) -> None:
    """Raise an error if it cannot be fitted, or would be of no use."""
    embedding = coherence.embedding
    needed = ("fit", "transform", "get_params")
    if isinstance(embedding, type) or not all(hasattr(embedding, name) for name in needed):
        valid = "None or an estimator with fit and transform"
        raise TypeError(f"embedding must be {valid}, got {embedding!r}")
    last = embedding
    while isinstance(last, FrozenEstimator | Pipeline):
        last = last.estimator if isinstance(last, FrozenEstimator) else last.steps[-1][1]
    output = getattr(last, "output", None)
    if isinstance(output, str) and output == "passthrough":
        name = f"embedding={type(last).__name__}(output='passthrough')"
        raise ValueError(f"{name} hands rows on as they are; use output='hidden'")
    if brings_edges(coherence):
        raise ValueError("embedding is idle where the graph is a matrix; use one of the two")


def brings_edges(coherence: Coherence | None) -> bool:
    """Whether its graph is a matrix, of the very rows that it is for."""
    graph = getattr(coherence, "graph", None)
    return graph is not None and not hasattr(graph, "fit_transform")


# The embedding, the graph and the augmentation, as they are used


def fit_embedding(coherence: Coherence, X: np.ndarray, seed: int) -> Any:
    """The embedding of a checked coherence, fitted to rows X (n, ...); None where there is none."""
    if coherence.augmentation is not None:  # what it fails at is told before this takes its time
        n_rows = 2 * min(coherence.batch_size, len(X))
        rows = X[np.arange(n_rows) % len(X)]  # as many as in a step, and copies
        augmented(coherence.augmentation, rows, rows_generator(0, 0))
    if coherence.embedding is None:
        return None
    embedding = clone(coherence.embedding)
    seed_(embedding, seed)
    # A frozen one asks for y.
    with inside_another():  # perhaps a first round
        on_read_only(_name(embedding), lambda rows: embedding.fit(rows, None), X)
    return embedding


class Walks:
    """Walks on the graphs of the last two arrays of rows: searched once, and never pickled.

    Two: rows that are learned from, and others that are scored in between.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Walk] = {}

    def of(self, coherence: Coherence, embedding: Any, X: np.ndarray, verbose: Any = 0) -> Walk:
        """Walks among rows X (n, ...) by the neighbours that they have in a fitted embedding."""
        rows = _embedded(embedding, X)
        searched_by = coherence.n_neighbors, coherence.shared_neighbor_power, coherence.graph
        key = _hash((*searched_by, rows))  # None where it cannot be said
        walk = self._kept.get(key) if key else None
        if walk is None:
            try:
                edges = neighbor_graph(
                    rows,
                    n_neighbors=coherence.n_neighbors,
                    shared_neighbor_power=coherence.shared_neighbor_power,
                    graph=coherence.graph,
                    memory=coherence.memory,
                    verbose=verbose,
                )
                walk = Walk.on(edges)
            except ValueError as error:
                if embedding is None:
                    raise
                raise ValueError(f"In {_made_by(embedding)}: {error}") from error
            if key:
                for old in [*self._kept][:-1]:
                    self._kept.pop(old, None)  # which another thread may have done
                self._kept[key] = walk
        return walk

    def __reduce__(self) -> Any:
        # Graphs are as large as the data, and follow from them.
        return Walks, ()


def _hash(value: Any) -> str | None:
    """What stands for a value; None for one that holds a function without a name."""
    try:
        return str(joblib.hash(value))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def _embedded(embedding: Any, X: np.ndarray) -> np.ndarray:
    """What a fitted embedding makes of rows X (n, ...), or X itself for None, (n, p)."""
    if embedding is None:
        return X.reshape(len(X), -1)
    name = _made_by(embedding)
    with warnings.catch_warnings():
        # One that was fitted to a DataFrame before is given the same columns, without names.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        made = on_read_only(_name(embedding), embedding.transform, X)
    if np.ndim(made) < 2 or np.shape(made)[0] != len(X):
        raise ValueError(f"{name} must be of shape ({len(X)}, ...), got {np.shape(made)}")
    rows = check_array(made, dtype=[np.float64, np.float32], allow_nd=True, input_name=name)
    check_float32(rows, name)
    return np.asarray(rows).reshape(len(X), -1)


def _name(embedding: Any) -> str:
    return f"embedding={type(embedding).__name__}"


def _made_by(embedding: Any) -> str:
    return f"what {_name(embedding)} made of X"
