"""Fixtures that several test modules share."""

import hashlib
from urllib.error import URLError

import numpy as np
import pytest

from data import mnist_sources
from data.mnist_files import MNIST_FILES, IdxFile, encode_idx
from mnist_stand_in import raises


@pytest.fixture
def raw_files(monkeypatch):
    """Raw files of a small stand-in for MNIST, whose digests and shapes are the known ones."""
    rng = np.random.default_rng(0)
    raw = {}
    for key, file in list(MNIST_FILES.items()):
        shape = ({60000: 6, 10000: 3}[file.shape[0]], *(2 for _ in file.shape[1:]))
        array = rng.integers(0, 256 if len(shape) == 3 else 10, size=shape, dtype=np.uint8)
        raw[key] = encode_idx(array)
        small = IdxFile(file.name, hashlib.md5(raw[key]).hexdigest(), shape)
        monkeypatch.setitem(MNIST_FILES, key, small)
    return raw


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty data home, on a machine where neither OpenML nor npm can be had."""
    monkeypatch.setattr(mnist_sources, "fetch_openml", raises(URLError("no such host")))
    monkeypatch.setattr(mnist_sources.shutil, "which", lambda name: None)
    return tmp_path / "home"
