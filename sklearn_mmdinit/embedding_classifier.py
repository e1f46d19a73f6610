"""Classifies embeddings of a pre-trained encoder, with few labels and many unlabelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted

from ._base import validation as checks
from ._base.environment import without_caller_settings
from ._base.random_streams import seeds_of
from .classifiers import PartlyLabelled
from .coherence import check_changes_rows, coherence_of
from .fine_tuning import labels
from .fine_tuning.head import linear_head
from .graph.edges import seed_
from .graph.label_spreading import N_NEIGHBORS, Neighborhood, NeighborSpreading
from .graph.neighbors import count_distinct
from .initializer import PAPER_WEIGHTS, MMDInitializer
from .learned_features import LearnedFeatures
from .warm_start import seeded

__all__ = ["EmbeddingClassifier"]

# Chosen on banking77, CLINC150 and 20 Newsgroups; benchmarks/embeddings.py measures other sets too.
_SCALES = 40.0, 5.0  # of the cosines of rows, and of those of learned features
_SPREADING_WEIGHT, _ALPHA = 1.5, 0.95
_SMALLEST_SHARE = 1e-3  # added to spread labels, whose logarithm is taken
_MASS_POWER = 0.5
_N_ROUNDS = 12
_WIDTH, _WALK_LENGTH = 1024, 10.0
# We warn of a column with a larger share of the rows' squared length. In embeddings of an encoder
# every column has a small share.
_LARGEST_SHARE, _FEWEST_COLUMNS = 0.5, 8

Representations = Sequence[np.ndarray]
"""Arrays (n, width) in float32 that describe the same n examples, each row scaled to length 1."""


def class_scores(
    examples: Representations, means: Representations, shift: np.ndarray
) -> np.ndarray:
    """Sum of scale * cosine over the arrays, plus the shift of each class: (n, n_classes)."""
    scores = zip(_SCALES, examples, means, strict=False)
    return shift + sum(scale * (rows @ mean.T) for scale, rows, mean in scores)


def fit_classes(
    examples: Representations, given: np.ndarray, prior: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Means of classes in each array, of length 1, and the shift of each class, by EM.

    `given` (n, n_classes) is 1 at the class of each labelled row, and 0 elsewhere. `prior`
    (n, n_classes) is added to the scores of rows. A class with many rows gets a smaller shift.
    """
    labelled, uniform = given.any(axis=1), len(given) / given.shape[1]
    means, shift = [normalize(given.T @ rows) for rows in examples], np.zeros_like(given[0])
    for _ in range(_N_ROUNDS):
        proba = softmax(class_scores(examples, means, shift) + prior, axis=1)
        proba[labelled] = given[labelled]
        shift = -_MASS_POWER * np.log((proba.sum(axis=0) + 1.0) / uniform)
        means = [normalize(proba.T @ rows) for rows in examples]
    return means, shift


class EmbeddingClassifier(PartlyLabelled):
    r"""A classifier of embeddings, such as sentences, with few labels and many unlabelled rows.

    Rows x are scaled to length 1. :math:`h(x)` are features that an initializer learns from all
    rows, scaled to length 1. Labels spread on the graph of nearest neighbours [1]_. For a row of
    ``fit``, :math:`f_c(x)` is the share of class c among the labels that reach x. For a new row,
    :math:`f_c(x)` is the mean of :math:`f_c` over the nearest neighbours of x. A logistic
    regression on the labelled rows gives class c the probability :math:`q_c(x)`. Then

    .. math::

        \log p(c \mid x) = 40 \, m_c^\top x + 5 \, {m'_c}^\top h(x) - \tfrac12 \log n_c
        + \tfrac32 \log (f_c(x) + 10^{-3}) + \log q_c(x) + \text{const}.

    The vectors :math:`m_c` and :math:`m'_c` are the means of x and of :math:`h(x)` over the rows of
    class c, scaled to length 1, and :math:`n_c` is the number of these rows plus 1. 12 rounds of EM
    find :math:`m_c`, :math:`m'_c` and :math:`n_c`: a labelled row belongs to its class, an
    unlabelled one to each class with the weight p. This is soft k-means that begins with the
    labelled rows [2]_, with a prior for each row.

    Parameters
    ----------
    features : "auto", transformer or None, default="auto"
        Learned features h. A clone of it learns from all rows, scaled to the length
        ``sqrt(n_features)``, so that their values are about 1. "auto":
        ``LearnedFeatures([init], with_row=False)``, where init is
        ``MMDInitializer((1024,), coherence=Coherence(walk_length=10))`` without the paper's terms.
        If few rows differ, its graph has fewer neighbours. A ``FrozenEstimator`` of fitted features
        is used as it is. None: no features, which saves most of the time. With few labels it may
        lose a point.
    unlabelled_label : int, float or str, default=None
        Label, such as -1, of rows that have none. They are used like ``X_unlabelled``.
    random_state : int, RandomState instance or None, default=None
        Seed of features whose own ``random_state`` is None.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    features_ : transformer or None
        The features, fitted.
    class_means_ : list of ndarrays of shape (n_classes, width)
        Means m of the rows, and m' of the features.
    class_shifts_ : ndarray of shape (n_classes,)
        The term with n_c, up to a constant.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of str
        Names of the columns, if X has them.

    See Also
    --------
    LearnedFeatures : Features for other classifiers.
    StackedStartsClassifier : For tables. Cross-validation decides there what is used.

    Notes
    -----
    Probabilities of ``predict_proba`` are not calibrated: they are too close to 0 and 1.

    References
    ----------
    .. [1] D. Zhou, O. Bousquet, T. N. Lal, J. Weston and B. Schoelkopf, "Learning with Local and
       Global Consistency", NeurIPS 16, 2004.
    .. [2] M. Ren et al., "Meta-Learning for Semi-Supervised Few-Shot Classification", ICLR 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_blobs
    >>> from sklearn_mmdinit import EmbeddingClassifier
    >>> X, y = make_blobs(400, 32, centers=5, cluster_std=4.0, random_state=0)
    >>> few = np.where(np.arange(400) < 20, y, -1)  # the first 20 rows have a label
    >>> clf = EmbeddingClassifier(features=None, unlabelled_label=-1).fit(X, few)
    >>> clf.score(X, y) > 0.95
    True
    """

    _parameter_constraints: ClassVar = {
        "features": [
            checks.has_methods("fit", "transform", "get_params", "set_params"),
            checks.AUTO,
            None,
        ],
        "unlabelled_label": [Integral, Real, str, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        features: Any = "auto",
        *,
        unlabelled_label: Any = None,
        random_state: Any = None,
    ) -> None:
        self.features = features
        self.unlabelled_label = unlabelled_label
        self.random_state = random_state

    @without_caller_settings()
    @checks.all_or_nothing
    def fit(self, X: Any, y: Any, X_unlabelled: Any = None) -> Self:
        """Learn the features and the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Embeddings of any length, with columns on one scale. A row of zeros has no direction and
            stays 0.
        y : array-like of shape (n_samples,)
            Labels, numbers or strings, of at least two classes, and `unlabelled_label`.
        X_unlabelled : array-like or tuple of array-likes, default=None
            More rows (n_unlabelled, n_features). In a cross-validation give a tuple
            ``(X_unlabelled,)``: if an array has as many rows as X, scikit-learn divides it among
            the folds.

        Returns
        -------
        self : estimator
            The fitted classifier.

        Raises
        ------
        ValueError
            If X or a parameter is not valid, or y has labels of fewer than two classes.
        """
        self._check_parameters()
        check_changes_rows("features", self.features)
        X, y, labelled = self._with_labels(X, y, reset=True, ensure_min_samples=2)
        labels.warn_if_unmarked(y, labelled, self.unlabelled_label, X_unlabelled)
        self.classes_, indices = labels.learn_classes(y[labelled], None, self.unlabelled_label)
        more_rows = labels.validate_unlabelled(X_unlabelled, partial(self._validated, reset=False))
        rows = _unit(np.concatenate([X[labelled], X[~labelled], *more_rows]))
        _warn_if_one_column_decides(rows)
        n_labelled, n_classes = len(indices), len(self.classes_)
        given = np.zeros((len(rows), n_classes), dtype=np.float32)
        given[np.arange(n_labelled), indices] = 1.0

        partly = np.concatenate([indices, np.full(len(rows) - n_labelled, -1)])
        self.features_ = self._learned_features(rows, partly)
        self._weights, self._biases = linear_head(rows[:n_labelled], indices, None, n_classes)
        self._spreading = None
        if count_distinct(rows, N_NEIGHBORS + 1) > N_NEIGHBORS:
            spreading = NeighborSpreading(Neighborhood(rows), _ALPHA)
            self._spreading = spreading.fit(rows[:n_labelled], indices)
        of_graph = None if self._spreading is None else self._spreading.label_distributions_
        prior = self._prior(rows, of_graph)
        self.class_means_, self.class_shifts_ = fit_classes(
            self._representations(rows), given, prior
        )
        return self

    @without_caller_settings()
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n_samples, n_classes) in the order of ``classes_``, not calibrated."""
        check_is_fitted(self, "class_means_")
        X = self._validated(X, reset=False)
        rows = _unit(X)
        spread = None if self._spreading is None else self._spreading.predict_proba(rows)
        scores = class_scores(self._representations(rows), self.class_means_, self.class_shifts_)
        return np.asarray(softmax(scores + self._prior(rows, spread), axis=1))

    def _validated(self, X: Any, *y: Any, **options: Any) -> Any:
        """Checked X (n, n_features), and y if given, as a tuple."""
        checked = checks.examples_checked(self, X, *y, allow_nd=False, **options)
        return checked if y else checked[0]

    def _learned_features(self, rows: np.ndarray, y: np.ndarray) -> Any:
        """The features, learned from rows of length 1 with classes y or -1; or None."""
        features = self.features
        if features is None:
            return None
        if checks.is_auto(features):
            initializer = MMDInitializer((_WIDTH,), coherence=coherence_of("auto", rows))
            no_terms = dict.fromkeys(PAPER_WEIGHTS, 0.0)
            initializer.set_params(coherence__walk_length=_WALK_LENGTH, **no_terms)
            features = LearnedFeatures([initializer], with_row=False)
        (seed,) = seeds_of(self.random_state, 1)
        with checks.add_error_context("features"):
            features = seeded(features, seed)
            seed_(features, seed)  # also the steps of a Pipeline
            return features.fit(_scaled(rows), y)

    def _representations(self, rows: np.ndarray) -> list[np.ndarray]:
        """The rows, and their learned features."""
        if self.features_ is None:
            return [rows]
        return [rows, _unit(self.features_.transform(_scaled(rows)))]

    def _prior(self, rows: np.ndarray, spread: np.ndarray | None) -> np.ndarray:
        """What label spreading and the logistic regression add to the scores of rows."""
        prior = log_softmax(rows @ self._weights.T + self._biases, axis=1)
        if spread is not None:
            prior += _SPREADING_WEIGHT * np.log(spread + _SMALLEST_SHARE)
        return np.asarray(prior, dtype=np.float32)


def _unit(X: np.ndarray) -> np.ndarray:
    """Rows of length 1 in float32; a row of zeros stays."""
    X = X.astype(np.result_type(X, np.float32), copy=False)
    # First divided, exactly, by a power of 2 near the largest entry, so that squares fit float32
    # and no row is so short that `normalize` leaves it as it is.
    _, exponents = np.frexp(np.abs(X).max(axis=1, keepdims=True))
    return np.asarray(normalize(np.ldexp(X, -exponents)), dtype=np.float32)


def _warn_if_one_column_decides(rows: np.ndarray) -> None:
    """Warn if one column has most of the length of rows, as in a table that was not scaled."""
    shares = np.square(rows).mean(axis=0)
    if (
        len(shares) >= _FEWEST_COLUMNS
        and (share := shares[column := shares.argmax()]) > _LARGEST_SHARE
    ):
        checks.warn_user(
            f"column {column} of X is {share:.0%} of the squared length of its rows, so that it "
            "decides which rows are near; embeddings have columns of one scale: standardize X first"
        )


def _scaled(rows: np.ndarray) -> np.ndarray:
    """Rows of length sqrt(n_features), whose entries are about 1."""
    return rows * np.float32(np.sqrt(rows.shape[1]))
