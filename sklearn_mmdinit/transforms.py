"""Augmentations of images, and features of images for the search of neighbours.

Images are flat rows, or have the axes (height, width), (channels, height, width) or (height, width,
channels).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample, pad

from ._base.environment import array_of, without_caller_settings
from ._base.validation import AUTO, check_argument, check_parameters, integers, is_auto, numbers

__all__ = ["OrientedGradients", "RandomAffine"]

_NUMBERS_AT_A_TIME = 6_000_000  # of histograms; 100 MB with what is computed on the way
_CELLS_A_SIDE = 14
_MOST_CHANNELS = 4  # of images whose channels are the last axis: red, green, blue and alpha


def _image_shape(X: np.ndarray, image_shape: Any) -> tuple[int, int, int]:
    """Lengths of the three axes of images X, by the parameter image_shape.

    The first or the last axis counts channels, see `_channels_are_last`.
    """
    row_shape = X.shape[1:]
    shape = row_shape if image_shape is None else tuple(np.atleast_1d(image_shape).tolist())
    if image_shape is None and len(row_shape) == 1:
        _check_has_one_channel(row_shape[0])
        side = math.isqrt(row_shape[0])
        shape = 1, side, side
    elif len(shape) == 2:
        shape = 1, *shape
    valid = len(shape) == 3 and all(isinstance(side, int) and side > 0 for side in shape)
    fits = valid and (shape in (row_shape, (1, *row_shape)) or row_shape == (math.prod(shape),))
    if not fits:
        hint = (
            "give (height, width), (channels, height, width) or (height, width, channels), or None "
            "for square images of one channel and for rows that have two or three axes already"
        )
        raise ValueError(f"{image_shape=} does not fit rows of shape {row_shape}: {hint}")
    return shape


def _check_has_one_channel(n_values: int) -> None:
    """Raise a ValueError if a flat row may be a square image of three channels."""
    side = math.isqrt(n_values // 3)
    if n_values == 3 * side**2:
        raise ValueError(
            f"image_shape=None does not say whether {n_values} values are three channels, and in "
            f"which order: give image_shape=(3, {side}, {side}), or ({side}, {side}, 3) as PIL and "
            "imread have them"
        )


def _channels_are_last(shape: Sequence[int]) -> bool:
    """Whether the last of three axes counts channels: it has at most 4 values, the first over 4."""
    return shape[2] <= _MOST_CHANNELS < shape[0]


def _channels_first(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Channels, height and width of images whose axes have these lengths."""
    height, width, channels = shape
    return (channels, height, width) if _channels_are_last(shape) else shape


def _as_tensor(X: np.ndarray, shape: tuple[int, int, int]) -> torch.Tensor:
    """A view (n, channels, height, width) of writeable rows X; `shape` has the images' axes."""
    images = torch.from_numpy(X).view(-1, *shape)
    return images.movedim(-1, 1) if _channels_are_last(shape) else images


class RandomAffine(BaseEstimator):
    """Random rotations, shifts, stretches and shears of images, for ``Coherence(augmentation=)``.

    Each image gets its own amounts, drawn uniformly between minus and plus their limits. Pixels are
    interpolated linearly. Pixels beyond the border have the values at the border.

    Parameters
    ----------
    degrees : float, default=15.0
        Largest rotation about the centre, in degrees, at most 180.
    shift : float, default=2.0
        Largest shift along either axis, in pixels, at most a million.
    scale : float, default=0.1
        Largest logarithm of the factor by which height or width is stretched, at most 10.
    shear : float, default=8.0
        Largest angle by which columns lean, in degrees, less than 90.
    mirror : bool, default=False
        Whether to exchange left and right of each image with probability 1/2.
    image_shape : tuple of int or None, default=None
        Shape of the image in a flat row: (height, width), (channels, height, width) or (height,
        width, channels). None: a square of one channel. Not needed if the images of X have two
        axes, (height, width), or three. The last of three axes counts channels if it has at most 4
        values and the first axis has more than 4; else the first axis does.

    See Also
    --------
    sklearn_mmdinit.Coherence : Augments both rows of its positive pairs.

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

    _parameter_constraints: ClassVar = {
        "degrees": [numbers(0, 180, "both")],
        # No image has a million pixels a side, and positions in float32 stay far from infinity.
        "shift": [numbers(0, 1e6, "both")],
        "scale": [numbers(0, 10, "both")],
        "shear": [numbers(0, 90)],
        "mirror": ["boolean"],
    }

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

    @without_caller_settings()
    def __call__(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return images X (n, n_pixels), or (n, ...) with two or three axes, changed at random.

        X is of float32 or float64, on any scale; the result has its shape and type.
        """
        check_parameters(self)
        check_argument("rng", rng, np.random.Generator)
        X = np.asarray(X)
        if X.dtype not in (np.float32, np.float64):
            raise ValueError(f"X must be of float32 or float64, got {X.dtype}: use X.astype")
        shape = _image_shape(X, self.image_shape)
        if len(X) == 0:  # grid_sample needs at least one image
            return X.copy()
        images = _as_tensor(np.require(X, requirements=("C", "W")), shape)
        height, width = images.shape[2:]
        maps = torch.from_numpy(self._maps(len(X), height, width, rng)).to(images.dtype)
        grid = affine_grid(maps, list(images.shape), align_corners=False)
        changed = grid_sample(images, grid, padding_mode="border", align_corners=False)
        if _channels_are_last(shape):
            changed = changed.movedim(1, -1)
        return changed.reshape(X.shape).numpy()

    def _maps(self, n: int, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
        """Affine maps (n, 2, 3) from positions in changed images to positions in given ones.

        Positions range from -1 to 1 along each axis.
        """

        def amounts(largest: float) -> np.ndarray:
            return rng.uniform(-largest, largest, n)

        angle, lean = np.deg2rad(amounts(self.degrees)), np.tan(np.deg2rad(amounts(self.shear)))
        across, down = (np.exp(amounts(self.scale)) for _ in range(2))
        if self.mirror:
            across = across * rng.choice([-1.0, 1.0], n)
        right, below = amounts(self.shift) * 2.0 / width, amounts(self.shift) * 2.0 / height
        cosine, sine = np.cos(angle), np.sin(angle)
        # First a stretch, then a shear, then a rotation.
        xx, xy = cosine * across, (cosine * lean - sine) * down
        yx, yy = sine * across, (sine * lean + cosine) * down
        x = np.stack([xx, xy * height / width, right], axis=1)
        y = np.stack([yx * width / height, yy, below], axis=1)
        return np.stack([x, y], axis=1)


class OrientedGradients(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Histograms of oriented gradients [1]_ of images, for ``Coherence(embedding=)``.

    An image is cut into square cells. The histogram :math:`h` of a cell adds up the lengths of the
    gradients of the pixels near it, each in the two nearest of ``n_orientations`` directions. It is
    then normalized, so that faint edges count as much as strong ones,

    .. math:: h / (\lVert h \rVert + \text{floor} \cdot m)

    with m the mean of :math:`\lVert h \rVert` over the cells of the image. Features do not change
    if a constant is added to an image, or if it is multiplied by a positive factor.

    Parameters
    ----------
    cell_size : int or "auto", default="auto"
        Side of a cell, in pixels. "auto": a fourteenth of the image's shorter side, at least 1. For
        images of 28 x 28 pixels this is 2. A histogram covers a square of twice that side, so that
        histograms of neighbouring cells overlap.
    n_orientations : int, default=8
        Number of directions over the full circle, at least 2: an edge from dark to light differs
        from one from light to dark.
    floor : float, default=0.3
        At least 0. Normalization strengthens faint edges, but not those that are much fainter than
        this share of the image's mean.
    image_shape : tuple of int or None, default=None
        As :class:`RandomAffine` takes it. At each pixel the channel with the longest gradient is
        used.

    Attributes
    ----------
    cell_size_ : int
        Side of a cell, in pixels.
    image_shape_ : tuple of int
        Channels, height and width.
    n_features_in_ : int
        Number of values of a flat row, or the length of an image's first axis.
    feature_names_in_ : ndarray of str
        Names of the columns, if ``fit`` got any.

    See Also
    --------
    sklearn_mmdinit.Coherence : Searches neighbours among these features.

    References
    ----------
    .. [1] N. Dalal and B. Triggs, "Histograms of Oriented Gradients for Human Detection",
       CVPR 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_mmdinit import Coherence, MMDInitializer, OrientedGradients
    >>> X = load_digits().data
    >>> OrientedGradients(cell_size=2).fit_transform(X).shape  # 4 x 4 cells of 8 x 8 pixels
    (1797, 128)
    >>> init = MMDInitializer(coherence=Coherence(embedding=OrientedGradients()))
    """

    _parameter_constraints: ClassVar = {
        "cell_size": [integers(1), AUTO],
        "n_orientations": [integers(2)],
        "floor": [numbers(0)],
    }

    def __init__(
        self,
        cell_size: int | str = "auto",
        *,
        n_orientations: int = 8,
        floor: float = 0.3,
        image_shape: Sequence[int] | None = None,
    ) -> None:
        self.cell_size = cell_size
        self.n_orientations = n_orientations
        self.floor = floor
        self.image_shape = image_shape

    def fit(self, X: Any, y: Any = None) -> OrientedGradients:
        """Learn the shape of the images.

        Parameters
        ----------
        X : array-like of shape (n, n_pixels) or (n, ...)
            Images, flat or with two or three axes, on any scale.
        y : object, default=None
            Ignored, present by convention.
        """
        check_parameters(self)
        X = self._images(X, reset=True)
        self.image_shape_ = _channels_first(_image_shape(X, self.image_shape))
        sides = self.image_shape_[1:]
        size = round(min(sides) / _CELLS_A_SIDE) if is_auto(self.cell_size) else self.cell_size
        self.cell_size_ = min(max(int(size), 1), max(sides))  # a larger cell changes nothing
        return self

    @without_caller_settings()
    def transform(self, X: Any) -> np.ndarray:
        """Histograms (n, n_orientations * n_cells) of images shaped as in ``fit``, float32."""
        check_is_fitted(self)
        X = self._images(X, reset=False)
        shape = _image_shape(X, self.image_shape)
        if _channels_first(shape) != self.image_shape_:
            raise ValueError(f"X holds images of shape {shape}, fit saw {self.image_shape_}")
        features = np.empty((len(X), self._n_features_out), dtype=np.float32)
        n_pixels = math.prod(self.image_shape_[1:])
        block = max(_NUMBERS_AT_A_TIME // (self.n_orientations * n_pixels), 1)
        for rows in gen_batches(len(X), block):
            # A copy, because rows may be read-only or have negative strides.
            images = _as_tensor(X[rows].copy(), shape)
            histograms = _histograms(images, self.cell_size_, self.n_orientations, self.floor)
            features[rows] = histograms.flatten(1).numpy()
        return features

    @property
    def _n_features_out(self) -> int:
        cells = (math.ceil(side / self.cell_size_) for side in self.image_shape_[1:])
        return self.n_orientations * math.prod(cells)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags

    def _images(self, X: Any, *, reset: bool) -> np.ndarray:
        dtypes = [np.float32, np.float64]  # other types become float32
        return validate_data(self, array_of(X), dtype=dtypes, allow_nd=True, reset=reset)


def _histograms(images: torch.Tensor, cell: int, n_orientations: int, floor: float) -> torch.Tensor:
    """Histograms (n, n_orientations, rows of cells, columns of cells) of images (n, c, h, w)."""
    by_pixel = _by_orientation(*_gradients(images), n_orientations)
    # A histogram covers a square of side 2 * cell around the centre of its cell. If `cell` is odd,
    # the square begins in the middle of a pixel. Then the squares that begin half a pixel earlier
    # and later are averaged.
    starts = list(product({cell // 2, cell - cell // 2}, repeat=2))
    by_cell = torch.stack([_windows(by_pixel, cell, *start) for start in starts]).mean(dim=0)
    # Histograms are divided by their peaks before the norm, because small squares underflow.
    peaks = by_cell.amax(dim=1, keepdim=True)
    shares = by_cell / peaks.clamp(min=torch.finfo(by_cell.dtype).tiny)
    norms = peaks * shares.norm(dim=1, keepdim=True)
    divisor = norms + floor * norms.mean(dim=(2, 3), keepdim=True)
    return torch.where(norms > 0, by_cell / divisor, 0.0)


def _gradients(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Lengths and angles (n, 1, h, w) of the longest gradient of all channels at each pixel."""
    # Scales images to at most 1, because squares of lengths could overflow.
    largest = images.abs().amax(dim=(1, 2, 3), keepdim=True)
    images = images / largest.clamp(min=torch.finfo(images.dtype).tiny)
    bordered = pad(images, (1, 1, 1, 1), mode="replicate")
    right = bordered[..., 1:-1, 2:] - bordered[..., 1:-1, :-2]
    down = bordered[..., 2:, 1:-1] - bordered[..., :-2, 1:-1]
    lengths, channel = torch.hypot(right, down).max(dim=1, keepdim=True)
    return lengths, torch.atan2(down.gather(1, channel), right.gather(1, channel))


def _by_orientation(
    lengths: torch.Tensor, angles: torch.Tensor, n_orientations: int
) -> torch.Tensor:
    """Lengths (n, n_orientations, h, w), each divided between the two nearest directions."""
    turn = angles.remainder(2 * math.pi) * (n_orientations / (2 * math.pi))
    share, nearest = turn.frac(), turn.long() % n_orientations
    by_pixel = lengths.new_zeros(len(lengths), n_orientations, *lengths.shape[2:])
    by_pixel.scatter_add_(1, nearest, lengths * (1 - share))
    by_pixel.scatter_add_(1, (nearest + 1) % n_orientations, lengths * share)
    return by_pixel


def _windows(by_pixel: torch.Tensor, cell: int, above: int, left: int) -> torch.Tensor:
    """Means over squares of side 2 * cell that begin `above` and `left` pixels before a cell."""
    below, beyond = (-side % cell for side in by_pixel.shape[2:])
    # Pixels outside the image are 0.
    sides = (left, cell - left + beyond, above, cell - above + below)
    return avg_pool2d(pad(by_pixel, sides), 2 * cell, cell)
