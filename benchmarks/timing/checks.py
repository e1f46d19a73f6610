"""Do the library and the textbook compute the same thing? Asked before any timing."""

import numpy as np
import torch
from scipy import stats

from protocol.diagnostics import prediction_samples
from protocol.parallel import threads
from timing.steps import Step
from timing.textbook import TextbookStep, predictions

# Standard errors that the largest of some hundred differences may reach.
_STANDARD_ERRORS = 6.0
_SMALLEST_P = 1e-4


class DisagreementError(RuntimeError):
    """Two forms that should compute the same do not."""


def _standard_errors(a: np.ndarray, b: np.ndarray) -> float:
    """How many standard errors the means over axis 0 of two samples are apart at most."""
    variance = a.var(0, ddof=1) / len(a) + b.var(0, ddof=1) / len(b)
    return float((np.abs(a.mean(0) - b.mean(0)) / np.sqrt(np.maximum(variance, 1e-30))).max())


def check_outputs(step: Step, n_networks: int, **parameters: float) -> dict[str, float]:
    """The law of predictions around a start, jointly over a mini-batch.

    Means and covariances in standard errors, and the p-values of Kolmogorov-Smirnov tests of
    single inputs; `parameters` of the library, to see another law noticed.
    """
    X = step.rows(step.batch_size, seed=1)
    start = step.start(X, **parameters)
    scale = start.perturbation_scale
    network = start.to_module()
    library = prediction_samples(network, X, n_networks, seed=4, perturbation_scale=scale)
    weights = [weight.detach().to(step.device) for weight in network.parameters()]
    rows = torch.from_numpy(X).to(step.device)
    textbook = predictions(weights, rows, n_networks, seed=3).cpu().numpy()
    # The first class says all for two classes, and enough for more.
    a, b = (np.asarray(samples[:, :, 0], np.float64) for samples in (textbook, library))
    products = [c[:, :, None] * c[:, None, :] for c in (a - a.mean(0), b - b.mean(0))]
    p_values = [stats.ks_2samp(a[:, i], b[:, i]).pvalue for i in range(a.shape[1])]
    apart_by = {
        "means": _standard_errors(a, b),
        "covariances": _standard_errors(*products),
        "smallest p-value": float(min(p_values)),
    }
    apart = max(apart_by["means"], apart_by["covariances"])
    if apart > _STANDARD_ERRORS or apart_by["smallest p-value"] < _SMALLEST_P:
        raise DisagreementError(f"the outputs differ in law: {apart_by}")
    return apart_by


def check_learning(
    step: Step, repetitions: int, n_steps: int = 20, **parameters: float
) -> dict[str, float]:
    """Mean losses, and all weights at the end, of pairs of runs from one start each.

    They agree in the mean over noise, which gradients of another law would not let them; in
    standard errors. Every step takes the same rows.
    """
    X = step.rows(step.batch_size, seed=1)
    losses, weights = [], []
    with threads(1):  # nothing here is large enough for two
        for seed in range(repetitions):
            start = step.start(X, random_state=seed).to_module().parameters()
            form = TextbookStep(
                start, step.n_perturbations, learning_rate=3e-3, device=step.device, seed=seed
            )
            rows = torch.from_numpy(X).to(step.device)
            textbook = [form(rows) for _ in range(n_steps)]
            library = step.initializer(
                learning_rate_init=3e-3, max_iter=n_steps, random_state=seed, **parameters
            ).fit(X)
            losses.append(
                np.mean(textbook) - np.array(library.loss_curve_)
            )  # of one window, not a whole one
            learned = library.to_module().parameters()
            pairs = zip(form.network, learned, strict=True)
            weights.append(torch.cat([(a.cpu() - b).detach().ravel() for a, b in pairs]).numpy())
    result = {
        name: _standard_errors(np.stack(values), np.zeros_like(values))
        for name, values in (("losses", losses), ("weights", weights))
    }
    if max(result.values()) > _STANDARD_ERRORS:
        raise DisagreementError(f"they learn differently: {result}")
    return result
