"""The photographs of CIFAR-10, of 32 x 32 pixels in three channels.

:func:`load_photographs` reads the files as first published, which torchvision keeps too, a folder
of images or OpenML. A pickle is opened only if its digest is known.
"""

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import fetch_openml

from data.datasets import Report

Part = tuple[np.ndarray, np.ndarray]
"""Images (n, 3, 32, 32) of bytes and their classes (n,)."""

# Files of the training images and of the test images, with their md5.
TRAIN = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
}
TEST = {"test_batch": "40351d587109b95175f43aff81a1287e"}
_N_TRAIN = 50_000  # where both parts are in one array


@dataclass(frozen=True, eq=False)
class Photographs:
    """Training and test images (n, 3, 32, 32) of bytes, and numbers of their classes."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    source: str
    name: str = "cifar-10"

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1

    @property
    def digest(self) -> str:
        """Sha256 of all images and classes."""
        sha = hashlib.sha256()
        for array in (self.X, self.y.astype("<i8"), self.X_test, self.y_test.astype("<i8")):
            sha.update(array.tobytes())
        return sha.hexdigest()


def _checked(path: Path, md5: str) -> bytes:
    """A file's content; a ValueError where it is not the published file."""
    content = path.read_bytes()
    # A check against damage; systems in FIPS mode ask to be told.
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if digest != md5:
        raise ValueError(f"wrong digest: {path} has md5 {digest}, expected {md5}")
    return content


def _of_pickles(folder: Path, files: dict[str, str]) -> Part:
    parts = [pickle.loads(_checked(folder / f, md5), encoding="bytes") for f, md5 in files.items()]
    images = np.concatenate([part[b"data"] for part in parts])
    return images.reshape(-1, 3, 32, 32), np.concatenate([part[b"labels"] for part in parts])


def _of_binaries(folder: Path, files: dict[str, str]) -> Part:
    """Of records of one byte for the class and 3,072 for the image."""
    raw = np.concatenate([np.fromfile(folder / f"{name}.bin", np.uint8) for name in files])
    records = raw.reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _of_images(folder: Path) -> Part:
    """Of a folder for each class."""
    paths = sorted(folder.glob("*/*"))
    _, y = np.unique([path.parent.name for path in paths], return_inverse=True)
    X = np.empty((len(paths), 3, 32, 32), dtype=np.uint8)
    for row, path in enumerate(paths):
        with Image.open(path) as image:
            X[row] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    return X, y


_LAYOUTS: dict[str, Callable[[Path], tuple[Part, Part]]] = {
    "cifar-10-batches-py": lambda path: (_of_pickles(path, TRAIN), _of_pickles(path, TEST)),
    "cifar-10-batches-bin": lambda path: (_of_binaries(path, TRAIN), _of_binaries(path, TEST)),
    "cifar-10": lambda path: (_of_images(path / "train"), _of_images(path / "test")),
}
"""The folders in which the set may be, and how its two parts are read."""


def load_photographs(data_dir: Path | None, report: Report) -> Photographs:
    """Load the set; RuntimeError where no source has it."""
    source = "fetch_openml"
    try:
        for folder, read in _LAYOUTS.items():
            if data_dir is not None and (path := data_dir.expanduser() / folder).is_dir():
                (X, y), (X_test, y_test) = read(path)
                source = f"the folder {folder}"
                break
        else:
            report("cifar-10: asking fetch_openml, this may take some minutes")
            X, y = fetch_openml("CIFAR_10", version=1, as_frame=False, return_X_y=True)
            X, y = X.astype(np.uint8).reshape(-1, 3, 32, 32), y.astype(np.int64)
            X, X_test, y, y_test = X[:_N_TRAIN], X[_N_TRAIN:], y[:_N_TRAIN], y[_N_TRAIN:]
    except (OSError, ValueError) as error:
        hint = f"name a folder that holds {' or '.join(_LAYOUTS)} with --data-dir"
        raise RuntimeError(f"cifar-10: {error}; {hint}") from error
    return Photographs(X, y.astype(np.int64), X_test, y_test.astype(np.int64), source)
