"""The paper's ten methods and what it lacks: networks, first weights, pipelines.

A name reads ``init/network/pre-training``. ``xavier`` and ``he`` are the fresh weights,
``fcn`` is 784-392-392-392-2 with ReLU, ``fcn+bn`` the same with batch normalisation before each
ReLU; ``ours`` is :class:`MMDInitializer`, ``ours+coherence`` the same with its fourth term and its
own automatic settings, ``rlabel`` :class:`RandomLabelInitializer`, and ``scratch`` starts from
the fresh weights. ``features+logistic`` fine-tunes nothing: it is a logistic regression on what
the last hidden layer of ``xavier/fcn/ours+coherence`` says of the rows.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline, make_pipeline

from protocol.augmentations import AUGMENTATIONS
from protocol.embeddings import EMBEDDINGS
from protocol.kernels import KERNELS
from protocol.tasks import TRAIN_ROWS_PER_N, VALIDATION_ROWS_PER_N
from sklearn_mmdinit import Coherence, MLPClassifier, MMDInitializer, RandomLabelInitializer

__all__ = [
    "FEATURES",
    "FEATURES_CV",
    "FEATURES_THETA0",
    "METHODS",
    "NAMES",
    "PAPER_METHODS",
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
    """A network of the tables: one of the paper's rows, or one more of ours."""

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


def _methods() -> Iterator[Method]:
    for init in ("xavier", "he"):
        for batch_norm, pretraining in (
            (False, "ours"),
            (False, "ours+coherence"),
            (False, "scratch"),
            (False, "rlabel"),
            (True, "ours"),
            (True, "scratch"),
            (True, "rlabel"),
        ):
            yield Method(init, batch_norm, pretraining)


METHODS: dict[str, Method] = {method.name: method for method in _methods()}
"""Every network."""

# The paper has no network with batch normalisation that its own objective has learned.
PAPER_METHODS = tuple(name for name in METHODS if not name.endswith(("+coherence", "fcn+bn/ours")))

FEATURES = "features+logistic"
FEATURES_CV = "features+logistic-cv"
FEATURES_THETA0 = "xavier/fcn/ours+coherence"


def _names() -> Iterator[str]:
    for name in METHODS:
        yield name
        if name == FEATURES_THETA0:
            yield FEATURES
            yield FEATURES_CV


NAMES = tuple(_names())
"""Every row that has a name here, in the order of the tables."""


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
    """What of a network and its pre-training the command line decides.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int
        Widths.
    epochs, n_perturbations : int
        Passes and perturbed networks of the paper's pre-training.
    device : str
        Of all pre-training.
    precision, kernels : str
        Of the paper's pre-training; the latter a key of KERNELS.
    coherent_epochs : int or None
        Passes of the one with coherence; None: as many as it takes itself.
    classes : int
        Outputs. With two a draw has validation rows, with more it has none.
    augmentation : str
        Key of AUGMENTATIONS: how images are changed along the walks of coherence.
    neighbors : str
        Key of EMBEDDINGS: where the neighbours of coherence are searched, the first time.
    separation : float
        That of coherence.
    rounds : int
        How often theta0 with coherence is learned anew, each time from fresh weights and with
        neighbours among the last hidden activations of the time before.
    """

    hidden_layer_sizes: tuple[int, ...] = (392, 392, 392)
    epochs: int = 5
    n_perturbations: int = 256
    device: str = "auto"
    coherent_epochs: int | None = None
    classes: int = 2
    precision: str = "float32"
    kernels: str = "sum"
    augmentation: str = "none"
    neighbors: str = "pixels"
    separation: float = Coherence().separation
    rounds: int = 1

    def coherent(self, **params: Any) -> MMDInitializer:
        """The unfitted initializer of "ours+coherence"."""
        coherence = Coherence(
            separation=self.separation,
            embedding=EMBEDDINGS[self.neighbors],
            augmentation=AUGMENTATIONS[self.augmentation],
        )
        own = repr(coherence) != repr(Coherence())
        initializer = MMDInitializer(
            **params,
            max_iter="auto" if self.coherent_epochs is None else self.coherent_epochs,
            coherence=coherence if own else "auto",
        )
        for _ in range(1, self.rounds):
            before = clone(initializer).set_params(output="hidden")
            initializer.set_params(coherence=clone(coherence).set_params(embedding=before))
        return initializer


def _mmd(method: Method, settings: NetworkSettings, **common: Any) -> BaseEstimator:
    return MMDInitializer(
        **common,
        batch_norm=method.batch_norm,
        max_iter=settings.epochs,
        n_perturbations=settings.n_perturbations,
        precision=settings.precision,
        uniformity_weight=KERNELS[settings.kernels],
    )


def _coherent(method: Method, settings: NetworkSettings, **common: Any) -> BaseEstimator:
    return settings.coherent(**common)


def _random_labels(method: Method, settings: NetworkSettings, **common: Any) -> BaseEstimator:
    return RandomLabelInitializer(**common, max_iter=settings.epochs, batch_norm=method.batch_norm)


PRETRAININGS: dict[str, Callable[..., BaseEstimator] | None] = {
    "ours": _mmd,
    "ours+coherence": _coherent,
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
        n_classes=settings.classes,
        init=method.init,
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
                validation_split=LastRowsSplit() if settings.classes == 2 else None,
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
