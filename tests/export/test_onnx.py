"""ONNX files: the same probabilities in onnxruntime, and whole or not at all."""

import importlib.util
import json

import numpy as np
import onnxruntime
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

from sklearn_mmdinit import MLPClassifier
from sklearn_mmdinit._export import onnx_file


@pytest.fixture(scope="module")
def data():
    X, y = load_digits(return_X_y=True)
    return (X[:100] / 16).astype(np.float32), y[:100] % 3


def small(**params):
    own = {"hidden_layer_sizes": (8,), "max_iter": 2, "random_state": 0}
    return MLPClassifier(**{**own, **params})


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("params", "kind"),
    [({}, int), ({"activation": "gelu", "batch_norm": True}, str)],
    ids=["plain", "batch norm"],
)
def test_probabilities_are_equal(params, kind, data, tmp_path, capfd):
    X, y = data
    clf = small(**params).fit(X, np.array(["one", "two", "three"])[y] if kind is str else y)
    path = tmp_path / "clf.onnx"
    clf.module_.train()  # what a caller may have left behind
    clf.to_onnx(path)
    assert clf.module_.training
    run = session(path)
    for n_rows in (1, 2, 100):
        (proba,) = run.run(["probabilities"], {"X": X[:n_rows]})
        np.testing.assert_allclose(proba, clf.predict_proba(X[:n_rows]), atol=1e-5)
    assert run.get_inputs()[0].shape[1] == 64
    metadata = run.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == clf.classes_.tolist()
    assert list(tmp_path.iterdir()) == [path], "nothing else is left"
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_nothing_is_written_on_failure(data, tmp_path, monkeypatch):
    path = tmp_path / "clf.onnx"
    path.write_bytes(b"before")
    clf = small(hidden_layer_sizes=(), max_iter=1).fit(*data)
    monkeypatch.setattr(onnx_file, "onnx_bytes", lambda *arguments: b"new")

    def interrupted(descriptor):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(onnx_file.os, "fsync", interrupted)
        with pytest.raises(OSError, match="no space left"):
            clf.to_onnx(path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
    clf.to_onnx(str(path))
    assert path.read_bytes() == b"new"


def test_bad_paths(data, tmp_path):
    clf = small(max_iter=1).fit(*data)
    for bad in ("clf.pt", tmp_path, str(tmp_path)):
        with pytest.raises(ValueError, match=r"a file that ends in '\.onnx', got"):
            clf.to_onnx(bad)
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(ValueError, match=r"got .*folder\.onnx"):
        clf.to_onnx(tmp_path / "folder.onnx")
    with pytest.raises(FileNotFoundError, match=r"no folder '.*missing' to write 'clf\.onnx' to"):
        clf.to_onnx(tmp_path / "missing" / "clf.onnx")
    with pytest.raises(NotFittedError):
        small().to_onnx(tmp_path / "clf.onnx")


def test_a_missing_package_is_named(data, tmp_path, monkeypatch):
    clf = small(max_iter=1).fit(*data)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name)
    )
    with pytest.raises(ImportError, match=r"needs onnxscript: pip install .*\[onnx\]"):
        clf.to_onnx(tmp_path / "clf.onnx")
    assert not list(tmp_path.iterdir())
