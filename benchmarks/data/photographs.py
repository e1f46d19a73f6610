"""Photographs in three channels: any folder of images of one size, and CIFAR-10 of OpenML."""

import hashlib
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
    folder = data_dir.expanduser() / name if data_dir else Path()
    in_folder = data_dir is not None and folder.is_dir()
    try:
        if in_folder:
            parts = _of_images(folder, "train"), _of_images(folder, "test")
        elif name == "cifar-10":
            parts = _of_openml(report)
        else:
            raise FileNotFoundError("it is in no folder that was named")
    except (OSError, ValueError) as error:
        hint = "" if in_folder else f"; name a folder that holds {name} with --data-dir"
        raise RuntimeError(f"{name}: {error}{hint}") from error
    (X, y), (X_test, y_test) = parts
    source = f"the folder {name}" if in_folder else "fetch_openml"
    return Photographs(name, X, y.astype(np.int64), X_test, y_test.astype(np.int64), source)


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
