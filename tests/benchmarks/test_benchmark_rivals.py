"""The rivals: their mathematics on small data, and as contenders that are paired with scratch."""

import argparse
import json
import math

import numpy as np
import pytest
import torch
from sklearn.semi_supervised import LabelSpreading

from data.datasets import Dataset, load_digits_dataset, standardize
from protocol import contenders, methods
from protocol.evaluation import Bench
from protocol.networks import NormalizedPerceptron
from protocol.tasks import random_tasks
from rivals.random_labels import RandomLabels
from rivals.wrappers import (
    GraphLabelSpreading,
    nearest_rows,
    normalized_graph,
    symmetric_graph,
)
from sklearn_mmdinit.theta0 import put_arrays_


@pytest.fixture(scope="module")
def digits():
    """The training images of the small digits, scaled."""
    return standardize(load_digits_dataset())[0][:600]


# Random labels


def test_random_labels_teach_no_more_than_that_any_is_as_probable(digits):
    own = {"batch_size": 32, "learning_rate_init": 1e-2, "max_iter": 6}
    own |= {"n_classes": 3, "module": NormalizedPerceptron}
    init = RandomLabels((24, 12), window=4, **own).fit(digits)
    module = NormalizedPerceptron(64, (24, 12), 3)
    put_arrays_(module, init.theta0_.arrays)
    with torch.no_grad():
        proba = module(torch.from_numpy(digits[:64])).softmax(1)
    # The best window is one of luck: its labels can be told by chance alone.
    assert 0.9 * math.log(3) < init.best_loss_ < 1.2 * math.log(3)
    assert float(proba.mean(0).std()) < 0.2
    fresh = RandomLabels((24, 12), window=999, **own).fit(digits)
    first, same = (start.theta0_.arrays["0.weight"] for start in (init, fresh))
    assert not np.array_equal(first, same), "no window has ended"
    assert fresh.best_loss_ == math.inf


# Label spreading


@pytest.mark.parametrize("power", [0.0, 1.5])
def test_spreading_agrees_with_scikit_learn_on_the_same_graph(power, digits):
    n, k = 300, 7
    neighbors = nearest_rows(digits[:400].astype(np.float64), n, k, 1)
    assert not np.any(neighbors[:n] == np.arange(n)[:, None])  # no row is its own neighbour
    labels = load_digits_dataset().y_train[:n]
    graph = symmetric_graph(neighbors[:n], power)
    ours = GraphLabelSpreading(normalized_graph(graph), neighbors, alpha=0.5, n_iter=200)
    ours.fit(np.arange(60)[:, None], labels[:60])
    directed = np.zeros((n, n))
    directed[np.repeat(np.arange(n), k), neighbors[:n].ravel()] = 1.0
    weights = directed * (1.0 + directed @ directed.T) ** power  # of shared neighbours
    weights = weights + weights.T
    np.testing.assert_allclose(graph.toarray(), weights)
    theirs = LabelSpreading(kernel=lambda A, B: weights, alpha=0.5, max_iter=200, tol=0.0)
    with pytest.warns(match="max_iter=200 was reached"):
        theirs.fit(digits[:n].astype(np.float64), np.where(np.arange(n) < 60, labels, -1))
    np.testing.assert_allclose(
        ours.label_distributions_, theirs.label_distributions_, rtol=1e-6, atol=1e-9
    )


# Contenders


@pytest.fixture
def bench(tmp_path):
    """The digits with a small network, one task and short trainings."""
    whole = load_digits_dataset()
    parts = (whole.X_train, whole.y_train, whole.X_test, whole.y_test)
    dataset = Dataset(*(part[:300] for part in parts), "digits", "here", max_value=16)
    options = argparse.Namespace(seed=0, output=tmp_path, quiet=True, jobs=1)
    tasks = {0: random_tasks(10, 1, seed=0, run=0)}
    X = np.concatenate(standardize(dataset))
    return Bench(
        dataset, X, methods.NetworkSettings((16, 8), augmentation="digits"), (5,), tasks, options
    )


def test_every_rival_is_evaluated_on_the_tasks_of_scratch(bench, monkeypatch):
    # UMAP is compiled for half a minute, and is tried on the wines.
    monkeypatch.setattr(contenders, "umap_embedding", lambda X, Z, _: np.vstack([X, Z])[:, :2])
    names = contenders.select_rivals(["*"], gradients=True)
    found = [*map(contenders.Rivals(bench).contender, names)]
    assert [contender.name for contender in found] == names
    scores = bench.evaluate({0: found})
    assert len(scores) == len(names)
    without_network = [s["accuracy"] for s in scores if s["method"].endswith(("svm", "spreading"))]
    assert np.mean(without_network) > 0.6
    identities = {json.dumps(c.identity, sort_keys=True) for c in found}
    assert len(identities) == len({s["key"] for s in scores}) == len(names)


# Names


@pytest.mark.parametrize("gradients", [False, True])
def test_rivals_are_selected_by_name_or_pattern(gradients):
    two = contenders.select_rivals(["umap*", "rival/rbf-svm"], gradients=gradients)
    assert two == ["rival/rbf-svm", "rival/umap-logistic"]
    every = contenders.select_rivals(["*"], gradients=gradients)
    assert {*contenders.CLASSIFIERS, *contenders.GRAPHS} <= {*every}
    assert set(contenders.GRADIENTS).issubset(every) == gradients
    with pytest.raises(ValueError, match="unknown rival 'rival/gan'; valid names are riv"):
        contenders.select_rivals(["gan"], gradients=gradients)
