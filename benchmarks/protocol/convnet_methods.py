"""The methods on a convolutional network: the same objectives, the same fine-tuning.

``convnet/ours`` is the paper's objective on :class:`protocol.networks.ConvNet`,
``convnet/ours+coherence`` the same with coherence and its own automatic settings,
``convnet/scratch`` PyTorch's own fresh weights, and ``convnet/features+logistic`` a logistic
regression on what enters the last layer of ``convnet/ours+coherence``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline, make_pipeline

from protocol.kernels import KERNELS
from protocol.methods import FINE_TUNING, Contender, LastRowsSplit, NetworkSettings
from protocol.networks import ConvNet
from sklearn_mmdinit import MMDInitializer, NetClassifier

__all__ = [
    "CONVNET_FEATURES",
    "CONVNET_FEATURES_THETA0",
    "CONVNET_METHODS",
    "CONVNET_NAMES",
    "CONVNET_SCRATCH",
    "convnet_contender",
    "convnet_initializer",
    "images",
    "module_parameters",
]

# Channels of the first convolution, half those of the second: so many that a fit of 400 images and
# the prediction of 10,000 take a few seconds of one core.
WIDTH = 8

# Name -> how theta0 is learned, as in protocol.methods.
CONVNET_METHODS = {
    "convnet/ours": "ours",
    "convnet/ours+coherence": "ours+coherence",
    "convnet/scratch": "scratch",
}
CONVNET_SCRATCH = "convnet/scratch"
CONVNET_FEATURES = "convnet/features+logistic"
CONVNET_FEATURES_THETA0 = "convnet/ours+coherence"

CONVNET_NAMES = (
    "convnet/ours",
    CONVNET_FEATURES_THETA0,
    CONVNET_FEATURES,
    CONVNET_SCRATCH,
)
"""Every row, in the order of the tables."""


def images(X: np.ndarray) -> np.ndarray:
    """Rows (n, side x side) as images (n, 1, side, side) of one channel; no copy.

    Raises
    ------
    ValueError
        If the rows are of no square images with a side that two poolings divide.
    """
    side = math.isqrt(X.shape[1])
    if side * side != X.shape[1] or side % 4:
        raise ValueError(
            f"--network convnet takes square images whose side is a multiple of 4; rows of "
            f"{X.shape[1]} pixels are none"
        )
    return X.reshape(len(X), 1, side, side)


def module_parameters(settings: NetworkSettings, side: int) -> dict[str, int]:
    """What the ConvNet is called with."""
    return {"n_classes": settings.classes, "side": side, "width": WIDTH}


def _prefixed(parameters: dict[str, int]) -> dict[str, Any]:
    return {f"module__{name}": value for name, value in parameters.items()}


def convnet_initializer(
    name: str, settings: NetworkSettings, *, side: int, random_state: int
) -> BaseEstimator | None:
    """The unfitted initializer of a method, or None where it starts from scratch.

    Parameters
    ----------
    name : str
        Key of CONVNET_METHODS.
    settings : NetworkSettings
        Passes, perturbed networks, classes and device; the widths are a perceptron's.
    side : int
        Pixels of a side.
    random_state : int
        Of the initializer.
    """
    common = {
        "module": ConvNet,
        "n_classes": settings.classes,
        "device": settings.device,
        "random_state": random_state,
        **_prefixed(module_parameters(settings, side)),
    }
    how = CONVNET_METHODS[name]
    if how == "scratch":
        return None
    if how == "ours+coherence":
        return settings.coherent(**common)
    return MMDInitializer(
        **common,
        max_iter=settings.epochs,
        n_perturbations=settings.n_perturbations,
        uniformity_weight=KERNELS[settings.kernels],
    )


def convnet_contender(
    name: str,
    settings: NetworkSettings,
    *,
    X: np.ndarray,
    initializer: BaseEstimator | None,
    theta0_digest: str | None,
) -> Contender:
    """The scikit-learn pipeline of a method: the paper's fine-tuning, of a ConvNet.

    Parameters
    ----------
    name : str
        Key of CONVNET_METHODS.
    settings : NetworkSettings
        What to build.
    X : ndarray of shape (n_train + n_test, 1, side, side)
        Images, scaled already.
    initializer : estimator or None
        Fitted; None starts from fresh weights.
    theta0_digest : str or None
        Stands for the initializer in the identity of a score.
    """
    parameters = module_parameters(settings, X.shape[-1])

    def make(random_state: int) -> Pipeline:
        return make_pipeline(
            NetClassifier(
                ConvNet,
                warm_start_from=initializer,
                validation_split=LastRowsSplit() if settings.classes == 2 else None,
                device="cpu",
                random_state=random_state,
                **FINE_TUNING,
                **_prefixed(parameters),
            ),
        )

    identity = {
        "network": {"name": "convnet", "pretraining": CONVNET_METHODS[name], **parameters},
        "fine_tuning": FINE_TUNING,
        "theta0": theta0_digest,
    }
    return Contender(name, X, make, identity)
