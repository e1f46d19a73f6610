"""The paper's ten methods: a network, its first weights, and the pipeline that is evaluated.

A name reads ``init/network/pre-training``. ``xavier`` and ``he`` are the fresh weights,
``fcn`` is 784-392-392-392-2 with ReLU, ``fcn+bn`` the same with batch normalisation before each
ReLU; ``ours`` is :class:`MMDInitializer`, ``rlabel`` :class:`RandomLabelInitializer`, and
``scratch`` starts from the fresh weights.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline, make_pipeline

from protocol.tasks import TRAIN_ROWS_PER_N, VALIDATION_ROWS_PER_N
from sklearn_mmdinit import MLPClassifier, MMDInitializer, RandomLabelInitializer

__all__ = [
    "METHODS",
    "Contender",
    "LastRowsSplit",
    "Method",
    "NetworkSettings",
    "initializer_of",
    "network_contender",
    "select_names",
]

# Fine-tuning as the paper has it: Adam, all parameters, no regularisation.
FINE_TUNING: dict[str, Any] = {
    "optimizer": "adam",
    "learning_rate_init": 1e-3,
    "batch_size": 50,
    "max_iter": 10,
}


@dataclass(frozen=True)
class Method:
    """One row of the paper's tables."""

    init: str
    batch_norm: bool
    pretraining: str

    @property
    def network(self) -> str:
        return "fcn+bn" if self.batch_norm else "fcn"

    @property
    def name(self) -> str:
        return f"{self.init}/{self.network}/{self.pretraining}"

    @property
    def scratch(self) -> str:
        """Name of the same network from the same fresh weights, the pair of the comparison."""
        return f"{self.init}/{self.network}/scratch"


def _the_paper_s_methods() -> Iterator[Method]:
    for init in ("xavier", "he"):
        for batch_norm, pretraining in (
            (False, "ours"),
            (False, "scratch"),
            (False, "rlabel"),
            (True, "scratch"),
            (True, "rlabel"),
        ):
            yield Method(init, batch_norm, pretraining)


METHODS: dict[str, Method] = {method.name: method for method in _the_paper_s_methods()}


def select_names(
    patterns: Sequence[str], valid: Iterable[str], *, what: str = "method"
) -> list[str]:
    """The valid names that match any of the patterns, in the order of ``valid``.

    A pattern is a name or has shell wildcards: ``xavier/*``, ``*/scratch``.

    Raises
    ------
    ValueError
        If a pattern matches no name; the message lists the valid ones.
    """
    valid = list(valid)
    for pattern in patterns:
        if not fnmatch.filter(valid, pattern):
            raise ValueError(f"unknown {what} {pattern!r}; valid names are {', '.join(valid)}")
    return [name for name in valid if any(fnmatch.fnmatchcase(name, p) for p in patterns)]


class LastRowsSplit:
    """A splitter with one split: the last rows, 2 of every 12, validate and the rest train.

    ``cross_val_score`` hands over the rows in the order in which the split lists them, so the
    validation rows of a draw reach the classifier as the last ones.
    """

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rows = np.arange(len(X))
        per_n = TRAIN_ROWS_PER_N + VALIDATION_ROWS_PER_N
        n_train = len(rows) - VALIDATION_ROWS_PER_N * (len(rows) // per_n)
        yield rows[:n_train], rows[n_train:]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return 1


@dataclass(frozen=True)
class NetworkSettings:
    """What of a network and its pre-training the command line decides."""

    hidden_layer_sizes: tuple[int, ...] = (392, 392, 392)
    epochs: int = 5
    n_perturbations: int = 256
    device: str = "auto"


def _mmd(method: Method, settings: NetworkSettings, **common: Any) -> BaseEstimator:
    if method.batch_norm:
        raise ValueError(f"{method.name} is none of the paper's methods: ours is without BN")
    return MMDInitializer(**common, n_perturbations=settings.n_perturbations)


def _random_labels(method: Method, settings: NetworkSettings, **common: Any) -> BaseEstimator:
    return RandomLabelInitializer(**common, batch_norm=method.batch_norm)


PRETRAININGS: dict[str, Callable[..., BaseEstimator] | None] = {
    "ours": _mmd,
    "rlabel": _random_labels,
    "scratch": None,
}


def initializer_of(
    method: Method, settings: NetworkSettings, *, random_state: int, verbose: int = 0
) -> BaseEstimator | None:
    """The unfitted initializer of a method, or None where it starts from scratch."""
    build = PRETRAININGS[method.pretraining]
    if build is None:
        return None
    return build(
        method,
        settings,
        hidden_layer_sizes=settings.hidden_layer_sizes,
        n_classes=2,
        init=method.init,
        max_iter=settings.epochs,
        device=settings.device,
        random_state=random_state,
        verbose=verbose,
    )


@dataclass(frozen=True)
class Contender:
    """Something to evaluate: an estimator for each seed, and the rows it reads.

    Parameters
    ----------
    name : str
        Its row in the tables.
    X : ndarray, shape (n_train + n_test, ...)
        The training rows, then the test rows.
    make : callable
        ``make(random_state)`` gives the unfitted estimator that is cross-validated.
    identity : dict
        All that decides a score besides the task and the rows, as JSON can hold it.
    """

    name: str
    X: np.ndarray
    make: Callable[[int], BaseEstimator]
    identity: dict[str, Any]


def network_contender(
    method: Method,
    settings: NetworkSettings,
    *,
    X: np.ndarray,
    initializer: BaseEstimator | None,
    theta0_digest: str | None,
) -> Contender:
    """The ordinary scikit-learn pipeline of a method.

    Parameters
    ----------
    method, settings : Method, NetworkSettings
        What to build.
    X : ndarray of shape (n_train + n_test, n_pixels)
        Pixels, scaled already: the paper's two scalars come from all unlabelled images, and
        not from the few rows of a fold.
    initializer : estimator or None
        The fitted initializer, shared by every fold; None starts from fresh weights.
    theta0_digest : str or None
        Stands for the initializer in the identity of a score.
    """

    def make(random_state: int) -> Pipeline:
        return make_pipeline(
            MLPClassifier(
                settings.hidden_layer_sizes,
                activation="relu",
                batch_norm=method.batch_norm,
                init=method.init,
                warm_start_from=initializer,
                validation_split=LastRowsSplit(),
                # A GPU does not pay for some hundred rows, and CPU scores compare across machines.
                device="cpu",
                random_state=random_state,
                **FINE_TUNING,
            ),
        )

    identity = {
        "network": asdict(method) | {"hidden_layer_sizes": settings.hidden_layer_sizes},
        "fine_tuning": FINE_TUNING,
        "theta0": theta0_digest,
    }
    return Contender(method.name, X, make, identity)
