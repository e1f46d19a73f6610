"""Fixtures that several test modules share."""

import hashlib
from urllib.error import URLError

import numpy as np
import pytest

from data import datasets
from data.idx import FASHION_MNIST, MNIST, IdxFile, encode_idx
from idx_stand_in import raises



def _stand_in(images, seed, monkeypatch):
    """Raw files of a small set of images; its digests and shapes become the known ones."""
    rng = np.random.default_rng(seed)
    raw = {}
    for key, file in list(images.files.items()):
        shape = ({60000: 6, 10000: 3}[file.shape[0]], *(2 for _ in file.shape[1:]))
        array = rng.integers(0, 256 if len(shape) == 3 else 10, size=shape, dtype=np.uint8)
        raw[key] = encode_idx(array)
        small = IdxFile(file.name, hashlib.md5(raw[key]).hexdigest(), shape)
        monkeypatch.setitem(images.files, key, small)
    return raw


@pytest.fixture
def raw_files(monkeypatch):
    """Raw files of a small stand-in for MNIST, whose digests and shapes are the known ones."""
    return _stand_in(MNIST, 0, monkeypatch)


@pytest.fixture
def fashion_files(monkeypatch):
    """The same for Fashion-MNIST."""
    return _stand_in(FASHION_MNIST, 1, monkeypatch)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty data home, on a machine without OpenML, npm and packages of data."""
    monkeypatch.setattr(datasets, "fetch_openml", raises(URLError("no such host")))
    monkeypatch.setattr(datasets.shutil, "which", lambda name: None)
    for name in FASHION_MNIST.system_folders:
        monkeypatch.setitem(FASHION_MNIST.system_folders, name, str(tmp_path / "debian"))
    return tmp_path / "home"
