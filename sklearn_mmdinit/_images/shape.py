"""What the rows of an array hold where they are images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["image_shape_of"]


def image_shape_of(X: np.ndarray, asked: Any) -> tuple[int, int, int]:
    """Channels, height and width of what the rows of X hold.

    Parameters
    ----------
    X : ndarray of shape (n, n_pixels) or (n, channels, height, width)
        Images.
    asked : sequence of int or None
        (height, width) or (channels, height, width); None: squares of one channel if flat.

    Raises
    ------
    ValueError
        If rows have not as many numbers as that, or three axes of other lengths.
    """
    own, pixels = X.shape[1:], math.prod(X.shape[1:])
    if asked is None:
        if len(own) == 3:
            return own
        side = math.isqrt(pixels)
        found = (1, side, side)
    else:
        sides = tuple(np.atleast_1d(asked).tolist())
        found = sides if len(sides) == 3 else (1, *sides)
    fits = len(found) == 3 and all(isinstance(side, int) and side > 0 for side in found)
    if len(own) == 3:
        fits = fits and found == own
    else:
        fits = fits and len(own) == 1 and math.prod(found) == pixels
    if not fits:
        raise ValueError(
            f"image_shape={asked!r} does not fit rows of shape {own}: it must be (height, width) "
            "or (channels, height, width) with as many numbers as a flat row has, that of rows "
            "with three axes, or None for these and for squares"
        )
    return found
