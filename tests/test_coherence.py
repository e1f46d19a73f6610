"""Coherence: its parameters, the embedding that neighbours are searched in, the augmentation."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

from nets import assert_same_fit
from sklearn_mmdinit import Coherence, MLPClassifier, MMDInitializer, RandomAffine, mmd_init_
from sklearn_mmdinit.coherence import fit_embedding, walk_on
from sklearn_mmdinit.graph.neighbors import neighbor_graph

X, Y = load_digits(return_X_y=True)
X, Y = X[:400] / 8.0 - 1.0, Y[:400]


def small(embedding=None, augmentation=None, *, module=None, **params):
    coherence = Coherence(batch_size=64, n_neighbors=5, walk_length=5.0)
    coherence.set_params(embedding=embedding, augmentation=augmentation)
    params = {"max_iter": 2, "random_state": 0} | params
    if module is None:
        params["hidden_layer_sizes"] = (16, 12)
    return MMDInitializer(module=module, coherence=coherence, **params)


first_round = partial(small, random_state=1)


def ends(walk):
    return walk.ends([np.arange(50)], 5.0, [np.random.default_rng(0)])


def test_parameters_are_set_by_name():
    init = MMDInitializer().set_params(coherence="auto", coherence__separation=3.0)
    assert init.coherence.separation == 3.0
    nested = {"coherence__augmentation": RandomAffine(), "coherence__augmentation__shift": 0.5}
    assert init.set_params(**nested).coherence.augmentation.shift == 0.5
    init = MMDInitializer(coherence="auto")
    with pytest.raises(ValueError, match="foo"):
        init.set_params(coherence__foo=1)
    name = "warm_start_from__coherence__separation"
    clf = clone(MLPClassifier(warm_start_from=init)).set_params(**{name: 1.5})
    assert clone(clf).get_params()[name] == 1.5
    assert init.coherence == "auto", "what is refused, or of a clone, leaves it as it is"


# As transforms of torchvision, which are no estimators, have it.
Crop = type("Crop", (nn.Dropout,), {"get_params": lambda img, scale, ratio: img})


def test_an_augmentation_of_any_class_is_cloned_and_only_an_estimator_has_parameters():
    init = small(PCA(3), Crop(0.5))
    cloned = clone(init).set_params(coherence__embedding__n_components=2)
    assert init.coherence.embedding.n_components == 3
    assert cloned.coherence.augmentation is not init.coherence.augmentation
    assert [n for n in init.get_params() if "augmentation" in n] == ["coherence__augmentation"]
    assert_same_fit(cloned.fit(X), small(PCA(2), Crop(0.5)).fit(X))


def test_the_rows_themselves_are_no_embedding_whatever_their_size():
    plain = small().fit(X)
    assert plain.embedding_ is None
    for power in (0, -80, 70):
        assert_same_fit(small(FunctionTransformer(partial(np.multiply, 2.0**power))).fit(X), plain)


def test_it_is_a_graph_among_what_it_makes_of_the_rows():
    first = first_round().fit(X)
    graph = neighbor_graph(first.transform(X), n_neighbors=5)
    by_hand = small().set_params(coherence__graph=graph).fit(X)
    assert_same_fit(small(first_round()).fit(X), by_hand)
    assert_same_fit(small(FrozenEstimator(first)).fit(X), by_hand)
    assert by_hand.history_ != small().fit(X).history_


def test_a_frozen_embedding_gets_the_column_names_that_it_was_fitted_to():
    names = [f"pixel {i}" for i in range(64)]
    frame = pd.DataFrame(X, columns=names)
    columns = ColumnTransformer([("half", PCA(3, random_state=0), names[:32])]).fit(frame)
    by_name = small(FrozenEstimator(columns)).fit(X)
    assert_same_fit(by_name, small(FrozenEstimator(columns)).fit(frame))
    by_hand = neighbor_graph(columns.transform(frame), n_neighbors=5)
    assert_same_fit(by_name, small().set_params(coherence__graph=by_hand).fit(X))


def test_it_is_cloned_and_fitted_once():
    mine = first_round()
    second = small(mine).fit(X)
    assert not hasattr(mine, "theta0_")
    fitted = second.embedding_
    second.score(X[:100])
    assert second.embedding_ is fitted
    assert_same_fit(second, small(first_round()).fit(X))
    second.fit(X)
    assert second.embedding_ is not fitted, "fit begins anew"


def test_other_rows_are_scored_by_the_same_embedding():
    coherence = Coherence(n_neighbors=5, embedding=PCA(3, random_state=0))
    fitted = fit_embedding(coherence, X, 0)
    others, plain = X[200:] + 0.1, Coherence(n_neighbors=5)
    found = ends(walk_on(coherence, fitted, others))
    np.testing.assert_array_equal(found, ends(walk_on(plain, None, fitted.transform(others))))
    assert (found != ends(walk_on(plain, None, others))).any()


def test_a_module_is_given_its_rows_in_their_shape():
    images = X.reshape(-1, 1, 8, 8)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    params = {"max_iter": 1, "random_state": 0}
    first = first_round(module=net, max_iter=1)
    second = small(first, module=net, **params).fit(images)
    assert second.embedding_.transform(images).shape == (400, 144)
    assert mmd_init_(net, images, coherence=second.coherence, **params) == second.history_
    once = small(module=net, **params).fit(images)
    assert once.history_ != second.history_
    # What an embedding makes of an image may have axes too.
    assert_same_fit(small(FunctionTransformer(), module=net, **params).fit(images), once)


def test_rounds_of_rounds_and_their_parameters():
    third = small(small(first_round(max_iter=1), max_iter=1), max_iter=1)
    name = "coherence__embedding__coherence__embedding__coherence__walk_length"
    assert third.get_params()[name] == 5.0
    third.fit(X)
    assert third.embedding_.embedding_.embedding_ is None
    clf = MLPClassifier(warm_start_from=clone(third), max_iter=2, random_state=0)
    grid = GridSearchCV(clf, {f"warm_start_from__{name}": [2.0, 9.0]}, cv=2).fit(X, Y > 4)
    chosen = clone(grid.best_estimator_).get_params()[f"warm_start_from__{name}"]
    assert chosen == grid.best_params_[f"warm_start_from__{name}"]


class Unfitted(StandardScaler):
    def fit(self, X, y=None):
        pytest.fail("is fitted")


def test_random_states_of_none_follow_from_the_initializer_s():
    embedding = make_pipeline(StandardScaler(), first_round().set_params(random_state=None))
    whole = small(embedding).fit(X)
    assert_same_fit(small(embedding).fit(X), whole)
    assert small(embedding, random_state=2).fit(X).history_ != whole.history_
    clf = MLPClassifier(warm_start_from=small(embedding), max_iter=1, random_state=0)
    first, again = (clone(clf).fit(X, Y > 4).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    # What is frozen keeps its own.
    frozen = make_pipeline(FrozenEstimator(first_round().set_params(random_state=None).fit(X)))
    assert small(frozen).fit(X).embedding_[0].random_state is None


def test_an_augmentation_that_changes_nothing_is_none():
    plain, same = small().fit(X), small(None, lambda rows: rows).fit(X)
    assert_same_fit(plain, same)
    assert plain.score(X) == same.score(X) != small(None, RandomAffine()).fit(X).score(X)


@pytest.mark.parametrize("augmentation", [nn.Dropout(0.3), lambda x: 2.0 * x * torch.rand(())])
def test_draws_of_a_module_or_function_follow_from_the_seed(augmentation):
    before = torch.get_rng_state()
    whole, plain = small(None, augmentation).fit(X), small().fit(X)
    assert torch.equal(torch.get_rng_state(), before), "the user's generator has not moved"
    torch.rand(1)
    again = small(None, augmentation).fit(X)
    assert_same_fit(again, whole)
    assert whole.score(X) == again.score(X) != plain.score(X)
    assert whole.history_ != plain.history_


def test_the_inputs_of_pairs_are_tensors_with_draws_of_their_own():
    seen = []

    class Looks(nn.Module):
        def forward(self, x):
            seen.append((x.shape, x.dtype, x.requires_grad, float(torch.rand(()))))
            return x

    small(None, Looks(), max_iter=1).fit(X)
    assert {look[:3] for look in seen} == {(torch.Size((64, 64)), torch.float32, False)}
    draws = [look[3] for look in seen[2:]]  # two calls look at what it returns
    assert len({*draws}) == len(draws) == 2 * (len(X) // 64)


@pytest.mark.parametrize(
    ("augmentation", "kind", "match"),
    [
        (lambda x: x[1:], ValueError, r"a tensor like the one given, \(64, 64\)"),
        (lambda x: x.long(), ValueError, r"got \(64, 64\) of torch.int64"),
        (lambda x: x.numpy(), TypeError, "must return a tensor .*, got ndarray"),
        (nn.Linear(3, 3), RuntimeError, r"was given a tensor .*\(64, 64\) of .* on cpu"),
    ],
)
def test_what_changes_tensors_otherwise_is_named(augmentation, kind, match):
    with pytest.raises(kind, match=match):
        small(Unfitted(), augmentation).fit(X)
    with pytest.raises((ValueError, RuntimeError), match="shape"):
        small(Unfitted(), module=nn.Linear(3, 2)).fit(X)
