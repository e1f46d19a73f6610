"""Augmentation of the ends of walks, and the changes of images that are shipped for it."""

import pickle
from functools import partial

import numpy as np
import pytest
from scipy import ndimage
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from torch import nn

from sklearn_mmdinit import Coherence, MMDInitializer, RandomAffine
from sklearn_mmdinit._graph import Walk
from sklearn_mmdinit._pretraining import WalkBatches

STILL = {"degrees": 0.0, "shift": 0.0, "scale": 0.0, "shear": 0.0}


def images(n, *shape, seed=0):
    return np.random.default_rng(seed).normal(size=(n, *shape))


def changed(X, seed=0, **params):
    return RandomAffine(**{**STILL, **params})(X, np.random.default_rng(seed))


# RandomAffine


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


# Walks whose ends are changed


def ring(augmentation=None):
    edges = csr_array(np.roll(np.eye(20), 1, axis=1))
    return WalkBatches(5, Walk.on(edges), 3.0, seed=7, augmentation=augmentation)


def noisy(rows, rng, scale=1.0):
    return rows + scale * rng.normal(size=rows.shape)


def test_changes_follow_from_seed_and_step_alone():
    X, order = images(20, 4), np.random.default_rng(0).permutation(20)
    whole = ring(noisy).gathered(X, order, 3)
    assert whole.shape == (4, 10, 4)
    parts = [ring(noisy).gathered(X, order[:5], 3), ring(noisy).gathered(X, order[5:], 4)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    plain = ring().gathered(X, order, 3)
    np.testing.assert_array_equal(plain, X[ring().rows(order, 3)])
    added = whole - plain
    assert len(np.unique(added)) == added.size, "no draw serves twice"
    np.testing.assert_array_equal(X, images(20, 4)), "the user's rows stay as they are"


@pytest.mark.parametrize(
    ("augmentation", "match"),
    [
        (lambda rows, rng: rows[:-1], r"of shape \(10, 4\) .* got shape \(9, 4\)"),
        (lambda rows, rng: rows > 0, "type float64; got shape .* bool"),
        (lambda rows, rng: None, r"got shape \(\), object"),
        (lambda rows, rng: rows * np.nan, "returned NaN or infinity"),
    ],
)
def test_what_an_augmentation_must_return(augmentation, match):
    with pytest.raises(ValueError, match=match):
        ring(augmentation).gathered(images(20, 4), np.arange(20), 0)


# MMDInitializer


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 8.0 - 1.0, y


def small(augmentation=None, **params):
    coherence = Coherence(batch_size=64, n_neighbors=5, walk_length=5.0, augmentation=augmentation)
    params = {"n_perturbations": 8, "max_iter": 2, "window": 4, "random_state": 0} | params
    return MMDInitializer((16, 12), coherence=coherence, **params)


def test_an_augmentation_that_changes_nothing_is_none(digits):
    X, _ = digits
    plain, same = small().fit(X), small(lambda rows, rng: rows).fit(X)
    assert plain.history_ == same.history_
    for name, array in plain.theta0_.arrays.items():
        np.testing.assert_array_equal(same.theta0_.arrays[name], array)
    assert plain.score(X) == same.score(X) != small(RandomAffine()).fit(X).score(X)


def test_passes_in_other_processes_are_those_of_one_fit(digits):
    X, _ = digits
    whole, passes = small(RandomAffine()).fit(X), small(RandomAffine())
    for _ in range(2):
        passes = pickle.loads(pickle.dumps(passes.partial_fit(X)))
    assert passes.history_ == whole.history_
    assert passes.score(X) == whole.score(X)


def test_features_hardly_see_the_changes_they_were_learned_under(digits):
    X = digits[0][:600]
    shifts = RandomAffine(**{**STILL, "shift": 1.0})
    moved = shifts(X, np.random.default_rng(5))

    def cosines(augmentation):
        init = small(augmentation, max_iter=40, output="hidden").fit(X)
        first, second = (Normalizer().fit_transform(init.transform(rows)) for rows in (X, moved))
        return np.mean(np.sum(first * second, axis=1))

    assert cosines(shifts) > cosines(None) + 0.1


def test_modules_see_changed_images(digits):
    X = digits[0].reshape(-1, 1, 8, 8)[:300]
    seen = []

    def look(rows, rng):
        seen.append(rows.shape)
        return RandomAffine()(rows, rng)

    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    init = MMDInitializer(
        module=module,
        coherence=Coherence(batch_size=50, n_neighbors=5, augmentation=look),
        n_perturbations=4,
        max_iter=1,
        random_state=0,
    ).fit(X)
    assert set(seen) == {(100, 1, 8, 8)}
    assert len(seen) == 6
    assert np.isfinite(init.history_[-1]["loss"])


def test_its_amounts_can_be_searched(digits):
    X, y = digits
    pipeline = make_pipeline(
        small(RandomAffine(), output="hidden", max_iter=1), Normalizer(), LogisticRegression()
    )
    name = "mmdinitializer__coherence__augmentation__shift"
    search = GridSearchCV(pipeline, {name: [0.0, 1.0]}, cv=2).fit(X[:200], y[:200])
    assert search.best_params_[name] in (0.0, 1.0)
    assert clone(search.best_estimator_).get_params()[name] == search.best_params_[name]


@pytest.mark.parametrize("augmentation", ["shift", 3, (1, 2)])
def test_what_is_no_function_is_named(augmentation, digits):
    with pytest.raises(TypeError, match="augmentation must be None or a function"):
        small(augmentation).fit(digits[0])


def test_a_function_of_ones_own_is_kept_by_clone_and_copies(digits):
    own = partial(noisy, scale=0.1)
    init = small(own).fit(digits[0])
    copied = pickle.loads(pickle.dumps(init))
    assert copied.coherence.augmentation.keywords == {"scale": 0.1}
    assert clone(init).fit(digits[0]).history_ == init.history_
