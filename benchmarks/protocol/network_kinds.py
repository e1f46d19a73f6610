"""The two kinds of networks that ``mnist_tasks.py`` knows, behind one interface."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from protocol.convnet_methods import (
    CONVNET_FEATURES,
    CONVNET_FEATURES_THETA0,
    CONVNET_NAMES,
    convnet_contender,
    convnet_initializer,
    images,
    module_parameters,
)
from protocol.features import features_contender
from protocol.methods import (
    FEATURES,
    FEATURES_CV,
    FEATURES_THETA0,
    METHODS,
    NAMES,
    Contender,
    NetworkSettings,
    initializer_of,
    network_contender,
)
from protocol.pretrained import Pretrained

__all__ = ["NETWORK_KINDS", "NetworkKind"]


def _as_they_are(X: np.ndarray) -> np.ndarray:
    return X


@dataclass(frozen=True)
class NetworkKind:
    """Networks of one kind.

    Parameters
    ----------
    names : tuple of str
        Rows of the tables, in their order.
    features : tuple of str
        The rows that fine-tune nothing.
    features_theta0 : str
        Whose theta0 they are of.
    rows : callable
        From rows (n, n_pixels) to what the networks take; a ValueError where they cannot.
    initializer : callable
        ``initializer(name, settings, n_pixels, random_state)``, unfitted; None for scratch.
    network : callable
        ``network(name, settings, X, initializer, theta0_digest)`` is a contender.
    describe : callable
        ``describe(settings, n_pixels)``: what results say of the network.
    """

    names: tuple[str, ...]
    features: tuple[str, ...]
    features_theta0: str
    rows: Callable[[np.ndarray], np.ndarray]
    initializer: Callable[[str, NetworkSettings, int, int], BaseEstimator | None]
    network: Callable[..., Contender]
    describe: Callable[[NetworkSettings, int], dict[str, Any]]

    def theta0_of(self, name: str) -> str:
        """The network whose theta0 a method starts from, if it has one."""
        return self.features_theta0 if name in self.features else name

    def contender(
        self, name: str, settings: NetworkSettings, *, X: np.ndarray, theta0: Pretrained | None
    ) -> Contender:
        """A method from its theta0; None where it starts from scratch."""
        if name in self.features:
            assert theta0 is not None  # theta0 with coherence is learned
            return features_contender(
                X=X, initializer=theta0.initializer, theta0_digest=theta0.digest, name=name
            )
        return self.network(
            name,
            settings,
            X=X,
            initializer=None if theta0 is None else theta0.initializer,
            theta0_digest=None if theta0 is None else theta0.digest,
        )


def _perceptron_initializer(
    name: str, settings: NetworkSettings, n_pixels: int, random_state: int
) -> BaseEstimator | None:
    return initializer_of(METHODS[name], settings, random_state=random_state)


def _perceptron(name: str, settings: NetworkSettings, **given: Any) -> Contender:
    return network_contender(METHODS[name], settings, **given)


def _convnet_initializer(
    name: str, settings: NetworkSettings, n_pixels: int, random_state: int
) -> BaseEstimator | None:
    side = math.isqrt(n_pixels)
    return convnet_initializer(name, settings, side=side, random_state=random_state)


def _describe_convnet(settings: NetworkSettings, n_pixels: int) -> dict[str, Any]:
    return {"module": {"class": "ConvNet", **module_parameters(settings, math.isqrt(n_pixels))}}


def _describe_perceptron(settings: NetworkSettings, n_pixels: int) -> dict[str, Any]:
    return {"hidden_layer_sizes": asdict(settings)["hidden_layer_sizes"]}


NETWORK_KINDS = {
    "mlp": NetworkKind(
        names=NAMES,
        features=(FEATURES, FEATURES_CV),
        features_theta0=FEATURES_THETA0,
        rows=_as_they_are,
        initializer=_perceptron_initializer,
        network=_perceptron,
        describe=_describe_perceptron,
    ),
    "convnet": NetworkKind(
        names=CONVNET_NAMES,
        features=(CONVNET_FEATURES,),
        features_theta0=CONVNET_FEATURES_THETA0,
        rows=images,
        initializer=_convnet_initializer,
        network=convnet_contender,
        describe=_describe_convnet,
    ),
}
"""By the name that ``--network`` takes."""
