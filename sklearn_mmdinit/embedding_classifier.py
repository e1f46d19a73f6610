"""Classifies embeddings of a pre-trained encoder, with few labels and many unlabelled examples."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import unique_labels
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from ._base import validation as checks
from ._base.environment import array_of
from .fine_tuning.head import linear_head
from .fine_tuning.labels import learn_classes
from .graph.neighbors import neighbor_graph

__all__ = ["EmbeddingClassifier"]

# Chosen on banking77, CLINC150 and 20 Newsgroups; benchmarks/embeddings.py measures other sets too.
_SCALE = 40.0  # of the cosine of an example and the mean of a class
_NARROWNESS_PENALTY = 20.0
_SPREADING_WEIGHT, _ALPHA = 1.5, 0.95
_SMALLEST_SHARE = 1e-3  # added to spread labels, whose logarithm is taken
_MASS_POWER = 0.5
_N_ROUNDS = 12
_SMALLEST_RATIO = 1e-6  # added to ratios of shares, whose logarithm is taken
_N_NEIGHBORS, _N_SPREADINGS = 10, 100  # of label spreading


def fit_classes(
    rows: np.ndarray, given: np.ndarray, prior: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means (n_classes, n_features) of classes, of unit norm, and the shift of each, by EM.

    `rows` (n, n_features) have unit norm. `given` (n, n_classes) is 1 at the class of each labelled
    row, and 0 elsewhere. `prior` (n, n_classes) is added to the scores of rows. A class with many
    rows, or with rows near one another, gets a smaller shift.
    """
    labelled, proba = given.any(axis=1), given
    penalty = _NARROWNESS_PENALTY * (1.0 - 1.0 / given.sum(axis=0).min())
    for _ in range(_N_ROUNDS + 1):
        n_rows, sums = proba.sum(axis=0), proba.T @ rows
        means, norms = normalize(sums, return_norm=True)
        shift = -_MASS_POWER * np.log(n_rows + 1.0) - penalty * norms / n_rows
        proba = softmax(_SCALE * (rows @ means.T) + shift + prior, axis=1)
        proba[labelled] = given[labelled]
    return means, shift


def log_share_ratios(scores: np.ndarray, n_labels: np.ndarray) -> np.ndarray:
    """How much larger each class is among all rows than among the labels: logarithms (n_classes,).

    EM of Saerens et al. for the logits `scores` (n, n_classes) of a classifier that was fitted to
    `n_labels` (n_classes,) labels of each class. Times 1 - 1 / k for a class with k labels, because
    few labels hardly tell the shares.
    """
    ratios = np.ones(len(n_labels))
    for _ in range(_N_ROUNDS):
        shares = softmax(scores + np.log(ratios), axis=1).mean(axis=0)
        ratios = shares * n_labels.sum() / n_labels + _SMALLEST_RATIO
    return np.asarray((1.0 - 1.0 / n_labels) * np.log(ratios))


class EmbeddingClassifier(ClassifierMixin, BaseEstimator):
    r"""A classifier for embeddings, such as those of sentences, with few labels.

    It is semi-supervised, and combines three classifiers that need no tuning: soft k-means that
    starts from the labelled examples, label spreading, and logistic regression.

    Each embedding x is scaled to unit norm. Labels spread on the graph of nearest neighbours [1]_:
    for an example of ``fit``, :math:`f_c(x)` is the share of class c among the labels that reach x,
    and for a new example it is the mean of :math:`f_c` over those nearest neighbours of x that a
    label reaches. A logistic regression on the labelled examples gives class c the probability
    :math:`q_c(x)`. Then

    .. math::

        \log p(c \mid x) = 40 \, m_c^\top x - \tfrac12 \log n_c - 20 \, \beta \, r_c
        + \tfrac32 \log (f_c(x) + 10^{-3}) + \log q_c(x) + s_c + \text{const}.

    The vector :math:`m_c` is the weighted mean of the examples of class c, scaled to unit norm;
    :math:`r_c` is the norm of that mean before it is scaled, and :math:`n_c` is 1 plus the sum of
    the weights. They are found by 12 rounds of EM: a labelled example belongs to its class, an
    unlabelled one to each class with the weight p. This is soft k-means that starts from the
    labelled examples [2]_; the terms with f, q and s are a prior for each example.

    The term :math:`s_c` corrects for classes whose share among all examples differs from their
    share of the labels. The shares among all examples are estimated from :math:`q_c` by an EM of
    their own [3]_, before the rounds above. With :math:`a_c` the estimated share, :math:`k_c` the
    number of labels and :math:`b_c` their share, :math:`s_c = (1 - 1 / k_c) \log(a_c / b_c)`. The
    term with :math:`r_c`, where :math:`\beta = 1 - 1 / \min_c k_c`, favours widely spread classes,
    which matters most for examples far from every mean; the term with :math:`n_c` keeps large
    classes from growing.

    Label spreading uses ten neighbours, or all other distinct examples if they are fewer.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    class_means_ : ndarray of shape (n_classes, n_features)
        The means m.
    class_shifts_ : ndarray of shape (n_classes,)
        The sum of the terms with n_c and r_c, one for each class.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of str
        Names of the columns, if X has them.

    See Also
    --------
    MMDInitializer : Pre-trains a network; its features serve any classifier.

    Notes
    -----
    Probabilities of ``predict_proba`` are not calibrated: they are too close to 0 and 1.

    References
    ----------
    .. [1] D. Zhou, O. Bousquet, T. N. Lal, J. Weston and B. Schoelkopf, "Learning with Local and
       Global Consistency", NeurIPS 16, 2004.
    .. [2] M. Ren et al., "Meta-Learning for Semi-Supervised Few-Shot Classification", ICLR 2018.
    .. [3] M. Saerens, P. Latinne and C. Decaestecker, "Adjusting the Outputs of a Classifier to New
       a Priori Probabilities: A Simple Procedure", Neural Computation 14, 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_blobs
    >>> from sklearn_mmdinit import EmbeddingClassifier
    >>> X, y = make_blobs(400, 32, centers=5, cluster_std=4.0, random_state=0)
    >>> few = np.where(np.arange(400) < 20, y, -1)  # the first 20 examples have a label
    >>> clf = EmbeddingClassifier().fit(X, few)
    >>> clf.score(X, y) > 0.95
    True
    """

    @checks.all_or_nothing
    def fit(self, X: Any, y: Any) -> Self:
        """Learn the classes from all examples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Embeddings of any norm. They have at least two columns, all on the same scale. A row of
            zeros has no direction and stays 0.
        y : array-like of shape (n_samples,)
            Labels, numbers or strings, of at least two classes. -1 marks an example without a
            label. With string labels, use "-1", or None or NaN in an array of dtype object.

        Returns
        -------
        self : estimator
            The fitted classifier.

        Raises
        ------
        ValueError
            If X is not valid, or y has labels of fewer than two classes.
        """
        rows = self._unit(X, reset=True, ensure_min_samples=2, ensure_min_features=2)
        self.classes_, indices = _encoded(y)
        check_consistent_length(rows, indices)
        labelled, n_classes = indices >= 0, len(self.classes_)
        given = np.zeros((len(rows), n_classes), dtype=np.float32)
        given[labelled, indices[labelled]] = 1.0
        self._weights, biases = linear_head(rows[labelled], indices[labelled], None, n_classes)
        self._biases = biases + log_share_ratios(rows @ self._weights.T + biases, given.sum(axis=0))
        self._spreading = NeighborSpreading().fit(rows, given)
        spread = self._spreading.label_distributions_
        self.class_means_, self.class_shifts_ = fit_classes(rows, given, self._prior(rows, spread))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n_samples, n_classes) in the order of ``classes_``, not calibrated."""
        check_is_fitted(self)
        rows = self._unit(X, reset=False)
        spread = self._spreading.predict_proba(rows)
        scores = _SCALE * (rows @ self.class_means_.T) + self.class_shifts_
        return np.asarray(softmax(scores + self._prior(rows, spread), axis=1))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable of ``classes_`` for each row of X."""
        indices = self.predict_proba(X).argmax(axis=1)  # first, because it checks for a fit
        return self.classes_[indices]

    def _unit(self, X: Any, **options: Any) -> np.ndarray:
        """Rows of X, checked, of unit norm; a row of zeros stays."""
        return checks.unit_rows(*checks.examples_checked(self, X, allow_nd=False, **options))

    def _prior(self, rows: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """What label spreading and the logistic regression add to the scores of rows."""
        prior = log_softmax(rows @ self._weights.T + self._biases, axis=1)
        prior += _SPREADING_WEIGHT * np.log(spread + _SMALLEST_SHARE)
        return np.asarray(prior, dtype=np.float32)


def _encoded(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sorted classes, and the index (n,) of each example's class; -1 if it has no label."""
    y = column_or_1d(np.asarray(array_of(y), dtype=object), warn=True)
    labelled = ~checks.missing_in(y)
    labelled[labelled] = [v not in (-1, "-1") for v in y[labelled]]
    labels = y[labelled].tolist()
    hint = "; -1, None and NaN mark examples without a label"
    with np.errstate(invalid="ignore"):  # NumPy warns of infinity before it is refused
        classes, indices = learn_classes(np.asarray(labels), hint)
    unique_labels(labels)  # raises if strings and numbers are mixed
    encoded = np.full(len(y), -1)
    encoded[labelled] = indices
    return classes, encoded


class NeighborSpreading:
    """Label spreading (Zhou et al., 2004): F <- alpha S F + (1 - alpha) Y.

    S = D^-1/2 W D^-1/2, and W is the graph of rows with edges in both directions. A row to predict
    gets the mean of F over its nearest neighbours. Unlike LabelSpreading of scikit-learn, this
    weighs edges by shared neighbours, and returns no NaN for rows that no label reaches.
    """

    def fit(self, X: np.ndarray, given: np.ndarray) -> Self:
        """Spread labels among rows X (n, p); `given` (n, n_classes) is 1 at a label, else 0."""
        edges = neighbor_graph(X, n_neighbors=_N_NEIGHBORS)
        both_ways = (edges + edges.T).tocoo()
        # No degree is 0, because each row has neighbours.
        scale = 1.0 / np.sqrt(both_ways.sum(axis=1))
        both_ways.data *= scale[both_ways.row] * scale[both_ways.col]
        matrix, start = both_ways.tocsr(), (1.0 - _ALPHA) * given
        spread = start
        for _ in range(_N_SPREADINGS):
            spread = _ALPHA * (matrix @ spread) + start
        self.label_distributions_ = _shares(spread)
        n_neighbors = min(_N_NEIGHBORS, len(X))
        self._search = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(X)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Mean (n, n_classes) of the nearest rows' distributions that are not 0; else 0."""
        nearest = self._search.kneighbors(X, return_distance=False)
        return _shares(self.label_distributions_[nearest].sum(axis=1))


def _shares(votes: np.ndarray) -> np.ndarray:
    """Each row divided by its sum; a row of zeros stays."""
    totals = votes.sum(axis=1, keepdims=True)
    return np.asarray(votes / np.where(totals > 0, totals, 1.0))
