"""Random views of photographs: parts, mirror images and other colours, on any device."""

from __future__ import annotations

import math
from functools import cache
from typing import ClassVar

import torch
from sklearn.base import BaseEstimator
from torch.nn.functional import affine_grid, grid_sample

from ._base.environment import in_single_precision, without_caller_settings
from ._base.validation import check_argument, check_parameters, numbers

__all__ = ["RandomView"]

# Brightness as shares of red, green and blue, and two axes of colour: the YIQ space of television.
_TO_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
# The ratio of width to height changes by a factor of at most this, and at least its inverse.
_LARGEST_RATIO = 4 / 3
# Resized images may be so much outside of the range.
_ROUNDING = 1e-3


class RandomView(BaseEstimator):
    """Random views of photographs, much like those of SimCLR, for ``Coherence(augmentation=)``.

    A random part of each image is enlarged to the size of the image. About half of the images are
    mirrored. Then brightness, contrast, saturation and hue change, and some images become grey.
    Each image gets its own amounts, as in SimCLR [1]_. All is computed on the device of the images.

    Parameters
    ----------
    least_area : float, default=0.2
        The area of a part, as a share of the image, is drawn uniformly from `least_area` to 1;
        above 0. The ratio of width to height is that of the image times a factor from 3/4 to 4/3. A
        part that would be wider or higher than the image is cut, so that with `least_area` = 1 a
        part may have only 87 % of the area.
    mirror : bool, default=True
        Whether half of the images are mirrored, left to right. Set it to False where left and right
        tell the classes apart, as in letters and digits.
    color : float, default=0.4
        Largest relative change of brightness and contrast, from 0 to 1. Saturation changes by up to
        half of it. The hue turns by up to ``color / 4`` of a full turn: 36 degrees by default. One
        image in five keeps all four as they are; with 0 every image does.
    gray : float, default=0.2
        Probability that an image becomes grey, from 0 to 1. Set it and `color` to 0 where colours
        tell the classes apart.

    See Also
    --------
    sklearn_mmdinit.Coherence : Augments both images of its positive pairs.
    RandomAffine : For NumPy arrays of drawings, letters and digits.

    Notes
    -----
    Random numbers come from PyTorch's global generators. ``mmd_init_`` seeds them in each step, and
    restores them. On a GPU only the images of the first call are checked to be from 0 to 1,
    because reading values waits for the GPU. Standardize inside the network, after the views.

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
        self.least_area = least_area
        self.mirror = mirror
        self.color = color
        self.gray = gray

    @without_caller_settings()
    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return a view (n, 3, height, width) of each image; values are floats from 0 to 1."""
        check_parameters(self)
        self._check_images(images)
        if len(images) == 0:  # grid_sample needs at least one image
            return images.clone()
        views = _random_parts(in_single_precision(images), self.least_area, self.mirror)
        if self.color or self.gray:
            views = _recolored(views, self.color, self.gray)
        return views.to(images.dtype)

    def _check_images(self, images: torch.Tensor) -> None:
        check_argument("images", images, torch.Tensor)
        if images.ndim != 4 or images.shape[1] != 3 or not images.is_floating_point():
            raise ValueError(
                "RandomView takes floats of shape (n, 3, height, width), red, green and blue, got "
                f"{images.dtype} of shape {tuple(images.shape)}"
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


def _uniform(images: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """A number (n, 1, 1, 1) for each image."""
    shape = len(images), 1, 1, 1
    return torch.empty(shape, dtype=images.dtype, device=images.device).uniform_(low, high)


def _happens(images: torch.Tensor, probability: float) -> torch.Tensor:
    """1 or 0 for each image (n, 1, 1, 1)."""
    return (_uniform(images, 0.0, 1.0) < probability).to(images.dtype)


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
    grid = affine_grid(maps, list(images.shape), align_corners=False)
    return grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def _recolored(images: torch.Tensor, color: float, gray: float) -> torch.Tensor:
    to_yiq, from_yiq = _yiq(images.dtype, images.device)

    def change(largest: float) -> torch.Tensor:
        return changes * _uniform(images, -largest, largest)

    def brightness(x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("c,bchw->bhw", to_yiq[0], x)[:, None]

    changes = _happens(images, 0.8)
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
