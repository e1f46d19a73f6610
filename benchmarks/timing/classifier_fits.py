"""Fine-tuning beside scikit-learn: the same network, data and epochs."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier as SklearnMLP

from protocol.parallel import threads
from sklearn_mmdinit import MLPClassifier
from timing.checks import DisagreementError
from timing.clock import in_turns, ratio, timed
from timing.steps import Step

EPOCHS, HIDDEN = 10, (392, 392, 392)
# Means of the last training loss over seeds, as a share of the loss of a guess, log 2.
_LOSS_APART = 0.15


def labelled_rows(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and two classes that a linear map tells apart, with one label in twenty wrong."""
    X, rng = Step().rows(n_rows), np.random.default_rng(1)
    scores = X @ rng.normal(size=X.shape[1])
    y = (scores > np.median(scores)) ^ (rng.uniform(size=n_rows) < 0.05)
    return X, y.astype(int)


def _fits(
    X: np.ndarray, y: np.ndarray, validation: bool, seed: int = 0, hidden: tuple[int, ...] = HIDDEN
) -> dict[str, Callable[[], float]]:
    """Each fits a classifier to do the same work, and returns the last epoch's mean loss."""
    common: dict[str, Any] = {"batch_size": 50, "max_iter": EPOCHS, "learning_rate_init": 1e-3}
    common |= {"hidden_layer_sizes": hidden, "random_state": seed}
    split = 1 / 6 if validation else None
    ours = MLPClassifier(**common, validation_split=split, device="cpu")
    sklearn_mlp = SklearnMLP(
        **common, alpha=0.0, early_stopping=validation, validation_fraction=1 / 6,
        n_iter_no_change=EPOCHS + 1,  # all the epochs, as ours
    )  # fmt: skip

    def fit_theirs() -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # ten epochs are the protocol
            return sklearn_mlp.fit(X, y).loss_curve_[-1]

    return {"ours": lambda: ours.fit(X, y).loss_curve_[-1], "scikit-learn": fit_theirs}


def check_training(n_rows: int = 240, hidden: tuple[int, ...] = HIDDEN) -> dict[str, float]:
    """Mean training loss of the last epoch over three seeds, which both must share."""
    runs = [_fits(*labelled_rows(n_rows), False, seed, hidden) for seed in range(3)]
    means = {name: float(np.mean([fits[name]() for fits in runs])) for name in runs[0]}
    guess = float(np.log(2))
    if np.ptp([*means.values()]) > _LOSS_APART * guess or max(means.values()) > 0.8 * guess:
        raise DisagreementError(f"the classifiers train to different losses: {means}")
    return means


def measure_fits(
    numbers_of_rows: Sequence[int], numbers_of_threads: Sequence[int], rounds: int
) -> list[dict[str, Any]]:
    """Seconds of ``fit``, a sixth of the rows for validation as in the paper's protocol."""
    records = []
    for n_threads in numbers_of_threads:
        for n_rows in numbers_of_rows:
            with threads(n_threads):
                fits = _fits(*labelled_rows(n_rows), validation=True)
                in_turns(fits, 1)  # warm up
                times = in_turns({name: partial(timed, fit) for name, fit in fits.items()}, rounds)
            ratios = {"ours / scikit-learn": ratio(times, "ours", "scikit-learn")}
            records.append({"rows": n_rows, "threads": n_threads, "seconds": times, **ratios})
    return records
