"""Files of images: the IDX format, digests, folders, and writing that is never half done."""

import doctest
import gzip
import itertools
import os
import stat
import sys
import threading

import numpy as np
import pytest

from data import idx_files
from data.idx_files import (
    IdxFile,
    check_digests,
    decode_idx,
    encode_idx,
    read_folder,
    save_folder,
    write_atomically,
)
from data.image_sets import FASHION_MNIST, MNIST
from idx_stand_in import raises, write_folder


@pytest.mark.parametrize("shape", [(0,), (7,), (3, 2), (2, 3, 4)])
def test_idx_round_trip(shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    raw = encode_idx(array)
    assert len(raw) == IdxFile("", "", shape).n_bytes
    back = decode_idx(raw)
    np.testing.assert_array_equal(back, array)
    assert back.flags.writeable  # torch.from_numpy warns otherwise


def test_idx_ignores_memory_order():
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert encode_idx(np.asfortranarray(array)) == encode_idx(array)


def test_idx_header_is_the_published_one():
    assert (
        encode_idx(np.zeros((1, 2, 3), np.uint8))[:16].hex() == "00000803000000010000000200000003"
    )


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not an IDX file"),
        (b"<html>", "not an IDX file"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 0]), "not an IDX file of unsigned bytes"),
        (bytes([0, 0, 8, 3, 0, 0]), "header needs 16 bytes, the file has 6"),
        (encode_idx(np.zeros(4, np.uint8))[:-1], "has 12 bytes, got 11"),
        (encode_idx(np.zeros(4, np.uint8)) + b"x", "has 12 bytes, got 13"),
    ],
)
def test_idx_refuses_what_is_none(raw, message):
    with pytest.raises(ValueError, match=message):
        decode_idx(raw)


def test_idx_refuses_other_dtypes():
    with pytest.raises(ValueError, match="int64"):
        encode_idx(np.zeros(3, np.int64))


@pytest.mark.parametrize("images", [MNIST, FASHION_MNIST], ids=lambda images: images.name)
def test_real_sizes(images):
    assert [file.n_bytes for file in images.files.values()] == [47040016, 60008, 7840016, 10008]


def test_check_digests_names_each_wrong_file(raw_files):
    check_digests(raw_files, MNIST.files)
    wrong = raw_files | {"y_train": raw_files["y_test"]}
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte has md5") as error:
        check_digests(wrong, MNIST.files)
    assert MNIST.files["y_train"].md5 in str(error.value)
    assert MNIST.files["y_test"].md5 in str(error.value)
    assert "images" not in str(error.value)


def test_folder_lacks_one_file(raw_files, tmp_path):
    write_folder(tmp_path / "mine", raw_files)
    (tmp_path / "mine" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match="t10k-labels-idx1-ubyte"):
        read_folder(tmp_path / "mine", MNIST.files)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-9], lambda raw: b"PK" + raw])
def test_folder_with_damaged_gz(raw_files, tmp_path, damage):
    write_folder(tmp_path / "mine", raw_files, suffix=".gz")
    path = tmp_path / "mine" / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz is damaged"):
        read_folder(tmp_path / "mine", MNIST.files)


def test_oversized_file_is_refused_without_reading_it_all(raw_files, tmp_path):
    write_folder(tmp_path / "mine", raw_files, suffix=".gz")
    path = tmp_path / "mine" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(raw_files["y_train"] + bytes(10**6)))
    raw = read_folder(tmp_path / "mine", MNIST.files)
    assert len(raw["y_train"]) == MNIST.files["y_train"].n_bytes + 1
    with pytest.raises(ValueError, match="train-labels"):
        check_digests(raw, MNIST.files)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_write_leaves_no_trace(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    monkeypatch.setattr(idx_files.os, step, raises(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"after")
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]


def test_intact_files_are_not_written_again(raw_files, tmp_path, monkeypatch):
    save_folder(tmp_path, raw_files, MNIST.files)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"damaged")
    written = []
    monkeypatch.setattr(idx_files, "write_atomically", lambda path, raw: written.append(path))
    save_folder(tmp_path, raw_files, MNIST.files)
    assert [path.name for path in written] == ["t10k-labels-idx1-ubyte"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permission bits to check")
def test_saved_files_follow_the_umask(tmp_path):
    write_atomically(tmp_path / "ours", b"x")
    (tmp_path / "plain").write_bytes(b"x")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_reader_never_sees_a_part(tmp_path):
    path = tmp_path / "file"
    contents = [bytes([value]) * 200_000 for value in range(2)]
    write_atomically(path, contents[0])

    def write(content):
        for _ in range(15):
            write_atomically(path, content)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    seen = set()
    for _ in itertools.takewhile(lambda _: any(w.is_alive() for w in writers), itertools.count()):
        seen.add(path.read_bytes())
    for writer in writers:
        writer.join()
    assert seen <= set(contents)
    assert path.read_bytes() in contents
    assert os.listdir(tmp_path) == ["file"]


def test_doctests():
    result = doctest.testmod(idx_files)
    assert result.attempted > 0
    assert result.failed == 0
