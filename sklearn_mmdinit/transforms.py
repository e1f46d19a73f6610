"""What is known of rows: small changes that they bear, and where neighbouring images look alike.

Images are flat or have three axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_scalar, gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample, pad

from ._base.validation import check_bool, check_finite, check_kind, check_positive, is_auto

__all__ = ["OrientedGradients", "RandomAffine", "RandomCorruption"]

_NUMBERS_AT_A_TIME = 6_000_000  # of histograms, some 100 MB in all
_CELLS_OF_A_SIDE = 14


def _image_shape(X: np.ndarray, asked: Any) -> tuple[int, int, int]:
    """Channels, height and width of the rows of X, where `asked` is the parameter image_shape."""
    own = X.shape[1:]
    if asked is None and len(own) == 3:
        return own
    if asked is None:
        n_pixels = math.prod(own)
        n_channels = 1 if math.isqrt(n_pixels) ** 2 == n_pixels else 3
        side = math.isqrt(n_pixels // n_channels)
        found = (n_channels, side, side)
    else:
        sides = tuple(np.atleast_1d(asked).tolist())
        found = sides if len(sides) == 3 else (1, *sides)
    right = len(found) == 3 and all(isinstance(side, int) and side > 0 for side in found)
    if not (right and own in (found, (math.prod(found),))):
        valid = "(height, width), (channels, height, width), or None for squares and three axes"
        raise ValueError(f"image_shape={asked!r} does not fit rows of shape {own}: give {valid}")
    return found


class RandomAffine(BaseEstimator):
    """Random rotations, shifts, stretches and shears of images, for ``Coherence(augmentation=)``.

    Each image is changed in its own way: every amount is uniform between its limits in both
    directions. Pixels between pixels are interpolated linearly; those beyond the border are as it.

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
        square of one channel or of three; rows of shape (channels, height, width) need none.

    See Also
    --------
    sklearn_mmdinit.Coherence : Changes both ends of its walks with it.

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
            ModuleFactory of the amounts.

        Returns
        -------
        ndarray of the shape and type of X
        """
        self._check_params()
        check_kind("rng", rng, np.random.Generator)
        X = np.asarray(X)
        if X.dtype not in (np.float32, np.float64):
            raise ValueError(f"images must be of float32 or float64, got {X.dtype}")
        shape = _image_shape(X, self.image_shape)
        if len(X) == 0:  # which grid_sample does not take
            return X.copy()
        images = torch.from_numpy(np.require(X, requirements=("C", "W"))).view(len(X), *shape)
        height, width = shape[1:]
        maps = torch.from_numpy(self._maps(len(X), height, width, rng)).to(images.dtype)
        grid = affine_grid(maps, list(images.shape), align_corners=False)
        changed = grid_sample(images, grid, padding_mode="border", align_corners=False)
        return changed.view(X.shape).numpy()

    def _maps(self, n: int, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
        """Maps (n, 2, 3) from places, -1 to 1, in the changed images to those in the images."""

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
        check_finite(self, "degrees", "shift", "scale", "shear")
        check_scalar(self.degrees, "degrees", Real, max_val=180)
        # No image has as many pixels, and places in float32 stay far from infinity.
        check_scalar(self.shift, "shift", Real, max_val=1e6)
        check_scalar(self.scale, "scale", Real, max_val=10)
        check_scalar(self.shear, "shear", Real, max_val=90, include_boundaries="neither")
        check_bool("mirror", self.mirror)


class RandomCorruption(BaseEstimator):
    r"""Entries exchanged for those of other rows, for ``Coherence(augmentation=)``.

    Each entry of a row is replaced, with a probability of its own draw, by the same column's entry
    of another row, as SCARF [1]_ and VIME [2]_ do: a value that the column does take, whatever the
    others of the row are. It suits tables of many columns that are categories or counts, any of
    which a task could do without; where columns hang together it makes rows that there are not.

    Parameters
    ----------
    p : float, default=0.3
        Probability of each entry to be replaced, from 0 to 1.

    See Also
    --------
    sklearn_mmdinit.Coherence : Changes both ends of its walks with it, each by draws of its own.
    RandomAffine : Small changes of images.

    Notes
    -----
    Other rows are those of the array that is given, one drawn anew for each entry. In training
    that is a mini-batch, both ends of its walks: a random sample of the data.

    References
    ----------
    .. [1] D. Bahri, H. Jiang, Y. Tay and D. Metzler, "SCARF: Self-Supervised Contrastive Learning
       using Random Feature Corruption", arXiv 2106.15147, 2021.
    .. [2] J. Yoon, Y. Zhang, J. Jordon and M. van der Schaar, "VIME: Extending the Success of
       Self- and Semi-supervised Learning to Tabular Domain", NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit import RandomCorruption
    >>> X = np.array([[0, 10, 20], [1, 11, 21], [2, 12, 22]])
    >>> RandomCorruption(p=0.5)(X, np.random.default_rng(0))
    array([[ 0, 12, 22],
           [ 2, 11, 21],
           [ 2, 12, 22]])
    """

    def __init__(self, p: float = 0.3) -> None:
        self.p = p

    def __call__(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Replace entries.

        Parameters
        ----------
        X : ndarray of shape (n, ...)
            Rows of any type. A row alone stays as it is.
        rng : numpy.random.Generator
            ModuleFactory of which entries, and of the rows that they are taken from.

        Returns
        -------
        ndarray of the shape and type of X
        """
        check_finite(self, "p")
        check_scalar(self.p, "p", Real, max_val=1)
        check_kind("rng", rng, np.random.Generator)
        changed, n = np.array(X), len(X)
        if n < 2:
            return changed
        row, *column = np.nonzero(rng.random(changed.shape) < self.p)
        other = (row + rng.integers(1, n, len(row))) % n
        changed[(row, *column)] = np.asarray(X)[(other, *column)]
        return changed


class OrientedGradients(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Histograms of oriented gradients [1]_ of images, for ``Coherence(embedding=)``.

    An image is cut into square cells. In the histogram :math:`h` of a cell, each pixel near it
    counts by the length of its gradient, in the two nearest of ``n_orientations`` directions;
    then a faint edge is made to count as much as a strong one,

    .. math:: h / (\lVert h \rVert + \text{floor} \cdot m)

    with m the mean of :math:`\lVert h \rVert` over the cells of the image. So neither a constant
    added to an image nor a positive factor changes anything.

    Parameters
    ----------
    cell_size : int or "auto", default="auto"
        Side of a cell, in pixels; "auto": a fourteenth of the image's shorter side, at least 1,
        so that images of 28 x 28 pixels have cells of 2. Its histogram is over a square of twice
        that side: those of neighbouring cells overlap.
    n_orientations : int, default=8
        Directions, over the full circle: from dark to light is not from light to dark. At
        least 2.
    floor : float, default=0.3
        What is much fainter than this share of an image's mean edge stays faint; not negative.
    image_shape : tuple of int or None, default=None
        Height and width, or channels, height and width, of what a flat row holds. None: a
        square of one channel or of three; rows of shape (channels, height, width) need none. Of
        several channels each pixel takes the one with the longest gradient.

    Attributes
    ----------
    cell_size_ : int
        Side of a cell, in pixels.
    image_shape_ : tuple of int
        Channels, height and width.
    n_features_in_ : int
        Numbers in a flat row, channels of images with three axes.
    feature_names_in_ : ndarray of str
        Names of the columns, where ``fit`` got any.

    See Also
    --------
    sklearn_mmdinit.Coherence : Searches neighbours in what this makes of images.

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
        X : array-like of shape (n, n_pixels) or (n, channels, height, width)
            Images, on any scale.
        y : object, default=None
            Ignored, present by convention.

        Returns
        -------
        self : OrientedGradients
            Fitted.
        """
        check_positive(self, "n_orientations", least=2)
        check_finite(self, "floor")
        check_positive(self, "cell_size", auto=True)
        X = self._images(X, reset=True)
        self.image_shape_ = _image_shape(X, self.image_shape)
        sides = self.image_shape_[1:]
        size = round(min(sides) / _CELLS_OF_A_SIDE) if is_auto(self.cell_size) else self.cell_size
        self.cell_size_ = min(max(int(size), 1), max(sides))  # beyond, there is one cell
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Histograms of each image.

        Parameters
        ----------
        X : array-like of shape (n, n_pixels) or (n, channels, height, width)
            Images of the shape that ``fit`` saw.

        Returns
        -------
        ndarray of shape (n, n_orientations * n_cells), float32
        """
        check_is_fitted(self)
        X = self._images(X, reset=False)
        found = _image_shape(X, self.image_shape)
        if found != self.image_shape_:
            raise ValueError(f"X holds images of shape {found}, fit saw {self.image_shape_}")
        histograms = np.empty((len(X), self._n_features_out), dtype=np.float32)
        block = max(_NUMBERS_AT_A_TIME // (self.n_orientations * math.prod(found[1:])), 1)
        for rows in gen_batches(len(X), block):
            # A copy: rows may be read-only, or backwards.
            images = torch.from_numpy(X[rows].copy()).view(-1, *found)
            made = _histograms(images, self.cell_size_, self.n_orientations, self.floor)
            histograms[rows] = made.flatten(1).numpy()
        return histograms

    @property
    def _n_features_out(self) -> int:
        cells = (math.ceil(side / self.cell_size_) for side in self.image_shape_[1:])
        return self.n_orientations * math.prod(cells)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # float32 in any case
        return tags

    def _images(self, X: Any, *, reset: bool) -> np.ndarray:
        numbers = [np.float32, np.float64]  # others become the first
        return validate_data(self, X, dtype=numbers, allow_nd=True, reset=reset)


def _histograms(images: torch.Tensor, cell: int, n_orientations: int, floor: float) -> torch.Tensor:
    """Histograms (n, n_orientations, rows of cells, columns of cells) of images (n, c, h, w)."""
    height, width = images.shape[2:]
    # As large as one: lengths are squared on the way.
    largest = images.abs().amax(dim=(1, 2, 3), keepdim=True)
    images = images / largest.clamp(min=torch.finfo(images.dtype).tiny)
    bordered = pad(images, (1, 1, 1, 1), mode="replicate")
    right = bordered[..., 1:-1, 2:] - bordered[..., 1:-1, :-2]
    down = bordered[..., 2:, 1:-1] - bordered[..., :-2, 1:-1]
    lengths, channel = torch.hypot(right, down).max(dim=1, keepdim=True)
    right, down = right.gather(1, channel), down.gather(1, channel)
    turn = torch.atan2(down, right).remainder(2 * math.pi) * (n_orientations / (2 * math.pi))
    share, nearest = turn.frac(), turn.long() % n_orientations
    counted = lengths.new_zeros(len(images), n_orientations, height, width)
    counted.scatter_add_(1, nearest, lengths * (1 - share))
    counted.scatter_add_(1, (nearest + 1) % n_orientations, lengths * share)
    # Around the cell; of an odd side, half a pixel either way, whence their mean.
    starts = list(product({cell // 2, cell - cell // 2}, repeat=2))
    found = torch.stack([_windows(counted, cell, *start) for start in starts]).mean(dim=0)
    # Of numbers near one: squares of others may vanish.
    peaks = found.amax(dim=1, keepdim=True)
    shares = found / peaks.clamp(min=torch.finfo(found.dtype).tiny)
    norms = peaks * shares.norm(dim=1, keepdim=True)
    divisor = norms + floor * norms.mean(dim=(2, 3), keepdim=True)
    return torch.where(norms > 0, found / divisor, 0.0)


def _windows(counted: torch.Tensor, cell: int, above: int, left: int) -> torch.Tensor:
    """Means over squares of twice a cell's side, which begin so far before it."""
    below, beyond = (-side % cell for side in counted.shape[2:])
    # Outside the image there is nothing.
    sides = (left, cell - left + beyond, above, cell - above + below)
    return avg_pool2d(pad(counted, sides), 2 * cell, cell)
