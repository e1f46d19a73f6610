"""Hidden activations at theta0, in the container that ``set_output`` asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from .._compute import check_float32, torch_device
from .._documentation import DocumentedEstimator

__all__ = ["HiddenOutput"]


class HiddenOutput(OneToOneFeatureMixin, TransformerMixin, DocumentedEstimator):
    """The feature map: scikit-learn puts what it returns into the container of set_output."""

    def transform(self, X: Any) -> np.ndarray:
        """Inputs of the last layer at theta0, for rows X."""
        rows = self._rows(X, reset=False, dtype="numeric")
        check_float32(rows)
        return self._blueprint.hidden(self.theta0_, rows, torch_device(self.device))
