"""What the paper measures of a theta0, and which inputs' predictions move together near it.

Every function takes a fitted initializer, a fitted ``MLPClassifier`` (where it started) or a
:class:`~sklearn_mmdinit.Theta0`, and looks at theta0 before its gain, as pre-training left it:
perturbations of a fixed size mean something else for larger weights. Of a module's theta0 it has to
be the initializer, which knows the module. The defaults are the paper's: 128 random mini-batches of
32 rows and 256 perturbed networks.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state, check_scalar

from ._compute import StepRandom
from ._network import ModuleArchitecture
from ._objective import coherence_kernel as kernel_of
from ._sampling import Perturbation, perturbed_logits
from ._subject import Subject, pretrained_theta0

__all__ = [
    "coherence_kernel",
    "dead_neuron_ratio",
    "degenerate_softmax_ratio",
    "prediction_samples",
]


def _scale(source: Any, perturbation_scale: float | None) -> float:
    scale = perturbation_scale
    if scale is None:
        # A classifier's is that of the initializer it started from.
        own = getattr(source, "initializer_", source)
        scale = getattr(own, "perturbation_scale", math.sqrt(0.5))
    check_scalar(scale, "perturbation_scale", Real)
    if not 0 <= scale < math.inf:  # NaN neither
        raise ValueError(f"perturbation_scale must be a finite number >= 0, got {scale!r}")
    return float(scale)


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        check_scalar(count, name, Integral, min_val=1)


def _seeded(random_state: Any) -> tuple[np.random.RandomState, StepRandom]:
    random = check_random_state(random_state)
    return random, StepRandom(int(random.randint(np.iinfo(np.int32).max)))


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
    source : initializer, MLPClassifier or Theta0
        Whose theta0 is perturbed.
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
        Of mini-batches and perturbations.

    Returns
    -------
    ratios : ndarray of shape (n_batches,)
        Between 0 and 1, one for each mini-batch; the paper reports their mean and standard
        deviation in percent.

    Raises
    ------
    ValueError
        If `source` holds no theta0, X does not fit it, or a number is not valid.

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
    subject = Subject.of(source)
    X = subject.rows(X)
    scale = _scale(source, perturbation_scale)
    _check_counts(n_perturbations=n_perturbations, n_batches=n_batches, batch_size=batch_size)
    rows, random = _seeded(random_state)
    n_classes = subject.n_classes
    perturbation = Perturbation(n_perturbations, scale)
    ratios = []
    with torch.no_grad(), subject.threads(n_perturbations * batch_size):
        for step, batch in enumerate(subject.batches(X, n_batches, batch_size, rows)):
            logits = perturbed_logits(subject.network, batch, perturbation, random.at(step))
            used = torch.nn.functional.one_hot(logits.argmax(-1), n_classes).amax(dim=1)
            ratios.append(float((used.sum(-1) < n_classes).double().mean()))
    return np.asarray(ratios)


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
    source : initializer, MLPClassifier or Theta0
        Whose theta0 is looked at, unperturbed.
    X : array-like of shape (n_samples, ...)
        Rows to draw mini-batches from.
    n_batches : int, default=128
        Mini-batches.
    batch_size : int, default=32
        Rows of each.
    random_state : int, RandomState instance or None, default=None
        Of the mini-batches.

    Returns
    -------
    ratios : ndarray of shape (n_batches, n_hidden_layers)
        Between 0 and 1; the paper reports mean and standard deviation over mini-batches.

    Raises
    ------
    ValueError
        If the activation is not ReLU: other units do not die; if theta0 is of a module, `source`
        holds none, X does not fit it, or a count is not positive.

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
    architecture = pretrained_theta0(source).architecture
    if isinstance(architecture, ModuleArchitecture):
        raise ValueError(
            "fully dead neurons are counted in a multi-layer perceptron, and theta0 is of the "
            f"module {architecture.module}"
        )
    if architecture.activation != "relu":
        raise ValueError(
            f"fully dead neurons are defined for activation='relu', got {architecture.activation!r}"
        )
    subject = Subject.of(source)
    X = subject.rows(X)
    _check_counts(n_batches=n_batches, batch_size=batch_size)
    if architecture.batch_norm and min(batch_size, len(X)) < 2:
        raise ValueError(
            "batch normalisation needs at least 2 rows a mini-batch, got "
            f"batch_size={batch_size} and {len(X)} rows"
        )
    rows, _ = _seeded(random_state)
    ratios = []
    with torch.no_grad():
        for batch in subject.batches(X, n_batches, batch_size, rows):
            alive = [(H > 0).any(dim=0) for H in subject.network.hidden_layers(batch)]
            ratios.append([float((~layer).double().mean()) for layer in alive])
    return np.asarray(ratios).reshape(n_batches, -1)


def prediction_samples(
    source: Any,
    X: Any,
    *,
    perturbation_scale: float | None = None,
    n_perturbations: int = 1024,
    random_state: Any = None,
) -> np.ndarray:
    """Predictions of perturbed networks, each network the same for all rows.

    A column of the result, over perturbations, shows whether predictions for one input are
    uniform; a row of it, over inputs, whether one network depends on its input.

    Parameters
    ----------
    source : initializer, MLPClassifier or Theta0
        Whose theta0 is perturbed.
    X : array-like of shape (n_samples, ...)
        Inputs, taken as one mini-batch.
    perturbation_scale : float, default=None
        The paper's s; None takes the initializer's own, or sqrt(0.5) where there is none.
    n_perturbations : int, default=1024
        Perturbed networks.
    random_state : int, RandomState instance or None, default=None
        Of the perturbations.

    Returns
    -------
    probabilities : ndarray of shape (n_perturbations, n_samples, n_classes)
        Rows on the simplex, float32.

    Raises
    ------
    ValueError
        If `source` holds no theta0, X does not fit it, or a number is not valid.

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
    subject = Subject.of(source)
    X = subject.rows(X)
    scale = _scale(source, perturbation_scale)
    _check_counts(n_perturbations=n_perturbations)
    _, random = _seeded(random_state)
    perturbation = Perturbation(n_perturbations, scale)
    with torch.no_grad():
        logits = perturbed_logits(subject.network, subject.examples(X), perturbation, random)
        probabilities: np.ndarray = logits.softmax(-1).numpy()
    return probabilities


def coherence_kernel(source: Any, X: Any) -> np.ndarray:
    r"""Correlation of what perturbations of the last layer add to a logit at two inputs.

    :math:`C_{ij} \propto \langle h_i, h_j \rangle / n + 1 / d` with ones on the diagonal, where h
    are the n activations of the last hidden layer at theta0. Inputs of a large C get their
    labels together from the first steps of fine-tuning on.

    Parameters
    ----------
    source : initializer, MLPClassifier or Theta0
        Whose theta0 is looked at.
    X : array-like of shape (n_samples, ...)
        Inputs; the result has n_samples squared entries.

    Returns
    -------
    kernel : ndarray of shape (n_samples, n_samples)
        Symmetric, float32.

    Raises
    ------
    ValueError
        If `source` holds no theta0, X does not fit it, or is too large for activations whose
        products float32 can hold.

    See Also
    --------
    sklearn_mmdinit.Coherence : The loss term made of it.
    sklearn_mmdinit.display.CoherenceDisplay : Draws it.

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
    subject = Subject.of(source)
    H = subject.hidden(subject.rows(X))
    kernel: np.ndarray = kernel_of(H, subject.network.n_last_biases).numpy()
    if not np.isfinite(kernel).all():
        raise ValueError(
            f"hidden activations of X reach {float(H.abs().max()):.2g}, and float32 does not hold "
            "their products: give X on the scale that theta0 was learned on"
        )
    return kernel
