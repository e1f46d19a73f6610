"""Small modules that classifiers train, data for them, and an initializer that counts its fits."""

import numpy as np
from sklearn.datasets import load_digits
from torch import nn
from torch.testing import assert_close

from sklearn_mmdinit import MMDInitializer


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


class Tied(nn.Module):
    """Its last layer has the weights of its first one."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.first, self.last = (nn.Linear(n_features, n_classes, bias=False) for _ in range(2))
        self.middle, self.last.weight = nn.Linear(n_classes, n_features), self.first.weight

    def forward(self, X):
        return self.last(self.middle(self.first(X)).relu())


def digits(n, n_classes=10):
    """Rows (n, 64) of float32, and labels."""
    X, y = load_digits(return_X_y=True)
    return (X[:n] / 16).astype(np.float32), y[:n] % n_classes


def digit_images(n, n_classes=10):
    X, y = digits(n, n_classes)
    return X.reshape(-1, 1, 8, 8) - np.float32(0.3), y


def assert_same_weights(a, b, atol=0.0):
    """Of two fitted classifiers."""
    assert_close(a.module_.state_dict(), b.module_.state_dict(), rtol=0, atol=atol)


def assert_same_arrays(a, b):
    """Of two theta0."""
    np.testing.assert_equal(dict(a.arrays), dict(b.arrays))


def assert_same_fit(a, b):
    """Of two fitted initializers."""
    assert_same_arrays(a.theta0_, b.theta0_)
    assert a.theta0_.architecture == b.theta0_.architecture
    assert a.history_ == b.history_
    assert a.loss_curve_ == b.loss_curve_
    assert (a.best_loss_, a.n_iter_) == (b.best_loss_, b.n_iter_)


fits = []  # numbers of rows that a Counting has learned from


class Counting(MMDInitializer):
    """An initializer that counts its fits."""

    def fit(self, X, y=None):
        fits.append(len(X))
        return super().fit(X, y)


def counting(**params):
    own = {"hidden_layer_sizes": (5, 4), "n_classes": 3, "activation": "tanh"}
    return Counting(**own | {"n_perturbations": 2, "max_iter": 1, **params})
