"""Photographs in three channels: CIFAR-10, and any folder of images of one size.

:func:`load_photographs` reads the files as first published, which torchvision keeps too, or a
folder ``train/CLASS`` and ``test/CLASS``. It asks OpenML for CIFAR-10 where it finds neither. A
pickle is opened only if its digest is known.
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
"""Images (n, 3, height, width) of bytes and their classes (n,)."""

# Files of the training images and of the test images, with their md5.
CIFAR_10 = (
    {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    {"test_batch": "40351d587109b95175f43aff81a1287e"},
)
_N_TRAIN = 50_000  # of CIFAR-10 where both parts are in one array


@dataclass(frozen=True, eq=False)
class Photographs:
    """Training and test images (n, 3, height, width) of bytes, and numbers of their classes."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    source: str

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
    labels = [part[b"labels"] for part in parts]
    images = np.concatenate([part[b"data"] for part in parts])
    return images.reshape(-1, 3, 32, 32), np.concatenate(labels)


def _of_binaries(folder: Path, files: dict[str, str]) -> Part:
    """Of records of one byte for the class and 3,072 for the image."""
    raw = np.concatenate([np.fromfile(folder / f"{name}.bin", np.uint8) for name in files])
    records = raw.reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _of_images(folder: Path, files: dict[str, str]) -> Part:
    """Of a folder for each class, in the folder of a part."""
    (part,) = files
    paths, images, first = sorted((folder / part).glob("*/*")), [], ""
    for path in paths:
        with Image.open(path) as image:
            size = "{} x {}".format(*image.size)
            if size != (first := first or size):
                raise ValueError(
                    f"{path} has {size} pixels, and others have {first}; resize them to one size"
                )
            images.append(np.asarray(image.convert("RGB")).transpose(2, 0, 1))
    if not images:
        raise FileNotFoundError(f"there are no images in {folder / part}/CLASS")
    classes = np.unique([path.parent.name for path in folder.glob("train/*/*")])
    names = np.array([path.parent.name for path in paths])
    if len(others := np.setdiff1d(names, classes)):
        raise ValueError(f"{folder / 'train'} has no images of the class {others[0]}")
    return np.stack(images), np.searchsorted(classes, names)


Layout = tuple[Callable[[Path, dict[str, str]], Part], tuple[dict[str, str], dict[str, str]]]
_LAYOUTS: dict[str, dict[str, Layout]] = {
    "cifar-10": {
        "cifar-10-batches-py": (_of_pickles, CIFAR_10),
        "cifar-10-batches-bin": (_of_binaries, CIFAR_10),
    },
}
"""Of each set the folders in which it may be, how one is read, and the files of its two parts."""
_OF_IMAGES: Layout = _of_images, ({"train": ""}, {"test": ""})


def load_photographs(name: str, data_dir: Path | None, report: Report) -> Photographs:
    """Load a set; RuntimeError where no source has it whole."""
    layouts, source = dict(_LAYOUTS.get(name, {})), "fetch_openml"
    layouts.setdefault(name, _OF_IMAGES)
    hint = ""
    try:
        for folder, (read, files) in layouts.items():
            if data_dir is not None and (path := data_dir.expanduser() / folder).is_dir():
                (X, y), (X_test, y_test) = (read(path, part) for part in files)
                source = f"the folder {folder}"
                break
        else:
            hint = f"; name a folder that holds {' or '.join(layouts)} with --data-dir"
            if name != "cifar-10":
                raise FileNotFoundError("it is in no folder that was named")
            report("cifar-10: asking fetch_openml, this may take some minutes")
            X, y = fetch_openml("CIFAR_10", version=1, as_frame=False, return_X_y=True)
            X, y = X.astype(np.uint8).reshape(-1, 3, 32, 32), y.astype(np.int64)
            X, X_test, y, y_test = X[:_N_TRAIN], X[_N_TRAIN:], y[:_N_TRAIN], y[_N_TRAIN:]
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{name}: {error}{hint}") from error
    return Photographs(name, X, y.astype(np.int64), X_test, y_test.astype(np.int64), source)
