"""Several starts for one task, weighed by its labels: stacking, tested against a plain vote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, ndtr, softmax
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from ._base.module_factory import PREFIX
from ._base.theta0_array import theta0_of
from ._base.validation import (
    all_or_nothing,
    check_finite,
    check_positive,
    examples_checked,
    is_auto,
)
from .classifiers import MLPClassifier, PartlyLabelled
from .coherence import coherence_of
from .fine_tuning import labels
from .graph.edges import seed_
from .graph.label_spreading import N_NEIGHBORS, Neighborhood, NeighborSpreading
from .graph.neighbors import count_distinct
from .initializer import MMDInitializer
from .transforms import RandomCorruption
from .warm_start import Start, is_fitted_initializer, seeded

__all__ = ["StackedStartsClassifier"]

_TINY = float(np.finfo(np.float32).tiny)  # probabilities of float32 may be 0
_LOG_RANGE = (-2.0, 4.0)  # of temperatures
_EM_STEPS = 1000
# Where there is nothing to fit it to: what five labels a class give in the mean.
_USUAL_TEMPERATURE = 3.0
# Labelled rows up to which a kernel, whose time is quadratic in them, is among the others.
_MOST_OF_A_KERNEL = 10_000
# Rows without a label that labels are spread over and guessed for: more cost minutes.
_MOST_GUESSED = 10_000
_SHARE_OF_STUDENT = 1 / 3

# Parameters that an initializer shares with the classifier that starts there.
_SHARED = ("module", "hidden_layer_sizes", "activation", "batch_norm", "init", "device")


# Mathematics


def tempered(proba: Any, temperature: Any) -> np.ndarray:
    """Logarithms of probabilities (..., n_classes) whose logits are divided by a temperature."""
    proba = np.asarray(proba, dtype=np.float64)
    # NaN, of a class that is not known, stays without a share.
    logits = np.where(np.isnan(proba), -np.inf, np.log(np.maximum(proba, _TINY)))
    return np.asarray(log_softmax(logits / temperature, axis=-1))


def fitted_temperature(proba: np.ndarray, y: np.ndarray) -> float:
    r"""The temperature T of probabilities (n, n_classes) of classes y (n,).

    Of the least log loss :math:`-\sum_i \log p_{i y_i}` and :math:`(\log T)^2 / 2`, a prior that
    keeps it from extremes where rows are few and all of them right, or wrong; from 0.14 to 55.
    """

    def objective(log_t: float) -> float:
        log_proba = tempered(proba, np.exp(log_t))[np.arange(len(y)), y]
        return float(log_t**2 / 2 - log_proba.sum())

    return float(np.exp(minimize_scalar(objective, bounds=_LOG_RANGE, method="bounded").x))


def stacking_weights(
    likelihoods: np.ndarray, prior: float = 1.0, n_steps: int = _EM_STEPS
) -> np.ndarray:
    r"""Weights w on the simplex (K,): :math:`\sum_i \log \sum_k w_k p_{ik}` is at its largest.

    As if so many rows more had spoken for each alone: with few rows, no weight goes to an extreme.
    By EM from equal weights on p (n, K).
    """
    weights = np.full(likelihoods.shape[1], 1.0 / likelihoods.shape[1])
    for _ in range(n_steps):
        shares = weights * likelihoods
        counts = (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0) + prior
        weights = counts / counts.sum()
    return weights


def advantage(likelihoods: np.ndarray, reference: np.ndarray) -> float:
    """Mean difference of two log-likelihoods of the same rows (n,), in its standard errors."""
    differences = np.log(likelihoods) - np.log(reference)
    error = differences.std(ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else 0.0
    return float(differences.mean() / error) if error > 0 else 0.0


# Fits


def _fitted(member: Any, classes: np.ndarray, X: np.ndarray, y: np.ndarray) -> Any:
    """A member's clone, trained; a network has an output also for a class without a label."""
    own = clone(member)
    return own.fit(X, y, classes=classes) if hasattr(own, "warm_start_from") else own.fit(X, y)


def _has_proba(other: Any) -> bool:
    """Whether a classifier has probabilities, and not only scores that wait for a temperature."""
    return hasattr(other, "predict_proba")


def _proba(fitted: Any, classes: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Probabilities (n, n_classes) of rows, NaN of classes that a member has not seen."""
    proba = np.full((len(X), len(classes)), np.nan)
    if _has_proba(fitted):
        own = fitted.predict_proba(X)
    else:
        scores = fitted.decision_function(X)
        own = softmax(np.c_[0.0 * scores, scores] if scores.ndim == 1 else scores, axis=1)
    proba[:, np.searchsorted(classes, fitted.classes_)] = own
    return proba


def _held_out(
    member: Any, classes: np.ndarray, X: np.ndarray, y: np.ndarray, fold: tuple[np.ndarray, ...]
) -> np.ndarray:
    """Probabilities (n_test, n_classes) of rows by a member that was trained on others."""
    train, test = fold
    return _proba(_fitted(member, classes, X[train], y[train]), classes, X[test])


def _automatic_starts(estimator: Any, X: np.ndarray) -> list[Any]:
    """Fresh weights; coherent ones by long walks; and by short walks among corrupted rows."""
    parameters = estimator.get_params(deep=False)
    network = {n: parameters[n] for n in _SHARED if parameters.get(n) is not None}
    network |= {n: value for n, value in parameters.items() if n.startswith(PREFIX)}
    short: Any = coherence_of("auto", X)
    short.set_params(walk_length=2.0, augmentation=RandomCorruption())
    return [None, *(MMDInitializer(coherence=c, **network) for c in ("auto", short))]


def _automatic_others(X: np.ndarray, unlabelled: np.ndarray) -> list[Any]:
    """A forest, two linear models, a Gaussian kernel, and labels spread over all rows."""
    linear = [LogisticRegression(C=C, max_iter=1000) for C in (0.01, 1.0)]
    kernel = [SVC(C=10.0)] if len(X) <= _MOST_OF_A_KERNEL else []
    others = [RandomForestClassifier(300), *linear, *kernel]
    rows = np.concatenate([X[:_MOST_GUESSED], unlabelled])
    if len(unlabelled) and count_distinct(rows, N_NEIGHBORS + 1) > N_NEIGHBORS:
        others.append(NeighborSpreading(Neighborhood(rows)))
    return others


class StackedStartsClassifier(PartlyLabelled):
    r"""Networks from several starts, weighed by cross-validation on the labels: stacking [1]_.

    Which start suits the data only labels can tell: some tables gain much from one, and on others
    none is as good as fresh weights, or a forest or a kernel better than any network. A network is
    trained from each start, and predictions are the convex combination of theirs and of other
    classifiers

    .. math:: p(x) = \sum_k w_k \, \mathrm{softmax}(\log p_k(x) / T_k)

    with temperatures T and weights v that give held-out rows the greatest likelihood, a prior
    towards equal weights counted as one row more for each. With z their advantage over the plain
    vote u, of the first start and the others alike without spread labels, row by row and in
    standard errors, then

    .. math:: w = s v + (1 - s) u, \qquad s = \Phi(z - \text{threshold})

    So with fresh weights first, what was learned of rows without a label has to earn its weight.
    What comes of this guesses the classes of those rows, and a *student* trained on labels and
    guesses together, each guess as heavy as it is sure, then has a third of the weight, times the
    part of its rows that are guesses: self-training in one round [2]_.

    Parameters
    ----------
    estimator : NetClassifier or MLPClassifier, default=None
        The network and its fine-tuning; its ``warm_start_from`` is not used, nor its
        ``unlabelled_label``. None: ``MLPClassifier((256, 256), max_iter=60,
        validation_split=None)``.
    starts : "auto" or list, default="auto"
        What ``warm_start_from`` of the networks may be: None for fresh weights, initializers,
        Theta0s or paths of ``.safetensors`` files, the one to fall back on first. Those fitted
        are used as they are, also in clones of this classifier; a clone of each other learns once
        from all rows, before any label is looked at (in a parameter grid a fitted one has to be
        in a FrozenEstimator, since scikit-learn un-fits those there). "auto": fresh weights,
        ``MMDInitializer(coherence="auto")``, and one with walks of 2 edges among rows under
        :class:`RandomCorruption`.
    others : "auto" or list of classifiers, default="auto"
        Classifiers with ``predict_proba`` or ``decision_function`` that are weighed along with the
        networks; the softmax of scores is as good as probabilities, once it has its temperature.
        "auto": ``RandomForestClassifier(300)``, ``LogisticRegression`` with C of 0.01 and of 1,
        up to 10,000 labels ``SVC(C=10)``, and where there are rows without a label what label
        spreading [3]_ makes of them and of coherence's graph, 100 rounds with alpha of 0.99; where
        an example is a row of numbers, and none where it is an array. ``[]``: networks alone.
        They get X as an array, without names of columns.
    student : "auto", classifier or None, default="auto"
        With ``predict_proba``, and ``sample_weight`` in its ``fit``. "auto":
        ``RandomForestClassifier(100, min_samples_leaf=3)`` where an example is a row of numbers,
        and none where it is an array.
    cv : int, default=5
        Folds, at least 2 and stratified; fewer where no class has as many labels.
    threshold : float, default=2.0
        Standard errors by which the stacked have to be ahead of the plain vote to get half of the
        weight; not negative. Smaller: more gain from few labels; larger: less is risked.
    unlabelled_label : int, float or str, default=None
        Rows with this label, such as -1, have none: initializers learn from them, and, as from
        ``X_unlabelled``, 10,000 at random are for label spreading and the student.
    n_jobs : int, default=None
        Classifiers trained at the same time, as joblib counts them.
    random_state : int, RandomState instance or None, default=None
        Of the folds; and of networks, others and initializers whose own ``random_state`` is None,
        the same for all that are weighed.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    starts_ : list
        The starts, initializers fitted.
    estimators_ : list
        The network from each, then the others, trained on all labels, and last the student, if
        any.
    temperatures_ : ndarray of shape (n_estimators,)
        T; above 1 where an estimator is surer than it is right.
    weights_ : ndarray of shape (n_estimators,)
        w.
    log_losses_ : ndarray of shape (n_estimators,)
        Cross-validated, at these temperatures; NaN without folds, and for the student.
    advantage_ : float
        Of the stacked over the plain vote, in standard errors.
    n_features_in_ : int
        Columns of X, or numbers of an example.
    feature_names_in_ : ndarray of str
        Names of the columns, where X has them.

    See Also
    --------
    MMDInitializer : Learns a start from unlabelled data.
    sklearn.ensemble.StackingClassifier : Stacks any classifiers.

    Notes
    -----
    The only label of a class is in every training part and never held out. Where no two classes
    have two there is nothing to weigh by, and no student: each network and the spread labels have
    the same weight, networks at a temperature of 3, the others with probabilities share that of
    one, and those with scores alone have none.

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
    >>> some = np.where(np.arange(len(y)) < 100, y, -1)
    >>> init = MMDInitializer((64,), n_classes=10, coherence="auto", max_iter=20, random_state=0)
    >>> network = MLPClassifier((64,), max_iter=30, validation_split=None)
    >>> clf = StackedStartsClassifier(
    ...     network, [None, init], others=[], unlabelled_label=-1, random_state=0
    ... ).fit(X / 16, some)
    >>> scores = [own.score(X / 16, y) for own in (clf.estimators_[0], clf)]
    >>> bool(clf.weights_[1] > 0.5), scores[1] > scores[0] + 0.1
    (True, True)
    """

    def __init__(
        self,
        estimator: Any = None,
        starts: Any = "auto",
        *,
        others: Any = "auto",
        student: Any = "auto",
        cv: int = 5,
        threshold: float = 2.0,
        unlabelled_label: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.starts = starts
        self.others = others
        self.student = student
        self.cv = cv
        self.threshold = threshold
        self.unlabelled_label = unlabelled_label
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_clone__(self) -> Self:
        cloned: Self = super().__sklearn_clone__()
        if isinstance(self.starts, list | tuple):
            # What is fitted stays so, as in NetClassifier.
            pairs = zip(self.starts, cloned.starts, strict=True)
            cloned.starts = [own if is_fitted_initializer(own) else new for own, new in pairs]
        return cloned

    @all_or_nothing
    def fit(self, X: Any, y: Any, X_unlabelled: Any = None, classes: Any = None) -> Self:
        """Learn the starts, train the networks and the others, and weigh them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, best standardised. A module may take rows of another shape.
        y : array-like of shape (n_samples,)
            Labels, numbers or strings, of at least two classes.
        X_unlabelled : array-like of shape (n_unlabelled, n_features) or tuple of such, default=None
            Further rows without a label; as a tuple where X is divided into folds.
        classes : array-like of shape (n_classes,), default=None
            All labels there are, where y misses some of them; None: those of y.

        Returns
        -------
        self : estimator
            The fitted classifier.
        """
        network = self._checked_network()
        self._check_others()
        self._check_student()
        if theta0_of(X) is not None:
            raise ValueError("X carries theta0 from a step before: its initializer is for starts")
        y, missing = labels.without_missing(y, self.unlabelled_label)
        X, y = examples_checked(self, X, y, reset=True, ensure_min_samples=2)
        labelled = labels.is_labelled(y, self.unlabelled_label) & ~missing
        if X_unlabelled is None:
            labels.warn_if_encoded(y, labelled, self.unlabelled_label)
        self.classes_, indices = labels.learn_classes(y[labelled], classes, self.unlabelled_label)
        shape = X.shape[1:]
        further = labels.further_rows(
            X_unlabelled, lambda X: examples_checked(self, X, reset=False, shape=shape)[0]
        )
        draws = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=4)
        folds_seed, seed, start_seed, rows_seed = map(int, draws)
        network = seeded(network, seed)
        self.starts_ = self._learned_starts(network, X, further, start_seed)
        members = [clone(network).set_params(warm_start_from=start) for start in self.starts_]
        unlabelled = np.concatenate([X[~labelled], *further])
        drawn = np.random.default_rng(rows_seed).permutation(len(unlabelled))[:_MOST_GUESSED]
        unlabelled = unlabelled[np.sort(drawn)]
        X, y = X[labelled], y[labelled]
        others, student, in_rows = self.others, self.student, len(shape) == 1
        if is_auto(others):
            others = _automatic_others(X, unlabelled) if in_rows else []
        if is_auto(student):
            student = RandomForestClassifier(100, min_samples_leaf=3) if in_rows else None
        for other in others:
            members.append(seeded(other, seed))
            seed_(members[-1], seed)  # the steps of a Pipeline too

        parallel = Parallel(n_jobs=self.n_jobs)
        own = self.classes_, X, y
        self.estimators_ = parallel(delayed(_fitted)(member, *own) for member in members)
        folds = labels.stratified_folds(indices, self.cv, folds_seed)
        held_out = parallel(
            delayed(_held_out)(member, *own, fold) for member in members for fold in folds
        )
        if folds:
            rows = np.concatenate([test for _, test in folds])
            proba = np.concatenate(held_out).reshape(len(members), len(rows), -1)
            self._weigh(proba, indices[rows])
            if student is not None and len(unlabelled):
                self._teach(seeded(student, seed), X, y, unlabelled)
        else:
            self._share_out()
        return self

    def _checked_network(self) -> Any:
        """The estimator to train from each start, once all parameters have been looked at."""
        check_positive(self, "cv", least=2)
        check_finite(self, "threshold")
        labels.check_parameters(None, self.unlabelled_label)
        if self.estimator is None:
            return MLPClassifier((256, 256), max_iter=60, validation_split=None)
        if isinstance(self.estimator, type) or not hasattr(self.estimator, "warm_start_from"):
            valid = "None, a NetClassifier or an MLPClassifier"
            raise TypeError(f"estimator must be {valid}, got {self.estimator!r}")
        mark = self.estimator.unlabelled_label
        if mark is not None and self.unlabelled_label is None:
            told = f"StackedStartsClassifier(unlabelled_label={mark!r}) is the place for it"
            raise ValueError(f"estimator has an unlabelled_label of its own: {told}")
        return clone(self.estimator).set_params(unlabelled_label=None)

    def _check_others(self) -> None:
        """Raise where the others are no classifiers, or have scores of pairs of classes."""
        if is_auto(self.others):
            return
        if not isinstance(self.others, list | tuple):
            raise TypeError(f'others must be "auto" or a list of classifiers, got {self.others!r}')
        for other in self.others:
            scored = _has_proba(other) or hasattr(other, "decision_function")
            if isinstance(other, type) or not scored:
                valid = "classifiers with predict_proba or decision_function"
                raise TypeError(f"others must be {valid}, got {other!r}")
            for name, value in other.get_params().items():
                pairs = name.endswith("decision_function_shape") and value == "ovo"
                if pairs and not _has_proba(other):
                    raise ValueError(
                        f'others must have {name}="ovr", a score a class, got {other!r}'
                    )

    def _check_student(self) -> None:
        """Raise where a student has no probabilities, or cannot learn from weighed rows."""
        student = self.student
        if student is None or is_auto(student):
            return
        weighed = hasattr(student, "fit") and has_fit_parameter(student, "sample_weight")
        if isinstance(student, type) or not (weighed and _has_proba(student)):
            valid = '"auto", None or a classifier with predict_proba and sample_weight in fit'
            raise TypeError(f"student must be {valid}, got {student!r}")

    def _learned_starts(
        self, network: Any, X: np.ndarray, further: Sequence[Any], seed: int
    ) -> list[Any]:
        """The starts, each initializer fitted."""
        given = self.starts
        if is_auto(given):
            given = _automatic_starts(network, X)
        if not isinstance(given, list | tuple) or not given:
            raise ValueError(f'starts must be "auto" or a list of at least one, got {given!r}')
        if tagged := [s for s in given if isinstance(s, str) and s in ("auto", "pipeline")]:
            raise ValueError(f"starts must say what they are, got {tagged[0]!r} among them")
        # All of them, before the first one learns.
        found = [self._begun(network, start, X) for start in given]
        return [
            start.learned(X, further, seed).initializer if start.is_to_be_learned else own
            for own, start in zip(given, found, strict=True)
        ]

    def _begun(self, network: Any, start: Any, X: np.ndarray) -> Start:
        """A start that the network has been seen to fit."""
        own = clone(network).set_params(warm_start_from=start)
        own.classes_, X = self.classes_, own._validated(X, reset=True)
        if hasattr(self, "feature_names_in_"):
            own.feature_names_in_ = self.feature_names_in_
        found: Start = own._begin(X, X, 0).start
        return found

    def _are_spread(self) -> np.ndarray:
        """Which of the members are labels spread over all rows, bool (n_estimators,)."""
        return np.array([isinstance(own, NeighborSpreading) for own in self.estimators_])

    def _share_out(self) -> None:
        """Weights where no label can be held out."""
        n_networks = len(self.starts_)
        others, rest = self.estimators_[n_networks:], ~self._are_spread()[n_networks:]
        self.temperatures_ = np.repeat([_USUAL_TEMPERATURE, 1.0], [n_networks, len(others)])
        # Labels spread over all rows count as much as a network, the rest together.
        shares = np.array([_has_proba(other) for other in others], dtype=float)
        shares[rest] /= max(shares[rest].sum(), 1.0)
        weights = np.r_[np.ones(n_networks), shares]
        self.weights_ = weights / weights.sum()
        self.log_losses_, self.advantage_ = np.full(len(weights), np.nan), 0.0

    def _weigh(self, proba: np.ndarray, y: np.ndarray) -> None:
        """Temperatures and weights by held-out probabilities (n_estimators, n, n_classes)."""
        self.temperatures_ = np.array([fitted_temperature(each, y) for each in proba])
        log_proba = tempered(proba, self.temperatures_[:, None, None])[:, np.arange(len(y)), y]
        self.log_losses_, likelihoods = -log_proba.mean(axis=1), np.exp(log_proba.T)
        weights = stacking_weights(likelihoods)
        plain = np.where(self._are_spread(), 0.0, 1.0)
        plain[1 : len(self.starts_)] = 0.0
        plain /= plain.sum()
        self.advantage_ = advantage(likelihoods @ weights, likelihoods @ plain)
        share = ndtr(self.advantage_ - self.threshold)
        self.weights_ = share * weights + (1.0 - share) * plain

    def _teach(self, student: Any, X: np.ndarray, y: np.ndarray, unlabelled: np.ndarray) -> None:
        """Train a student on labels and on what the others guess, and give it its share."""
        proba = self._combined(unlabelled)
        guesses, sureness = self.classes_[proba.argmax(axis=1)], proba.max(axis=1)
        rows = np.concatenate([X, unlabelled]), np.concatenate([y, guesses])
        weights = np.r_[np.ones(len(y)), sureness]
        self.estimators_.append(student.fit(*rows, sample_weight=weights))
        self.temperatures_ = np.r_[self.temperatures_, 1.0]
        self.log_losses_ = np.r_[self.log_losses_, np.nan]
        # The less there is to guess, the less it can add.
        share = _SHARE_OF_STUDENT * len(unlabelled) / len(weights)
        self.weights_ = np.r_[self.weights_ * (1.0 - share), share]

    def _combined(self, X: np.ndarray) -> np.ndarray:
        """Probabilities (n, n_classes) of checked rows, by all that have a weight."""
        parts = zip(self.weights_, self.estimators_, self.temperatures_, strict=True)
        used = [
            w * np.exp(tempered(_proba(own, self.classes_, X), T)) for w, own, T in parts if w > 0
        ]
        return np.asarray(np.sum(used, axis=0))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, calibrated by cross-validation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        proba : ndarray of float64 of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        check_is_fitted(self, "weights_")
        (X,) = examples_checked(self, X, reset=False, shape=self.estimators_[0].input_shape_)
        return self._combined(X)
