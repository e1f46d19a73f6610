"""Small random changes of images that leave what they show as it is."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import numpy as np
import torch
from sklearn.utils import check_scalar
from torch.nn.functional import affine_grid, grid_sample

from .._documentation import DocumentedEstimator
from .checks import check_amounts
from .shape import image_shape_of

__all__ = ["RandomAffine"]


class RandomAffine(DocumentedEstimator):
    """Random rotations, shifts, stretches and shears of images, for ``Coherence(augmentation=)``.

    Each image is changed in its own way: every amount is uniform between its limits in both
    directions, and pixels between pixels are interpolated linearly.

    Parameters
    ----------
    degrees : float, default=15.0
        Largest rotation about the centre, in degrees, at most 180.
    shift : float, default=2.0
        Largest shift along either axis, in pixels, at most a million.
    scale : float, default=0.1
        Largest logarithm of the factor of either side, at most 10: 22,026 times as large.
    shear : float, default=8.0
        Largest angle by which columns lean, in degrees, less than 90.
    mirror : bool, default=False
        Whether every other image, at random, has left and right exchanged.
    image_shape : tuple of int or None, default=None
        Height and width, or channels, height and width, of what a flat row holds. None: a
        square of one channel; rows of shape (channels, height, width) need none.

    See Also
    --------
    sklearn_mmdinit.Coherence : Changes both ends of its walks with it.

    Notes
    -----
    What lies beyond the border is taken to be as the border is.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_mmdinit import RandomAffine
    >>> X = load_digits().data
    >>> changed = RandomAffine(shift=1.0)(X, np.random.default_rng(0))
    >>> changed.shape == X.shape, bool((changed != X).any(axis=1).all())
    (True, True)
    """

    def __init__(
        self,
        *,
        degrees: float = 15.0,
        shift: float = 2.0,
        scale: float = 0.1,
        shear: float = 8.0,
        mirror: bool = False,
        image_shape: Sequence[int] | None = None,
    ) -> None:
        self.degrees = degrees
        self.shift = shift
        self.scale = scale
        self.shear = shear
        self.mirror = mirror
        self.image_shape = image_shape

    def __call__(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Change each image.

        Parameters
        ----------
        X : ndarray of shape (n, n_pixels) or (n, channels, height, width)
            Images of float32 or float64, on any scale.
        rng : numpy.random.Generator
            Source of the amounts.

        Returns
        -------
        ndarray of the shape and type of X

        Raises
        ------
        ValueError
            If a parameter is not valid, or rows are no images of ``image_shape``, or numbers of
            another type.
        TypeError
            If ``rng`` is another source of random numbers, or a parameter is of another type.
        """
        self._check_params()
        if not isinstance(rng, np.random.Generator):
            raise TypeError(
                "rng must be a numpy.random.Generator, such as np.random.default_rng(0), got "
                f"{rng!r}"
            )
        X = np.asarray(X)
        if X.dtype not in (np.float32, np.float64):
            raise ValueError(f"images must be of float32 or float64, got {X.dtype}")
        shape = image_shape_of(X, self.image_shape)
        if len(X) == 0:  # which grid_sample does not take
            return X.copy()
        images = torch.from_numpy(np.require(X, requirements=("C", "W"))).view(len(X), *shape)
        height, width = shape[1:]
        maps = torch.from_numpy(self._maps(len(X), height, width, rng)).to(images.dtype)
        grid = affine_grid(maps, list(images.shape), align_corners=False)
        changed = grid_sample(images, grid, padding_mode="border", align_corners=False)
        return changed.view(X.shape).numpy()

    def _maps(self, n: int, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
        """Affine maps (n, 2, 3) from places of the changed images to those of the images.

        Places count from -1 to 1 along each side: angles are those of pixels all the same.
        """

        def amounts(largest: float) -> np.ndarray:
            return rng.uniform(-largest, largest, n)

        angle, lean = np.deg2rad(amounts(self.degrees)), np.tan(np.deg2rad(amounts(self.shear)))
        across, down = (np.exp(amounts(self.scale)) for _ in range(2))
        if self.mirror:
            across = across * rng.choice([-1.0, 1.0], n)
        right, below = amounts(self.shift) * 2.0 / width, amounts(self.shift) * 2.0 / height
        cosine, sine = np.cos(angle), np.sin(angle)
        # A rotation after a shear after a stretch.
        xx, xy = cosine * across, (cosine * lean - sine) * down
        yx, yy = sine * across, (sine * lean + cosine) * down
        x = np.stack([xx, xy * height / width, right], axis=1)
        y = np.stack([yx * width / height, yy, below], axis=1)
        return np.stack([x, y], axis=1)

    def _check_params(self) -> None:
        check_amounts(self, "degrees", "shift", "scale", "shear")
        check_scalar(self.degrees, "degrees", Real, max_val=180)
        # No image has as many pixels, and places in float32 stay far from infinity.
        check_scalar(self.shift, "shift", Real, max_val=1e6)
        check_scalar(self.scale, "scale", Real, max_val=10)
        check_scalar(self.shear, "shear", Real, max_val=90, include_boundaries="neither")
        if not isinstance(self.mirror, bool | np.bool_):
            raise ValueError(f"mirror must be True or False, got {self.mirror!r}")
