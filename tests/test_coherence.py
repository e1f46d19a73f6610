"""Coherence: its parameters, the embedding that neighbours are searched in, the augmentation."""

import pickle
from functools import partial
from typing import ClassVar

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
from sklearn.neighbors import KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

from nets import assert_same_fit
from sklearn_mmdinit import (
    Coherence,
    MLPClassifier,
    MMDInitializer,
    RandomAffine,
    RandomView,
    mmd_init_,
)
from sklearn_mmdinit.coherence import WalkCache, fit_embedding
from sklearn_mmdinit.graph.neighbors import neighbor_graph


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400] / 8.0 - 1.0, y[:400]


@pytest.fixture(scope="module")
def X(digits):
    return digits[0]


def small(embedding=None, augmentation=None, *, module=None, **params):
    coherence = Coherence(batch_size=64, n_neighbors=5, walk_length=5.0)
    coherence.set_params(embedding=embedding, augmentation=augmentation)
    params = {"n_perturbations": 8, "max_iter": 2, "window": 2, "random_state": 0} | params
    if module is None:
        params["hidden_layer_sizes"] = (16, 12)
    return MMDInitializer(module=module, coherence=coherence, **params)


def first_round(**params):
    return small(random_state=1, **params)


def ends(walk):
    return walk.ends([np.arange(50)], 5.0, [np.random.default_rng(0)])


# Parameters


def test_parameters_are_set_by_name():
    init = MMDInitializer().set_params(coherence="auto", coherence__separation=3.0)
    assert init.coherence.separation == 3.0
    nested = {"coherence__augmentation": RandomAffine(), "coherence__augmentation__shift": 0.5}
    assert init.set_params(**nested).coherence.augmentation.shift == 0.5
    init = MMDInitializer(coherence="auto")
    with pytest.raises(ValueError, match="foo"):
        init.set_params(coherence__foo=1)
    assert init.coherence == "auto", "what is refused leaves it as it is"


# The embedding


def test_the_rows_themselves_are_no_embedding_whatever_their_size(X):
    plain = small().fit(X)
    assert plain.embedding_ is None
    for power in (0, -80, 70):
        assert_same_fit(small(FunctionTransformer(partial(np.multiply, 2.0**power))).fit(X), plain)


def test_it_is_a_graph_among_what_it_makes_of_the_rows(X):
    first = first_round().fit(X)
    graph = neighbor_graph(first.transform(X), n_neighbors=5, shared_neighbor_power=2.0)
    by_hand = small().set_params(coherence__graph=graph).fit(X)
    assert_same_fit(small(first_round()).fit(X), by_hand)
    assert_same_fit(small(FrozenEstimator(first)).fit(X), by_hand)
    assert by_hand.history_ != small().fit(X).history_


def test_a_frozen_embedding_gets_the_column_names_that_it_was_fitted_to(X):
    names = [f"pixel {i}" for i in range(64)]
    frame = pd.DataFrame(X, columns=names)
    columns = ColumnTransformer([("half", PCA(3, random_state=0), names[:32])]).fit(frame)
    by_name = small(FrozenEstimator(columns)).fit(X)
    assert_same_fit(by_name, small(FrozenEstimator(columns)).fit(frame))
    by_hand = neighbor_graph(columns.transform(frame), n_neighbors=5, shared_neighbor_power=2.0)
    assert_same_fit(by_name, small().set_params(coherence__graph=by_hand).fit(X))


def test_a_transformer_as_the_graph_is_given_the_embedding(X):
    neighbors = KNeighborsTransformer(n_neighbors=5)
    pca = PCA(3, random_state=0)
    both = small(pca).set_params(coherence__graph=neighbors)
    one = small().set_params(coherence__graph=make_pipeline(pca, neighbors))
    assert_same_fit(both.fit(X), one.fit(X))


def test_it_is_cloned_and_fitted_once(X):
    mine = first_round()
    second = small(mine).partial_fit(X)
    assert not hasattr(mine, "theta0_")
    fitted = second.embedding_
    second.partial_fit(X).score(X[:100])
    assert second.embedding_ is fitted
    assert_same_fit(second, small(first_round()).fit(X))
    second.fit(X)
    assert second.embedding_ is not fitted, "fit begins anew"


def test_other_rows_are_scored_by_the_same_embedding(X):
    coherence = Coherence(n_neighbors=5, embedding=PCA(3, random_state=0))
    fitted = fit_embedding(coherence, X, 0)
    others = X[200:] + 0.1
    plain = Coherence(n_neighbors=5)
    found = ends(WalkCache().of(coherence, fitted, others))
    expected = ends(WalkCache().of(plain, None, fitted.transform(others)))
    np.testing.assert_array_equal(found, expected)
    assert (found != ends(WalkCache().of(plain, None, others))).any()


class CountsSearches(KNeighborsTransformer):
    searched: ClassVar = []

    def fit_transform(self, X, y=None):
        self.searched.append(len(X))
        return super().fit_transform(X)


def test_a_graph_is_searched_again_only_if_other_rows_were_scored_or_learned_from(X):
    CountsSearches.searched.clear()
    init = small().set_params(coherence__graph=CountsSearches(n_neighbors=5)).partial_fit(X)
    for n_rows in (400, 150, 400, 150, 120):
        init.score(X[:n_rows])
    init.partial_fit(X)
    init.partial_fit(X[:120])
    init.score(X[:150])
    init.partial_fit(X[:120])
    assert CountsSearches.searched == [400, 150, 120, 150]


def test_graphs_are_never_pickled(X):
    walks, coherence = WalkCache(), Coherence(n_neighbors=5)
    kept = walks.of(coherence, None, X)
    assert walks.of(coherence, None, X.copy()) is kept
    assert walks.of(Coherence(n_neighbors=6), None, X) is not kept
    assert len(pickle.dumps(walks)) < 200
    # A lambda has no name by which a graph could be found again.
    coherence.graph = KNeighborsTransformer(n_neighbors=5, metric=lambda a, b: np.abs(a - b).sum())
    assert walks.of(coherence, None, X[:60]) is not walks.of(coherence, None, X[:60])


def test_a_module_is_given_its_rows_in_their_shape(X):
    X = X.reshape(-1, 1, 8, 8)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    params = {"n_perturbations": 4, "max_iter": 1, "window": 2, "random_state": 0}
    first = first_round(module=net, n_perturbations=4, max_iter=1)
    second = small(first, module=net, **params).fit(X)
    assert second.embedding_.transform(X).shape == (400, 144)
    assert mmd_init_(net, X, coherence=second.coherence, **params) == second.history_
    once = small(module=net, **params).fit(X)
    assert once.history_ != second.history_
    # What an embedding makes of an image may have axes too.
    assert_same_fit(small(FunctionTransformer(), module=net, **params).fit(X), once)


def test_rounds_of_rounds_and_their_parameters(digits):
    X, y = digits
    third = small(small(first_round(max_iter=1), max_iter=1), max_iter=1)
    name = "coherence__embedding__coherence__embedding__coherence__walk_length"
    assert third.get_params()[name] == 5.0
    third.fit(X)
    assert third.embedding_.embedding_.embedding_ is None
    clf = MLPClassifier(warm_start_from=clone(third), max_iter=2, random_state=0)
    grid = GridSearchCV(clf, {f"warm_start_from__{name}": [2.0, 9.0]}, cv=2).fit(X, y > 4)
    chosen = clone(grid.best_estimator_).get_params()[f"warm_start_from__{name}"]
    assert chosen == grid.best_params_[f"warm_start_from__{name}"]


class Unfitted(StandardScaler):
    def fit(self, X, y=None):
        pytest.fail("is fitted")


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"coherence__augmentation": lambda X: X[1:]}, "must return a tensor like the one given"),
        ({"module": nn.Linear(3, 2), "hidden_layer_sizes": (392, 392, 392)}, "shape"),
    ],
)
def test_errors_come_before_the_embedding_is_fitted(params, match, X):
    with pytest.raises((ValueError, RuntimeError), match=match):
        small(Unfitted()).set_params(**params).fit(X)


def test_random_states_of_none_follow_from_the_initializer_s(digits):
    X, y = digits
    embedding = make_pipeline(StandardScaler(), first_round().set_params(random_state=None))
    whole = small(embedding).fit(X)
    assert_same_fit(small(embedding).partial_fit(X).partial_fit(X), whole)
    assert small(embedding, random_state=2).fit(X).history_ != whole.history_
    clf = MLPClassifier(warm_start_from=small(embedding), max_iter=1, random_state=0)
    first, again = (clone(clf).fit(X, y > 4).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    # What is frozen keeps its own.
    frozen = make_pipeline(FrozenEstimator(first_round().set_params(random_state=None).fit(X)))
    assert small(frozen).fit(X).embedding_[0].random_state is None


@pytest.mark.parametrize("after", [None, PCA(2), StandardScaler()])
def test_another_embedding_between_passes_is_an_error(after, X):
    init = small(PCA(3)).partial_fit(X)
    init = pickle.loads(pickle.dumps(init.set_params(coherence__embedding=PCA(3)))).partial_fit(X)
    init.set_params(coherence__embedding=after)
    with pytest.raises(ValueError, match="begin anew with fit"):
        init.partial_fit(X)
    assert init.fit(X).n_iter_ == 2


# The augmentation


def test_an_augmentation_that_changes_nothing_is_none(X):
    plain, same = small().fit(X), small(None, lambda rows: rows).fit(X)
    assert_same_fit(plain, same)
    assert plain.score(X) == same.score(X) != small(None, RandomAffine()).fit(X).score(X)


def test_modules_see_changed_images_once_before_the_search_and_once_a_step(X):
    seen = []

    def look(rows):
        seen.append(tuple(rows.shape))
        return RandomAffine()(rows)

    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    init = small(None, look, module=net, n_perturbations=4, max_iter=1)
    init.fit(X.reshape(-1, 1, 8, 8)[:300])
    assert seen == [(64, 1, 8, 8)] * 2 * (1 + 300 // 64)  # once for either half of the pairs
    assert np.isfinite(init.history_[-1]["loss"])


def twice(x):
    return 2.0 * x * torch.rand(())


@pytest.mark.parametrize("augmentation", [nn.Dropout(0.3), twice])
def test_a_module_or_function_of_one_tensor_augments_on_the_device(augmentation, X, tmp_path):
    init = small(None, augmentation, checkpoint=tmp_path / "a.safetensors", window=1)
    before = torch.get_rng_state()
    whole = init.fit(X)
    assert torch.equal(torch.get_rng_state(), before), "the user's generator has not moved"
    torch.rand(1)
    again = small(None, augmentation, window=1).partial_fit(X)
    assert_same_fit(again.partial_fit(X), whole)
    assert whole.score(X) == again.score(X) != small(window=1).fit(X).score(X)
    assert whole.history_ != small(window=1).fit(X).history_


def test_the_inputs_of_pairs_are_tensors_with_draws_of_their_own(X):
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
        (lambda x: x / 0, ValueError, "returned NaN or infinity"),
        (lambda x: x.numpy(), TypeError, "must return a tensor .*, got ndarray"),
        (nn.Linear(3, 3), RuntimeError, r"was given a tensor .*\(64, 64\) of .* on cpu"),
    ],
)
def test_what_changes_tensors_otherwise_is_named(augmentation, kind, match, X):
    with pytest.raises(kind, match=match):
        small(Unfitted(), augmentation).fit(X)


def photographs_of(n_neighbors, embedding=None):
    """Fit a network of photographs; if `n_neighbors` is None, of a loader of two views of each."""
    images, params = torch.rand(24, 3, 4, 4, generator=torch.Generator().manual_seed(0)), {}
    data, others = images, {"n_neighbors": n_neighbors, "embedding": embedding}
    if n_neighbors is None:
        views = torch.utils.data.TensorDataset(images, images.flip(3))
        data, others = torch.utils.data.DataLoader(views, 12), {}
        params["views"] = 2
    coherence = Coherence(**others, augmentation=RandomView(), batch_size=12)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
    params |= {"coherence": coherence, "max_iter": 1, "batch_size": 4, "random_state": 0}
    mmd_init_(net, data, **params)


def test_neighbours_of_photographs_by_pixels_have_a_warning():
    with pytest.warns(UserWarning, match=r"\(24, 3, 4, 4\) looks like photographs.*n_neighbors=0"):
        photographs_of(3)
    photographs_of(3, FunctionTransformer(lambda X: X.mean(axis=(2, 3))))  # warnings are errors
    photographs_of(0)
    photographs_of(None)
