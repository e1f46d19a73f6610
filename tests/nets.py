"""Small modules that classifiers train, data for them, and an initializer that counts its fits."""

from itertools import pairwise

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from torch import nn

from sklearn_mmdinit.theta0 import Architecture, Theta0
from sklearn_mmdinit.warm_start import attach_theta0


class Conv(nn.Module):
    """Images of one channel, eight pixels a side by default; with dropout."""

    def __init__(self, n_classes=2, width=2, side=8, batch_norm=False):
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width) if batch_norm else nn.Identity()
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(width * (side // 4) ** 2, n_classes)

    def forward(self, x):
        hidden = nn.functional.max_pool2d(self.norm(self.conv(x)).relu(), 4)
        return self.head(self.drop(hidden.flatten(1)))


class Pooled(nn.Module):
    """Rows of any number of features, which it averages into eight."""

    def __init__(self, n_classes=2, width=16, batch_norm=False):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool1d(8)
        self.hidden, self.head = nn.Linear(8, width), nn.Linear(width, n_classes)
        self.norm = nn.BatchNorm1d(width) if batch_norm else nn.Identity()

    def forward(self, x):
        return self.head(self.norm(self.hidden(self.pool(x[:, None])[:, 0])).relu())


def digits(n, n_classes=10):
    """Rows (n, 64) of float32, and labels."""
    X, y = load_digits(return_X_y=True)
    return (X[:n] / 16).astype(np.float32), y[:n] % n_classes


def digit_images(n, n_classes=10):
    X, y = digits(n, n_classes)
    return X.reshape(-1, 1, 8, 8) - np.float32(0.3), y


def assert_same_weights(a, b, atol=0.0):
    """Of two fitted classifiers."""
    a, b = (clf.module_.state_dict() for clf in (a, b))
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_allclose(value.numpy(), b[name].numpy(), rtol=0, atol=atol, err_msg=name)


def assert_same_arrays(a, b):
    """Of two theta0."""
    assert a.arrays.keys() == b.arrays.keys()
    for name, array in a.arrays.items():
        np.testing.assert_array_equal(array, b.arrays[name], err_msg=name)


def assert_same_fit(a, b):
    """Of two fitted initializers."""
    assert_same_arrays(a.theta0_, b.theta0_)
    assert a.theta0_.architecture == b.theta0_.architecture
    assert a.history_ == b.history_
    assert a.loss_curve_ == b.loss_curve_
    assert (a.best_loss_, a.n_iter_) == (b.best_loss_, b.n_iter_)


fits = []  # numbers of rows that a Counting has learned from


class Counting(BaseEstimator):
    """An initializer of perceptrons that counts its fits, and learns random weights."""

    def __init__(
        self,
        hidden_layer_sizes=(5, 4),
        *,
        n_classes=3,
        activation="tanh",
        scale=0.1,
        random_state=None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.n_classes = n_classes
        self.activation = activation
        self.scale = scale
        self.random_state = random_state

    def fit(self, X, y=None):
        fits.append(len(X))
        self.learned_from_ = X
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        architecture = Architecture.of_perceptron(
            np.shape(X)[1], self.hidden_layer_sizes, self.n_classes, self.activation
        )
        widths = (np.shape(X)[1], *self.hidden_layer_sizes, self.n_classes)
        rng, arrays = np.random.default_rng(self.random_state), {}
        for layer, (n_in, n_out) in enumerate(pairwise(widths)):
            arrays[f"linears.{layer}.weight"] = self.scale * rng.normal(size=(n_out, n_in))
            arrays[f"linears.{layer}.bias"] = self.scale * rng.normal(size=n_out)
        self.theta0_ = Theta0(architecture, arrays)
        return self

    def transform(self, X):
        return attach_theta0(X, self.theta0_)
