"""What diagnostics look at: a network at theta0, as pre-training left it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from ._compute import array_of, check_float32, team
from ._network import Architecture, ModuleArchitecture, Theta0, module_from_theta0, without_gain

__all__ = ["Subject", "pretrained_theta0"]


def pretrained_theta0(source: Any) -> Theta0:
    """The theta0 of an estimator, or itself, before its gain."""
    theta0 = source if isinstance(source, Theta0) else getattr(source, "theta0_", None)
    if not isinstance(theta0, Theta0):
        raise ValueError(
            f"expected a Theta0 or a fitted estimator that has theta0_, got {source!r}"
        )
    return without_gain(theta0)


@dataclass(frozen=True)
class Subject:
    """What is looked at.

    Parameters
    ----------
    theta0 : Theta0
        Before its gain.
    network : MLP or ModuleNetwork
        There, in training mode: with batch normalisation the objective looks at the statistics
        of mini-batches.
    examples : callable
        Makes a tensor that it takes of rows.
    named : estimator or None, default=None
        What knows the names of columns.
    """

    theta0: Theta0
    network: Any
    examples: Callable[[np.ndarray], torch.Tensor]
    named: Any = None

    @classmethod
    def of(cls, source: Any) -> Subject:
        """That of an estimator or a Theta0; a ValueError where there is none."""
        theta0 = pretrained_theta0(source)
        named = source if hasattr(source, "feature_names_in_") else None
        if isinstance(theta0.architecture, Architecture):
            module = module_from_theta0(theta0).train()
            return cls(theta0, module, lambda X: torch.from_numpy(X.astype(np.float32)), named)
        blueprint = getattr(source, "_blueprint", None)
        if blueprint is None:
            raise ValueError(
                f"theta0 is of the module {theta0.architecture.module}, which its arrays do not "
                "bring with them; pass the fitted initializer"
            )
        return cls(theta0, blueprint.network(theta0, "cpu"), blueprint.examples, named)

    @property
    def n_classes(self) -> int:
        """The paper's d."""
        return self.theta0.architecture.n_classes

    def rows(self, X: Any) -> np.ndarray:
        """Rows checked, in the shape that the network takes."""
        if self.named is not None:
            # Names alone: the rest has errors that speak of theta0.
            validate_data(self.named, X, reset=False, skip_check_array=True, ensure_2d=False)
        architecture, X = self.theta0.architecture, array_of(X)
        if isinstance(architecture, ModuleArchitecture):
            X = np.asarray(check_array(X, allow_nd=True))
            check_float32(X)
            if X.shape[1:] != architecture.input_shape:
                raise ValueError(
                    f"X has examples of shape {X.shape[1:]}, theta0 expects "
                    f"{architecture.input_shape}"
                )
            return X
        X = check_array(X, dtype=[np.float32, np.float64])
        check_float32(X)
        if X.shape[1] != architecture.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, theta0 expects {architecture.n_features}"
            )
        return np.asarray(X)

    def threads(self, n_rows: int) -> AbstractContextManager[None]:
        """How threads divide the work on so many rows."""
        architecture = self.theta0.architecture
        # A module's own operations share PyTorch's threads.
        is_module = isinstance(architecture, ModuleArchitecture)
        return nullcontext() if is_module else team(architecture.widths, n_rows, "cpu")

    def hidden(self, X: np.ndarray) -> torch.Tensor:
        """Last hidden activations in evaluation."""
        network = self.network
        (network.module if hasattr(network, "module") else network).eval()
        with torch.no_grad():
            hidden: torch.Tensor = network.hidden(self.examples(X))
        return hidden

    def batches(
        self, X: np.ndarray, n_batches: int, batch_size: int, random: np.random.RandomState
    ) -> Iterator[torch.Tensor]:
        """Mini-batches drawn at random."""
        for _ in range(n_batches):
            rows = random.choice(len(X), size=min(batch_size, len(X)), replace=False)
            yield self.examples(X[rows])
