"""Our weights in scikit-learn's MLPClassifier: the same functions."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier as Theirs

from sklearn_mmdinit import MLPClassifier, MMDInitializer


@pytest.fixture(scope="module")
def X():
    return load_digits().data[:120] / 16


def labels(n_classes, kind=int):
    y = load_digits().target[:120] % n_classes
    return y if kind is int else np.array(list("abcdefghij"))[y]


def small(**params):
    own = {"hidden_layer_sizes": (8, 6), "max_iter": 3, "learning_rate_init": 0.01}
    return MLPClassifier(**{**own, "random_state": 0, **params})


# the same function


@pytest.mark.parametrize(
    ("n_classes", "activation", "hidden"),
    [(2, "relu", ()), (3, "tanh", (8,)), (10, "relu", (8, 6))],
)
def test_probabilities_are_equal(n_classes, activation, hidden, X):
    y = labels(n_classes, str)
    clf = small(hidden_layer_sizes=hidden, activation=activation).fit(X, y)
    theirs = clf.to_sklearn()
    assert type(theirs) is Theirs
    np.testing.assert_allclose(theirs.predict_proba(X), clf.predict_proba(X), atol=1e-6)
    np.testing.assert_array_equal(theirs.predict(X), clf.predict(X))
    assert theirs.hidden_layer_sizes == hidden
    assert theirs.out_activation_ == ("logistic" if n_classes == 2 else "softmax")


# going on


def test_a_step_of_gradient_descent_is_ours(X):
    """The same loss and the same optimiser: two epochs of full batches are the same."""
    y = labels(3)
    own = {"optimizer": "sgd", "learning_rate_init": 0.5, "batch_size": 120, "max_iter": 1}
    clf = small(**own, validation_split=None).fit(X, y)
    theirs = clf.to_sklearn()
    assert (theirs.solver, theirs.alpha, theirs.momentum) == ("sgd", 0.0, 0.0)
    clf.partial_fit(X, y)
    theirs.partial_fit(X, y)
    for found, expected in zip(theirs.coefs_, clf.coefs_, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert theirs.loss_curve_ == pytest.approx(clf.loss_curve_, rel=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_parameters_are_ours_or_the_callers(X):
    own = {"optimizer": "sgd", "optimizer__momentum": 0.9, "optimizer__nesterov": True}
    clf = small(batch_size=7, max_iter=0, **own).fit(X, labels(3))
    theirs = clf.to_sklearn(alpha=0.1)
    assert (theirs.batch_size, theirs.max_iter, theirs.alpha) == (7, 1, 0.1)
    assert (theirs.momentum, theirs.nesterovs_momentum) == (0.9, True)
    theirs = clf.to_sklearn(warm_start=True, early_stopping=True, max_iter=2)
    assert len(theirs.fit(X, labels(3)).validation_scores_) == 2
    with pytest.raises(ValueError, match="predict_nonlinearity must be 'auto', the softmax"):
        clf.set_params(predict_nonlinearity=torch.sigmoid).fit(X, labels(3)).to_sklearn()


def test_the_skip_connection_is_that_of_the_fitted_network(X):
    plain = small().fit(X, labels(3)).set_params(skip_connection=True)
    theirs = plain.to_sklearn()
    np.testing.assert_allclose(theirs.predict_proba(X), plain.predict_proba(X), atol=1e-6)
    skipping = small(skip_connection=True).fit(X, labels(3)).set_params(skip_connection=False)
    with pytest.raises(ValueError, match="the fitted network has a skip connection"):
        skipping.to_sklearn()


# a start


def test_theta0_goes_to_scikit_learn_too(X):
    y = labels(3, str)
    init = MMDInitializer((6,), n_classes=3, n_perturbations=4, max_iter=1, random_state=0).fit(X)
    start = MLPClassifier(warm_start_from=init, max_iter=0, validation_split=None).fit(X, y)
    theirs = start.to_sklearn(warm_start=True, max_iter=3)
    np.testing.assert_array_equal(theirs.coefs_[0], init.coefs_[0])
    with pytest.warns(ConvergenceWarning):
        assert theirs.fit(X, y).loss_curve_[-1] < theirs.loss_curve_[0]
