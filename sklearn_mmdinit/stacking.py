"""Stacks networks from several initial weights with other classifiers, by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import minimize_scalar
from scipy.sparse import issparse
from scipy.special import log_softmax, ndtr, softmax
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from ._base import validation as checks
from ._base.environment import without_caller_settings
from ._base.module_factory import OF_A_PERCEPTRON, PREFIX
from ._base.random_streams import seeds_of
from .classifiers import MLPClassifier, NetClassifier, PartlyLabelled
from .fine_tuning import labels
from .graph.edges import seed_
from .graph.label_spreading import N_NEIGHBORS, Neighborhood, NeighborSpreading
from .graph.neighbors import count_distinct
from .learned_features import LearnedFeatures, coherent_initializers
from .warm_start import (
    attached_theta0,
    fitted_or_cloned,
    is_fitted_initializer,
    is_initializer,
    seeded,
)

__all__ = ["StackedStartsClassifier"]

_SMALLEST_FLOAT32 = float(np.finfo(np.float32).tiny)  # replaces a probability of 0
_LOG_TEMPERATURES = (-2.0, 4.0)
_EM_STEPS = 1000
# Temperature of networks if no labels are held out. It is the mean of temperatures that were fitted
# to five labels a class.
_DEFAULT_TEMPERATURE = 3.0
# Up to this many labelled rows "auto" has an SVC. Its time grows with their square.
_MAX_SVC_ROWS = 10_000
# At most this many unlabelled rows are used by label spreading and the student; more take minutes.
_MAX_UNLABELLED = 10_000
_STUDENT_SHARE = 1 / 3
_GIVE_ALL_ROWS = (
    "give fit rows without a label too, as X_unlabelled or in X with y=unlabelled_label"
)

# Names of the classifiers that learn from unlabelled rows; C of the one on learned features.
_SPREAD, _FEATURES, _FEATURES_C = "spread labels", "learned features", 100.0

# Parameters that an "auto" initializer takes over from the network.
_SHARED = ("module", *OF_A_PERCEPTRON, "device")


# Mathematics


def tempered(proba: Any, temperature: Any) -> np.ndarray:
    """Log-probabilities (..., n_classes) after a division of the logits by a temperature."""
    proba = np.asarray(proba, dtype=np.float64)
    # NaN stands for a class that a classifier does not know, and becomes the probability 0.
    logits = np.where(np.isnan(proba), -np.inf, np.log(np.maximum(proba, _SMALLEST_FLOAT32)))
    return np.asarray(log_softmax(logits / temperature, axis=-1))


def fitted_temperature(proba: np.ndarray, y: np.ndarray) -> float:
    r"""The temperature T of probabilities (n, n_classes) for rows of classes y (n,).

    Minimizes the log loss :math:`-\sum_i \log p_{i y_i}` plus :math:`(\log T)^2 / 2`. The second
    term is a prior: it keeps T moderate if there are few rows, and all are predicted correctly or
    all wrongly. T lies between 0.14 and 55.
    """

    def objective(log_t: float) -> float:
        log_proba = tempered(proba, np.exp(log_t))[np.arange(len(y)), y]
        return float(log_t**2 / 2 - log_proba.sum())

    return float(np.exp(minimize_scalar(objective, bounds=_LOG_TEMPERATURES, method="bounded").x))


def stacking_weights(
    likelihoods: np.ndarray, prior: float = 1.0, n_steps: int = _EM_STEPS
) -> np.ndarray:
    r"""Weights w on the simplex (K,) that maximize :math:`\sum_i \log \sum_k w_k p_{ik}`.

    EM from equal weights on likelihoods p (n, K). Each classifier gets `prior`
    pseudo-observations, so that few rows give no extreme weights.
    """
    weights = np.full(likelihoods.shape[1], 1.0 / likelihoods.shape[1])
    for _ in range(n_steps):
        shares = weights * likelihoods
        counts = (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0) + prior
        weights = counts / counts.sum()
    return weights


def advantage(likelihoods: np.ndarray, baseline: np.ndarray) -> float:
    """Mean gain in log-likelihood of rows (n,) over a baseline, divided by its standard error."""
    gains = np.log(likelihoods) - np.log(baseline)
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return float(gains.mean() / error) if error > 0 else 0.0


class _Rows(NamedTuple):
    """The rows that `fit` gets."""

    X: Any  # those with a label and a weight above 0
    y: np.ndarray  # their labels
    weights: np.ndarray | None  # their weights
    labelled: np.ndarray  # which rows of the whole X these are, a mask
    all_rows: tuple[Any, Sequence[Any]]  # the whole X and X_unlabelled, for initializers

    def warn_if_few(self) -> None:
        """Warn if initializers are about to learn from few rows that all have a label."""
        if self.labelled.all() and not self.all_rows[1]:
            labels.warn_if_few(self.X, self.y, _GIVE_ALL_ROWS)


# Members: the networks and the other classifiers


def _fitted(
    member: Any, classes: np.ndarray, X: Any, y: np.ndarray, weights: np.ndarray | None
) -> Any:
    """A trained clone of a member. A network gets an output for each class, also if y lacks it."""
    params: dict[str, Any] = {"classes": classes} if hasattr(member, "warm_start_from") else {}
    prefix, last = "", member
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        prefix += f"{step}__"
    if weights is not None and has_fit_parameter(last, "sample_weight"):
        params[f"{prefix}sample_weight"] = weights
    return clone(member).fit(X, y, **params)


def _proba(fitted: Any, classes: np.ndarray, X: Any) -> np.ndarray:
    """Probabilities (n, n_classes) of rows, NaN for classes that a member has not seen."""
    if hasattr(fitted, "predict_proba"):
        proba = fitted.predict_proba(X)
    else:
        scores = fitted.decision_function(X)
        proba = softmax(np.c_[0.0 * scores, scores] if scores.ndim == 1 else scores, axis=1)
    of_all_classes = np.full((X.shape[0], len(classes)), np.nan)
    of_all_classes[:, np.searchsorted(classes, fitted.classes_)] = proba
    return of_all_classes


def _held_out_proba(
    member: Any,
    classes: np.ndarray,
    X: Any,
    y: np.ndarray,
    weights: np.ndarray | None,
    fold: tuple[np.ndarray, ...],
) -> np.ndarray:
    """Probabilities (n_test, n_classes) of a fold's test rows by a member trained on the rest."""
    train, test = fold
    weights = None if weights is None else weights[train]
    return _proba(_fitted(member, classes, X[train], y[train], weights), classes, X[test])


def _drawn_unlabelled(rows: _Rows, seed: int) -> Any:
    """The rows without a label; if they are too many, some at random, in their order."""
    X, X_unlabelled = rows.all_rows
    unlabelled = checks.joined([X[~rows.labelled], *X_unlabelled])
    drawn = np.random.default_rng(seed).permutation(unlabelled.shape[0])[:_MAX_UNLABELLED]
    return unlabelled[np.sort(drawn)]


def _must_learn(starts: Sequence[Any]) -> bool:
    """Whether one of these is an initializer that is not fitted."""
    return any(is_initializer(one) and not is_fitted_initializer(one) for one in starts)


def _automatic_starts(network: Any, X: Any) -> list[Any]:
    """The starts for "auto": fresh weights; if X has more than two axes also two initializers."""
    if X.ndim == 2:
        return [None]
    parameters = network.get_params(deep=False)
    shared = {n: parameters[n] for n in _SHARED if parameters.get(n) is not None}
    shared |= {n: value for n, value in parameters.items() if n.startswith(PREFIX)}
    return [None, *coherent_initializers(X, **shared)]


def _automatic_classifiers(X: Any, unlabelled: Any) -> list[tuple[str, Any]]:
    """The classifiers for "auto", with names: forest, two linear ones, SVC, label spreading."""
    classifiers: list[tuple[str, Any]] = [
        ("forest", RandomForestClassifier(300)),
        *((f"logistic, C={C:g}", LogisticRegression(C=C, max_iter=1000)) for C in (0.01, 1.0)),
    ]
    if X.shape[0] <= _MAX_SVC_ROWS:
        classifiers.append(("svc", SVC(C=10.0)))
    if unlabelled.shape[0] and not issparse(X):
        every = -(-len(X) // _MAX_UNLABELLED)  # rows may be sorted by class
        rows = np.concatenate([X[::every], unlabelled])
        if count_distinct(rows, N_NEIGHBORS + 1) > N_NEIGHBORS:
            classifiers.append((_SPREAD, NeighborSpreading(Neighborhood(rows))))
    return classifiers


class StackedStartsClassifier(PartlyLabelled):
    r"""Stacking [1]_ of networks from several starts (initial weights) and of other classifiers.

    Only labels can show whether learned initial weights, fresh ones, a forest or a kernel suit the
    data best. So this classifier trains a network from each start, and other classifiers. With
    :math:`p_k` the probabilities of classifier k it predicts

    .. math:: p(x) = \sum_k w_k \, \mathrm{softmax}(\log p_k(x) / T_k).

    Cross-validation on the labels finds temperatures T and weights v that give held-out rows the
    greatest likelihood, with one pseudo-observation for each classifier. The baseline weights u
    are 0 for label spreading and for networks from the second start on, and equal for all others.
    Let z be the mean gain in log-likelihood of v over u, divided by its standard error. Then

    .. math:: w = s v + (1 - s) u, \qquad s = \Phi(z - \text{min_advantage}).

    If the first start is fresh weights, networks from learned weights count only if held-out
    labels confirm them. Last, a *student* is trained: one round of self-training [2]_. It learns
    from the labels, and from the predictions for unlabelled rows as pseudo-labels, each weighted
    by its probability. The student's weight is a third of the share of pseudo-labelled rows among
    its rows.

    Parameters
    ----------
    estimator : NetClassifier or MLPClassifier, default=None
        The network and its fine-tuning, without ``warm_start_from`` and ``unlabelled_label``,
        which are set here. None: ``MLPClassifier((256, 256), max_iter=60,
        validation_split=None)``.
    starts : "auto" or list, default="auto"
        Values of ``warm_start_from`` for the networks: None for fresh weights, initializers,
        Theta0s or paths of ``.safetensors`` files. Only the first one is in the baseline. A fitted
        initializer is used as it is. An unfitted one is cloned, and the clone learns once from all
        rows, before cross-validation. "auto": fresh weights; if an example has several axes, also
        the two initializers of :class:`LearnedFeatures`, with the network's module.
    features : "auto", LearnedFeatures or None, default="auto"
        Features for one more classifier, ``LogisticRegression(C=100)``. A clone of them learns
        from all rows. "auto": ``LearnedFeatures()`` if `starts` is "auto" and X has dense, flat
        rows, else None.
    classifiers : "auto" or list of classifiers, default="auto"
        Classifiers besides the networks. They have ``predict_proba``, or a ``decision_function``,
        whose softmax is used. They get X as an array, without names of columns. ``[]``: only
        networks. "auto", for flat rows: ``RandomForestClassifier(300)``; ``LogisticRegression``
        with C=0.01 and with C=1; ``SVC(C=10)``, if there are at most 10,000 labels; and label
        spreading [3]_ with alpha=0.99 and 100 rounds, on the graph of ``coherence="auto"``, if
        there are unlabelled rows. "auto", if an example has several axes: none.
    student : "auto", classifier or None, default="auto"
        A classifier with ``predict_proba``, and ``sample_weight`` in its ``fit``. "auto":
        ``RandomForestClassifier(100, min_samples_leaf=3)`` for flat rows, None if an example has
        several axes.
    cv : int, default=5
        Number of stratified folds, at least 2. There are never more folds than the most frequent
        class has labels.
    min_advantage : float, default=2.0
        The value of z, at least 0, at which s is one half, so that v and u count the same. A
        smaller value follows the held-out labels sooner. A larger value stays closer to the
        baseline.
    unlabelled_label : int, float or str, default=None
        Label, such as -1, of rows that have none. Initializers learn from these rows and from
        ``X_unlabelled``. Label spreading and the student use at most 10,000 of them, at random.
    n_jobs : int, default=None
        Number of classifiers that are trained at the same time, as joblib's parameter.
    random_state : int, RandomState instance or None, default=None
        Seed of the folds, and of networks, classifiers and initializers whose own
        ``random_state`` is None. All networks and classifiers get the same seed.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    starts_ : list
        The starts, with initializers fitted.
    features_ : LearnedFeatures or None
        The features, fitted.
    estimators_ : list
        The network from each start, the classifier on learned features, the other classifiers, all
        trained on all labels, and last the student, if any.
    names_ : list of str
        Name of each of ``estimators_``.
    temperatures_ : ndarray of shape (n_estimators,)
        T; above 1 for an overconfident estimator.
    weights_ : ndarray of shape (n_estimators,)
        w.
    log_losses_ : ndarray of shape (n_estimators,)
        Cross-validated log loss at these temperatures. It is NaN for the student, and for all if
        there are no folds.
    advantage_ : float
        z.
    n_features_in_ : int
        Number of columns of X, or of values of an example.
    feature_names_in_ : ndarray of str
        Names of the columns, if X has them.

    See Also
    --------
    MMDInitializer : Learns initial weights from unlabelled data.
    sklearn.ensemble.StackingClassifier : Stacks any classifiers.

    Notes
    -----
    If a class has a single label, its row is in every training part and never held out. If fewer
    than two classes have two labels, there are no folds and no student. Then the weights are
    fixed: each network, the classifier on learned features and label spreading have equal weights,
    and all other classifiers with ``predict_proba`` together have one such weight. Classifiers
    without ``predict_proba`` have weight 0. Networks have a temperature of 3, the others of 1.

    Sparse rows stay sparse. With them "auto" has no learned features and no label spreading.

    References
    ----------
    .. [1] M. J. van der Laan, E. C. Polley and A. E. Hubbard, "Super Learner", Statistical
       Applications in Genetics and Molecular Biology 6(1), 2007.
    .. [2] D.-H. Lee, "Pseudo-Label", ICML workshop on challenges in representation learning, 2013.
    .. [3] D. Zhou, O. Bousquet, T. N. Lal, J. Weston and B. Schoelkopf, "Learning with Local and
       Global Consistency", NeurIPS 16, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_mmdinit import MLPClassifier, MMDInitializer, StackedStartsClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> few = np.where(np.arange(len(y)) < 100, y, -1)
    >>> init = MMDInitializer((64,), n_classes=10, coherence="auto", max_iter=20, random_state=0)
    >>> network = MLPClassifier((64,), max_iter=30, validation_split=None)
    >>> clf = StackedStartsClassifier(
    ...     network, [None, init], classifiers=[], unlabelled_label=-1, random_state=0
    ... ).fit(X / 16, few)
    >>> fresh = clf.estimators_[0]
    >>> bool(clf.weights_[1] > 0.5), clf.score(X / 16, y) > fresh.score(X / 16, y) + 0.1
    (True, True)
    """

    _parameter_constraints: ClassVar = {
        "starts": [list, tuple, checks.AUTO],
        "features": [LearnedFeatures, checks.AUTO, None],
        "classifiers": [list, tuple, checks.AUTO],
        "student": [checks.has_methods("fit", "predict_proba"), checks.AUTO, None],
        "cv": [checks.integers(2)],
        "min_advantage": [checks.numbers(0)],
        "unlabelled_label": [Integral, Real, str, None],
    }

    def __init__(
        self,
        estimator: Any = None,
        starts: Any = "auto",
        *,
        features: Any = "auto",
        classifiers: Any = "auto",
        student: Any = "auto",
        cv: int = 5,
        min_advantage: float = 2.0,
        unlabelled_label: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.starts = starts
        self.features = features
        self.classifiers = classifiers
        self.student = student
        self.cv = cv
        self.min_advantage = min_advantage
        self.unlabelled_label = unlabelled_label
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _check_parameters(self) -> None:
        """Raise an error that names the first parameter that is not valid."""
        if not isinstance(self.estimator, NetClassifier | None):
            raise TypeError(
                "estimator must be None, an MLPClassifier or a NetClassifier of this package, got "
                f"{checks.shortened(repr(self.estimator))}; for a network of other widths write "
                "StackedStartsClassifier(MLPClassifier((64, 64), max_iter=60, "
                "validation_split=None))"
            )
        super()._check_parameters()

    def __sklearn_clone__(self) -> Self:
        cloned: Self = super().__sklearn_clone__()
        if isinstance(self.starts, list | tuple):
            cloned.starts = fitted_or_cloned(self.starts, cloned.starts)
        return cloned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        starts = self.starts if isinstance(self.starts, list | tuple) else []
        tags.input_tags.sparse = not _must_learn(starts)  # an initializer learns from dense rows
        return tags

    @without_caller_settings()
    @checks.all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        X_unlabelled: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn the starts, train the networks and the classifiers, and weight them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, best standardized. A module may take rows of another shape.
        y : array-like of shape (n_samples,)
            Labels, numbers or strings, of at least two classes.
        X_unlabelled, classes
            As :class:`NetClassifier` takes them.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weight of each row, at least 0, for the members that take weights. A row of weight 0
            counts as one without a label.

        Returns
        -------
        self : estimator
            The fitted classifier.
        """
        self._check_parameters()
        rows = self._validated_rows(X, y, X_unlabelled, classes, sample_weight)
        folds_seed, seed, start_seed, rows_seed = seeds_of(self.random_state, 4)
        unlabelled = _drawn_unlabelled(rows, rows_seed)
        classifiers, student = self._classifiers_and_student(rows.X, rows.y, unlabelled, seed)
        network = self._network(seed)

        self.starts_ = self._learned_starts(network, rows, start_seed)
        self.features_ = self._learned_features(rows, start_seed)
        members = self._networks_and_features(network) + classifiers
        self.names_ = [name for name, _ in members]

        parallel = Parallel(n_jobs=self.n_jobs)
        data = self.classes_, rows.X, rows.y, rows.weights
        self.estimators_ = parallel(delayed(_fitted)(member, *data) for _, member in members)
        indices = labels.encode(rows.y, self.classes_, "y", "classes")
        folds = labels.stratified_folds(indices, self.cv, folds_seed)
        if not folds:
            self._set_default_weights()
            return self
        proba = parallel(
            delayed(_held_out_proba)(member, *data, fold) for _, member in members for fold in folds
        )
        held_out = np.concatenate([test for _, test in folds])
        shape = len(members), len(held_out), len(self.classes_)
        self._fit_weights(np.concatenate(proba).reshape(shape), indices[held_out])
        if student is not None and unlabelled.shape[0]:
            self._fit_student(student, rows.X, rows.y, rows.weights, unlabelled)
        return self

    def _validated_rows(
        self, X: Any, y: Any, X_unlabelled: Any, classes: Any, sample_weight: Any
    ) -> _Rows:
        """The rows of `fit`, checked; sets the fitted attributes of validation and ``classes_``."""
        if attached_theta0(X) is not None:
            hint = "pass that initializer in starts instead"
            raise ValueError(f"X carries theta0 from an earlier step of a Pipeline: {hint}")
        X, y, labelled = self._with_labels(X, y, reset=True, ensure_min_samples=2)
        labels.warn_if_unmarked(y, labelled, self.unlabelled_label, X_unlabelled, classes)
        weights = labels.validate_weights(sample_weight, labelled)
        if weights is not None:  # rows of weight 0 count as rows without a label
            labelled[labelled] = weights > 0
            weights = weights[weights > 0]
        self.classes_, _ = labels.learn_classes(y[labelled], classes, self.unlabelled_label)
        validate = partial(checks.examples_checked, self, accept_sparse=issparse(X) and "csr")
        more_rows = labels.validate_unlabelled(
            X_unlabelled, lambda rows: validate(rows, reset=False, shape=X.shape[1:])[0]
        )
        return _Rows(X[labelled], y[labelled], weights, labelled, (X, more_rows))

    def _network(self, seed: int) -> NetClassifier:
        """The network without a start, seeded."""
        network = self.estimator
        if network is None:
            network = MLPClassifier((256, 256), max_iter=60, validation_split=None)
        mark = network.unlabelled_label
        if mark is not None and self.unlabelled_label is None:
            raise ValueError(
                f"estimator has unlabelled_label={mark!r}; give it to StackedStartsClassifier"
            )
        seeded_network: NetClassifier = seeded(network, seed).set_params(unlabelled_label=None)
        return seeded_network

    def _networks_and_features(self, network: Any) -> list[tuple[str, Any]]:
        """Names and members: a network for each start, and a classifier on learned features."""
        members: list[tuple[str, Any]] = []
        for k, start in enumerate(self.starts_):
            name = "network, fresh weights" if start is None else f"network {k}"
            members.append((name, clone(network).set_params(warm_start_from=start)))
        if self.features_ is not None:
            logistic = LogisticRegression(C=_FEATURES_C, max_iter=1000)
            member = make_pipeline(FrozenEstimator(self.features_), logistic)
            members.append((_FEATURES, member))
        return members

    def _classifiers_and_student(
        self, X: Any, y: np.ndarray, unlabelled: Any, seed: int
    ) -> tuple[list[tuple[str, Any]], Any]:
        """Names and classifiers besides the networks, and the student or None; all seeded."""
        classifiers, student, is_table = self.classifiers, self.student, X.ndim == 2
        if checks.is_auto(classifiers):
            classifiers = _automatic_classifiers(X, unlabelled) if is_table else []
        else:
            classifiers = [(type(each).__name__, each) for each in classifiers]
        if checks.is_auto(student):
            student = RandomForestClassifier(100, min_samples_leaf=3) if is_table else None
        with checks.add_error_context("classifiers or student"):
            classifiers = [(name, seeded(each, seed)) for name, each in classifiers]
            student = None if student is None else seeded(student, seed)
        scores = "predict_proba", "decision_function"
        for _, classifier in classifiers:
            scoring = classifier
            if any(hasattr(type(classifier), name) for name in scores) and not any(
                hasattr(classifier, name) for name in scores
            ):
                # Such methods may exist only after fit, as those of a StackingClassifier.
                with checks.add_error_context("classifiers"):
                    scoring = clone(classifier).fit(X, y)
            checks.check_argument("classifiers", scoring, *map(checks.has_methods, scores))
            params = classifier.get_params().items()
            pairs = [n for n, value in params if isinstance(value, str) and value == "ovo"]
            if pairs and not hasattr(classifier, "predict_proba"):
                raise ValueError(
                    f"classifiers must score each class, and {classifier!r} scores pairs of them; "
                    f"set {pairs[0]}='ovr'"
                )
            seed_(classifier, seed)  # also the steps of a Pipeline
        if student is not None and not has_fit_parameter(student, "sample_weight"):
            raise TypeError(f"student must take sample_weight in fit, got {student!r}")
        if student is not None:
            seed_(student, seed)
        return classifiers, student

    def _learned_features(self, rows: _Rows, seed: int) -> Any:
        """The features, learned from all rows; None where there are none."""
        features, (X, X_unlabelled) = self.features, rows.all_rows
        if checks.is_auto(features):
            has_them = checks.is_auto(self.starts) and X.ndim == 2 and not issparse(X)
            features = LearnedFeatures() if has_them else None
        if features is None:
            return None
        params = {"n_classes": len(self.classes_)} if checks.is_auto(features.n_classes) else {}
        with checks.add_error_context("features"):
            features = seeded(features, seed).set_params(**params)
            features.fit(checks.joined([X, *X_unlabelled]))
        learned = checks.is_auto(features.initializers) or _must_learn(features.initializers)
        if learned and not checks.is_auto(self.features):
            rows.warn_if_few()
        return features

    def _learned_starts(self, network: Any, rows: _Rows, seed: int) -> list[Any]:
        """The starts, with each initializer fitted."""
        X, X_unlabelled = rows.all_rows
        given = _automatic_starts(network, X) if checks.is_auto(self.starts) else self.starts
        if not given:
            raise ValueError("starts must hold at least one start, got []")
        # Check all of them before the first one learns.
        inputs = X if X.dtype.kind in "iu" else X.astype(np.float32, copy=False)
        names = getattr(self, "feature_names_in_", None)
        networks = [clone(network).set_params(warm_start_from=start) for start in given]
        n_classes = len(self.classes_)
        checked = [each._find_start(inputs, inputs, n_classes, names, 0) for each in networks]
        if any(start.must_learn for start in checked):
            rows.warn_if_few()
        return [
            start.learn(X, X_unlabelled, seed).source if start.must_learn else value
            for value, start in zip(given, checked, strict=True)
        ]

    def _set_default_weights(self) -> None:
        """Temperatures and weights without held-out labels."""
        is_network = np.arange(len(self.estimators_)) < len(self.starts_)
        has_proba = np.array([hasattr(each, "predict_proba") for each in self.estimators_])
        # A classifier that learns from all rows weighs as much as a network. All other classifiers
        # together weigh as much as one network.
        from_all_rows = np.isin(self.names_, [_SPREAD, _FEATURES])
        others = has_proba & ~is_network & ~from_all_rows
        weights = has_proba / np.where(others, others.sum(), 1)
        self.temperatures_ = np.where(is_network, _DEFAULT_TEMPERATURE, 1.0)
        self.weights_ = weights / weights.sum()
        self.log_losses_, self.advantage_ = np.full(len(weights), np.nan), 0.0

    def _fit_weights(self, proba: np.ndarray, y: np.ndarray) -> None:
        """Temperatures and weights from held-out probabilities (n_estimators, n, n_classes)."""
        self.temperatures_ = np.array([fitted_temperature(each, y) for each in proba])
        log_proba = tempered(proba, self.temperatures_[:, None, None])[:, np.arange(len(y)), y]
        self.log_losses_, likelihoods = -log_proba.mean(axis=1), np.exp(log_proba.T)
        weights = stacking_weights(likelihoods)
        baseline = np.where(np.isin(self.names_, [_SPREAD]), 0.0, 1.0)
        baseline[1 : len(self.starts_)] = 0.0
        baseline /= baseline.sum()
        self.advantage_ = advantage(likelihoods @ weights, likelihoods @ baseline)
        share = ndtr(self.advantage_ - self.min_advantage)
        self.weights_ = share * weights + (1.0 - share) * baseline

    def _fit_student(
        self, student: Any, X: Any, y: np.ndarray, weights: np.ndarray | None, unlabelled: Any
    ) -> None:
        """Train a student on labels and pseudo-labels, and give it its weight."""
        proba = self._stacked_proba(unlabelled)
        rows, n_unlabelled = checks.joined([X, unlabelled]), unlabelled.shape[0]
        pseudo_labelled = np.concatenate([y, self.classes_[proba.argmax(axis=1)]])
        of_labelled = np.ones(len(y)) if weights is None else weights / weights.mean()
        sample_weight = np.r_[of_labelled, proba.max(axis=1)]
        self.names_ = [*self.names_, "student"]
        self.estimators_.append(student.fit(rows, pseudo_labelled, sample_weight=sample_weight))
        self.temperatures_ = np.r_[self.temperatures_, 1.0]
        self.log_losses_ = np.r_[self.log_losses_, np.nan]
        # With fewer pseudo-labels the student adds less, so its weight is smaller.
        share = _STUDENT_SHARE * n_unlabelled / rows.shape[0]
        self.weights_ = np.r_[self.weights_ * (1.0 - share), share]

    def _stacked_proba(self, X: np.ndarray) -> np.ndarray:
        """Probabilities (n, n_classes) of validated rows, by all estimators with a weight."""
        members = zip(self.weights_, self.estimators_, self.temperatures_, strict=True)
        weighted = [
            weight * np.exp(tempered(_proba(estimator, self.classes_, X), temperature))
            for weight, estimator, temperature in members
            if weight > 0
        ]
        return np.asarray(np.sum(weighted, axis=0))

    @without_caller_settings()
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n_samples, n_classes) in the order of ``classes_``, calibrated."""
        check_is_fitted(self, "weights_")
        shape = self.estimators_[0].input_shape_
        (X,) = self._validated(X, reset=False, shape=shape)
        return self._stacked_proba(X)
