"""Do the library and the textbook learn the same? Asked before any timing."""

import numpy as np
import torch

from protocol.parallel import threads
from timing.steps import Step
from timing.textbook import TextbookStep

# Standard errors that the largest of some hundred differences may reach.
_STANDARD_ERRORS = 6.0


class DisagreementError(RuntimeError):
    """Two forms that should compute the same do not."""


def _standard_errors(differences: np.ndarray) -> float:
    """How many standard errors a mean over axis 0 is from 0 at most."""
    variance = differences.var(0, ddof=1) / len(differences)
    return float((np.abs(differences.mean(0)) / np.sqrt(np.maximum(variance, 1e-30))).max())


def check_learning(
    step: Step, repetitions: int, n_steps: int = 20, **parameters: float
) -> dict[str, float]:
    """Mean losses, and all weights at the end, of pairs of runs from one start each.

    They agree in the mean over noise, which gradients of another law would not let them; in
    standard errors. Every step takes the same rows. `parameters` are of the library, to see
    another objective noticed.
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
                learning_rate_init=3e-3,
                max_iter=n_steps,
                random_state=seed,
                **parameters,
            ).fit(X)
            # Its curve is of one window, not a whole one.
            losses.append(np.mean(textbook) - np.array(library.loss_curve_))
            learned = library.to_module().parameters()
            pairs = zip(form.network, learned, strict=True)
            weights.append(torch.cat([(a.cpu() - b).detach().ravel() for a, b in pairs]).numpy())
    apart = {
        "losses": _standard_errors(np.stack(losses)),
        "weights": _standard_errors(np.stack(weights)),
    }
    if max(apart.values()) > _STANDARD_ERRORS:
        raise DisagreementError(f"they learn differently: {apart}")
    return apart
