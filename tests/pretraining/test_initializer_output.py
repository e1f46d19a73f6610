"""What an initializer returns, prints and refuses."""

import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from sklearn_mmdinit import MLPClassifier, MMDInitializer, RandomLabelInitializer
from sklearn_mmdinit._network import theta0_of
from sklearn_mmdinit._network.tagged import Theta0Array

KINDS = pytest.mark.parametrize(
    "kind", [MMDInitializer, RandomLabelInitializer], ids=lambda kind: kind.__name__
)


def tiny(kind=MMDInitializer, **params):
    defaults = {"hidden_layer_sizes": (5, 4), "batch_size": 8, "max_iter": 2}
    defaults |= {"window": 2, "random_state": 0}
    if kind is MMDInitializer:
        defaults |= {"n_perturbations": 4}
    return kind(**{**defaults, **params})


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(24, 6))


def assert_same_theta0(a, b):
    for name, array in a.theta0_.arrays.items():
        np.testing.assert_array_equal(array, b.theta0_.arrays[name], err_msg=name)


# transform


@KINDS
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
def test_the_passthrough_hands_on_x_and_theta0(kind, dtype, X):
    X = (10 * np.abs(X)).astype(dtype)
    init = tiny(kind).fit(X)
    out = init.transform(X)
    assert out.dtype == dtype
    assert np.shares_memory(out, X)
    np.testing.assert_array_equal(out, X)
    assert theta0_of(out) is init.theta0_
    assert type(X) is np.ndarray
    out = init.fit_transform(X)
    np.testing.assert_array_equal(out, X)
    assert theta0_of(out) is init.theta0_


def test_what_is_not_an_array_becomes_one(X):
    out = tiny().fit(X).transform(X.tolist())
    assert isinstance(out, Theta0Array)
    np.testing.assert_array_equal(out, X)


def test_without_hidden_layers_the_last_activations_are_the_input(X):
    init = tiny(hidden_layer_sizes=(), output="hidden").fit(X)
    np.testing.assert_array_equal(init.transform(X), X.astype(np.float32))
    assert init.get_feature_names_out().shape == (6,)


@KINDS
def test_names_of_features(kind, X):
    init = tiny(kind).fit(X)
    names = list("abcdef")
    assert init.get_feature_names_out(names).tolist() == names
    assert init.get_feature_names_out().tolist() == [f"x{i}" for i in range(6)]
    init.set_params(output="hidden")
    prefix = kind.__name__.lower()
    assert init.get_feature_names_out(names).tolist() == [f"{prefix}{i}" for i in range(4)]
    assert init.transform(X).shape == (24, 4)


@pytest.mark.parametrize("container", ["pandas", "polars"])
@KINDS
def test_theta0_passes_whatever_container_is_asked_for(kind, container, X):
    init = tiny(kind).set_output(transform=container)
    assert theta0_of(init.fit_transform(X)) is init.theta0_
    assert theta0_of(init.transform(X)) is init.theta0_
    with config_context(transform_output=container):
        init = tiny(kind).fit(X)
        assert theta0_of(init.transform(X)) is init.theta0_
        assert theta0_of(tiny(kind).fit_transform(X)) is not None


@pytest.mark.parametrize("warm_start_from", ["auto", "pipeline"])
def test_theta0_passes_through_a_pipeline_with_set_output(warm_start_from, X):
    clf = MLPClassifier(warm_start_from=warm_start_from, max_iter=0)
    pipeline = make_pipeline(tiny(), clf).set_output(transform="pandas")
    pipeline.fit(X, np.arange(len(X)) % 2)
    assert_same_theta0(pipeline[-1], pipeline[0])


def test_data_frames(X):
    names = list("abcdef")
    frame = pd.DataFrame(X, columns=names, index=np.arange(24) + 7)
    init = tiny(output="hidden").set_output(transform="pandas").fit(frame)
    assert init.feature_names_in_.tolist() == names
    assert_same_theta0(init, tiny().fit(X))
    for out in (init.transform(frame), clone(init).fit_transform(frame)):
        assert out.columns.tolist() == [f"mmdinitializer{i}" for i in range(4)]
        assert out.index.equals(frame.index)
    init.set_params(output="passthrough")
    assert init.get_feature_names_out().tolist() == names
    assert theta0_of(init.transform(frame)) is init.theta0_
    with pytest.raises(ValueError, match="feature names should match"):
        init.transform(frame[names[::-1]])


def test_names_of_columns_are_learned_from_any_data_frame(X):
    init = tiny(output="hidden").set_output(transform="polars")
    out = init.fit_transform(pl.DataFrame(X, schema=list("abcdef"), orient="row"))
    assert init.feature_names_in_.tolist() == list("abcdef")
    assert isinstance(out, pl.DataFrame)


# copies


@KINDS
@pytest.mark.parametrize("batch_norm", [False, True])
def test_a_fitted_initializer_survives_pickle(kind, batch_norm, X):
    init = tiny(kind, batch_norm=batch_norm).fit(X)
    copied = pickle.loads(pickle.dumps(init))
    assert copied.get_params() == init.get_params()
    assert copied.history_ == init.history_
    assert copied.score(X) == init.score(X)
    assert_same_theta0(copied.partial_fit(X), init.partial_fit(X))
    assert theta0_of(copied.transform(X)) is copied.theta0_


@KINDS
def test_equal_fits_have_equal_hashes(kind, X):
    assert joblib.hash(tiny(kind).fit(X)) == joblib.hash(tiny(kind).fit(X))
    assert joblib.hash(tiny(kind).fit(X)) != joblib.hash(tiny(kind, random_state=1).fit(X))


@KINDS
def test_a_clone_is_not_fitted(kind, X):
    init = tiny(kind).fit(X)
    cloned = clone(init)
    assert cloned.get_params() == init.get_params()
    assert vars(cloned).keys() == init.get_params().keys()


# data of any kind


@KINDS
def test_a_memory_map_is_as_good_as_an_array(kind, X, tmp_path):
    fitted = tiny(kind).fit(X)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    init = tiny(kind).fit(mapped)
    assert_same_theta0(init, fitted)
    assert init.score(mapped) == fitted.score(X)
    np.testing.assert_array_equal(init.transform(mapped), X)


@KINDS
def test_precision_and_order_in_memory_do_not_matter(kind, X):
    fitted = tiny(kind).fit(X.astype(np.float32))
    for same in (
        X,
        np.asfortranarray(X),
        X.astype(np.float32).tolist(),
        np.repeat(X, 2, 1)[:, ::2],
    ):
        assert_same_theta0(tiny(kind).fit(same), fitted)


@KINDS
@pytest.mark.parametrize("batch_norm", [False, True])
def test_fewer_rows_than_a_mini_batch_are_one(kind, batch_norm, X):
    params = {"batch_norm": batch_norm, "window": 1, "max_iter": 3}
    init = tiny(kind, batch_size=1000, **params).fit(X[:2])
    assert [record["step"] for record in init.history_] == [1, 2, 3]
    assert_same_theta0(tiny(kind, batch_size=2, **params).fit(X[:2]), init)


def test_rows_that_are_all_the_same(X):
    init = tiny(window=1).fit(np.repeat(X[:1], 24, axis=0))
    assert np.isfinite(init.loss_curve_).all()
    init = tiny(window=1).fit(np.zeros((24, 6)))
    assert np.isfinite(init.loss_curve_).all()


# verbose


@KINDS
def test_a_bar_on_stderr_if_asked_for(kind, X, capsys):
    tiny(kind).fit(X).score(X)
    assert capsys.readouterr() == ("", "")
    tiny(kind, verbose=1).fit(X).partial_fit(X)
    out, err = capsys.readouterr()
    assert out == ""
    assert "pre-training" in err
    assert "6/6" in err, "two passes of three steps"
    assert "3/3" in err, "and one more"
    terms = ["loss="]
    if kind is MMDInitializer:
        terms += ["uniformity=", "degeneracy=", "detachment="]
    assert all(term in err for term in terms)


# bad data


def _with(value):
    X = np.ones((24, 6))
    X[3, 2] = value
    return X


BAD_DATA = {
    "NaN": (_with(np.nan), ValueError, "contains NaN"),
    "infinity": (_with(np.inf), ValueError, "contains infinity"),
    "minus infinity": (_with(-np.inf), ValueError, "contains infinity"),
    "text": ([["a", "b"], ["c", "d"]], ValueError, "could not convert string to float: 'a'"),
    "a text column": (
        np.array([[1.0, "red"], [2.0, "blue"]], dtype=object),
        ValueError,
        "could not convert string to float: 'red'",
    ),
    "no rows": (np.ones((0, 6)), ValueError, r"0 sample\(s\).*minimum of 2"),
    "one row": (np.ones((1, 6)), ValueError, r"1 sample\(s\).*minimum of 2"),
    "no columns": (np.ones((24, 0)), ValueError, r"0 feature\(s\).*minimum of 1"),
    "one axis": (np.ones(24), ValueError, "Expected 2D array, got 1D array"),
    "three axes": (np.ones((24, 2, 3)), ValueError, "dim 3"),
    "a scalar": (3.0, ValueError, "Expected 2D array, got scalar array"),
    "nothing": (None, ValueError, "Expected 2D array"),
    "sparse": (csr_array(np.eye(24)), TypeError, "Sparse data was passed"),
    "complex": (np.ones((24, 6)) * 1j, ValueError, "Complex data not supported"),
}


@KINDS
@pytest.mark.parametrize("method", ["fit", "partial_fit", "fit_transform"])
@pytest.mark.parametrize(("bad", "error", "message"), BAD_DATA.values(), ids=BAD_DATA)
def test_bad_data_is_refused(kind, method, bad, error, message, X):
    init = tiny(kind)
    with pytest.raises(error, match=message):
        getattr(init, method)(bad)
    with pytest.raises(NotFittedError):
        init.transform(X)


@KINDS
@pytest.mark.parametrize("method", ["transform", "score"])
@pytest.mark.parametrize("name", BAD_DATA.keys() - {"one row", "no columns"})
def test_bad_data_is_refused_later_too(kind, method, name, X):
    bad, error, _ = BAD_DATA[name]
    with pytest.raises(error):
        getattr(tiny(kind).fit(X), method)(bad)


@KINDS
@pytest.mark.parametrize("method", ["partial_fit", "transform", "score"])
def test_the_number_of_features_must_stay(kind, method, X):
    init = tiny(kind).fit(X)
    message = f"X has 5 features, but {kind.__name__} is expecting 6 features as input"
    with pytest.raises(ValueError, match=message):
        getattr(init, method)(X[:, :5])
    assert_same_theta0(init, tiny(kind).fit(X))


@KINDS
@pytest.mark.parametrize("fails_first", [False, True])
def test_nothing_works_before_fit(kind, fails_first, X):
    init = tiny(kind, output="hidden")
    if fails_first:
        with pytest.raises(ValueError, match="not finite"):
            init.set_params(learning_rate_init=1e30, max_iter=5, window=100).fit(X)
        init.set_params(learning_rate_init=1e-3)
    for method in (init.transform, init.score, init.get_feature_names_out):
        with pytest.raises(NotFittedError, match=f"This {kind.__name__} instance is not fitted"):
            method(X)
    for name in ("coefs_", "intercepts_"):
        with pytest.raises(NotFittedError, match=f"This {kind.__name__} instance is not fitted"):
            getattr(init, name)
    assert init.partial_fit(X).n_iter_ == 1


# bad parameters


NAN, INF = float("nan"), float("inf")
BAD_PARAMS = [
    *(("hidden_layer_sizes", v) for v in [0, (5, -1), (5, 0.5), "5", None, (True,), [[3, 4]]]),
    *(("n_classes", v) for v in [1, 0, 2.0, "2", None]),
    *(("activation", v) for v in ["sigmoid", None, "ReLU", ["relu"]]),
    *(("batch_norm", v) for v in [1, "yes", None]),
    *(("init", v) for v in ["zeros", None, 0]),
    *(("learning_rate_init", v) for v in [0, -1e-3, NAN, INF, "0.1", None]),
    *(("batch_size", v) for v in [0, 2.5, "auto", None]),
    *(("max_iter", v) for v in [-1, 1.5, None]),
    *(("window", v) for v in [0, 1.5, None]),
    *(("tol", v) for v in [-1e-4, NAN, INF, "0.1"]),
    *(("n_iter_no_change", v) for v in [0, 1.5, None]),
    *(("output", v) for v in ["logits", None]),
    *(("device", v) for v in ["abacus", None, 1.5]),
    *(("verbose", v) for v in ["loud", None]),
]
BAD_MMD_PARAMS = [
    *(("perturbation_scale", v) for v in [0, -1, NAN, INF, "1", None]),
    *(("n_perturbations", v) for v in [1, 0, 2.5, None]),
    *(("n_uniform_samples", v) for v in [1, 0, 2.5, "K"]),
    *(("degeneracy_weight", v) for v in [-0.1, NAN, INF, None]),
    *(("detachment_weight", v) for v in [-0.1, NAN, INF, None]),
    *(("jacobian_at", v) for v in ["layer", None]),
    *(("mmd_estimator", v) for v in ["u", None]),
    *(("reference", v) for v in ["exact", None]),
    *(("sampler", v) for v in ["fast", None]),
]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(RandomLabelInitializer, *bad) for bad in BAD_PARAMS]
    + [(MMDInitializer, *bad) for bad in BAD_PARAMS + BAD_MMD_PARAMS],
)
def test_bad_parameters_are_named_with_their_value(kind, name, value, X):
    for method in ("fit", "partial_fit"):
        init = tiny(kind, **{name: value})
        with pytest.raises((ValueError, TypeError)) as raised:
            getattr(init, method)(X)
        message = str(raised.value)
        assert name in message
        # A TypeError of check_scalar names the type that is wrong.
        assert str(value) in message or type(value).__name__ in message
        assert "must be" in message, "and it says what is valid"
        assert not hasattr(init, "theta0_")
    fitted = tiny(kind).fit(X)
    with pytest.raises((ValueError, TypeError), match=name):
        fitted.set_params(**{name: value}).score(X)


def test_choices_are_listed():
    for name, valid in {
        "activation": ["gelu", "relu", "tanh"],
        "init": ["he", "xavier"],
        "output": ["hidden", "passthrough"],
        "mmd_estimator": ["biased", "unbiased"],
        "reference": ["auto", "closed_form", "sampled"],
        "sampler": ["auto", "direct", "gram"],
    }.items():
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            tiny(**{name: "x"}).fit(np.ones((4, 2)))
        assert str(raised.value) == f"{name} must be one of {valid}, got 'x'"


@KINDS
def test_parameters_that_do_not_go_together(kind, X):
    with pytest.raises(ValueError, match="batch_norm=True needs a batch_size of at least 2, got 1"):
        tiny(kind, batch_norm=True, batch_size=1).fit(X)
    with pytest.raises(ValueError, match=r"random|seed"):
        tiny(kind, random_state="seed").fit(X)


def test_the_closed_form_is_for_two_classes(X):
    with pytest.raises(ValueError, match=r"n_classes=2 only, got n_classes=3.*'sampled'"):
        tiny(reference="closed_form", n_classes=3).fit(X)


@KINDS
def test_an_output_that_is_changed_to_nonsense_is_noticed(kind, X):
    with pytest.raises(ValueError, match="output must be one of"):
        tiny(kind).fit(X).set_params(output="logits").transform(X)
