"""What is left of an initializer whose fit fails, or whose parameters change between two passes."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn

from sklearn_mmdinit import Coherence, MMDInitializer, RandomLabelInitializer

SMALL = {"batch_size": 8, "max_iter": 1, "window": 4, "random_state": 0}
KINDS = [
    MMDInitializer((8,), n_perturbations=4, **SMALL),
    MMDInitializer((8,), n_perturbations=4, coherence=Coherence(batch_size=16), **SMALL),
    RandomLabelInitializer((8,), **SMALL),
]


@pytest.fixture(scope="module")
def data():
    X, y = load_digits(return_X_y=True)
    return X[:80] / 16 - 0.3, y[:80]


def net(width=6, n_classes=10):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, n_classes))


def assert_same_results(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def initializer_results(initializer, X):
    return {
        **initializer.theta0_.arrays,
        "score": initializer.score(X),
        "n_features": initializer.n_features_in_,
        "tagged": initializer.transform(X).theta0.arrays["linears.0.weight"],
    }


@pytest.mark.parametrize("kind", KINDS, ids=["paper", "coherence", "random labels"])
def test_an_initializer_that_fails_anew_is_what_it_was(kind, data, monkeypatch):
    X, _ = data
    initializer = clone(kind).fit(X)
    before = initializer_results(initializer, X)
    bad = np.full((20, 50), 0.1)
    bad[3, 4] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        initializer.fit(bad)
    assert_same_results(initializer_results(initializer, X), before)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("sklearn_mmdinit._pretraining.base.run_passes", interrupted)
    for again in (initializer.fit, initializer.partial_fit):
        rows = X[:, :50] if again == initializer.fit else X
        with pytest.raises(KeyboardInterrupt):
            again(rows)
        assert_same_results(initializer_results(initializer, X), before)


def test_too_few_rows_for_a_graph_leave_the_initializer_as_it_was(data):
    X, _ = data
    initializer = clone(KINDS[1]).fit(X)
    before = initializer_results(initializer, X)
    with pytest.raises(ValueError, match="too few"):
        initializer.fit(X[:5, :50])
    assert_same_results(initializer_results(initializer, X), before)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden_layer_sizes", (6,)),
        ("n_classes", 3),
        ("activation", "tanh"),
        ("batch_norm", True),
        ("init", "he"),
    ],
)
def test_passes_go_on_with_the_network_they_began_with(name, value, data):
    X, _ = data
    for kind in KINDS:
        initializer = clone(kind).partial_fit(X)
        before = initializer_results(initializer, X)
        was = getattr(initializer, name)
        initializer.set_params(**{name: value})
        with pytest.raises(ValueError, match=f"{name} is now .*began with .*fit"):
            initializer.partial_fit(X)
        initializer.set_params(**{name: was})
        assert_same_results(initializer_results(initializer, X), before)
        initializer.partial_fit(X)
        initializer.set_params(**{name: value}).fit(X)  # begins anew
        assert getattr(initializer, name) == value


def test_passes_go_on_with_the_module_they_began_with(data):
    X, _ = data
    module = net()
    initializer = MMDInitializer(module=module, n_perturbations=4, **SMALL).fit(X)
    for name, value in {"module": net(7), "sampler": "functional", "hidden_layer": "2"}.items():
        was = getattr(initializer, name)
        with pytest.raises(ValueError, match=f"{name} is now"):
            initializer.set_params(**{name: value}).partial_fit(X)
        initializer.set_params(**{name: was}).partial_fit(X)


def test_what_a_network_is_not_made_of_may_change_between_passes(data):
    X, _ = data
    initializer = clone(KINDS[0]).partial_fit(X)
    initializer.set_params(learning_rate_init=1e-3, n_perturbations=8, sampler="direct")
    assert initializer.partial_fit(X).n_iter_ == 2
