"""Augmentation of the ends of walks."""

import pickle
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from torch import nn

from helpers import images
from sklearn_mmdinit import Coherence, MMDInitializer, RandomAffine
from sklearn_mmdinit._graph import Walk
from sklearn_mmdinit._pretraining import WalkBatches

STILL = {"degrees": 0.0, "shift": 0.0, "scale": 0.0, "shear": 0.0}


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
        (lambda rows, rng: rows * 1e300, "or a value too large for float32"),
    ],
)
def test_what_an_augmentation_must_return(augmentation, match):
    with pytest.raises(ValueError, match=match):
        ring(augmentation).gathered(images(20, 4), np.arange(20), 0)


def test_what_float32_rows_cannot_hold_is_named():
    with pytest.raises(ValueError, match="too large for float32"):
        ring(lambda rows, rng: np.full(rows.shape, 1e300)).gathered(
            images(20, 4).astype(np.float32), np.arange(20), 0
        )


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
    assert len(seen) == 1 + 6, "once before the search, and once a step"
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
