"""Fine-tuning against scikit-learn's own MLPClassifier: the same network, data and epochs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ShuffleSplit, cross_val_score
from sklearn.neural_network import MLPClassifier as SklearnMLP

from engines.threads import threads
from sklearn_mmdinit import MLPClassifier
from timing.agreement import DisagreementError, random_rows
from timing.clock import in_turns, ratio, timed

__all__ = ["check_training", "labelled_rows", "measure_cross_validation", "measure_fits"]

EPOCHS = 10
HIDDEN = (392, 392, 392)
# Means of the last training loss over seeds, as a share of the loss of a guess, log 2.
_LOSS_APART = 0.15
_FORMS = {"ours": MLPClassifier, "scikit-learn": SklearnMLP}


def labelled_rows(n_rows: int, n_features: int = 784) -> tuple[np.ndarray, np.ndarray]:
    """Rows and two classes that a linear map tells apart, with one label in twenty wrong."""
    X = random_rows(n_rows, n_features)
    rng = np.random.default_rng(1)
    scores = X @ rng.normal(size=n_features)
    y = (scores > np.median(scores)) ^ (rng.uniform(size=n_rows) < 0.05)
    return X, y.astype(int)


def _pair(validation: bool, seed: int = 0, hidden: tuple[int, ...] = HIDDEN) -> dict[str, Any]:
    """Our classifier and scikit-learn's, set to do the same work."""
    common: dict[str, Any] = {
        "hidden_layer_sizes": hidden,
        "batch_size": 50,
        "max_iter": EPOCHS,
        "learning_rate_init": 1e-3,
        "random_state": seed,
    }
    return {
        "ours": MLPClassifier(
            **common,
            warm_start_from=None,
            validation_split=1 / 6 if validation else None,
            device="cpu",
        ),
        "scikit-learn": SklearnMLP(
            **common,
            alpha=0.0,
            early_stopping=validation,
            validation_fraction=1 / 6,
            n_iter_no_change=EPOCHS + 1,  # all the epochs, as ours
        ),
    }


@contextmanager
def _all_epochs() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ten epochs are the protocol
        yield


def check_training(
    n_rows: int = 240, n_seeds: int = 3, hidden: tuple[int, ...] = HIDDEN
) -> dict[str, float]:
    """Mean training loss of the last epoch, for either classifier.

    Raises
    ------
    DisagreementError
        If they are further apart than 0.15 of log 2, or did not learn.
    """
    X, y = labelled_rows(n_rows)
    losses: dict[str, list[float]] = {name: [] for name in _FORMS}
    with _all_epochs():
        for seed in range(n_seeds):
            for name, classifier in _pair(False, seed, hidden).items():
                losses[name].append(classifier.fit(X, y).loss_curve_[-1])
    means = {name: float(np.mean(values)) for name, values in losses.items()}
    guess = float(np.log(2))
    apart = abs(means["ours"] - means["scikit-learn"]) / guess
    if apart > _LOSS_APART or max(means.values()) > 0.8 * guess:
        raise DisagreementError(f"the classifiers train to different losses: {means}")
    return means


def _fit_measure(classifier: Any, X: np.ndarray, y: np.ndarray) -> Callable[[], float]:
    classifier.fit(X, y)  # warm up
    return lambda: timed(lambda: classifier.fit(X, y))


def measure_fits(
    numbers_of_rows: Sequence[int], numbers_of_threads: Sequence[int], rounds: int
) -> list[dict[str, Any]]:
    """Seconds of ``fit``, a sixth of the rows for validation as in the paper's protocol."""
    records = []
    for n_threads in numbers_of_threads:
        for n_rows in numbers_of_rows:
            X, y = labelled_rows(n_rows)
            pair = _pair(validation=True)
            with threads(n_threads), _all_epochs():
                measures = {name: _fit_measure(fitted, X, y) for name, fitted in pair.items()}
                times = in_turns(measures, rounds)
            records.append(
                {
                    "rows": n_rows,
                    "threads": n_threads,
                    "seconds": times,
                    "ours / scikit-learn": ratio(times, "ours", "scikit-learn"),
                }
            )
    return records


def measure_cross_validation(n_folds: int, rounds: int, n_rows: int = 480) -> dict[str, Any]:
    """Seconds of ``cross_val_score`` with one and two jobs, the workers already started."""
    X, y = labelled_rows(n_rows)
    classifier = _pair(validation=True)["ours"]

    def score(n_jobs: int, folds: int) -> np.ndarray:
        cv = ShuffleSplit(folds, test_size=0.25, random_state=0)
        return cross_val_score(classifier, X, y, cv=cv, n_jobs=n_jobs)

    scores = {n_jobs: score(n_jobs, 4) for n_jobs in (2, 1)}  # starts the workers
    if not np.array_equal(scores[1], scores[2]):
        raise DisagreementError(f"scores depend on n_jobs: {scores}")
    measures = {
        "1": lambda: timed(lambda: score(1, n_folds)),
        "2": lambda: timed(lambda: score(2, n_folds)),
    }
    times = in_turns(measures, rounds)
    return {
        "rows": n_rows,
        "folds": n_folds,
        "seconds": times,
        "one job / two jobs": ratio(times, "1", "2"),
    }
