"""Coherence(embedding=): neighbours among what a transformer, a first round say, makes of rows."""

import pickle
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler
from torch import nn

from sklearn_mmdinit import Coherence, MLPClassifier, MMDInitializer, _coherence, mmd_init_
from sklearn_mmdinit._coherence import walk_on
from sklearn_mmdinit._graph import neighbor_graph


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400] / 8.0 - 1.0, y[:400]


def small(embedding=None, *, module=None, **params):
    coherence = Coherence(batch_size=64, n_neighbors=5, walk_length=5.0, embedding=embedding)
    params = {"n_perturbations": 8, "max_iter": 2, "window": 2, "random_state": 0} | params
    if module is None:
        params["hidden_layer_sizes"] = (16, 12)
    return MMDInitializer(module=module, coherence=coherence, **params)


def first_round(**params):
    return small(output="hidden", random_state=1, **params)


def assert_same(first, second):
    assert first.history_ == second.history_
    for name, array in first.theta0_.arrays.items():
        np.testing.assert_array_equal(second.theta0_.arrays[name], array, err_msg=name)


class Wrong(TransformerMixin, BaseEstimator):
    """A transformer that returns what it is told."""

    def __init__(self, made=None):
        self.made = made

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return self.made


class Unfaithful(Wrong):
    """A transformer that does not return itself."""

    def fit(self, X, y=None):
        pass


def test_the_rows_themselves_are_no_embedding(digits):
    X, _ = digits
    assert_same(small(FunctionTransformer()).fit(X), small().fit(X))
    assert small().fit(X).embedding_ is None


def test_it_is_a_graph_among_what_it_makes_of_the_rows(digits):
    X, _ = digits
    first = first_round().fit(X)
    graph = neighbor_graph(
        first.transform(X), n_neighbors=5, n_components=50, shared_neighbor_power=2.0
    )
    by_hand = small().set_params(coherence__graph=graph).fit(X)
    assert_same(small(first_round()).fit(X), by_hand)
    assert_same(small(FrozenEstimator(first)).fit(X), by_hand)
    assert by_hand.history_ != small().fit(X).history_


def test_a_transformer_as_the_graph_is_given_the_embedding(digits):
    X, _ = digits
    neighbors = KNeighborsTransformer(n_neighbors=5)
    both = small(PCA(3, random_state=0)).set_params(coherence__graph=neighbors)
    one = small().set_params(
        coherence__graph=make_pipeline(PCA(3, random_state=0), neighbors),
    )
    assert_same(both.fit(X), one.fit(X))


def test_a_second_round_learns_from_more_edges_within_classes(monkeypatch):
    X, y = load_digits(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[:900], y[:900]
    # Dimensions of noise: neighbours among the rows are poor, and those among activations better.
    X = np.c_[X, np.random.default_rng(0).normal(size=(900, 150))]
    graphs, search = [], _coherence.neighbor_graph

    def seen(*args, **kwargs):
        graphs.append(search(*args, **kwargs))
        return graphs[-1]

    monkeypatch.setattr(_coherence, "neighbor_graph", seen)
    first = small(output="hidden", max_iter=60).set_params(hidden_layer_sizes=(64, 64))
    small(first, max_iter=1).fit(X)
    pixels, activations = (
        np.mean(y[graph.indices] == np.repeat(y, np.diff(graph.indptr))) for graph in graphs
    )
    assert activations > pixels + 0.03


def test_it_is_cloned_and_fitted_once(digits):
    X, _ = digits
    mine = first_round()
    second = small(mine).partial_fit(X)
    assert not hasattr(mine, "theta0_")
    fitted = second.embedding_
    second.partial_fit(X)
    assert second.embedding_ is fitted
    second.score(X[:100])
    assert second.embedding_ is fitted
    assert_same(second, small(first_round()).fit(X))
    second.fit(X)
    assert second.embedding_ is not fitted, "fit begins anew"


def test_passes_in_other_processes_are_those_of_one_fit(digits):
    X, _ = digits
    whole, passes = small(first_round()).fit(X), small(first_round())
    for _ in range(2):
        passes = pickle.loads(pickle.dumps(passes.partial_fit(X)))
    assert_same(passes, whole)
    assert passes.score(X[:200]) == whole.score(X[:200])


def test_other_rows_are_scored_by_the_same_embedding(digits):
    X, _ = digits
    init = small(first_round()).fit(X)
    others = X[200:] + 0.1
    walk = walk_on(init.coherence, init.embedding_.transform(others), {}, 0)
    expected = walk.ends(np.arange(50), 5.0, np.random.default_rng(0))
    init._walks.clear()
    init.score(others)
    (found,) = init._walks.values()
    np.testing.assert_array_equal(
        found.ends(np.arange(50), 5.0, np.random.default_rng(0)), expected
    )


def test_a_module_is_given_its_rows_in_their_shape(digits):
    X = digits[0].reshape(-1, 1, 8, 8)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    first = first_round(module=net, n_perturbations=4, max_iter=1)
    second = small(first, module=net, n_perturbations=4, max_iter=1)
    second.fit(X)
    assert second.embedding_.transform(X).shape == (400, 144)
    history = mmd_init_(
        net,
        X,
        **{
            name: value
            for name, value in second.get_params(deep=False).items()
            if name in ("coherence", "n_perturbations", "max_iter", "window", "random_state")
        },
    )
    assert history == second.history_
    once = small(module=net, n_perturbations=4, max_iter=1).fit(X)
    assert once.history_ != second.history_
    # What an embedding makes of an image may have axes too.
    same = small(FunctionTransformer(), module=net, n_perturbations=4, max_iter=1).fit(X)
    assert_same(same, once)


def test_rounds_of_rounds_and_their_parameters(digits):
    X, y = digits
    third = small(small(first_round(max_iter=1), output="hidden", max_iter=1), max_iter=1)
    name = "coherence__embedding__coherence__embedding__coherence__walk_length"
    assert third.get_params()[name] == 5.0
    third.fit(X)
    assert third.embedding_.embedding_.embedding_ is None
    clf = MLPClassifier(warm_start_from=third, max_iter=2, random_state=0)
    search = GridSearchCV(clf, {f"warm_start_from__{name}": [2.0, 9.0]}, cv=2).fit(X, y > 4)
    chosen = clone(search.best_estimator_).get_params()[f"warm_start_from__{name}"]
    assert chosen == search.best_params_[f"warm_start_from__{name}"]


@pytest.mark.parametrize("embedding", [3, "pca", PCA, np.eye(3), KNeighborsTransformer().fit])
def test_what_is_no_transformer_is_named(embedding, digits):
    with pytest.raises(TypeError, match="embedding must be None or an estimator"):
        small(embedding).fit(digits[0])


@pytest.mark.parametrize(
    ("embedding", "match"),
    [
        (MMDInitializer(coherence="auto"), "use output='hidden'"),
        (Wrong(np.ones((5, 2))), r"shape \(400, ...\), a row for each of X: got \(5, 2\)"),
        (Wrong(np.full((400, 2), np.nan)), "embedding=Wrong made of X contains NaN"),
        (Wrong(np.ones(400)), r"shape \(400, ...\), a row for each of X: got \(400,\)"),
        (
            Wrong(np.linspace(0, 1e200, 800).reshape(400, 2)),
            r"embedding=Wrong made of X holds 1e\+200, a value too large for float32",
        ),
        (make_pipeline(PCA(2), MMDInitializer()), r"=MMDInitializer\(output='passthrough'\)"),
        (Unfaithful(), "embedding=Unfaithful must return itself from fit.*: got None"),
        (
            FunctionTransformer(lambda X: X.__imul__(2.0)),
            "embedding=FunctionTransformer writes into the rows that it is given",
        ),
        (Wrong(np.ones((400, 2))), "In what embedding=Wrong made of X: All 400 rows are equal"),
    ],
)
def test_what_cannot_be_searched_is_named(embedding, match, digits):
    with pytest.raises(ValueError, match=match):
        small(embedding).fit(digits[0])


def test_neighbours_are_not_searched_where_a_graph_is_given(digits):
    graph = csr_array(np.eye(400, k=1))
    with pytest.raises(ValueError, match="use one of the two"):
        small(PCA(3)).set_params(coherence__graph=graph).fit(digits[0])


class Refusing(Wrong):
    """A transformer that must not be fitted."""

    def fit(self, X, y=None):
        pytest.fail("the first round was begun")


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"coherence__augmentation": lambda X, rng: X[1:]}, "must return rows like those"),
        ({"coherence__n_neighbors": 400}, "400 rows are too few for n_neighbors=400"),
        ({"coherence__memory": Path("cache")}, "^'memory' should be None"),
        ({"module": nn.Linear(3, 2), "hidden_layer_sizes": (392, 392, 392)}, "shape"),
    ],
)
def test_what_is_going_to_fail_is_told_before_a_first_round_is_learned(params, match, digits):
    with pytest.raises(ValueError, match=match):
        small(Refusing()).set_params(**params).fit(digits[0])


def test_a_search_without_its_package_is_told_before_a_first_round_is_learned(digits, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    with pytest.raises(ImportError, match="algorithm='approximate' needs pynndescent"):
        small(Refusing()).set_params(coherence__algorithm="approximate").fit(digits[0])


def test_an_augmentation_sees_as_many_rows_as_in_a_step(digits):
    sizes = []

    def look(rows, rng):
        sizes.append(len(rows))
        return rows

    small(PCA(3)).set_params(coherence__augmentation=look).fit(digits[0])
    assert set(sizes) == {128}


@pytest.mark.parametrize("frozen", [False, True])
def test_an_embedding_that_works_in_place_leaves_the_rows_alone(frozen, digits):
    X = digits[0].astype(np.float32)
    scaler = MinMaxScaler(copy=False)
    before, expected = X.copy(), small(MinMaxScaler()).fit(X.copy())
    embedding = FrozenEstimator(scaler.fit(X.copy())) if frozen else scaler
    assert_same(small(embedding).fit(X), expected)
    np.testing.assert_array_equal(X, before)


def test_after_an_error_the_embedding_is_that_of_the_kept_theta0(digits):
    X, _ = digits
    init = small(PCA(3, random_state=0)).fit(X)
    fitted, score = init.embedding_, init.score(X)
    equal = np.vstack([X[:1]] * 100 + [X[1:2]] * 100)
    with pytest.raises(ValueError, match="rows differ"):
        init.fit(equal)
    assert init.embedding_ is fitted
    assert init.score(X) == score


@pytest.mark.parametrize("first", [False, True])
def test_random_states_of_none_follow_from_the_initializer_s(first, digits):
    X, _ = digits
    embedding = first_round().set_params(random_state=None) if first else PCA(3, svd_solver="full")
    embedding = make_pipeline(StandardScaler(), embedding)
    whole, passes = small(embedding).fit(X), small(embedding)
    assert_same(passes.partial_fit(X).partial_fit(X), whole)
    if first:
        assert small(embedding, random_state=2).fit(X).history_ != whole.history_
        other, same = (
            MLPClassifier(warm_start_from=small(embedding), max_iter=1, random_state=0)
            .fit(X, digits[1] > 4)
            .predict_proba(X)
            for _ in range(2)
        )
        np.testing.assert_array_equal(other, same)
    frozen = make_pipeline(FrozenEstimator(first_round().set_params(random_state=None).fit(X)))
    assert len(small(frozen).fit(X).history_) == len(whole.history_)


def test_the_size_of_what_it_makes_does_not_matter(digits):
    X, _ = digits
    for power in (-100, -600, 70):
        scaled = small(FunctionTransformer(partial(np.multiply, 2.0**power)))
        assert_same(scaled.fit(X), small().fit(X))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, PCA(3)),
        (PCA(3), None),
        (PCA(3), PCA(2)),
        (PCA(3), StandardScaler()),
        (make_pipeline(StandardScaler(), PCA(3)), make_pipeline(StandardScaler(), PCA(2))),
        (Wrong(np.eye(400)), Wrong(2 * np.eye(400))),
    ],
)
def test_another_embedding_between_passes_is_an_error(before, after, digits):
    X, _ = digits
    init = small(before).partial_fit(X).set_params(coherence__embedding=after)
    for method in (init.partial_fit, init.score):
        with pytest.raises(ValueError, match="begin anew with fit"):
            method(X)
    assert init.fit(X).n_iter_ == 2


def test_a_parameter_of_the_embedding_between_passes_is_an_error(digits):
    X, _ = digits
    init = small(make_pipeline(StandardScaler(), PCA(3))).partial_fit(X)
    init = pickle.loads(pickle.dumps(init)).partial_fit(X)
    init.set_params(coherence__embedding__pca__n_components=2)
    with pytest.raises(ValueError, match="begin anew with fit"):
        init.partial_fit(X)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SimpleImputer(missing_values=float("nan")),
        lambda: make_pipeline(StandardScaler(), PCA(3, random_state=0)),
        lambda: FrozenEstimator(StandardScaler().fit(np.eye(64))),
    ],
)
def test_an_embedding_that_is_the_same_goes_on(make, digits):
    X, _ = digits
    init = small(make()).partial_fit(X).set_params(coherence__embedding=make()).partial_fit(X)
    assert_same(pickle.loads(pickle.dumps(init)).partial_fit(X), init.partial_fit(X))


def test_one_that_was_fitted_to_a_data_frame_is_given_its_columns(digits):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(digits[0], columns=[f"p{i}" for i in range(64)])
    frozen = FrozenEstimator(PCA(3, random_state=0).fit(X))
    assert_same(small(frozen).fit(X), small(PCA(3, random_state=0)).fit(digits[0]))
