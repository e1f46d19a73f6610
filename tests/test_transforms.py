"""Augmentations of drawings and photographs, and histograms that do not mind small changes."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from sklearn.base import clone
from torch import nn

from helpers import images
from sklearn_mmdinit import OrientedGradients, RandomAffine, RandomView

STILL = {"degrees": 0.0, "shift": 0.0, "scale": 0.0, "shear": 0.0}


def affine(seed=0, **params):
    """A function of arrays that draws from a generator with this seed."""

    def change(X):
        torch.manual_seed(seed)
        return RandomAffine(**{**STILL, **params})(torch.from_numpy(X)).numpy()

    return change


def coordinates(n, height, width):
    """Images (n, 2, height, width) whose pixels hold their row and column."""
    return np.repeat(np.indices((height, width))[None].astype(float), n, axis=0)


def sources(changed):
    """Where pixels come from, (n, 2, 3): source = M (row, column, 1), by those inside the image."""
    n, _, height, width = changed.shape
    grid = np.vstack([np.indices((height, width)).reshape(2, -1), np.ones(height * width)])
    maps = []
    for place in changed.reshape(n, 2, -1):
        inside = ((place > 0) & (place < [[height - 1], [width - 1]])).all(axis=0)
        solved, residuals, *_ = np.linalg.lstsq(grid[:, inside].T, place[:, inside].T, rcond=None)
        assert residuals.max() < 1e-18, "it is affine"
        maps.append(solved.T)
    return np.array(maps)


@pytest.mark.parametrize(
    "params",
    [{"degrees": 30.0}, {"degrees": 30.0, "shift": 2.5, "scale": 0.3, "shear": 20.0}],
    ids=["rotated", "all"],
)
def test_images_are_changed_by_affine_maps_in_units_of_pixels(params):
    # Not square: in units of a side a rotation would be none.
    noise, places = images(6, 1, 9, 13), coordinates(6, 9, 13)
    changed = affine(**params)(np.concatenate([noise, places], axis=1))
    for image, new, M in zip(noise[:, 0], changed[:, 0], sources(changed[:, 1:]), strict=True):
        matrix, shift = M[:, :2], M[:, 2]
        expected = ndimage.affine_transform(image, matrix, offset=shift, order=1, mode="nearest")
        np.testing.assert_allclose(new, expected, atol=1e-10)
        if len(params) == 1:
            np.testing.assert_allclose(matrix @ matrix.T, np.eye(2), atol=1e-12)
            assert np.linalg.det(matrix) == pytest.approx(1.0)
            np.testing.assert_allclose(matrix @ [4, 6] + shift, [4, 6], atol=1e-10)


def test_amounts_are_uniform_between_their_limits():
    maps = sources(affine(shift=3.0)(coordinates(4000, 8, 12)))
    for pixels in maps[:, :, 2].T:
        assert -3.0 <= pixels.min() < -2.99
        assert 2.99 < pixels.max() <= 3.0
        assert pixels.mean() == pytest.approx(0.0, abs=0.1)
        assert pixels.std() == pytest.approx(3.0 / np.sqrt(3.0), rel=0.03)


def test_half_of_the_images_are_mirrored():
    X = images(400, 1, 4, 6)
    found = affine(mirror=True)(X)
    mirrored = np.isclose(found, X[..., ::-1]).all(axis=(1, 2, 3))
    same = np.isclose(found, X).all(axis=(1, 2, 3))
    assert (mirrored ^ same).all()
    assert 0.4 < mirrored.mean() < 0.6


def test_each_image_is_changed_in_its_own_way_and_its_channels_alike():
    X = np.repeat(images(1, 1, 8, 8), 5, axis=0).repeat(2, axis=1)
    found = affine(shift=2.0, degrees=10.0)(X)
    np.testing.assert_array_equal(found[:, 0], found[:, 1])
    assert len(np.unique(found[:, 0].reshape(5, -1), axis=0)) == 5
    np.testing.assert_array_equal(found, affine(shift=2.0, degrees=10.0)(X))
    assert (found != affine(1, shift=2.0, degrees=10.0)(X)).any()


@pytest.mark.parametrize("make", [RandomAffine, RandomView])
def test_augmentations_are_estimators_and_modules(make):
    change = clone(make(mirror=False))
    assert repr(change) == (
        "RandomAffine()" if make is RandomAffine else "RandomView(mirror=False)"
    )
    assert list(nn.Sequential(change, nn.Flatten()).parameters()) == []
    X = torch.rand(4, 3, 8, 8)
    torch.manual_seed(3)
    expected = change.set_params(mirror=True)(X)
    torch.manual_seed(3)
    assert torch.equal(make(mirror=True)(X), expected)


def histograms(X, cell_size=2, **params):
    """Of images (n, c, h, w), by cell: (n, n_orientations, rows, columns)."""
    gradients = OrientedGradients(cell_size, **params)
    made = gradients.fit_transform(X)
    sides = (math.ceil(side / cell_size) for side in X.shape[2:])
    return made.reshape(len(X), gradients.n_orientations, *sides)


def by_hand(image, cell, n, floor):
    """The definition, pixel by pixel, of one image (c, h, w)."""
    _, height, width = image.shape
    bordered = np.pad(image, ((0, 0), (1, 1), (1, 1)), mode="edge")
    rows, columns = math.ceil(height / cell), math.ceil(width / cell)
    found = np.zeros((n, rows, columns))

    def weight(place, i):
        """Of a pixel in the window of cell i along one axis: half at the ends of odd ones."""
        distance = abs(place - (i * cell + (cell - 1) / 2))
        return 1.0 if distance < cell else 0.5 * (distance == cell)

    for y in range(height):
        for x in range(width):
            right = bordered[:, y + 1, x + 2] - bordered[:, y + 1, x]
            down = bordered[:, y + 2, x + 1] - bordered[:, y, x + 1]
            lengths = np.hypot(right, down)
            c = lengths.argmax()
            turn = math.atan2(down[c], right[c]) / (2 * math.pi) * n % n
            for k, share in ((math.floor(turn), 1 - turn % 1), (math.floor(turn) + 1, turn % 1)):
                for i in range(rows):
                    for j in range(columns):
                        found[k % n, i, j] += weight(y, i) * weight(x, j) * share * lengths[c]
    norms = np.sqrt((found**2).sum(axis=0))
    return found / (norms + floor * norms.mean())


@pytest.mark.parametrize(
    ("shape", "params"),
    [
        ((1, 6, 6), {}),
        ((3, 5, 7), {"cell_size": 2, "floor": 1.0}),
        ((1, 7, 8), {"cell_size": 3, "n_orientations": 5}),
        ((2, 4, 3), {"cell_size": 1, "floor": 0.0}),
        ((1, 3, 3), {"cell_size": 3}),
    ],
)
def test_they_are_counted_as_the_definition_says(shape, params):
    X = images(3, *shape)
    found = histograms(X, **params)
    params = {"cell_size": 2, "n_orientations": 8, "floor": 0.3} | params
    for image, counted in zip(X, found, strict=True):
        expected = by_hand(image, params["cell_size"], params["n_orientations"], params["floor"])
        np.testing.assert_allclose(counted, expected, atol=2e-6)


def changed_by(change, X, **params):
    if change is OrientedGradients:
        return change(**params).fit_transform(X)
    return affine(degrees=20.0, **params)(X)


@pytest.mark.parametrize("change", [OrientedGradients, RandomAffine])
def test_flat_rows_hold_the_image_that_is_said(change):
    def made(X, **params):
        changed = changed_by(change, X, **params)
        assert change is OrientedGradients or changed.shape == X.shape
        return changed.reshape(len(X), -1)

    X = images(5, 3, 4, 6)
    flat = made(X.reshape(5, -1), image_shape=(3, 4, 6))
    np.testing.assert_array_equal(flat, made(X))
    one = made(X[:, 0].reshape(5, -1), image_shape=[4, 6])
    np.testing.assert_array_equal(one, made(X[:, :1]))
    # Height and width alone are one channel.
    for params in ({}, {"image_shape": (4, 6)}):
        np.testing.assert_array_equal(made(X[:, 0], **params), one)
    X = images(5, 1, 8, 8)  # of a named set of images, which needs no shape
    np.testing.assert_array_equal(made(X.reshape(5, -1)), made(X))
    with pytest.raises(ValueError, match=r"image_shape=None does not fit rows of shape \(144,\)"):
        made(images(5, 12 * 12))  # or a signal


@pytest.mark.parametrize("n_channels", [1, 3, 4])
@pytest.mark.parametrize("change", [OrientedGradients, RandomAffine])
def test_channels_may_be_the_last_axis(change, n_channels):
    X = images(5, n_channels, 9, 7)
    last = np.ascontiguousarray(np.moveaxis(X, 1, -1))
    expected, found = changed_by(change, X), changed_by(change, last)
    flat = changed_by(change, last.reshape(5, -1), image_shape=(9, 7, n_channels))
    np.testing.assert_array_equal(flat.reshape(found.shape), found)
    if change is OrientedGradients:
        assert change().fit(last).image_shape_ == (n_channels, 9, 7)
    else:
        found = np.moveaxis(found, -1, 1)
    np.testing.assert_allclose(found, expected, atol=1e-12 if change is RandomAffine else 1e-6)


def test_every_image_is_seen_alone_whatever_the_type_of_its_numbers():
    X = images(2100, 784)  # more than a block
    gradients = OrientedGradients().fit(X)
    whole = gradients.transform(X)
    assert whole.dtype == np.float32
    for rows in (slice(0, 1), slice(1000, 1050), slice(2099, 2100)):
        np.testing.assert_allclose(gradients.transform(X[rows]), whole[rows], atol=1e-6)
    np.testing.assert_allclose(gradients.transform(X.astype(np.float32)), whole, atol=1e-5)
    levels = np.random.default_rng(0).integers(0, 256, size=(5, 64), dtype=np.uint8)
    expected = OrientedGradients().fit_transform(levels.astype(np.float32))
    np.testing.assert_array_equal(OrientedGradients().fit_transform(levels), expected)


def test_nothing_but_numbers_comes_of_images_that_are_almost_nothing():
    flat = np.repeat([0.0, 5.0], 64).reshape(2, 64)
    one = np.zeros((2, 64))
    one[:, 27] = [1e200, 1e-200]
    X = np.concatenate([one, 1e-250 * images(3, 64), np.full((1, 64), 1e300)])
    X[2:5, :3] = 1e200
    for floor in (0.0, 0.3, 1e300):
        gradients = OrientedGradients(floor=floor)
        assert not gradients.fit_transform(flat).any()
        for rows in (X, X.clip(-1e38, 1e38).astype(np.float32)):
            found = gradients.fit_transform(rows)
            assert np.isfinite(found).all()
            assert np.linalg.norm(found.reshape(6, 8, -1), axis=1).max() < 1.0 + 1e-5


@pytest.mark.parametrize(("shape", "size"), [((1, 8, 8), 1), ((3, 32, 40), 2), ((1, 224, 100), 7)])
def test_cells_are_a_fourteenth_of_the_shorter_side(shape, size):
    X = images(2, *shape)
    gradients = OrientedGradients().fit(X)
    assert gradients.cell_size_ == size
    assert gradients.image_shape_ == shape
    expected = OrientedGradients(size).fit_transform(X)
    np.testing.assert_array_equal(gradients.transform(X), expected)
    # A cell larger than the image is as large as it.
    one, same = (OrientedGradients(side).fit_transform(X) for side in (max(shape), 20_000))
    assert one.shape == (2, 8)
    np.testing.assert_array_equal(one, same)


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
    torch.manual_seed(1)
    grey = RandomView()(flat[:, :1])
    torch.manual_seed(1)
    torch.testing.assert_close(RandomView()(flat[:, :1].expand(-1, 3, -1, -1))[:, :1], grey)
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
@pytest.mark.parametrize("n_channels", [1, 3])
@pytest.mark.parametrize("change", [RandomAffine(), RandomView()])
def test_what_is_changed_has_the_shape_and_type_of_images_and_differs(change, n_channels, dtype):
    shape = 40, n_channels, 12, 20
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    before = images.clone()
    found = [change(images) for _ in range(2)]
    assert found[0].shape == images.shape
    assert found[0].dtype == dtype
    assert not torch.equal(*found)
    assert torch.equal(images, before)
    assert all(0.0 <= float(view.min()) <= float(view.max()) <= 1.0 for view in found)
    assert change(images[:0]).shape == (0, *shape[1:])
