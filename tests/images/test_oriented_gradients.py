"""Histograms of oriented gradients: what they count, and what they do not mind."""

import math
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import NearestNeighbors

from helpers import images
from sklearn_mmdinit import Coherence, MMDInitializer, OrientedGradients
from sklearn_mmdinit._graph import neighbor_graph


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


def test_a_slope_has_one_direction():
    slope = np.tile(np.arange(8.0), (8, 1))  # brighter to the right
    X = np.stack([slope, slope.T, slope[:, ::-1], slope.T[::-1]])[:, None]
    found = histograms(X, n_orientations=4, floor=0.0)
    for direction, image in enumerate(found):  # right, down, left, up
        np.testing.assert_allclose(image[direction], 1.0, rtol=1e-6)
        np.testing.assert_allclose(np.delete(image, direction, axis=0), 0.0, atol=1e-6)


@pytest.mark.parametrize("cell_size", [1, 2, 3, 4])
def test_they_turn_with_the_image(cell_size):
    X = images(4, 1, 12, 12)
    turned = histograms(np.rot90(X, axes=(2, 3)), cell_size)
    # By a quarter to the left: what pointed right points up.
    expected = np.roll(np.rot90(histograms(X, cell_size), axes=(2, 3)), -2, axis=1)
    np.testing.assert_allclose(turned, expected, atol=1e-5)


def test_brightness_and_contrast_do_not_matter():
    X = images(4, 2, 7, 9)
    expected = histograms(X)
    np.testing.assert_allclose(histograms(3.0 + X), expected, atol=1e-6)
    each = np.array([1e-300, 1e-3, 7.0, 1e250])[:, None, None, None]
    np.testing.assert_allclose(histograms(X * each), expected, atol=1e-6)


def test_faint_edges_count_less_with_a_floor():
    X = images(4, 1, 8, 8)
    X[..., 4:] *= 1e-2
    lengths = [np.linalg.norm(histograms(X, floor=floor), axis=1) for floor in (0.0, 0.3, 1.0)]
    np.testing.assert_allclose(lengths[0], 1.0, rtol=1e-5)
    for length in lengths[1:]:
        assert length[..., 3].max() < 0.2 < length[..., 0].min() < length.max() < 1.0
    assert (lengths[2] < lengths[1]).all()


def test_flat_rows_hold_the_image_that_is_said():
    X = images(5, 3, 4, 6)
    expected = OrientedGradients().fit_transform(X)
    flat = OrientedGradients(image_shape=(3, 4, 6)).fit_transform(X.reshape(5, -1))
    np.testing.assert_array_equal(flat, expected)
    one = OrientedGradients(image_shape=[4, 6]).fit_transform(X[:, 0].reshape(5, -1))
    np.testing.assert_array_equal(one, OrientedGradients().fit_transform(X[:, :1]))
    square = OrientedGradients().fit(images(5, 36))
    assert square.image_shape_ == (1, 6, 6)
    assert square.n_features_in_ == 36


def test_every_image_is_seen_alone():
    X = images(2100, 784)  # more than a block
    gradients = OrientedGradients().fit(X)
    whole = gradients.transform(X)
    assert whole.dtype == np.float32
    for rows in (slice(0, 1), slice(1000, 1050), slice(2099, 2100)):
        np.testing.assert_allclose(gradients.transform(X[rows]), whole[rows], atol=1e-6)
    np.testing.assert_allclose(gradients.transform(X.astype(np.float32)), whole, atol=1e-5)


def test_images_without_an_edge_are_zeros():
    X = np.repeat([0.0, 5.0], 64).reshape(2, 64)
    assert not OrientedGradients().fit_transform(X).any()
    assert not OrientedGradients(floor=0.0).fit_transform(X).any()


def test_nothing_but_numbers_comes_of_images_that_are_almost_nothing():
    one = np.zeros((2, 64))
    one[:, 27] = [1e200, 1e-200]
    X = np.concatenate([one, 1e-250 * images(3, 64), np.full((1, 64), 1e300)])
    X[2:5, :3] = 1e200
    for floor in (0.0, 0.3, 1e300):
        for rows in (X, X.clip(-1e38, 1e38).astype(np.float32)):
            found = OrientedGradients(floor=floor).fit_transform(rows)
            assert np.isfinite(found).all()
            assert np.linalg.norm(found.reshape(6, 8, -1), axis=1).max() < 1.0 + 1e-5


def test_rows_that_cannot_be_written_to_or_run_backwards_stay_as_they_are():
    X = images(3, 64)
    expected = OrientedGradients().fit_transform(X)
    np.testing.assert_array_equal(OrientedGradients().fit_transform(X[::-1]), expected[::-1])
    X.setflags(write=False)
    np.testing.assert_array_equal(OrientedGradients().fit_transform(X), expected)
    np.testing.assert_array_equal(X, images(3, 64))


def test_bytes_are_images_too():
    X = np.random.default_rng(0).integers(0, 256, size=(5, 64), dtype=np.uint8)
    expected = OrientedGradients().fit_transform(X.astype(np.float32))
    np.testing.assert_array_equal(OrientedGradients().fit_transform(X), expected)


@pytest.mark.parametrize(
    ("shape", "size"), [((1, 8, 8), 1), ((1, 28, 28), 2), ((3, 32, 40), 2), ((1, 224, 100), 7)]
)
def test_cells_are_a_fourteenth_of_the_shorter_side(shape, size):
    X = images(2, *shape)
    gradients = OrientedGradients().fit(X)
    assert gradients.cell_size_ == size
    expected = OrientedGradients(size).fit_transform(X)
    np.testing.assert_array_equal(gradients.transform(X), expected)


def test_a_cell_larger_than_the_image_is_as_large_as_it():
    X = images(2, 1, 6, 8)
    found = [OrientedGradients(size).fit_transform(X) for size in (8, 9, 20_000)]
    assert found[0].shape == (2, 8)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_have_names(library):
    pytest.importorskip(library)
    X = images(4, 16)
    gradients = OrientedGradients(2).set_output(transform=library)
    made = gradients.fit_transform(X)
    assert list(made.columns) == [f"orientedgradients{i}" for i in range(32)]
    np.testing.assert_array_equal(made.to_numpy(), OrientedGradients(2).fit_transform(X))


def test_it_is_cloned_and_pickled():
    gradients = OrientedGradients(3, n_orientations=6, floor=0.1, image_shape=(4, 9))
    assert clone(gradients).get_params() == gradients.get_params()
    X = images(3, 36)
    expected = gradients.fit_transform(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(gradients)).transform(X), expected)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"cell_size": 0}, ValueError, "cell_size == 0, must be >= 1"),
        ({"cell_size": "large"}, ValueError, 'cell_size must be "auto" or an int, got \'large'),
        ({"cell_size": 2.0}, TypeError, "cell_size must be an instance of"),
        ({"n_orientations": 1}, ValueError, "n_orientations == 1, must be >= 2"),
        ({"floor": -0.1}, ValueError, "floor == -0.1, must be >= 0"),
        ({"floor": np.nan}, ValueError, "floor must be finite, got nan"),
        ({"image_shape": (4, 4)}, ValueError, r"image_shape=\(4, 4\) does not fit rows of shape"),
        ({"image_shape": (8.0, 8.0)}, ValueError, r"image_shape=\(8.0, 8.0\) does not fit"),
        ({"image_shape": (-8, -8)}, ValueError, r"image_shape=\(-8, -8\) does not fit"),
    ],
)
def test_bad_values_are_named(params, error, match):
    with pytest.raises(error, match=match):
        OrientedGradients(**params).fit(images(3, 64))


def test_bad_rows_are_named():
    gradients = OrientedGradients()
    with pytest.raises(NotFittedError):
        gradients.transform(images(3, 64))
    with pytest.raises(ValueError, match=r"image_shape=None does not fit rows of shape \(63,\)"):
        gradients.fit(images(3, 63))
    with pytest.raises(ValueError, match="contains NaN"):
        gradients.fit(np.full((3, 64), np.nan))
    gradients.fit(images(3, 64))
    with pytest.raises(ValueError, match="49 features, but OrientedGradients is expecting 64"):
        gradients.transform(images(3, 49))
    with pytest.raises(ValueError, match=r"\(3, 4, 8\) does not fit rows of shape \(3, 8, 4\)"):
        OrientedGradients(image_shape=(3, 4, 8)).fit(images(2, 3, 8, 4))
    gradients.fit(images(3, 1, 4, 4))
    with pytest.raises(ValueError, match=r"images of shape \(1, 4, 5\), fit saw \(1, 4, 4\)"):
        gradients.transform(images(3, 1, 4, 5))


def test_contrast_hides_no_neighbour():
    """What it is for: pairs of the same shape, one of them faint, are found as neighbours."""
    shapes = (images(40, 1, 10, 10) > 0).astype(float).reshape(40, -1)
    X = np.concatenate([shapes, 0.2 * shapes + 0.5])

    def found(rows):
        search = NearestNeighbors(n_neighbors=1).fit(rows)
        return (search.kneighbors(return_distance=False)[:, 0] == (np.arange(80) + 40) % 80).mean()

    assert found(OrientedGradients().fit_transform(X)) == 1.0
    assert found(X) < 0.6
    # And the graph of coherence is searched there.
    init = MMDInitializer(
        (8,),
        coherence=Coherence(n_neighbors=1, n_components=None, embedding=OrientedGradients()),
        n_perturbations=4,
        max_iter=1,
        window=1,
        random_state=0,
    ).fit(X)
    among = {"n_neighbors": 1, "n_components": None, "shared_neighbor_power": 2.0}
    graph = neighbor_graph(OrientedGradients().fit_transform(X), **among)
    by_hand = clone(init).set_params(coherence__embedding=None, coherence__graph=graph).fit(X)
    assert init.history_ == by_hand.history_
    assert init.history_ != clone(init).set_params(coherence__embedding=None).fit(X).history_
