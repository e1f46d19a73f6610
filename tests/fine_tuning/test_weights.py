"""Weights of rows and of classes: what they do to the loss, and what they may be."""

import numpy as np
import pytest
import torch
from sklearn.model_selection import PredefinedSplit

from nets import assert_same_weights, digits
from sklearn_mmdinit import MLPClassifier
from sklearn_mmdinit.fine_tuning.labels import class_weights

X, y = digits(120, 3)
WEIGHTS = np.random.default_rng(0).uniform(0.1, 3, size=120)


def small(**params):
    return MLPClassifier(
        **{"hidden_layer_sizes": (8,), "max_iter": 2, "batch_size": 16, "random_state": 0, **params}
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_is_that_of_the_weighted_mean(weighted):
    """W - lr X^T diag(w / sum w) (P - Y), by hand: one step on all rows, without a hidden layer."""
    own = {"hidden_layer_sizes": (), "optimizer": "sgd", "learning_rate_init": 0.5, "max_iter": 1}
    clf = small(**own, batch_size=1000, validation_split=None)
    clf.fit(X, y, sample_weight=WEIGHTS if weighted else None)
    weights = WEIGHTS if weighted else np.ones(120)
    W, b = clf.theta0_.coefs[0], clf.theta0_.intercepts[0]
    logits = X @ W + b
    P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    residual = (P - np.eye(3)[y]) * (weights / weights.sum())[:, None]
    np.testing.assert_allclose(clf.coefs_[0], W - 0.5 * X.T @ residual, atol=1e-6)
    np.testing.assert_allclose(clf.intercepts_[0], b - 0.5 * residual.sum(axis=0), atol=1e-6)
    losses = -np.log(P[np.arange(120), y])
    assert clf.loss_curve_[0] == pytest.approx(np.average(losses, weights=weights), rel=1e-5)


@pytest.mark.parametrize("factor", [1000, 1e-300])
def test_only_ratios_of_weights_count(factor):
    a, b = (small().fit(X, y, sample_weight=by * WEIGHTS) for by in (1, factor))
    assert_same_weights(a, b, atol=1e-5)
    assert a.best_validation_loss_ == pytest.approx(b.best_validation_loss_, rel=1e-5)
    assert not np.allclose(a.coefs_[0], small().fit(X, y).coefs_[0], atol=1e-4)


@pytest.mark.parametrize("validation", ["fraction", "none", "pair"])
def test_a_weight_of_zero_is_no_row(validation):
    splits = {"fraction": 0.25, "none": None, "pair": (X[:30], y[:30])}
    clf = small(validation_split=splits[validation])
    kept = np.arange(120) % 3 > 0
    alone = clf.fit(X[kept], y[kept], sample_weight=WEIGHTS[kept])
    proba = alone.predict_proba(X)
    clf.fit(X, y, sample_weight=WEIGHTS * kept)
    np.testing.assert_array_equal(clf.predict_proba(X), proba)


SPLIT = PredefinedSplit(np.where(np.arange(120) < 30, 0, -1))


@pytest.mark.parametrize("batch_size", [7, 4096])
@pytest.mark.parametrize("split", [SPLIT, (X[:30], y[:30])], ids=["split", "pair"])
def test_the_validation_loss_is_the_weighted_mean_over_all_rows(split, batch_size):
    own = {"validation_split": split, "iterator_valid__batch_size": batch_size, "max_iter": 1}
    weights = WEIGHTS[:30]
    if split is not SPLIT:  # a pair has the weights of its classes
        own["class_weight"] = {0: 1.0, 1: 5.0, 2: 0.2}
        weights = np.array([1.0, 5.0, 0.2])[y[:30]]
    clf = small(**own).fit(X, y, sample_weight=WEIGHTS)
    losses = -np.log(clf.predict_proba(X[:30])[np.arange(30), y[:30]])
    expected = np.average(losses, weights=weights)
    assert clf.best_validation_loss_ == pytest.approx(expected, rel=1e-5)


def test_a_class_weight_is_the_weight_of_its_rows():
    by_class = {0: 2.0, 2: 0.0}
    rows = np.array([2.0, 1.0, 0.0])[y]
    a = small(class_weight=by_class).fit(X, y)
    assert_same_weights(a, small().fit(X, y, sample_weight=rows))
    a = small(class_weight=by_class).fit(X, y, sample_weight=WEIGHTS)
    assert_same_weights(a, small().fit(X, y, sample_weight=rows * WEIGHTS))
    assert a.classes_.tolist() == [0, 1, 2]


def test_balanced_classes_have_the_same_weight_in_total():
    of_rows = class_weights("balanced", np.arange(3), y, WEIGHTS)[y] * WEIGHTS
    totals = np.bincount(y, of_rows)
    np.testing.assert_allclose(totals, WEIGHTS.sum() / 3)
    # Weights count as numbers of rows do.
    counts = np.arange(120) % 3 + 1
    repeated = class_weights("balanced", np.arange(3), y.repeat(counts))
    np.testing.assert_allclose(class_weights("balanced", np.arange(3), y, counts), repeated)


class OfABatch(torch.nn.Module):
    reduction = "mean"

    def forward(self, logits, y):
        return torch.nn.functional.cross_entropy(logits, y)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"criterion__reduction": "sum"}, "reduction='sum'"),
        ({"criterion": OfABatch}, "got OfABatch"),
        ({"criterion__weight": torch.ones(3)}, "class_weight in place of criterion__weight"),
    ],
)
def test_criteria_without_a_loss_a_row(params, message):
    small(**params).fit(X, y)
    with pytest.raises(ValueError, match=message):
        small(**params, class_weight="balanced").fit(X, y)
