"""The rows of the tables that are networks, or classifiers on what a network has learned.

A name reads ``init/network/pre-training``. ``fcn`` is 784-392-392-392-2 with ReLU, ``fcn+bn`` the
same with batch normalization before each ReLU; ``ours`` is :class:`MMDInitializer` with the paper's
objective, ``rlabel`` random labels in its place, and ``scratch`` none. From coherence the network
is fine-tuned as the library does by default, from all others by the paper's protocol.
``features+logistic`` is a logistic regression on features of coherence, and
``features+EmbeddingClassifier`` reads those of 10,000 unlabelled images too. ``convnet/...`` are
the same on a small ConvNet.
"""

import argparse
import copy
import fnmatch
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from protocol.networks import ConvNet, NormalizedPerceptron
from protocol.tasks import TRAIN_ROWS_PER_N, VALIDATION_ROWS_PER_N
from protocol.theta0s import Pretrained, theta0_digest
from rivals.random_labels import RandomLabels
from sklearn_mmdinit import (
    MLP,
    Coherence,
    EmbeddingClassifier,
    MLPClassifier,
    MMDInitializer,
    NetClassifier,
    OrientedGradients,
    RandomAffine,
    Theta0,
)

# Names


PRETRAININGS = {
    "fcn": ("ours", "ours+coherence", "scratch", "rlabel"),
    "fcn+bn": ("ours", "scratch", "rlabel"),
}
METHODS = tuple(
    f"{init}/{network}/{name}"
    for init in ("xavier", "he")
    for network, names in PRETRAININGS.items()
    for name in names
)

SCRATCH = "xavier/fcn/scratch"
FEATURES, SPREAD = "features+logistic", "features+EmbeddingClassifier"
N_SPREAD = 10_000  # unlabelled images of SPREAD
FEATURES_THETA0 = "xavier/fcn/ours+coherence"

# The paper has no network with batch normalization that its own objective has learned.
PAPER_METHODS = tuple(name for name in METHODS if not name.endswith(("+coherence", "fcn+bn/ours")))

CONVNET_SCRATCH = "convnet/scratch"
CONVNET_METHODS = ("convnet/ours", "convnet/ours+coherence", CONVNET_SCRATCH)

# The features stand behind the network whose they are.
_place = METHODS.index(FEATURES_THETA0) + 1
NAMES = (*METHODS[:_place], FEATURES, SPREAD, *METHODS[_place:])
CONVNET_NAMES = (*CONVNET_METHODS[:2], f"convnet/{FEATURES}", CONVNET_SCRATCH)
NAMES_OF = {"mlp": NAMES, "convnet": CONVNET_NAMES}
"""By the name that ``--network`` takes, the rows in the order of the tables."""


def theta0_of(name: str) -> str:
    """The network whose theta0 a method starts from, if it has one."""
    own = name.replace(FEATURES, "ours+coherence")
    return FEATURES_THETA0 if name in (FEATURES, SPREAD) else own


def select_names(
    patterns: Sequence[str], valid: Iterable[str], *, what: str = "method"
) -> list[str]:
    """The valid names that match any of the patterns (``xavier/*``), in the order of ``valid``."""
    valid = list(valid)
    for pattern in patterns:
        if not fnmatch.filter(valid, pattern):
            raise ValueError(f"unknown {what} {pattern!r}; valid names are {', '.join(valid)}")
    return [name for name in valid if any(fnmatch.fnmatchcase(name, p) for p in patterns)]


# What the command line decides

# Chosen on run 4. A shoe may point either way, but clothes lie straight and fill the picture.
AUGMENTATIONS = {
    "none": None,
    "digits": RandomAffine(),
    "clothes": RandomAffine(degrees=5.0, shift=1.0, scale=0.05, shear=3.0, mirror=True),
}
"""How images are changed along the walks of coherence: what their tasks do not mind."""

IMAGES = Coherence(embedding=OrientedGradients(), augmentation=RandomAffine())
EMBEDDINGS = {"pixels": None, "gradients": OrientedGradients()}

KERNELS = {"sum": 1.0, "mean": 1.0 / 9.0}
"""Name of a reading of the paper's nine kernels -> the weight of L_uni that is the same."""


@dataclass(frozen=True)
class NetworkSettings:
    """What of a network and its pre-training the command line decides.

    ``epochs`` and ``n_perturbations`` are of the paper's objective; with coherence there are
    ``coherent_epochs`` epochs (None: as many as it takes itself).
    """

    hidden_layer_sizes: tuple[int, ...] = (392, 392, 392)
    epochs: int = 5
    n_perturbations: int = 256
    device: str = "auto"
    coherent_epochs: int | None = None
    classes: int = 2
    kernels: str = "sum"
    augmentation: str = "none"
    neighbors: str = "pixels"
    separation: float = 2.0

    @classmethod
    def of(cls, options: argparse.Namespace) -> Self:
        """What the command line says, and the defaults of the rest."""
        given = {f.name: getattr(options, f.name) for f in fields(cls) if hasattr(options, f.name)}
        return cls(**given | {"hidden_layer_sizes": tuple(options.hidden_layer_sizes)})

    def initializer(self, pretraining: str, **params: Any) -> BaseEstimator:
        if pretraining == "rlabel":
            own = {name.removeprefix("module__"): value for name, value in params.items()}
            return RandomLabels(**own, max_iter=self.epochs)
        if pretraining == "ours":
            own = {"max_iter": self.epochs, "n_perturbations": self.n_perturbations}
            return MMDInitializer(**params, **own, uniformity_weight=KERNELS[self.kernels])
        coherence = Coherence(
            separation=self.separation,
            embedding=EMBEDDINGS[self.neighbors],
            augmentation=AUGMENTATIONS[self.augmentation],
        )
        changed = repr(coherence) != repr(Coherence())
        own = {"max_iter": self.coherent_epochs or "auto"}
        return MMDInitializer(**params, **own, coherence=coherence if changed else "auto")


CONVNET_WIDTH = 8  # channels of its first convolution: a fit takes seconds


def _network(
    name: str, settings: NetworkSettings, n_pixels: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters of its estimators, and what of the network decides a score."""
    if name in CONVNET_METHODS:
        parameters = {"n_classes": settings.classes, "side": math.isqrt(n_pixels)}
        parameters |= {"width": CONVNET_WIDTH}
        params = {"module": ConvNet, **{f"module__{key}": v for key, v in parameters.items()}}
        return params, {"name": "convnet", "pretraining": name.rpartition("/")[2], **parameters}
    init, network, pretraining = name.split("/")
    normalized = network == "fcn+bn"
    of_mlp: dict[str, Any] = {"init": init, "hidden_layer_sizes": settings.hidden_layer_sizes}
    identity = of_mlp | {"batch_norm": normalized, "pretraining": pretraining}
    if normalized:
        named = {f"module__{key}": value for key, value in of_mlp.items()}
        return {"module": NormalizedPerceptron, **named}, identity
    return of_mlp, identity


def _classifier_of(params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The class of a classifier of a network, and its parameters."""
    if "module" in params:
        return NetClassifier, params
    if params["init"] == "xavier":
        return MLPClassifier, {"hidden_layer_sizes": params["hidden_layer_sizes"]}
    return NetClassifier, {"module": MLP, **{f"module__{name}": v for name, v in params.items()}}


def rows_for(network: str, X: np.ndarray) -> np.ndarray:
    """Rows (n, side x side) as the networks of a kind take them: images for a ConvNet; no copy."""
    if network == "mlp":
        return X
    side = math.isqrt(X.shape[1])
    return X.reshape(len(X), 1, side, side)


def initializer_of(
    name: str, settings: NetworkSettings, *, n_pixels: int = 784, random_state: int = 0
) -> BaseEstimator | None:
    """The unfitted initializer of a network, or None where it starts from scratch."""
    params, network = _network(name, settings, n_pixels)
    if network["pretraining"] == "scratch":
        return None
    params |= {"n_classes": settings.classes, "device": settings.device}
    return settings.initializer(network["pretraining"], **params, random_state=random_state)


# What is evaluated

# Fine-tuning as the paper has it: Adam, all parameters, no regularisation.
FINE_TUNING: dict[str, Any] = {"optimizer": "adam", "learning_rate_init": 1e-3}
FINE_TUNING |= {"batch_size": 50, "max_iter": 10}


class LastRowsSplit:
    """A splitter with one split: the last rows, 2 of every 12, validate and the rest train."""

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rows = np.arange(len(X))
        per_n = TRAIN_ROWS_PER_N + VALIDATION_ROWS_PER_N
        n_train = len(rows) - VALIDATION_ROWS_PER_N * (len(rows) // per_n)
        yield rows[:n_train], rows[n_train:]


@dataclass(frozen=True)
class Contender:
    """Something to evaluate.

    ``identity`` is all that decides a score besides the task and the rows, as JSON can hold it.
    """

    name: str  # its row in the tables
    X: np.ndarray  # what it reads (n_train + n_test, ...), the training rows first
    make: Callable[[int], BaseEstimator]  # of a random_state the unfitted estimator
    identity: dict[str, Any]


def network_contender(
    name: str, settings: NetworkSettings, X: np.ndarray, theta0: Theta0 | None = None
) -> Contender:
    """A network fine-tuned from a theta0; without one from fresh weights.

    From coherence as the library does it, on all labelled rows, and else by the paper's protocol.
    """
    params, network = _network(name, settings, X[0].size)
    classifier, params = _classifier_of(params)
    as_paper = network["pretraining"] != "ours+coherence"
    fine_tuning: dict[str, Any] = {}
    if as_paper:
        split = LastRowsSplit() if settings.classes == 2 else None
        fine_tuning = {"fine_tuning": "paper", "validation_split": split, **FINE_TUNING}

    def make(random_state: int) -> Pipeline:
        # A GPU does not pay for some hundred rows, and CPU scores compare across machines.
        common = {"warm_start_from": theta0, "device": "cpu", "random_state": random_state}
        return make_pipeline(classifier(**params, **common, **fine_tuning))

    digest = None if theta0 is None else theta0_digest(theta0)
    identity = {"network": network, "theta0": digest}
    identity["fine_tuning"] = FINE_TUNING if as_paper else "default"
    return Contender(name, X, make, identity)


class BesideOthers(EmbeddingClassifier):
    """Fitted on labelled rows and on others without labels."""

    def __init__(self, others: np.ndarray) -> None:
        self.others = others

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        return super().fit(np.r_[X, self.others], np.r_[y, np.full(len(self.others), -1)])


def features_contender(name: str, X: np.ndarray, theta0: Pretrained, C: float = 100.0) -> Contender:
    """A regression, or SPREAD, on the features of a theta0; it trains on all labelled rows."""
    features = copy.copy(theta0.initializer).set_params(device="cpu", verbose=0)
    classifier: Any = LogisticRegression(C=C, max_iter=1000)
    if name == SPREAD:
        classifier = BesideOthers(features.transform(X[:N_SPREAD]))
    # Frozen: a clone of a pipeline would learn theta0 again, from the few rows of a fold.
    pipeline = make_pipeline(FrozenEstimator(features), classifier)
    # The first step is theta0 itself, whose features have unit norm.
    identity = {"pipeline": ["Normalizer()", repr(classifier)], "theta0": theta0.digest}
    return Contender(name, X, lambda random_state: pipeline, identity)


def contender_of(
    name: str, settings: NetworkSettings, X: np.ndarray, theta0: Pretrained | None
) -> Contender:
    """A method from the theta0 of its network; None where it starts from scratch."""
    if theta0_of(name) == name:
        start = None if theta0 is None else theta0.initializer.theta0_
        return network_contender(name, settings, X, start)
    assert theta0 is not None  # theta0 with coherence is learned
    return features_contender(name, X, theta0)
