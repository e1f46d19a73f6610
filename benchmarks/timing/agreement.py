"""Do the forms that are to be timed compute the same thing? Asked before any timing.

On the same noise, loss and gradient of the library equal the textbook's; on noise of their own,
mean loss and mean gradient agree within their standard errors, and so does the law of the
outputs of the library's default sampler: means, covariances across the mini-batch, and the
distribution for every input (a two-sample Kolmogorov-Smirnov test).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import stats

from engines.threads import threads
from sklearn_mmdinit import MMDInitializer, Theta0
from sklearn_mmdinit.diagnostics import prediction_samples
from timing.library_step import library_loss
from timing.textbook import (
    Setting,
    draw_normals,
    network_from_arrays,
    textbook_loss,
    textbook_predictions,
)

__all__ = [
    "DisagreementError",
    "check_gradient_law",
    "check_law",
    "check_same_noise",
    "compare_laws",
    "compare_predictions",
    "random_rows",
    "random_theta0",
    "relative_error",
    "require",
]

# In float64 the forms differ by the interpolation of the kernel on an interval, and by the
# median, which is found to float32's resolution: together about 1e-7.
_SAME = 1e-6
# Standard errors that the largest of some hundred differences may reach.
_STANDARD_ERRORS = 5.0
_SMALLEST_P = 1e-4
_NETWORKS_AT_ONCE = 128


class DisagreementError(AssertionError):
    """Two forms that should compute the same do not."""


def require(condition: bool, what: str, figures: dict[str, Any]) -> None:
    """Raise a DisagreementError that says what disagrees, unless nothing does."""
    if not condition:
        raise DisagreementError(f"{what}: {figures}")


def random_rows(n_rows: int, n_features: int, seed: int = 0) -> np.ndarray:
    """Correlated rows, as pixels are: 16 directions carry most of their variance."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n_rows, 16)) @ rng.normal(size=(16, n_features)) / 4
    return (0.9 * latent + 0.4 * rng.normal(size=(n_rows, n_features))).astype(np.float32)


def random_theta0(estimator: MMDInitializer, n_features: int) -> Theta0:
    """The weights that an initializer starts from, before any step."""
    untrained = MMDInitializer(**estimator.get_params()).set_params(max_iter=0)
    return untrained.fit(random_rows(2, n_features)).theta0_


def _estimator(setting: Setting, **parameters: Any) -> MMDInitializer:
    return MMDInitializer(
        n_perturbations=setting.n_perturbations,
        n_uniform_samples=setting.n_uniform_samples,
        perturbation_scale=setting.scale,
        degeneracy_weight=setting.degeneracy_weight,
        detachment_weight=setting.detachment_weight,
        learning_rate_init=setting.learning_rate,
        device="cpu",
        random_state=0,
        **parameters,
    )


def _textbook_gradient(
    theta0: Theta0, X: torch.Tensor, setting: Setting, form: str, seed: int
) -> tuple[float, list[np.ndarray], tuple[torch.Tensor, list[torch.Tensor]]]:
    network = network_from_arrays(theta0.coefs, theta0.intercepts, dtype=X.dtype)
    generator = torch.Generator().manual_seed(seed)
    shape = (setting.n_uniform_samples, len(network[-1][1]))
    U = torch.empty(shape, dtype=X.dtype).exponential_(generator=generator)
    U = U / U.sum(1, keepdim=True)
    normals = draw_normals(network, setting.n_perturbations, generator)
    loss = textbook_loss(network, X, normals, U, setting, form)
    torch.autograd.backward(loss)
    gradient = [np.asarray(tensor.grad) for pair in network for tensor in pair]
    return float(loss.detach()), gradient, (U, [tensor for pair in normals for tensor in pair])


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Norm of a difference over that of what is right."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def check_same_noise(
    setting: Setting | None = None,
    library: Setting | None = None,
    hidden_layer_sizes: tuple[int, ...] = (24, 16),
    n_classes: int = 2,
    n_features: int = 20,
    batch_size: int = 8,
) -> dict[str, float]:
    """Loss and gradient on the same perturbed networks, in float64 at a small size.

    Parameters
    ----------
    setting : Setting, optional
        Of the textbook form; 32 perturbed networks and 40 uniform samples by default.
    library : Setting, optional
        Of the library; the same by default.
    hidden_layer_sizes, n_classes, n_features, batch_size
        Size of the problem.

    Returns
    -------
    dict
        Relative errors of loss and gradient for each form.

    Raises
    ------
    DisagreementError
        If one of them exceeds 1e-6.
    """
    setting = setting or Setting(n_perturbations=32, n_uniform_samples=40)
    estimator = _estimator(
        library or setting,
        hidden_layer_sizes=hidden_layer_sizes,
        n_classes=n_classes,
        sampler="direct",
    )
    theta0 = random_theta0(estimator, n_features)
    X = torch.from_numpy(random_rows(batch_size, n_features, seed=1)).double()
    reference, expected, draws = _textbook_gradient(theta0, X, setting, "direct", seed=2)
    forms = {
        "vmap": _textbook_gradient(theta0, X, setting, "vmap", seed=2)[:2],
        "library": library_loss(estimator, theta0, X, draws),
    }
    errors = {}
    for name, (loss, gradient) in forms.items():
        errors[f"{name} loss"] = abs(loss - reference) / abs(reference)
        errors[f"{name} gradient"] = max(
            relative_error(found, right) for found, right in zip(gradient, expected, strict=True)
        )
    require(max(errors.values()) < _SAME, "the forms differ on the same noise", errors)
    return errors


def _standard_errors(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many standard errors the means over axis 0 of two samples are apart."""
    difference = a.mean(0) - b.mean(0)
    variance = a.var(0, ddof=1) / len(a) + b.var(0, ddof=1) / len(b)
    return np.abs(difference) / np.sqrt(np.maximum(variance, 1e-30))


def check_gradient_law(
    repetitions: int = 200,
    setting: Setting | None = None,
    library: Setting | None = None,
) -> dict[str, float]:
    """Mean loss and mean gradient over noise of their own, at a small size.

    Parameters
    ----------
    repetitions : int, default=200
        Losses and gradients to average.
    setting, library : Setting, optional
        Of the textbook form and of the library; 64 perturbed networks and 64 uniform samples
        by default.

    Returns
    -------
    dict
        Largest differences in standard errors.

    Raises
    ------
    DisagreementError
        If one of them exceeds 5.
    """
    setting = setting or Setting(n_perturbations=64, n_uniform_samples=64)
    estimator = _estimator(library or setting, hidden_layer_sizes=(12, 12), sampler="gram")
    theta0 = random_theta0(estimator, 16)
    X = torch.from_numpy(random_rows(4, 16, seed=1))
    samples: dict[str, list[np.ndarray]] = {"textbook": [], "library": []}
    with threads(1):  # nothing here is large enough for two
        for seed in range(repetitions):
            loss, gradient, _ = _textbook_gradient(theta0, X, setting, "direct", seed)
            samples["textbook"].append(np.concatenate([[loss], *map(np.ravel, gradient)]))
            loss, gradient = library_loss(estimator, theta0, X, seed=seed)
            samples["library"].append(np.concatenate([[loss], *map(np.ravel, gradient)]))
    return compare_laws(*(np.stack(sample) for sample in samples.values()))


def compare_laws(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """Means of two samples of (loss, gradient), each (n, 1 + parameters).

    Raises
    ------
    DisagreementError
        If they are more than 5 standard errors apart.
    """
    errors = _standard_errors(a, b)
    found = {"mean loss": float(errors[0]), "mean gradient": float(errors[1:].max())}
    require(max(found.values()) < _STANDARD_ERRORS, "losses or gradients differ in law", found)
    return found


def check_law(
    hidden_layer_sizes: tuple[int, ...],
    n_features: int,
    batch_size: int,
    n_networks: int,
    n_classes: int = 2,
    scale: float | None = None,
) -> dict[str, float]:
    """The law of predictions over perturbed networks, jointly over a mini-batch.

    Parameters
    ----------
    hidden_layer_sizes, n_features, batch_size, n_classes
        Size of the problem.
    n_networks : int
        Perturbed networks to draw in either form.
    scale : float, optional
        The library's s; the textbook's is sqrt(0.5), which is the default.

    Returns
    -------
    dict
        Largest differences of means and of covariances in standard errors, and the smallest
        p-value of the Kolmogorov-Smirnov tests of single inputs.

    Raises
    ------
    DisagreementError
        If a difference exceeds 5 standard errors or a p-value falls below 1e-4.
    """
    setting = Setting(n_perturbations=_NETWORKS_AT_ONCE)
    theta0 = random_theta0(
        _estimator(setting, hidden_layer_sizes=hidden_layer_sizes, n_classes=n_classes),
        n_features,
    )
    X = random_rows(batch_size, n_features, seed=1)
    network = network_from_arrays(theta0.coefs, theta0.intercepts)
    generator = torch.Generator().manual_seed(3)
    drawn = [
        textbook_predictions(network, torch.from_numpy(X), setting, generator).numpy()
        for _ in range(-(-n_networks // _NETWORKS_AT_ONCE))
    ]
    textbook = np.concatenate(drawn)[:n_networks]
    library = prediction_samples(
        theta0, X, n_perturbations=n_networks, perturbation_scale=scale, random_state=4
    )
    return _compare_outputs(textbook, library)


def compare_predictions(
    own: Any, other: Any, X: np.ndarray, n_networks: int, *, scale: float
) -> dict[str, float]:
    """The same of the library's predictions around two theta0 that should be one.

    Parameters
    ----------
    own, other : Theta0 or fitted initializer
        What is perturbed.
    X : ndarray of shape (B, n_features)
        Mini-batch.
    n_networks : int
        Perturbed networks to draw of each.
    scale : float
        The other's s; that of the first is sqrt(0.5).

    Raises
    ------
    DisagreementError
        As :func:`check_law`.
    """
    common = {"n_perturbations": n_networks}
    return _compare_outputs(
        prediction_samples(own, X, random_state=3, **common),
        prediction_samples(other, X, random_state=4, perturbation_scale=scale, **common),
    )


def _compare_outputs(one: np.ndarray, other: np.ndarray) -> dict[str, float]:
    # The first class says all for two classes, and enough for more.
    a, b = (samples[:, :, 0].astype(np.float64) for samples in (one, other))
    products = []
    for sample in (a, b):
        centred = sample - sample.mean(0)
        products.append(centred[:, :, None] * centred[:, None, :])
    found = {
        "means": float(_standard_errors(a, b).max()),
        "covariances": float(_standard_errors(*products).max()),
        "smallest p-value": min(
            float(stats.ks_2samp(a[:, i], b[:, i]).pvalue) for i in range(a.shape[1])
        ),
    }
    require(
        max(found["means"], found["covariances"]) < _STANDARD_ERRORS
        and found["smallest p-value"] > _SMALLEST_P,
        "the outputs differ in law",
        found,
    )
    return found
