"""The last layer first: linear probing, then fine-tuning."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from torch import nn

from helpers import seeded
from nets import Conv, Tied, digit_images
from sklearn_mmdinit import MLPClassifier, MMDInitializer, NetClassifier, linear_probe_

X, y = load_iris(return_X_y=True)
X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
HEAD_ALONE = {"fine_tuning": "head-first", "max_iter": 0, "random_state": 0}


@pytest.fixture(scope="module")
def init():
    init = MMDInitializer((8,), n_classes=3, n_perturbations=4, max_iter=1, random_state=0)
    return init.fit(X)


def hidden_of(initializer, X):
    """The last hidden activations."""
    with torch.no_grad():
        return initializer.to_module().linears[0](torch.from_numpy(X)).relu().numpy()


def of_mean_norm_one(rows):
    return rows / np.linalg.norm(rows, axis=1).mean()


@pytest.mark.parametrize(("n_classes", "weighted"), [(2, False), (3, False), (3, True)])
def test_the_last_layer_is_a_logistic_regression(n_classes, weighted, init):
    rows, labels = X[y < n_classes], y[y < n_classes]
    weights = 1.0 + (labels == 1) if weighted else None
    initializer = clone(init).set_params(n_classes=n_classes).fit(rows)
    # It is fitted to features of unit norm, and then gets centred activations with their norms.
    fitted = LogisticRegression(C=100, max_iter=10_000)
    relative = weights / weights.mean() if weighted else None
    H = hidden_of(initializer, rows)
    H -= H.mean(axis=0)
    fitted.fit(normalize(H), labels, sample_weight=relative)
    expected = fitted.predict_proba(of_mean_norm_one(H))
    clf = MLPClassifier(warm_start_from=initializer, **HEAD_ALONE)
    clf.fit(rows, labels, sample_weight=weights)
    np.testing.assert_allclose(clf.predict_proba(rows), expected, atol=2e-3)


def test_a_last_layer_without_bias_is_a_regression_without_intercept():
    rare = np.arange(150) % 10 == 0
    net = nn.Sequential(*seeded(lambda: (nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2, bias=False))))
    clf = NetClassifier(net, **HEAD_ALONE)
    with torch.no_grad():
        H = net[:2](torch.from_numpy(X)).numpy()
    fitted = LogisticRegression(C=100, fit_intercept=False, max_iter=10_000).fit(normalize(H), rare)
    expected = fitted.predict_proba(of_mean_norm_one(H))
    np.testing.assert_allclose(clf.fit(X, rare).predict_proba(X), expected, atol=2e-3)


def test_layers_before_the_last_one_keep_their_weights(init):
    clf = MLPClassifier(warm_start_from=init, **HEAD_ALONE).fit(X, y)
    np.testing.assert_array_equal(clf.coefs_[0], init.coefs_[0])
    assert (clf.coefs_[1] != init.coefs_[1]).any()
    for weights, start in zip(clf.theta0_.coefs, init.coefs_, strict=True):
        np.testing.assert_array_equal(weights, start)


def test_any_module_whose_logits_come_from_a_linear_layer():
    images = digit_images(60, 3)
    clf = NetClassifier(Conv(3, width=16), **HEAD_ALONE)
    assert clf.fit(*images).score(*images) > 0.9
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3), nn.LogSoftmax(1))
    words = "head-first.*Sequential has none: pass fine_tuning='paper'"
    with pytest.raises(ValueError, match=words):
        NetClassifier(net, **HEAD_ALONE).fit(X, y)


def test_a_layer_that_shares_its_weights_is_not_fitted_first():
    """Fitting it would replace the weights of the first layer."""
    init = MMDInitializer(module=Tied(4, 3), coherence="auto", max_iter=1, random_state=0)
    clf = NetClassifier(warm_start_from=init.fit(X), random_state=0, max_iter=0)
    assert clf.fit(X, y).fine_tuning_ == "paper"
    weight = clf.net_.module_.first.weight.detach().numpy()
    np.testing.assert_array_equal(weight, init.theta0_.arrays["first.weight"])


def test_auto_fits_the_head_first_where_weights_are_learned(init):
    def chosen(**params):
        clf = MLPClassifier(random_state=0, **params).fit(X, y)
        return clf.fine_tuning_, clf.n_iter_, clf.net_.lr, clf.best_validation_loss_ is None

    fresh = chosen(warm_start_from=None)
    assert fresh == ("paper", 10, 1e-3, False)
    name, n_epochs, rate, no_validation = chosen(warm_start_from=init)
    assert (name, no_validation) == ("head-first", True)
    assert (n_epochs, rate) == (30, 1e-4)
    assert chosen(warm_start_from=init, fine_tuning="paper") == fresh
    assert chosen(warm_start_from=init, max_iter=3, learning_rate_init=0.1)[1:3] == (3, 0.1)


def test_a_class_without_weight_is_never_predicted(init):
    clf = MLPClassifier(warm_start_from=init, class_weight={2: 0.0}, **HEAD_ALONE).fit(X, y)
    assert set(clf.predict(X)) == {0, 1}
    assert clf.predict_proba(X[y < 2])[:, 2].max() < 0.1
    # Three equal rows, two of class 0 and one of class 1: the odds are 2, by the biases alone.
    clf.fit(X[[0, 0, 0, 0]], [0, 0, 1, 2])
    half = np.log(2) / 2
    np.testing.assert_allclose(clf.intercepts_[-1], [half, -half, -half - np.log(4)], atol=1e-2)
    # One class alone says nothing about a boundary: the last layer stays.
    clf.set_params(class_weight={1: 0.0, 2: 0.0})
    with pytest.warns(UserWarning, match="layer was not fitted .* of one class"):
        clf.fit(X, y)
    np.testing.assert_array_equal(clf.coefs_[-1], init.coefs_[-1])


@pytest.mark.parametrize(
    "change",
    [
        nn.utils.parametrizations.spectral_norm,
        nn.utils.parametrizations.orthogonal,
        nn.utils.spectral_norm,
        lambda layer: layer.requires_grad_(False),
    ],
)
def test_a_head_that_is_no_plain_learned_layer_stays(change):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), change(nn.Linear(8, 3)))
    clf = NetClassifier(net, **HEAD_ALONE)
    with pytest.raises(ValueError, match=r"a trainable nn\.Linear that shares no weights"):
        clf.fit(X, y)
    start = MMDInitializer(module=clf.module, n_perturbations=4, max_iter=1, random_state=0)
    clf.set_params(module=None, warm_start_from=start.fit(X), fine_tuning="auto")
    assert clf.fit(X, y).fine_tuning_ == "paper"


class ByName(nn.Module):
    """Passes inputs to its layers by name."""

    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(input=self.norm(input=self.body(input=x)).relu())


def test_layers_may_get_their_inputs_by_name():
    init = MMDInitializer(module=ByName, coherence="auto", n_perturbations=4, random_state=0)
    init.set_params(max_iter=1).fit(X)
    assert init.transform(X).shape == (150, 8)
    clf = NetClassifier(warm_start_from=init, **HEAD_ALONE)
    assert clf.fit(X, y).score(X, y) > 0.8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_probe_changes_the_last_layer_alone_and_classifies(dtype):
    body = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5))
    net = seeded(lambda: nn.Sequential(body, nn.Linear(32, 3))).to(dtype)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert linear_probe_(net, X, torch.from_numpy(y)) is net
    assert net.training
    changed = {name for name, value in net.state_dict().items() if not value.equal(before[name])}
    assert changed == {"1.weight", "1.bias"}
    predicted = net.eval()(torch.from_numpy(X).to(dtype)).argmax(dim=1).numpy()
    assert (predicted == y).mean() > 0.9


def test_a_probe_is_the_first_step_of_the_classifiers():
    net = seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    expected = NetClassifier(net, validation_split=None, **HEAD_ALONE).fit(X, y > 0)
    linear_probe_(net, pd.DataFrame(X), (y > 0).astype(int))
    torch.testing.assert_close(net.state_dict(), expected.module_.state_dict())
