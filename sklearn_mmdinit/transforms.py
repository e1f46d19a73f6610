"""Augmentations of images, and features of images for the search of neighbours.

Images are flat rows, or have the axes (height, width), (channels, height, width) or (height, width,
channels); `RandomView` takes (channels, height, width).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn
from torch.nn.functional import avg_pool2d, grid_sample, pad

from ._base.environment import array_of, in_single_precision, without_caller_settings
from ._base.validation import AUTO, check_argument, check_parameters, integers, is_auto, numbers

__all__ = ["OrientedGradients", "RandomAffine", "RandomView"]

_NUMBERS_AT_A_TIME = 6_000_000  # of histograms; 100 MB with what is computed on the way
_CELLS_A_SIDE = 14
_FLAT_IMAGES = {(64,): (8, 8), (784,): (28, 28)}  # digits of scikit-learn; (Fashion-)MNIST
_MOST_CHANNELS = 4  # of images whose channels are the last axis: red, green, blue and alpha

# Of RandomView. Brightness as shares of red, green and blue, and two axes of colour: the YIQ space
# of television.
_TO_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
# The ratio of width to height changes by a factor of at most this, and at least its inverse.
_LARGEST_RATIO = 4 / 3
# Resized images may leave the range by this.
_ROUNDING = 1e-3


def _image_shape(X: Any, image_shape: Any) -> tuple[int, int, int]:
    """Lengths of the three axes of images X, by the parameter image_shape.

    The first or the last axis counts channels, see `_channels_are_last`.
    """
    row_shape = tuple(X.shape[1:])
    known = _FLAT_IMAGES.get(row_shape, row_shape)
    shape = known if image_shape is None else tuple(np.atleast_1d(image_shape).tolist())
    if len(shape) == 2:
        shape = 1, *shape
    valid = len(shape) == 3 and all(isinstance(side, int) and side > 0 for side in shape)
    fits = valid and (shape in (row_shape, (1, *row_shape)) or row_shape == (math.prod(shape),))
    if not fits:
        hint = (
            "give (height, width), (channels, height, width) or (height, width, channels), or None "
            "for rows of 64 or 784 pixels and for rows that have two or three axes already"
        )
        raise ValueError(f"{image_shape=} does not fit rows of shape {row_shape}: {hint}")
    return shape


def _channels_are_last(shape: Sequence[int]) -> bool:
    """Whether the last of three axes counts channels: it has at most 4 values, the first over 4."""
    return shape[2] <= _MOST_CHANNELS < shape[0]


def _channels_first(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Channels, height and width of images whose axes have these lengths."""
    height, width, channels = shape
    return (channels, height, width) if _channels_are_last(shape) else shape


def _as_images(X: torch.Tensor, shape: tuple[int, int, int]) -> torch.Tensor:
    """Rows X as images (n, channels, height, width); `shape` has the lengths of their axes."""
    images = X.reshape(-1, *shape)
    return images.movedim(-1, 1) if _channels_are_last(shape) else images


def _uniform(images: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """A number (n, 1, 1, 1) for each image."""
    shape = len(images), 1, 1, 1
    return torch.empty(shape, dtype=images.dtype, device=images.device).uniform_(low, high)


def _happens(images: torch.Tensor, probability: float) -> torch.Tensor:
    """1 or 0 for each image (n, 1, 1, 1)."""
    return (_uniform(images, 0.0, 1.0) < probability).to(images.dtype)


def _moved(images: torch.Tensor, maps: torch.Tensor, beyond: str) -> torch.Tensor:
    """Images moved by affine maps (n, 2, 3); `beyond` names what is outside of them."""
    if len(images) == 0:  # grid_sample needs at least one image
        return images
    like: Any = {"dtype": images.dtype, "device": images.device}
    y, x = (torch.linspace(1 / s - 1, 1 - 1 / s, s, **like) for s in images.shape[2:])
    M = maps[..., None, None]  # by coordinate: a fraction of the time of `affine_grid`
    grid = M[:, :, 0] * x + (M[:, :, 1] * y[:, None] + M[:, :, 2])
    return grid_sample(images, grid.movedim(1, -1), padding_mode=beyond, align_corners=False)


class RandomAffine(BaseEstimator, nn.Module):
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
        Largest stretch of height or width, as a natural logarithm: 0.1 allows factors from 0.90 to
        1.11. At most 10.
    shear : float, default=8.0
        Largest angle by which columns lean, in degrees, less than 90.
    mirror : bool, default=False
        Whether to exchange left and right of each image with probability 1/2.
    image_shape : tuple of int or None, default=None
        Shape of the image in a flat row: (height, width), (channels, height, width) or (height,
        width, channels). Not needed for rows of 64 or 784 pixels (8 x 8 or 28 x 28), nor if each
        image of X already has two axes (height, width) or three. With three axes the channels are
        last if the last axis has at most 4 values and the first has more; else they are first.

    See Also
    --------
    sklearn_mmdinit.Coherence : Augments both examples of its positive pairs.
    RandomView : For photographs.

    Notes
    -----
    Random numbers come from PyTorch's global generator of the images' device. Pre-training seeds it
    in each step, and restores it.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_mmdinit import RandomAffine
    >>> X = torch.from_numpy(load_digits().data)
    >>> changed = RandomAffine(shift=1.0)(X)
    >>> changed.shape == X.shape, bool((changed != X).any(dim=1).all())
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
        super().__init__()
        self.degrees = degrees
        self.shift = shift
        self.scale = scale
        self.shear = shear
        self.mirror = mirror
        self.image_shape = image_shape

    @without_caller_settings()
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Change images (n, n_pixels), or (n, ...) with two or three axes, at random.

        They hold floats on any scale, on any device. The result has their shape and type.
        """
        check_parameters(self)
        check_argument("images", images, torch.Tensor)
        if not images.is_floating_point():
            raise ValueError(f"RandomAffine takes floats, got {images.dtype}: divide bytes by 255")
        shape = _image_shape(images, self.image_shape)
        given = in_single_precision(_as_images(images, shape))
        changed = _moved(given, self._maps(given), "border")
        if _channels_are_last(shape):
            changed = changed.movedim(1, -1)
        return changed.reshape(images.shape).to(images.dtype)

    def _maps(self, images: torch.Tensor) -> torch.Tensor:
        """Affine maps (n, 2, 3) from positions in changed images to positions in given ones.

        Positions range from -1 to 1 along each axis.
        """
        height, width = images.shape[2:]

        def amounts(largest: float) -> torch.Tensor:
            return _uniform(images, -largest, largest).flatten()

        angle, lean = amounts(self.degrees).deg2rad(), amounts(self.shear).deg2rad().tan()
        across, down = (amounts(self.scale).exp() for _ in range(2))
        if self.mirror:
            across = across * (1.0 - 2.0 * _happens(images, 0.5).flatten())
        right, below = amounts(self.shift) * 2.0 / width, amounts(self.shift) * 2.0 / height
        cosine, sine = angle.cos(), angle.sin()
        # First a stretch, then a shear, then a rotation.
        xx, xy = cosine * across, (cosine * lean - sine) * down
        yx, yy = sine * across, (sine * lean + cosine) * down
        x = torch.stack([xx, xy * height / width, right], dim=1)
        y = torch.stack([yx * width / height, yy, below], dim=1)
        return torch.stack([x, y], dim=1)


class RandomView(BaseEstimator, nn.Module):
    """Random views of photographs, much like those of SimCLR, for ``Coherence(augmentation=)``.

    A random part of each image is enlarged to the size of the image. About half of the images are
    mirrored. Then brightness, contrast, saturation and hue change, and some images become grey. In
    images of one channel only brightness and contrast change. Each image gets its own amounts, as
    in SimCLR [1]_. All is computed on the device of the images.

    Parameters
    ----------
    least_area : float, default=0.2
        Smallest area of a part, as a share of the image, above 0 and at most 1. The share is drawn
        uniformly from `least_area` to 1. The ratio of width to height is that of the image times a
        factor from 3/4 to 4/3. A part that would be wider or higher than the image is cut, so that
        with `least_area` = 1 a part may have only 87 % of the area.
    mirror : bool, default=True
        Whether half of the images are mirrored, left to right. Set it to False where left and right
        distinguish the classes, as in letters and digits.
    color : float, default=0.4
        Largest relative change of brightness and contrast, from 0 to 1. Saturation changes by up to
        half of it. The hue turns by up to ``color / 4`` of a full turn: 36 degrees by default. One
        image in five keeps all four as they are; with `color` = 0 every image does.
    gray : float, default=0.2
        Probability that an image becomes grey, from 0 to 1. Set it and `color` to 0 where colours
        distinguish the classes.

    See Also
    --------
    sklearn_mmdinit.Coherence : Augments both images of its positive pairs.
    RandomAffine : For drawings, letters and digits.

    Notes
    -----
    Random numbers come from PyTorch's global generator of the images' device. Pre-training seeds it
    in each step, and restores it. On a GPU only the images of the first call are checked to be from
    0 to 1, because reading values waits for the GPU. Standardize inside the network, after the
    views.

    References
    ----------
    .. [1] T. Chen, S. Kornblith, M. Norouzi and G. Hinton, "A Simple Framework for Contrastive
       Learning of Visual Representations", ICML 2020.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit import RandomView
    >>> photographs = torch.rand(8, 3, 32, 32)
    >>> RandomView()(photographs).shape
    torch.Size([8, 3, 32, 32])

    Two views of one photograph as a positive pair:

    >>> from sklearn_mmdinit import Coherence
    >>> coherence = Coherence(n_neighbors=0, augmentation=RandomView())
    """

    _parameter_constraints: ClassVar = {
        "least_area": [numbers(0, 1, "right")],
        "mirror": ["boolean"],
        "color": [numbers(0, 1, "both")],
        "gray": [numbers(0, 1, "both")],
    }

    def __init__(
        self,
        *,
        least_area: float = 0.2,
        mirror: bool = True,
        color: float = 0.4,
        gray: float = 0.2,
    ) -> None:
        super().__init__()
        self.least_area = least_area
        self.mirror = mirror
        self.color = color
        self.gray = gray

    @without_caller_settings()
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return a view of each image (n, 3 or 1, height, width); values are floats from 0 to 1."""
        check_parameters(self)
        self._check_images(images)
        views = _random_parts(in_single_precision(images), self.least_area, self.mirror)
        if self.color or self.gray:
            # Grey images stay grey, as they have no saturation and no hue.
            colored = _recolored(views.expand(-1, 3, -1, -1), self.color, self.gray)
            views = colored[:, : images.shape[1]]
        return views.to(images.dtype)

    def _check_images(self, images: torch.Tensor) -> None:
        check_argument("images", images, torch.Tensor)
        if images.ndim != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
            raise ValueError(
                "RandomView takes floats from 0 to 1 of shape (n, 3, height, width), red, green "
                "and blue, or (n, 1, height, width), grey, got "
                f"{images.dtype} of shape {tuple(images.shape)}; divide bytes by 255"
            )
        if not images.numel() or (images.device.type != "cpu" and hasattr(self, "_has_checked")):
            return
        low, high = (float(value) for value in images.aminmax())
        if not (low >= -_ROUNDING and high <= 1.0 + _ROUNDING):
            raise ValueError(
                f"RandomView takes values from 0 to 1, got values from {low:.3g} to {high:.3g}: "
                "divide bytes by 255, and standardize in the module, after the augmentation"
            )
        if images.device.type != "cpu":
            self._has_checked = True


def _random_parts(images: torch.Tensor, least_area: float, mirror: bool) -> torch.Tensor:
    """A part of each image, enlarged to its size; half of them mirrored."""
    largest = math.log(_LARGEST_RATIO)
    area = _uniform(images, least_area, 1.0).flatten()
    ratio = _uniform(images, -largest, largest).flatten().exp()
    width, height = (area * ratio).sqrt().clamp(max=1.0), (area / ratio).sqrt().clamp(max=1.0)
    maps = torch.zeros(len(images), 2, 3, dtype=images.dtype, device=images.device)
    maps[:, 0, 0] = width * (1.0 - 2.0 * _happens(images, 0.5 if mirror else 0.0).flatten())
    maps[:, 1, 1] = height
    maps[:, 0, 2] = _uniform(images, -1.0, 1.0).flatten() * (1.0 - width)
    maps[:, 1, 2] = _uniform(images, -1.0, 1.0).flatten() * (1.0 - height)
    return _moved(images, maps, "reflection")


def _recolored(images: torch.Tensor, color: float, gray: float) -> torch.Tensor:
    to_yiq, from_yiq = _yiq(images.dtype, images.device)
    changes = _happens(images, 0.8)

    def change(largest: float) -> torch.Tensor:
        return changes * _uniform(images, -largest, largest)

    def brightness(x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("c,bchw->bhw", to_yiq[0], x)[:, None]

    x = (images * (1.0 + change(color))).clamp(0.0, 1.0)
    mean = brightness(x).mean(dim=(2, 3), keepdim=True)
    x = ((x - mean) * (1.0 + change(color)) + mean).clamp(0.0, 1.0)
    grey = brightness(x)
    x = ((x - grey) * (1.0 + change(color / 2)) + grey).clamp(0.0, 1.0)
    # A turn of the hue rotates the two axes of colour, and keeps the brightness.
    angle = 2 * math.pi * change(color / 4).flatten()
    turn = torch.zeros(len(x), 3, 3, dtype=x.dtype, device=x.device)
    turn[:, 0, 0] = 1.0
    turn[:, 1, 1] = turn[:, 2, 2] = angle.cos()
    turn[:, 2, 1] = angle.sin()
    turn[:, 1, 2] = -turn[:, 2, 1]
    x = torch.einsum("bij,bjhw->bihw", from_yiq @ turn @ to_yiq, x).clamp(0.0, 1.0)
    return torch.lerp(x, brightness(x).expand_as(x), _happens(images, gray))


@cache
def _yiq(dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The map from red, green and blue to YIQ, and its inverse."""
    to_yiq = torch.tensor(_TO_YIQ, dtype=torch.float64)
    return to_yiq.to(device, dtype), torch.linalg.inv(to_yiq).to(device, dtype)


class OrientedGradients(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""HOG features, histograms of oriented gradients [1]_, for ``Coherence(embedding=)``.

    An image is cut into square cells. The histogram :math:`h` of a cell adds up the gradient norms
    of the pixels near it, each split between the two nearest of ``n_orientations`` directions. It
    is then normalized, so that faint edges count as much as strong ones,

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
        Number of directions over the full circle, at least 2. Dark-to-light and light-to-dark edges
        count as different.
    floor : float, default=0.3
        Edges much fainter than this share of :math:`m` stay faint; stronger edges become about
        equal. At least 0.
    image_shape : tuple of int or None, default=None
        As :class:`RandomAffine` takes it. At each pixel the channel with the largest gradient is
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
    >>> OrientedGradients(cell_size=2).fit_transform(X).shape  # 8 x 8 pixels in 4 x 4 cells
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
        if (given := _channels_first(shape)) != self.image_shape_:
            raise ValueError(f"X holds images of shape {given}, fit saw {self.image_shape_}")
        features = np.empty((len(X), self._n_features_out), dtype=np.float32)
        n_pixels = math.prod(self.image_shape_[1:])
        block = max(_NUMBERS_AT_A_TIME // (self.n_orientations * n_pixels), 1)
        for rows in gen_batches(len(X), block):
            # A copy, because rows may be read-only or have negative strides.
            images = _as_images(torch.from_numpy(X[rows].copy()), shape)
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
    more_rows, more_columns = (-side % cell for side in by_pixel.shape[2:])
    # Pixels outside the image are 0.
    sides = (left, cell - left + more_columns, above, cell - above + more_rows)
    return avg_pool2d(pad(by_pixel, sides), 2 * cell, cell)
