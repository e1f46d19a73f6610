"""Small changes of images: rotations, shifts, stretches and shears."""

import numpy as np
import pytest
from scipy import ndimage

from helpers import images
from sklearn_mmdinit import RandomAffine

STILL = {"degrees": 0.0, "shift": 0.0, "scale": 0.0, "shear": 0.0}


def changed(X, seed=0, **params):
    return RandomAffine(**{**STILL, **params})(X, np.random.default_rng(seed))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(64,), (1, 8, 8), (3, 5, 9)])
def test_no_change_gives_the_images_back(shape, dtype):
    X = images(7, *shape).astype(dtype)
    same = changed(X)
    assert same.dtype == dtype
    assert same.shape == X.shape
    np.testing.assert_allclose(same, X, atol=1e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize(
    "params",
    [{"degrees": 30.0}, {"shift": 2.5}, {"scale": 0.3}, {"shear": 20.0}, {"mirror": True}, None],
    ids=lambda params: "all" if params is None else next(iter(params)),
)
def test_images_are_changed_by_affine_maps_in_units_of_pixels(params):
    # Not square: in units of a side a rotation would be none.
    params = params or {"degrees": 30.0, "shift": 2.5, "scale": 0.3, "shear": 20.0}
    X, height, width = images(6, 1, 7, 11), 7, 11
    found = changed(X, **params)
    maps = RandomAffine(**{**STILL, **params})._maps(6, height, width, np.random.default_rng(0))
    centre = (np.array([height, width]) - 1) / 2
    half = np.array([height, width]) / 2
    for image, new, M in zip(X[:, 0], found[:, 0], maps, strict=True):
        # From (x, y) between -1 and 1 to (row, column).
        matrix = M[::-1, 1::-1] * half[:, None] / half
        shift = M[::-1, 2] * half
        expected = ndimage.affine_transform(
            image, matrix, offset=centre + shift - matrix @ centre, order=1, mode="nearest"
        )
        np.testing.assert_allclose(new, expected, atol=1e-10)
        if "degrees" in params and len(params) == 1:
            np.testing.assert_allclose(matrix @ matrix.T, np.eye(2), atol=1e-12)
            assert np.linalg.det(matrix) == pytest.approx(1.0)


def test_amounts_are_uniform_between_their_limits():
    maps = RandomAffine(**{**STILL, "shift": 3.0})._maps(4000, 8, 12, np.random.default_rng(0))
    for pixels in (maps[:, 0, 2] * 6, maps[:, 1, 2] * 4):
        assert -3.0 <= pixels.min() < -2.99
        assert 2.99 < pixels.max() <= 3.0
        assert pixels.mean() == pytest.approx(0.0, abs=0.1)
        assert pixels.std() == pytest.approx(3.0 / np.sqrt(3.0), rel=0.03)


def test_half_of_the_images_are_mirrored():
    X = images(400, 1, 4, 6)
    found = changed(X, mirror=True)
    mirrored = np.isclose(found, X[..., ::-1]).all(axis=(1, 2, 3))
    same = np.isclose(found, X).all(axis=(1, 2, 3))
    assert (mirrored ^ same).all()
    assert 0.4 < mirrored.mean() < 0.6


def test_each_image_is_changed_in_its_own_way_and_its_channels_alike():
    X = np.repeat(images(1, 1, 8, 8), 5, axis=0).repeat(2, axis=1)
    found = changed(X, shift=2.0, degrees=10.0)
    np.testing.assert_array_equal(found[:, 0], found[:, 1])
    assert len(np.unique(found[:, 0].reshape(5, -1), axis=0)) == 5
    np.testing.assert_array_equal(found, changed(X, shift=2.0, degrees=10.0))
    assert (found != changed(X, seed=1, shift=2.0, degrees=10.0)).any()


def test_flat_rows_hold_the_image_that_is_said():
    X = images(5, 3, 4, 6)
    expected = changed(X, shift=1.0)
    flat = changed(X.reshape(5, -1), shift=1.0, image_shape=(3, 4, 6))
    np.testing.assert_array_equal(flat, expected.reshape(5, -1))
    one = changed(X[:, 0].reshape(5, -1), shift=1.0, image_shape=[4, 6])
    np.testing.assert_array_equal(one, expected[:, 0].reshape(5, -1))


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"degrees": -1.0}, "degrees == -1.0, must be >= 0"),
        ({"degrees": 181}, "degrees == 181, must be <= 180"),
        ({"shift": np.nan}, "shift must be finite, got nan"),
        ({"scale": np.inf}, "scale must be finite, got inf"),
        ({"shift": 1e308}, r"shift == 1e\+308, must be <= 1000000"),
        ({"scale": 1000}, "scale == 1000, must be <= 10"),
        ({"mirror": "no"}, "mirror must be True or False, got 'no'"),
        ({"shear": 90.0}, "shear == 90.0, must be < 90"),
        ({"image_shape": (4, 4)}, r"image_shape=\(4, 4\) does not fit rows of shape \(64,\)"),
        ({"image_shape": (2, 2, 4, 4)}, r"image_shape=\(2, 2, 4, 4\) does not fit"),
        ({"image_shape": 8}, "image_shape=8 does not fit"),
        ({"image_shape": (64,)}, r"image_shape=\(64,\) does not fit"),
    ],
)
def test_bad_values_are_named(params, match):
    with pytest.raises(ValueError, match=match):
        changed(images(3, 64), **params)


@pytest.mark.parametrize("shape", [(63,), (8, 8), (2, 1, 4, 8)])
def test_rows_that_are_no_images_are_named(shape):
    with pytest.raises(ValueError, match="image_shape=None does not fit rows of shape"):
        changed(images(3, *shape))


def test_no_images_are_none_changed():
    assert changed(images(0, 64), shift=1.0).shape == (0, 64)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, bool])
def test_numbers_of_another_type_are_named(dtype):
    with pytest.raises(ValueError, match=f"float32 or float64, got {np.dtype(dtype)}"):
        changed(images(3, 64).astype(dtype))


def test_rows_that_cannot_be_written_to_and_lists_are_images_too():
    X = images(3, 64)
    expected = changed(X, shift=1.0)
    X.setflags(write=False)
    np.testing.assert_array_equal(changed(X, shift=1.0), expected)
    np.testing.assert_array_equal(changed(X.tolist(), shift=1.0), expected)


@pytest.mark.parametrize("rng", [None, 0, np.random.RandomState(0)])
def test_another_source_of_random_numbers_is_named(rng):
    with pytest.raises(TypeError, match=r"rng must be a numpy\.random\.Generator"):
        RandomAffine()(images(3, 64), rng)


def test_the_largest_amounts_overflow_nothing():
    found = changed(images(50, 64), degrees=180, shift=1e6, scale=10, shear=89.999)
    assert np.isfinite(found).all()
