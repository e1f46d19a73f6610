"""What the tests use in place of MNIST and its like: nine images of 2 x 2 pixels, and folders."""

import gzip

import numpy as np

from data.idx import MNIST, decode_idx


def raises(error):
    def function(*args, **kwargs):
        raise error

    return function


def openml_arrays(raw_files):
    """X and y in OpenML's form: floats and strings, training images first."""
    arrays = {key: decode_idx(raw) for key, raw in raw_files.items()}
    X = np.concatenate([arrays["X_train"], arrays["X_test"]]).reshape(9, 4).astype(np.float64)
    y = np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(str).astype(object)
    return X, y


def write_folder(folder, raw_files, *, suffix="", dotted=False):
    folder.mkdir(parents=True)
    for key, file in MNIST.files.items():
        name = file.name.replace("-idx", ".idx") if dotted else file.name
        raw = gzip.compress(raw_files[key]) if suffix == ".gz" else raw_files[key]
        (folder / (name + suffix)).write_bytes(raw)


def check_stand_in(dataset, raw_files):
    assert dataset.X_train.shape == (6, 4)
    assert dataset.X_test.shape == (3, 4)
    assert dataset.X_train.dtype == dataset.X_test.dtype == np.uint8
    assert dataset.y_train.dtype == dataset.y_test.dtype == np.int64
    for key, raw in raw_files.items():
        np.testing.assert_array_equal(getattr(dataset, key).ravel(), decode_idx(raw).ravel())
