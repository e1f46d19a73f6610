"""Photographs in three channels: CIFAR-10, and any folder of images of one size.

A pickle is opened only if its digest is known.
"""

import hashlib
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import fetch_openml
from torch.utils.data import IterableDataset

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

    @cached_property
    def digest(self) -> str:
        """Sha256 of all images and classes."""
        sha = hashlib.sha256()
        for array in (self.X, self.y.astype("<i8"), self.X_test, self.y_test.astype("<i8")):
            sha.update(array.tobytes())
        return sha.hexdigest()


def _of_pickles(folder: Path, files: dict[str, str]) -> Part:
    """Of CIFAR-10's files; a ValueError where one is not as published."""
    parts = []
    for name, md5 in files.items():
        content = (folder / name).read_bytes()
        # A check against damage; systems in FIPS mode ask to be told.
        digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if digest != md5:
            raise ValueError(f"wrong digest: {folder / name} has md5 {digest}, expected {md5}")
        parts.append(pickle.loads(content, encoding="bytes"))
    images = np.concatenate([part[b"data"] for part in parts])
    return images.reshape(-1, 3, 32, 32), np.concatenate([part[b"labels"] for part in parts])


def _of_images(folder: Path, part: str) -> Part:
    """Of a folder for each class, in the folder of a part."""
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


def _of_openml(report: Report) -> tuple[Part, Part]:
    report("cifar-10: asking fetch_openml, this may take some minutes")
    X, y = fetch_openml("CIFAR_10", version=1, as_frame=False, return_X_y=True)
    X, y = X.astype(np.uint8).reshape(-1, 3, 32, 32), y.astype(np.int64)
    return (X[:_N_TRAIN], y[:_N_TRAIN]), (X[_N_TRAIN:], y[_N_TRAIN:])


def load_photographs(name: str, data_dir: Path | None, report: Report) -> Photographs:
    """Load a set; RuntimeError where no source has it whole."""
    places = ["cifar-10-batches-py", name] if name == "cifar-10" else [name]
    folders = [(data_dir or Path()).expanduser() / place for place in places]
    source = next((each for each in folders if data_dir and each.is_dir()), None)
    try:
        if source is None and name == "cifar-10":
            parts = _of_openml(report)
        elif source is None:
            raise FileNotFoundError("it is in no folder that was named")
        elif source.name == name:
            parts = _of_images(source, "train"), _of_images(source, "test")
        else:
            parts = _of_pickles(source, CIFAR_10[0]), _of_pickles(source, CIFAR_10[1])
    except (OSError, ValueError) as error:
        hint = f"; name a folder that holds {' or '.join(places)} with --data-dir"
        raise RuntimeError(f"{name}: {error}{hint if source is None else ''}") from error
    (X, y), (X_test, y_test) = parts
    where = f"the folder {source.name}" if source else "fetch_openml"
    return Photographs(name, X, y.astype(np.int64), X_test, y_test.astype(np.int64), where)


# Pairs of them for ``mmd_init_``


def as_floats(images: torch.Tensor) -> torch.Tensor:
    """Bytes as values from 0 to 1."""
    return images.float() / 255.0


class Pairs(IterableDataset):  # type: ignore[type-arg]
    """Mini-batches of images (n, ...) of bytes twice, as values from 0 to 1, to be augmented.

    Each pass is in another order.
    """

    def __init__(self, images: torch.Tensor, size: int) -> None:
        self.images, self.size = images, size

    def __len__(self) -> int:
        return len(self.images) // self.size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for rows in torch.randperm(len(self.images))[: len(self) * self.size].view(-1, self.size):
            images = as_floats(self.images[rows.to(self.images.device)])
            yield images, images
