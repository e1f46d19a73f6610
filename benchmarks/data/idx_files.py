"""Four IDX files of images and labels: their format, their digests, how they are read and written.

Everything here works on the bytes of the raw (uncompressed) IDX files, because the
digests are those of these bytes. A source that has arrays rebuilds the bytes first.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import secrets
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Files",
    "IdxFile",
    "check_digests",
    "decode_idx",
    "encode_idx",
    "find_file",
    "read_folder",
    "save_folder",
    "write_atomically",
]

_UINT8_CODE = 8  # the IDX code of unsigned bytes, the only type that these sets use


@dataclass(frozen=True)
class IdxFile:
    """One file of a set of images.

    Parameters
    ----------
    name : str
        File name, as first published.
    md5 : str
        Digest of the raw file.
    shape : tuple of int
        Shape of the array in the file.
    """

    name: str
    md5: str
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Size of the raw file: magic number, one length a dimension, one byte an entry."""
        return 4 + 4 * len(self.shape) + math.prod(self.shape)


Files = dict[str, IdxFile]
"""The four files of a set, by the field of the data set that they fill."""


def encode_idx(array: NDArray[np.uint8]) -> bytes:
    r"""Return the bytes of the raw IDX file that holds an array of unsigned bytes.

    Parameters
    ----------
    array : ndarray of uint8, any shape
        Entries of the file.

    Returns
    -------
    bytes
        Magic number, lengths (big-endian) and entries (last axis fastest).

    Raises
    ------
    ValueError
        If the array is not of dtype uint8.

    Examples
    --------
    >>> encode_idx(np.array([7, 9], dtype=np.uint8))
    b'\x00\x00\x08\x01\x00\x00\x00\x02\x07\t'
    """
    if array.dtype != np.uint8:
        raise ValueError(f"an IDX file of images holds uint8, got dtype {array.dtype}")
    header = struct.pack(f">HBB{array.ndim}I", 0, _UINT8_CODE, array.ndim, *array.shape)
    return header + array.tobytes(order="C")


def decode_idx(raw: bytes) -> NDArray[np.uint8]:
    """Return the array that a raw IDX file holds, as a writeable copy.

    Parameters
    ----------
    raw : bytes
        The whole file.

    Returns
    -------
    ndarray of uint8
        Its shape is the one in the file's header.

    Raises
    ------
    ValueError
        If the header or the length is not that of an IDX file of unsigned bytes.

    Examples
    --------
    >>> decode_idx(encode_idx(np.eye(2, dtype=np.uint8)))
    array([[1, 0],
           [0, 1]], dtype=uint8)
    """
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


def check_digests(raw_files: Mapping[str, bytes], files: Files) -> None:
    """Refuse files that are not those described.

    Parameters
    ----------
    raw_files : mapping of str to bytes
        Raw IDX files under the keys of ``files``.
    files : mapping of str to IdxFile
        What they must be.

    Raises
    ------
    ValueError
        Naming each file whose md5 digest is not the known one, with both digests.
    """
    wrong = []
    for key, file in files.items():
        digest = _md5(raw_files[key])
        if digest != file.md5:
            wrong.append(f"{file.name} has md5 {digest}, expected {file.md5}")
    if wrong:
        raise ValueError("refused, wrong digest: " + "; ".join(wrong))


def _md5(raw: bytes) -> str:
    # A check against damage, not against an adversary; systems in FIPS mode ask to be told.
    return hashlib.md5(raw, usedforsecurity=False).hexdigest()


def find_file(folder: Path, file: IdxFile) -> Path:
    """Return the path of one file in a folder.

    The file may be raw or end in ``.gz``, and be named with a hyphen or with a dot
    before ``idx``; a raw file goes before a compressed one.

    Parameters
    ----------
    folder : Path
        Where to look; its sub-folders are not searched.
    file : IdxFile
        What to look for.

    Returns
    -------
    Path

    Raises
    ------
    FileNotFoundError
        Naming the file and the folder.
    """
    names = [file.name, file.name.replace("-idx", ".idx")]
    for name in [*names, *(f"{name}.gz" for name in names)]:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"no {file.name} (raw or .gz) in {folder}")


def _read_raw(path: Path, n_bytes: int) -> bytes:
    # One byte more than expected is enough to refuse a file, however large it is.
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as stream:
        raw: bytes = stream.read(n_bytes + 1)
    return raw


def read_folder(folder: Path, files: Files) -> dict[str, bytes]:
    """Read the four files from a folder, without a check of their digests.

    Parameters
    ----------
    folder : Path
        Folder that holds the four files, see :func:`find_file`.
    files : mapping of str to IdxFile
        Which ones.

    Returns
    -------
    dict of str to bytes
        Raw IDX files under the keys of ``files``.

    Raises
    ------
    FileNotFoundError
        If the folder or one of the files is missing.
    ValueError
        If a compressed file is damaged.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    raw_files = {}
    for key, file in files.items():
        path = find_file(folder, file)
        try:
            raw_files[key] = _read_raw(path, file.n_bytes)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is damaged: {error}") from error
    return raw_files


def write_atomically(path: Path, raw: bytes) -> None:
    """Write a file so that nobody ever sees a part of it.

    The bytes go into a temporary file in the same folder, which then takes the place of
    ``path`` in one step. Whatever fails on the way, ``path`` is as it was before and the
    temporary file is removed. Processes may write the same path at the same time.

    Parameters
    ----------
    path : Path
        File to write; its folder must exist.
    raw : bytes
        Content.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        # Mode "x" gives the permissions that the user's umask asks for; mkstemp would give 0600.
        with open(temporary, "xb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def save_folder(folder: Path, raw_files: Mapping[str, bytes], files: Files) -> None:
    """Save the four files in a folder, each one atomically; intact ones are left alone.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.
    raw_files : mapping of str to bytes
        Raw IDX files under the keys of ``files``, already checked.
    files : mapping of str to IdxFile
        Their names and digests.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for key, file in files.items():
        path = folder / file.name
        if not (path.is_file() and _md5(_read_raw(path, file.n_bytes)) == file.md5):
            write_atomically(path, raw_files[key])
