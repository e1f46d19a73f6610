"""Any input gives a finite theta0, or an error of a check, or the module's own with a note.

`pytest -m long tests/test_properties.py` tries 2,000 cases.
"""

import traceback
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from sklearn_mmdinit import Coherence, MMDInitializer, NetClassifier
from sklearn_mmdinit._base.mlp import ACTIVATIONS, INITS

N_FEATURES = 4


def mostly(valid, *odd):
    """Values that are valid, and now and then one that is not."""
    return st.one_of(*[valid] * 24, st.sampled_from(odd))


NUMBERS = mostly(st.floats(1e-6, 10), 0, -1.0, 1e30, float("nan"), float("inf"), True, None, "x")
WHOLE = mostly(st.integers(2, 9), 0, 1, -1, 1.5, True, None, "x", 10**12)
PARAMETERS = {
    "n_classes": WHOLE,
    "batch_size": WHOLE,
    "learning_rate_init": NUMBERS,
    "max_iter": mostly(st.just(1), 0, -1, 1.0, True, "x"),
    "random_state": mostly(st.integers(0, 99), None, -1, "x"),
}
OF_A_PERCEPTRON = {
    "hidden_layer_sizes": mostly(st.lists(st.integers(1, 5), max_size=3), 0, "x"),
    "activation": mostly(st.sampled_from(sorted(ACTIVATIONS)), "x", 3),
    "init": mostly(st.sampled_from(sorted(INITS)), "x"),
}
OF_MMD = {
    "n_perturbations": WHOLE,
    "perturbation_scale": NUMBERS,
    "uniformity_weight": NUMBERS,
    "detachment_weight": NUMBERS,
}


def data(draw):
    """Rows of any number, type and scale, some of which are not valid."""
    random = np.random.default_rng(draw(st.integers(0, 99)))
    X = random.normal(size=(draw(mostly(st.integers(3, 20), 0, 1)), N_FEATURES))
    X *= draw(mostly(st.floats(0, 10), 1e-30, 1e15, 1e30, 1e38, 1e300))
    if X.size and draw(st.integers(0, 24)) == 7:
        X[-1, -1] = draw(st.sampled_from([np.nan, np.inf]))
    with np.errstate(over="ignore"):
        return X.astype(draw(st.sampled_from([np.float32, np.float64])))


def graph(draw, n):
    """A matrix of similarities, some of which are no graph."""
    random = np.random.default_rng(draw(st.integers(0, 99)))
    side = n + draw(mostly(st.just(0), 1))
    edges = sparse.random(
        side, side, density=draw(st.floats(0, 1)), random_state=random, format="csr"
    )
    return edges * draw(mostly(st.just(1.0), -1.0, np.nan, 0.0, 1e300))


def coherence(draw, n):
    own = {"separation": NUMBERS, "batch_size": WHOLE, "n_neighbors": WHOLE}
    chosen = draw(st.fixed_dictionaries({}, optional=own))
    return Coherence(graph=graph(draw, n) if draw(st.booleans()) else None, **chosen)


LAYERS = {"relu": nn.ReLU, "drop": nn.Dropout}


def module(draw):
    """Layers one after the other, of widths that do not always fit."""
    width, layers = N_FEATURES, []
    kinds = st.sampled_from(["linear", "relu", "norm", "drop", "layer"])
    for kind in draw(st.lists(kinds, max_size=4)):
        if kind == "linear":
            after = draw(st.integers(1, 5))
            layers.append(nn.Linear(draw(mostly(st.just(width), 7)), after, draw(st.booleans())))
            width = after
        else:
            norms = {"norm": nn.BatchNorm1d, "layer": nn.LayerNorm}
            layers.append(norms[kind](width) if kind in norms else LAYERS[kind]())
    layers.append(nn.Linear(width, draw(mostly(st.integers(2, 4), 1))))
    return nn.Sequential(*layers).requires_grad_(draw(mostly(st.just(True), False)))


@st.composite
def cases(draw):
    """A call, what has learned after it, and its rows."""
    X = data(draw)
    kind = draw(st.sampled_from(["paper", "coherence", "module", "classifier"]))
    if kind == "classifier":
        own = {n: PARAMETERS[n] for n in ("batch_size", "learning_rate_init", "max_iter")}
        chosen = draw(st.fixed_dictionaries(own))
        return NetClassifier(module(draw), random_state=0, **chosen), X
    optional = PARAMETERS | OF_MMD
    optional |= OF_A_PERCEPTRON if kind != "module" else {}
    chosen = {"n_perturbations": 4, "hidden_layer_sizes": (3,), "max_iter": 1, "random_state": 0}
    chosen = {n: v for n, v in chosen.items() if n in optional}
    few = draw(st.lists(st.sampled_from(sorted(optional)), max_size=4, unique=True))
    chosen |= {name: draw(optional[name]) for name in few}
    if kind == "module":
        chosen["module"] = module(draw)
    if kind == "coherence":
        chosen["coherence"] = coherence(draw, len(X))
    return MMDInitializer(**chosen), X


def check(case):
    estimator, X = case
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        refused = None
        try:
            estimator.fit(X, np.arange(len(X)) % 2)
        except (ValueError, TypeError, RuntimeError) as error:
            refused = error
    others = [str(w.message) for w in said if w.category is not ConvergenceWarning]
    assert not [words for words in others if not words.startswith("X is not scaled")]
    if refused is not None:
        made_in = traceback.extract_tb(refused.__traceback__)[-1].filename
        assert str(refused)
        # A module's own errors keep their type, and get a note.
        notes = "".join(getattr(refused, "__notes__", ()))
        assert "/torch/" not in made_in or "the module" in notes
        assert not isinstance(refused, RuntimeError) or "the module" in notes
        return
    assert all(np.isfinite(array).all() for array in estimator.theta0_.arrays.values())


@pytest.mark.parametrize("n", [40, pytest.param(2000, marks=pytest.mark.long)])
def test_a_finite_theta0_or_a_clear_error(n):
    options = {"deadline": None, "derandomize": True, "database": None}
    every = settings(max_examples=n, suppress_health_check=list(HealthCheck), **options)
    every(given(cases())(check))()
