"""Measures a theta0 as the paper does.

Every function takes a fitted initializer, a fitted classifier or the
:class:`~sklearn_mmdinit.Theta0` of a perceptron. It measures the initial weights of a classifier,
not the trained ones, and removes the gain from theta0 first. The defaults of
`degenerate_softmax_ratio` and `dead_neuron_ratio` are the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import validate_data
from torch import nn

from . import losses
from ._base.environment import array_of, check_float32, without_caller_settings
from ._base.module_factory import ModuleFactory
from ._base.random_streams import StepRandom, seeds_of
from ._base.validation import check_argument, check_fits_in_memory, integers, numbers
from .networks.builder import NetworkBuilder
from .networks.info import perturbed_logits
from .networks.passes import batch_norms, hidden_activations, hooked
from .theta0 import theta0_in
from .training.loop import training_threads

__all__ = [
    "coherence_kernel",
    "dead_neuron_ratio",
    "degenerate_softmax_ratio",
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
            builder, _ = NetworkBuilder.of(ModuleFactory(module), self.X)
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
        check_fits_in_memory(3 * n * len(examples) * info.n_classes, f"n_perturbations={n}")
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
