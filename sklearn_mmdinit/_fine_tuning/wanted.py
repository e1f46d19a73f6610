"""What a classifier and its data ask of a network to start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Wanted", "layer_sizes"]


@dataclass(frozen=True)
class Wanted:
    """What the classifier and its data ask of a network; None where they do not care."""

    n_features: int
    n_classes: int
    hidden_layer_sizes: tuple[int, ...] | None = None
    activation: str | None = None
    batch_norm: bool | None = None
    feature_names: tuple[str, ...] | None = None

    def check(self, found: Mapping[str, Any], source: str) -> None:
        """Raise a ValueError where a field of `found` differs from what is wanted."""
        for name, words in _WORDS.items():
            wanted = getattr(self, name)
            if name in found and wanted is not None and found[name] != wanted:
                raise ValueError(
                    f"{source} has {name}={found[name]!r}, but {words} {name}={wanted!r}; "
                    "the two must be the same"
                )


# Who is it that asks for a field of Wanted.
_WORDS = {
    "n_features": "X has",
    "n_classes": "y has",
    "hidden_layer_sizes": "the classifier was given",
    "activation": "the classifier was given",
    "batch_norm": "the classifier was given",
}


def layer_sizes(value: Any) -> tuple[int, ...]:
    """Widths of the hidden layers, from a number or any sequence of numbers.

    Raises
    ------
    ValueError
        If a width is not a positive whole number.
    """
    try:
        widths = tuple(np.atleast_1d(np.asarray(value)).tolist())
        if all(isinstance(w, int) and not isinstance(w, bool) and w > 0 for w in widths):
            return widths
    except ValueError:  # ragged
        pass
    raise ValueError(f"hidden_layer_sizes must be positive integers, got {value!r}")
