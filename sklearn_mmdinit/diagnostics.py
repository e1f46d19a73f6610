"""Measures a theta0 as the paper does, and checks whether coherence may help.

:func:`neighbor_agreement` takes only data. Every other function takes a fitted initializer, a
fitted classifier or the :class:`~sklearn_mmdinit.Theta0` of a perceptron. It measures the initial
weights of a classifier, not the trained ones, and removes the gain from theta0 first. The defaults
of `degenerate_softmax_ratio` and `dead_neuron_ratio` are the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_array, check_random_state, column_or_1d
from sklearn.utils.validation import check_consistent_length, validate_data
from torch import nn

from . import losses
from ._base.environment import array_of, check_float32, without_caller_settings
from ._base.module_factory import ModuleFactory
from ._base.random_streams import StepRandom, seeds_of
from ._base.validation import check_argument, integers, numbers
from .coherence import coherence_of
from .fine_tuning import labels
from .fine_tuning.head import body_of
from .graph.edges import neighbor_graph
from .graph.label_spreading import spread_labels
from .networks.builder import NetworkBuilder
from .networks.info import perturbed_logits
from .networks.passes import batch_norms, hidden_activations, hooked
from .theta0 import theta0_in
from .training.loop import training_threads

__all__ = [
    "NeighborAgreement",
    "coherence_kernel",
    "dead_neuron_ratio",
    "degenerate_softmax_ratio",
    "neighbor_agreement",
    "prediction_samples",
]


class _Probe:
    """The network of a source at theta0 without gain, checked rows X, and random draws."""

    def __init__(
        self, source: Any, X: Any, random_state: Any = 0, scale: float | None = None, **counts: int
    ) -> None:
        for name, count in counts.items():
            check_argument(name, count, integers(1))
        check_argument("perturbation_scale", scale, numbers(0), None)
        theta0 = theta0_in(source)
        if theta0 is None:
            raise ValueError(f"source must be a Theta0 or a fitted estimator, got {source!r}")
        if hasattr(source, "feature_names_in_"):
            # Checks only names, because the checks below have errors that mention theta0.
            validate_data(source, X, reset=False, skip_check_array=True, ensure_2d=False)
        architecture = theta0.architecture
        dtypes = [np.float32, np.float64] if architecture.is_perceptron else "numeric"
        self.X = np.asarray(check_array(array_of(X), dtype=dtypes, allow_nd=True))
        check_float32(self.X)
        if (shape := self.X.shape[1:]) != architecture.input_shape:
            expected = architecture.input_shape
            raise ValueError(f"X has examples of shape {shape}, theta0 expects {expected}")
        learned_by = getattr(source, "initializer_", None) or source
        builder = getattr(learned_by, "_builder", None)
        if builder is None or builder.architecture.digest != architecture.digest:
            # A Theta0 can make only the built-in perceptron, and no other module.
            module = getattr(source, "module_", None) or theta0.to_module()
            builder, _ = NetworkBuilder.of(ModuleFactory(body_of(module)), self.X)
        self.builder: NetworkBuilder = builder
        self.network = builder.network_at(theta0.without_gain(), "cpu")
        own_scale = getattr(learned_by, "perturbation_scale", math.sqrt(0.5))
        self.scale = own_scale if scale is None else scale
        self._rows = check_random_state(random_state)
        self._random = StepRandom(seeds_of(self._rows, 1)[0])

    def batches(self, n_batches: int, batch_size: int) -> Iterator[torch.Tensor]:
        """Mini-batches drawn at random."""
        n_rows = len(self.X)
        for _ in range(n_batches):
            rows = self._rows.choice(n_rows, size=min(batch_size, n_rows), replace=False)
            yield self.builder.as_examples(self.X[rows])

    def logits(self, examples: torch.Tensor, n: int, step: int = 0) -> torch.Tensor:
        """Logits (n, B, d) of perturbed networks; a ValueError where they are not finite."""
        info, random = self.builder.info, self._random.at(step)
        logits = perturbed_logits(self.network, info, examples, n, self.scale, random)
        if not logits.isfinite().all():
            raise ValueError(
                f"perturbation_scale={self.scale} gives logits that are not finite; use a smaller "
                "one, or give X on the scale that theta0 was learned on"
            )
        return logits


@without_caller_settings()
def degenerate_softmax_ratio(
    source: Any,
    X: Any,
    *,
    perturbation_scale: float | None = None,
    n_perturbations: int = 256,
    n_batches: int = 128,
    batch_size: int = 32,
    random_state: Any = None,
) -> np.ndarray:
    """Share of perturbed networks that use fewer than all classes on a mini-batch.

    Parameters
    ----------
    source : initializer, classifier or Theta0
        Its theta0 is perturbed.
    X : array-like of shape (n_samples, ...)
        Rows to draw mini-batches from.
    perturbation_scale : float, default=None
        The paper's s; None takes the initializer's own, or sqrt(0.5) where there is none.
    n_perturbations : int, default=256
        Perturbed networks for each mini-batch.
    n_batches : int, default=128
        Mini-batches.
    batch_size : int, default=32
        Rows of each.
    random_state : int, RandomState instance or None, default=None
        Seed of mini-batches and perturbations.

    Returns
    -------
    ratios : ndarray of shape (n_batches,)
        Between 0 and 1, one for each mini-batch.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit import MMDInitializer
    >>> from sklearn_mmdinit.diagnostics import degenerate_softmax_ratio
    >>> X = np.random.default_rng(0).normal(size=(64, 5))
    >>> init = MMDInitializer((8,), n_perturbations=8, max_iter=1, random_state=0).fit(X)
    >>> degenerate_softmax_ratio(init, X, n_batches=3, random_state=0).shape
    (3,)
    """
    counts = {"n_perturbations": n_perturbations, "n_batches": n_batches, "batch_size": batch_size}
    probe = _Probe(source, X, random_state, perturbation_scale, **counts)
    info, ratios = probe.builder.info, []
    n_rows, device = n_perturbations * batch_size, torch.device("cpu")
    with torch.no_grad(), training_threads(probe.network, info, n_rows, device):
        for step, batch in enumerate(probe.batches(n_batches, batch_size)):
            predicted = probe.logits(batch, n_perturbations, step).argmax(-1)
            used = torch.nn.functional.one_hot(predicted, info.n_classes).amax(dim=1)
            ratios.append(float((used.sum(-1) < info.n_classes).double().mean()))
    return np.asarray(ratios)


@without_caller_settings()
def dead_neuron_ratio(
    source: Any,
    X: Any,
    *,
    n_batches: int = 128,
    batch_size: int = 32,
    random_state: Any = None,
) -> np.ndarray:
    """Share of ReLU units, at theta0, that are 0 for every row of a mini-batch.

    Parameters
    ----------
    source : initializer, classifier or Theta0
        Its theta0 is used, without perturbations.
    X, n_batches, batch_size, random_state
        As :func:`degenerate_softmax_ratio` takes them.

    Returns
    -------
    ratios : ndarray of shape (n_batches, n_layers)
        Between 0 and 1; a column for each call of an ``nn.ReLU``, in the order of the calls.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit import MMDInitializer
    >>> from sklearn_mmdinit.diagnostics import dead_neuron_ratio
    >>> X = np.random.default_rng(0).normal(size=(64, 5))
    >>> init = MMDInitializer((8, 8), n_perturbations=8, max_iter=1, random_state=0).fit(X)
    >>> dead_neuron_ratio(init, X, n_batches=3, random_state=0).shape
    (3, 2)
    """
    probe = _Probe(source, X, random_state, n_batches=n_batches, batch_size=batch_size)
    units = [layer for layer in probe.network.modules() if isinstance(layer, nn.ReLU)]
    if not units:
        architecture = probe.builder.architecture
        name = f"{architecture.module} with {dict(architecture.parameters)}"
        raise ValueError(f"dead neurons are counted in layers of nn.ReLU, and {name} has none")
    if min(batch_size, len(probe.X)) < 2 and batch_norms(probe.network):
        sizes = f"{batch_size=} and {len(probe.X)} rows"
        raise ValueError(f"batch normalization needs at least 2 rows a mini-batch, got {sizes}")
    ratios: list[float] = []

    def count(layer: nn.Module, args: Any, output: torch.Tensor) -> None:
        if not output.isfinite().all():
            raise ValueError(
                "activations of X are not finite: give X on the scale that theta0 was learned on"
            )
        ratios.append(float((~(output > 0).any(dim=0)).double().mean()))

    with torch.no_grad(), hooked(units, count):
        for batch in probe.batches(n_batches, batch_size):
            probe.network(batch)
    return np.asarray(ratios).reshape(n_batches, -1)


@without_caller_settings()
def prediction_samples(
    source: Any,
    X: Any,
    *,
    perturbation_scale: float | None = None,
    n_perturbations: int = 1024,
    random_state: Any = None,
) -> np.ndarray:
    """Predictions of perturbed networks; each network predicts all rows.

    ``result[:, i]`` shows whether the predictions for input i are uniform. ``result[k]`` shows
    whether the predictions of network k depend on the input.

    Parameters
    ----------
    source, perturbation_scale
        As :func:`degenerate_softmax_ratio` takes them.
    X : array-like of shape (n_samples, ...)
        Inputs, taken as one mini-batch.
    n_perturbations : int, default=1024
        Perturbed networks.
    random_state : int, RandomState instance or None, default=None
        Seed of the perturbations.

    Returns
    -------
    probabilities : ndarray of shape (n_perturbations, n_samples, n_classes)
        Rows on the simplex, float32.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit import MMDInitializer
    >>> from sklearn_mmdinit.diagnostics import prediction_samples
    >>> X = np.random.default_rng(0).normal(size=(64, 5))
    >>> init = MMDInitializer((8,), n_perturbations=8, max_iter=1, random_state=0).fit(X)
    >>> prediction_samples(init, X[:4], n_perturbations=10, random_state=0).shape
    (10, 4, 2)
    """
    probe = _Probe(source, X, random_state, perturbation_scale, n_perturbations=n_perturbations)
    with torch.no_grad():
        logits = probe.logits(probe.builder.as_examples(probe.X), n_perturbations)
        probabilities: np.ndarray = logits.softmax(-1).numpy()
    return probabilities


@without_caller_settings()
def coherence_kernel(source: Any, X: Any) -> np.ndarray:
    r"""Correlation of a logit's changes at two inputs when the last layer is perturbed.

    :math:`C_{ij} \propto \langle h_i, h_j \rangle / n + 1 / d` with ones on the diagonal, where h
    are the n activations of the last hidden layer at theta0. If C of two inputs is large, the first
    steps of fine-tuning change their predictions in the same way.

    Parameters
    ----------
    source : initializer, classifier or Theta0
        Its theta0 is used.
    X : array-like of shape (n_samples, ...)
        Inputs; the result has n_samples squared entries.

    Returns
    -------
    kernel : ndarray of shape (n_samples, n_samples)
        Symmetric, float32.

    See Also
    --------
    sklearn_mmdinit.Coherence : The loss term that is computed from it.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit import MMDInitializer
    >>> from sklearn_mmdinit.diagnostics import coherence_kernel
    >>> X = np.random.default_rng(0).normal(size=(64, 5))
    >>> init = MMDInitializer((8,), n_perturbations=8, max_iter=1, random_state=0).fit(X)
    >>> coherence_kernel(init, X[:3]).shape
    (3, 3)
    """
    probe = _Probe(source, X)
    builder, network = probe.builder, probe.network.eval()
    with torch.no_grad():
        H = hidden_activations(network, builder.as_examples(probe.X), builder.known_last_layer())
        kernel: np.ndarray = losses.logit_correlation(H, builder.info.n_biases).numpy()
    if not np.isfinite(kernel).all():
        reached = f"hidden activations of X reach {float(H.abs().max()):.2g}"
        raise ValueError(
            f"{reached}, and C overflows float32: give X on the scale that theta0 was learned on"
        )
    return kernel


class NeighborAgreement(NamedTuple):
    """The result of :func:`neighbor_agreement`; ``str`` gives a sentence.

    Parameters
    ----------
    neighbors, linear, most_frequent : float
        Accuracy on held-out labels: of neighbours, of a linear model, and of always predicting the
        most frequent class.
    n_labels : int
        Number of labels held out.
    interval : tuple of float
        95 % interval of `neighbors` minus the larger of `linear` and `most_frequent`, by the method
        of Bonett and Price for paired proportions. If it holds 0, ``str`` gives no advice.

    Examples
    --------
    >>> from sklearn_mmdinit.diagnostics import NeighborAgreement
    >>> print(NeighborAgreement(0.9, 0.7, 0.3, n_labels=50, interval=(0.03, 0.35)))
    Of 50 held-out labels neighbours predict 90 %, a linear model 70 %, the most frequent class
    30 %. Neighbours minus the better of the other two: +3 to +35 points (95 % interval). Coherence
    may help.
    """

    neighbors: float
    linear: float
    most_frequent: float
    n_labels: int
    interval: tuple[float, float]

    def __str__(self) -> str:
        lower, upper = self.interval
        advice = "These labels do not show whether coherence may help."
        if lower > 0:
            advice = "Coherence may help."
        elif upper < 0:
            advice = "Coherence may not help; let StackedStartsClassifier decide."
        return (
            f"Of {self.n_labels} held-out labels neighbours predict {100 * self.neighbors:.0f} %, "
            f"a linear model {100 * self.linear:.0f} %, the most frequent class "
            f"{100 * self.most_frequent:.0f} %. Neighbours minus the better of the other two: "
            f"{_points(lower)} to {_points(upper)} points (95 % interval). {advice}"
        )


def _points(difference: float) -> str:
    """A difference of accuracies in whole points; with one digit where that rounds to 0."""
    points = 100 * difference
    digits = ".0f" if abs(points) > 0.5 else ".1g"
    return f"{points:+{digits}}" if points else "0"


def _interval_of_difference(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """95 % interval of a difference of accuracies; `first`, `second`: which rows (n,) are right."""
    # Adds a row that only `first` has right, and one that only `second` has right, so that the
    # interval is not too narrow if there are few rows.
    n = len(first) + 2
    only_first, only_second = (
        (np.sum(a & ~b) + 1) / n for a, b in ((first, second), (second, first))
    )
    difference = only_first - only_second
    error = 1.96 * math.sqrt((only_first + only_second - difference**2) / n)
    return max(float(difference - error), -1.0), min(float(difference + error), 1.0)


def neighbor_agreement(
    X: Any, y: Any, *, unlabelled_label: Any = -1, cv: int = 5, random_state: Any = None
) -> NeighborAgreement:
    """Compare how well neighbours and a linear model predict held-out labels, without training.

    Neighbours predict by random walks from each held-out row. A walk that ends at a row with a
    label votes for this label. Walks have about 37 edges in the mean, and at most 120. The graph is
    that of ``coherence="auto"``, with edges in both directions. The linear model is logistic
    regression. If neighbours are better, this is a weak sign that coherence helps. This sign was
    right on 18 of 24 data sets, both with 5 and with 20 labels a class. The constant answer that
    coherence does not help was right on 15 with 5 labels a class, and on 17 with 20
    (``benchmarks/agreement.py``).

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Labelled and unlabelled rows; standardize them.
    y : array-like of shape (n_samples,)
        Labels, at least two of each of two classes.
    unlabelled_label : int, float, str or None, default=-1
        The value in y of rows without a label. NaN and None always have this meaning. Pass None if
        -1 is a class.
    cv : int, default=5
        Number of folds, at least 2.
    random_state : int, RandomState instance or None, default=None
        Seed of the folds.

    Returns
    -------
    agreement : NeighborAgreement
        Accuracy of each on the held-out labels, and an interval of the difference.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_mmdinit.diagnostics import neighbor_agreement
    >>> X, y = load_digits(return_X_y=True)
    >>> some = np.where(np.arange(len(y)) % 36 == 0, y, -1)
    >>> print(neighbor_agreement(X, some, random_state=0))
    Of 50 held-out labels neighbours predict ... %, a linear model ... %, the most frequent class
    ... %. Neighbours minus the better of the other two: ... points (95 % interval). ...
    """
    check_argument("cv", cv, integers(2))
    labels.check_marker(unlabelled_label)
    X = np.asarray(check_array(array_of(X), dtype=np.float32, allow_nd=True))
    X, (y, missing) = X.reshape(len(X), -1), labels.replace_missing(column_or_1d(y), math.nan)
    check_consistent_length(X, y)
    says_none = unlabelled_label is None
    if isinstance(unlabelled_label, Real) and all(isinstance(label, str) for label in y):
        unlabelled_label = None  # a number cannot occur among strings
    has_label = labels.is_labelled(y, unlabelled_label) & ~missing
    if not says_none:
        labels.warn_of_suspects(labels.suspects_in(y[has_label]), "counts as a class")
    rows = np.flatnonzero(has_label)
    classes, indices = np.unique(y[rows], return_inverse=True)
    (seed,) = seeds_of(random_state, 1)
    folds = labels.stratified_folds(indices, cv, seed)
    if not folds:
        raise ValueError(
            "y must have at least two labels of each of at least two classes, got the labels "
            f"{y[rows]!r}; with fewer labels try StackedStartsClassifier"
        )
    auto: Any = coherence_of("auto", X)
    sizes = {"n_neighbors": auto.n_neighbors, "shared_neighbor_power": auto.shared_neighbor_power}
    edges = neighbor_graph(X, **sizes)
    edges = edges + edges.T
    steps = edges.multiply(1.0 / edges.sum(axis=1)[:, None]).tocsr()
    p_end, n_rounds = 1 / auto.walk_length, int(3 * auto.walk_length)
    # Predictions of neighbours, of the linear model, and of the most frequent class.
    guesses = np.empty((3, len(rows)), dtype=int)
    for train, test in folds:
        start = np.zeros((len(X), len(classes)))
        start[rows[train], indices[train]] = 1.0
        votes = spread_labels(steps, start, p_end * start, 1 - p_end, n_rounds)
        model = LogisticRegression(max_iter=1000).fit(X[rows[train]], indices[train])
        guesses[2, test] = np.bincount(indices[train]).argmax()
        guesses[1, test] = model.predict(X[rows[test]])
        # Labels reach no row of another component of the graph.
        reached = votes[rows[test]].any(axis=1)
        guesses[0, test] = np.where(reached, votes[rows[test]].argmax(axis=1), guesses[2, test])
    held_out = np.concatenate([test for _, test in folds])
    is_right = guesses[:, held_out] == indices[held_out]
    neighbors, linear, frequent = is_right.mean(axis=1).tolist()
    interval = _interval_of_difference(is_right[0], is_right[1 if linear >= frequent else 2])
    return NeighborAgreement(neighbors, linear, frequent, len(held_out), interval)
