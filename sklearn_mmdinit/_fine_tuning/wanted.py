"""What a classifier and its data ask of a network to start from: all that a kind of network is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from .._network import Theta0
from .network import Network

__all__ = ["Wanted"]


class Wanted(Protocol):
    """The network that a classifier is about to train, whatever its kind."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of X, where it has any."""

    def check(self, theta0: Theta0) -> None:
        """Raise a ValueError where training cannot start at theta0."""

    def check_initializer(self, initializer: Any) -> None:
        """The same of what an initializer is about to learn, as far as its parameters show it."""

    def from_arrays(self, arrays: Mapping[str, Any]) -> Theta0:
        """The theta0 that named arrays hold."""

    def fresh(self) -> Theta0:
        """Where training starts where nothing was learned."""

    def network(self, theta0: Theta0) -> Network:
        """The network that starts at theta0."""
