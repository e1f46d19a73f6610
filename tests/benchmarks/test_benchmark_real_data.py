"""Labelled sets, and the benchmark of few labels on them."""

import hashlib
import json
import zipfile
from itertools import product

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save
from tokenizers import Tokenizer, models, pre_tokenizers

import agreement
import real_data
from data import labelled_sets
from data.labelled_sets import SPLITS, Table, Wheel, load, parse_keel, preprocessing
from data.patches import PatchFeatures
from protocol import sets
from reporting.results import unpack_draws
from reporting.tables import build_table
from results_stand_in import status_of, written
from rivals.starts import hidden, scarf_theta0
from sklearn_mmdinit import MLPClassifier, MMDInitializer, load_theta0, save_theta0

KEEL = """@relation animals
@attribute weight real [0.0, 9.0]
@attribute legs {2, 4}
@attribute kind {cat, bird}
@inputs weight, legs
@data
1.5, 4, cat
?, 2, bird
<null>, <null>, cat
3.5, 4, cat
"""


def test_keel_s_missing_values_and_categories_that_look_like_numbers():
    X, labels = parse_keel(KEEL)
    assert labels.tolist() == ["cat", "bird", "cat", "cat"]
    assert np.isnan(X[0]).tolist() == [False, True, True, False]
    X = X.astype({1: object}).where(X.notna(), np.nan).rename(columns=str)
    table = Table("animals", "table", X, np.array([1, 0, 1, 1]), "", "")
    got = preprocessing(table).fit(X).transform(X)
    # Median 2.5 in place of what is missing, and the most frequent number of legs.
    expected = [[-np.sqrt(2), 0, 1], [0, 1, 0], [0, 0, 1], [np.sqrt(2), 0, 1]]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_without_a_header_categories_are_what_is_no_number():
    X, labels = parse_keel("1, a, -1.0\n2, None, 1.0\n")
    assert X.dtypes.map(lambda dtype: dtype.kind).tolist()[0] == "i"
    assert X[1].tolist() == ["a", "None"]
    assert labels.tolist() == [-1.0, 1.0]


def test_features_of_patches_by_their_definition():
    X = np.random.default_rng(0).integers(0, 256, (40, 3 * 8 * 8), dtype=np.uint8)
    made = PatchFeatures(5, side=4, stride=2).fit(X)
    mean, whitening, centers = (
        part.numpy() for part in (made.mean_, made.whitening_, made.centers_)
    )
    expected = np.zeros((5, 2, 2))
    for row, column in product(range(2), range(2)):  # of a quarter; the middle patches are in two
        for y, x in product((row, row + 1), (column, column + 1)):
            patch = (
                X[7].reshape(3, 8, 8)[:, 2 * y : 2 * y + 4, 2 * x : 2 * x + 4].ravel().astype(float)
            )
            patch = (patch - patch.mean()) / np.sqrt(patch.var(ddof=1) + 10)
            distances = np.linalg.norm((patch - mean) @ whitening - centers, axis=1)
            expected[:, row, column] += np.maximum(distances.mean() - distances, 0) / 4
    np.testing.assert_allclose(made.transform(X[7:8])[0], np.sqrt(expected).ravel(), atol=1e-4)


def test_photographs_are_read_from_folders_of_their_classes(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 2, 3, 32, 32, 3), dtype=np.uint8)
    for part, classes in zip(("test", "train"), pixels, strict=True):
        for name, images in zip(("ant", "cat"), classes, strict=True):
            folder = tmp_path / "cifar-10" / part / name
            folder.mkdir(parents=True)
            for number, image in enumerate(images):
                Image.fromarray(image).save(folder / f"{number}.png")
    table = load("cifar-10", tmp_path, print)
    assert table.y.tolist() == [0, 0, 0, 1, 1, 1] * 2
    expected = pixels.reshape(12, 32, 32, 3).transpose(0, 3, 1, 2).reshape(12, -1)
    np.testing.assert_array_equal(table.X, expected)


def test_a_text_is_the_mean_of_its_tokens_vectors(tmp_path, monkeypatch):
    words = models.WordLevel({"<unk>": 0, "list": 1, "songs": 2}, unk_token="<unk>")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors = np.array([[9, 9], [1, 2], [4, 3]], dtype=np.float16)
    with zipfile.ZipFile(tmp_path / "any-1-py3-none-any.whl", "w") as archive:
        config = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
        archive.writestr(config, tokenizer.to_str())
        archive.writestr("wordllama/weights/l2_supercat_256.safetensors", save({"any": vectors}))
    digest = hashlib.sha256((tmp_path / "any-1-py3-none-any.whl").read_bytes()).hexdigest()
    monkeypatch.setattr(labelled_sets, "WORDLLAMA", Wheel("any", "1", digest))
    pairs = [["list songs", "play"], ["songs list songs", "play"], ["", "stop"]]
    parts = {"train": pairs, "val": [], "test": []}
    (tmp_path / "data_full.json").write_text(json.dumps(parts))
    table = load("clinc150-vectors", tmp_path, print)
    np.testing.assert_allclose(table.X, [[2.5, 2.5], [3.0, 8 / 3], [9.0, 9.0]])
    assert table.y.tolist() == [0, 0, 1]
    transformed = preprocessing(table).fit_transform(table.X)
    np.testing.assert_allclose(transformed.mean(axis=0), 0, atol=1e-6)


def test_a_wheel_that_is_not_the_known_one_is_refused(tmp_path):
    wheel = Wheel("some_data", "1.0", "0" * 64)
    with zipfile.ZipFile(tmp_path / wheel.file, "w") as archive:
        archive.writestr("data.csv", "1")
    with pytest.raises(ValueError, match=r"wrong digest.*expected 0000"):
        wheel.opened(tmp_path, print)


def test_a_set_belongs_to_one_split():
    names = [name for split in SPLITS.values() for name in split]
    assert len(names) == len({*names}) >= 80


def wine():
    return sets.prepared(load("wine", None, print), seed=0)


def test_no_row_is_in_pool_and_test_and_fewer_labels_are_part_of_more():
    table, data = load("wine", None, print), wine()
    both = np.concatenate([data.X, data.X_test])
    assert len(np.unique(both, axis=0)) == len(table.y) == 178
    some, more = (sets.labelled_rows(data, n, draw=3) for n in (2, 5))
    assert np.bincount(data.y[more]).tolist() == [5, 5, 5]
    assert set(some) < set(more)
    assert not np.array_equal(more, sets.labelled_rows(data, 5, draw=4))
    assert sets.has_enough(data, 40)
    assert not sets.has_enough(data, 100)


def test_hidden_activations_are_those_of_the_initializer(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    init = MMDInitializer((8, 5), n_perturbations=4, max_iter=1, gain=3.0, random_state=0).fit(X)
    save_theta0(tmp_path / "theta0.safetensors", init)
    got = hidden(load_theta0(tmp_path / "theta0.safetensors"), X)
    np.testing.assert_allclose(got, init.set_params(output="hidden").transform(X), rtol=1e-5)


def test_scores_by_hand():
    proba = np.array([[0.9, 0.1], [0.4, 0.6], [1.0, 0.0]])
    # Class 1 was not trained on: a row of it costs what the least probability costs.
    got = sets.scores(proba, np.array([0, 2]), np.array([0, 2, 1]), n_classes=3)
    assert got["accuracy"] == pytest.approx(2 / 3)
    losses = -np.log([0.9, 0.6, 1e-6])
    assert got["log_loss"] == pytest.approx(losses.mean(), rel=1e-4)
    assert got["calibration_error"] == pytest.approx((0.1 + 0.4 + 1.0) / 3, rel=1e-4)


@pytest.mark.parametrize("name", ["svm", "prototype", "logistic", "self-training"])
@pytest.mark.parametrize("n_labels", [1, 5])
def test_rivals_know_the_three_wines(name, n_labels):
    [record] = sets.score_cell({name: "key"}, n_labels, 0, wine(), {})
    assert record["accuracy"] > (0.7 if n_labels == 1 else 0.85)
    assert record["log_loss"] < np.log(3)


def test_scarf_learns_hidden_layers_that_tell_a_row_from_others():
    # Ten columns that say the same thing: half of them corrupted, the others still say it.
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(200, 2)), 5, axis=1).astype(np.float32)
    network = MLPClassifier((32, 16), random_state=0)
    fresh, learned, again = (
        scarf_theta0(X, network, 2, n_steps=n, random_state=1) for n in (0, 100, 100)
    )
    first, last = "linears.0.weight", "linears.2.weight"
    np.testing.assert_array_equal(fresh.arrays[last], learned.arrays[last])
    np.testing.assert_array_equal(learned.arrays[first], again.arrays[first])

    def error(theta0):
        changed = np.where(rng.random(X.shape) < 0.3, X[rng.permutation(200)], X)
        one, other = hidden(theta0, X), hidden(theta0, changed)
        return ((one - other) ** 2).sum() / one.var(axis=0).sum() / len(X)

    assert error(learned) < 0.9 * error(fresh)


def test_every_method_is_scored_at_each_n_and_draw(tmp_path):
    arguments = "--sets wine --methods prototype label-spreading --n-labels 1 5 --draws 2 --jobs 1"
    folder = ["--output", str(tmp_path), "--quiet"]
    assert status_of(real_data, [*arguments.split(), *folder]) == 0
    scores = unpack_draws(written(tmp_path)["scores"])
    assert scores["method"].tolist() == [*["prototype"] * 2, *["label-spreading"] * 2] * 2
    assert scores["n_labels"].tolist() == [*[1] * 4, *[5] * 4]


def test_what_a_few_labels_told_stands_beside_what_coherence_gained(tmp_path, monkeypatch):
    gained = {"coherence": [[92.0, None], *[[1.0, None]] * 3], "scratch": [[90.0, 80.0]] * 4}
    scores = [{"set": "wine", "n_labels": 5, "methods": gained}]
    (tmp_path / "real-data-development.json").write_text(json.dumps({"scores": scores}))
    monkeypatch.setitem(agreement.SPLITS, "development", {"wine": SPLITS["report"]["wine"]})
    folder = ["--output", str(tmp_path), "--results", str(tmp_path), "--quiet", "--jobs=1"]
    assert status_of(agreement, folder) == 0
    [path] = tmp_path.glob("agreement-*.json")
    [record] = json.loads(path.read_text())["records"]
    # Of the draws at which both were measured.
    assert (record["set"], record["n_labels"], record["gain"]) == ("wine", 5, 2.0)
    assert 80 < record["linear"] <= 100
    records = [
        {"n_labels": 5, "set": str(i), "neighbors": n, "linear": 50.0, "gain": gain}
        for i, (n, gain) in enumerate([(60.0, 3.0), (60.0, -1.0), (40.0, -2.0), (50.0, -4.0)])
    ]
    assert build_table("agreement", {"records": records}).rows == [
        ["5", "4", "75 %", "+1.00 [-24.41, +26.41] (2 sets)", "-3.00 [-15.71, +9.71] (2 sets)"]
    ]
