"""Random views of photographs."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from sklearn_mmdinit import RandomView


def test_a_view_is_a_part_whose_area_is_uniform():
    ramp = torch.linspace(0.0, 1.0, 32)
    image = torch.stack([ramp.expand(32, 32), ramp[:, None].expand(32, 32), torch.zeros(32, 32)])
    torch.manual_seed(0)
    views = RandomView(color=0.0, gray=0.0)(image.expand(4000, 3, 32, 32))
    right, down = views[:, 0, 16], views[:, 1, :, 16]
    assert (down.diff(dim=1) >= -1e-6).all()  # never upside down
    mirrored = right[:, -1] < right[:, 0]
    assert 0.45 < mirrored.float().mean() < 0.55
    views = RandomView(mirror=False, color=0.0, gray=0.0)(image.expand(50, 3, 32, 32))
    assert (views[:, 0, 16, -1] > views[:, 0, 16, 0]).all()
    area = (right[:, -1] - right[:, 0]).abs() * (down[:, -1] - down[:, 0])
    assert area.max() < 1.01
    # Where width or height would exceed the image's, the area is smaller than what was drawn.
    shares = [float((area < limit).float().mean()) for limit in (0.19, 0.4, 0.6)]
    np.testing.assert_allclose(shares, [0.0, 0.25, 0.5], atol=0.06)


def test_colours_change_within_their_limits_and_a_grey_image_stays_grey():
    torch.manual_seed(0)
    flat = torch.tensor([0.6, 0.4, 0.5]).view(1, 3, 1, 1).expand(500, 3, 8, 8)
    same = RandomView(color=0.0, gray=0.0)(flat)
    torch.testing.assert_close(same, flat)
    assert (RandomView(gray=1.0)(flat).std(dim=1) < 1e-6).all()
    changed = RandomView(gray=0.0)(flat)
    assert changed.min() >= 0.0
    assert changed.max() <= 1.0
    # A flat image has no contrast, saturation and hue keep the brightness: that changes by 40 %.
    weights = torch.tensor([0.299, 0.587, 0.114])
    ratio = (changed.mean(dim=(2, 3)) @ weights) / (flat.mean(dim=(2, 3)) @ weights)
    assert 0.55 < ratio.min() < 0.7
    assert 1.3 < ratio.max() < 1.45
    assert 0.1 < ((changed - flat).abs().amax(dim=(1, 2, 3)) < 1e-5).float().mean() < 0.3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_views_have_the_shape_and_type_of_images_and_differ(dtype):
    images = torch.rand(40, 3, 12, 20, generator=torch.Generator().manual_seed(0)).to(dtype)
    before = images.clone()
    views = [RandomView()(images) for _ in range(2)]
    assert views[0].shape == images.shape
    assert views[0].dtype == dtype
    assert not torch.equal(*views)
    assert torch.equal(images, before)
    assert all(0.0 <= float(view.min()) <= float(view.max()) <= 1.0 for view in views)
    assert RandomView()(images[:0]).shape == (0, 3, 12, 20)


def test_views_are_the_same_under_autocast():
    images, views = torch.rand(5, 3, 8, 8), []
    for half in (False, True):
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            views.append(RandomView()(images))
    assert torch.equal(*views)


def test_values_that_rounding_moved_are_no_error():
    RandomView()(1.0001 * torch.ones(4, 3, 8, 8))


def test_views_follow_from_the_global_generator():
    images, views = torch.rand(5, 3, 8, 8), []
    for _ in range(2):
        torch.manual_seed(3)
        views.append(RandomView()(images))
    assert torch.equal(*views)


@pytest.mark.parametrize(
    ("images", "match"),
    [
        (torch.rand(4, 1, 8, 8), r"shape \(4, 1, 8, 8\)"),
        (torch.rand(4, 8, 8, 3), r"shape \(4, 8, 8, 3\)"),
        (torch.zeros(4, 3, 8, 8, dtype=torch.uint8), "torch.uint8"),
        (torch.randn(4, 3, 8, 8), "values from 0 to 1, got values from -.*standardize in the mod"),
        (255 * torch.rand(4, 3, 8, 8), "divide bytes by 255"),
        (torch.full((4, 3, 8, 8), float("nan")), "from nan to nan"),
    ],
)
def test_what_is_no_photograph_is_refused(images, match):
    with pytest.raises(ValueError, match=match):
        RandomView()(images)


def test_a_view_takes_tensors_and_valid_parameters_alone():
    with pytest.raises(TypeError, match="images"):
        RandomView()(np.zeros((4, 3, 8, 8)))
    for name, value in (("least_area", 0.0), ("color", 1.5), ("gray", -0.1)):
        with pytest.raises(ValueError, match=name):
            clone(RandomView()).set_params(**{name: value})(torch.rand(4, 3, 8, 8))
