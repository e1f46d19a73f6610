"""What MMDInitializer learns, keeps and hands on."""

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.special import erf
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler, normalize
from torch import nn

from helpers import SAME_DRAWS, Unknown, normalized_mlp
from nets import assert_same_arrays, assert_same_fit
from sklearn_mmdinit import Coherence, MMDInitializer, NetClassifier
from sklearn_mmdinit._base.mlp import ACTIVATIONS
from sklearn_mmdinit.training.config import PAPER_WEIGHTS
from test_checkpoint import before_steps, interrupted_at

# 80 rows by 16: five steps an epoch, and a window.
BATCH, STEPS = 16, 5
X = StandardScaler().fit_transform(load_digits().data[: BATCH * STEPS])
NORMALIZED = {"module": normalized_mlp(64, 12, 8, 2)}
BATCH_NORM = pytest.mark.parametrize("params", [{}, NORMALIZED])


@pytest.fixture(autouse=True)
def windows_of_an_epoch(window):
    window(STEPS)


def tiny(**params):
    defaults = {} if "module" in params else {"hidden_layer_sizes": (12, 8)}
    defaults |= {"batch_size": BATCH, "max_iter": 3}
    defaults |= {"learning_rate_init": 2e-3, "random_state": 0}
    return MMDInitializer(**{"n_perturbations": 8, **defaults, **params})


def copies_of(optimizer):
    return [parameter.detach().clone() for parameter in optimizer.param_groups[0]["params"]]


@pytest.mark.filterwarnings("ignore:X is not scaled", "ignore:Pre-training has not converged")
@pytest.mark.parametrize("n", [80, 37])
def test_an_epoch_visits_every_row_once_in_an_order_of_its_own(n):
    seen, numbered = [], X[:n].copy()
    numbered[:, 0] = np.arange(n)

    def see(rows):  # those of a mini-batch, and in another call their neighbours
        seen.append(rows[:, 0].tolist())
        return rows

    tiny(max_iter=6, coherence=Coherence(batch_size=BATCH, augmentation=see)).fit(numbered)
    orders = np.reshape(seen[2::2], (6, -1))  # two calls look at what the function returns
    assert all(len(set(order)) == len(order) == n - n % BATCH for order in orders)
    assert len({tuple(order) for order in [*orders, range(n)]}) == 7
    assert set(orders.ravel()) == set(range(n)), "it is not always the same ones that wait"


def test_a_fit_that_fails_or_is_interrupted_leaves_no_trace(window):
    window(6)
    init = tiny(coherence=Coherence(batch_size=BATCH, n_neighbors=5, embedding=PCA(3))).fit(X)
    before, score = joblib.hash(init), init.score(X)
    bad = np.full((20, 50), 0.1)
    bad[3, 4] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        init.fit(bad)
    with pytest.raises(KeyboardInterrupt), interrupted_at(3):
        init.fit(X[:, :50])
    assert init.score(X) == score
    assert joblib.hash(init) == before


def global_generators():
    return joblib.hash((np.random.get_state(), torch.get_rng_state().numpy()))  # noqa: NPY002


def test_random_state_decides_all_and_global_generators_nothing():
    first, _, before = tiny(random_state=3).fit(X), torch.rand(1), global_generators()
    init = tiny(**NORMALIZED).fit(X)
    init.score(X)
    init.transform(X)
    assert joblib.hash(tiny(random_state=3).fit(X)) == joblib.hash(first)
    assert_same_fit(tiny(random_state=np.random.RandomState(3)).fit(X), first)
    assert global_generators() == before
    for other in (4, np.random.RandomState(4), None):
        different = tiny(random_state=other).fit(X)
        assert not np.array_equal(different.coefs_[0], first.coefs_[0])
        assert different.loss_curve_ != first.loss_curve_
    assert global_generators() != before, "None is NumPy's own, as everywhere in scikit-learn"


@BATCH_NORM
def test_theta0_is_where_the_best_window_ends(params):
    weights = []
    with before_steps(lambda n, optimizer: weights.append(copies_of(optimizer))):
        init = tiny(learning_rate_init=0.05, max_iter=8, **params).fit(X)
    best = int(np.argmin(init.loss_curve_))
    assert best < 7, "the case is worth testing"
    assert init.best_loss_ == init.loss_curve_[best] == init.history_[best]["loss"]
    shorter = tiny(learning_rate_init=0.05, max_iter=best + 1, **params).fit(X)
    assert_same_arrays(init.theta0_, shorter.theta0_)
    parameters, end = init.to_module().parameters(), weights[STEPS * (best + 1)]
    assert all(torch.equal(a, b) for a, b in zip(parameters, end, strict=True))


# Epochs have five steps: windows of three are recorded, or else epochs.
@pytest.mark.parametrize(("size", "ends"), [(3, [3, 6, 9, 12, 15, 18, 20]), (12, [5, 10, 15, 20])])
def test_a_record_is_the_mean_of_its_steps_and_nothing_else(size, ends, window):
    window(1)
    steps = tiny(max_iter=4).fit(X).history_
    window(size)
    records = tiny(max_iter=4).fit(X).history_
    assert [record["step"] for record in steps] == list(range(1, 4 * STEPS + 1))
    assert [record["step"] for record in records] == ends
    for start, record in zip([0, *ends], records, strict=False):
        for name in ("loss", "uniformity", "degeneracy", "detachment"):
            mean = np.mean([step[name] for step in steps[start : record["step"]]])
            assert record[name] == pytest.approx(mean, rel=1e-5)


def test_a_window_that_never_ends_is_the_best_only_if_it_is_the_first(window):
    window(1000)
    short = tiny().fit(X)
    assert [record["step"] for record in short.history_] == [STEPS, 2 * STEPS, 3 * STEPS]
    window(3 * STEPS)
    assert_same_fit(short, tiny().fit(X))
    window(2 * STEPS)
    init, exact = tiny().fit(X), tiny(max_iter=2).fit(X)
    assert init.loss_curve_[2] < init.best_loss_ == pytest.approx(np.mean(init.loss_curve_[:2]))
    assert_same_arrays(init.theta0_, exact.theta0_)


def test_no_epoch_at_all_gives_the_random_weights():
    init = tiny(max_iter=0).fit(X)
    assert (init.history_, init.loss_curve_, init.n_iter_) == ([], [], 0)
    assert init.best_loss_ == np.inf
    assert not any(b.any() for b in init.intercepts_)
    # Xavier: uniform within sqrt(6 / (n_in + n_out)).
    bounds = [np.sqrt(6 / sum(W.shape)) for W in init.coefs_]
    for W, bound in zip(init.coefs_, bounds, strict=True):
        assert 0.8 * bound < np.abs(W).max() <= bound


@SAME_DRAWS
@pytest.mark.parametrize(
    ("sampler", "n_classes", "best_loss", "score"),
    [
        ("gram", 2, 0.310571, -0.227404),
        ("gram", 3, 0.461343, -0.352598),
        ("functional", 2, 0.207013, -0.223471),
        ("functional", 3, 0.411025, -0.373063),
    ],
)
def test_each_sampler_has_the_figures_of_version_0_1(sampler, n_classes, best_loss, score, window):
    window(10)
    # Draws are the same as then; at rounding level figures depend on the processor.
    X = load_digits().data / 16
    init = MMDInitializer((40, 30), n_perturbations=16, max_iter=2, random_state=0)
    init.set_params(n_classes=n_classes)
    if sampler == "functional":
        own = {"module": Unknown, "module__hidden_layer_sizes": (40, 30)}
        init.set_params(hidden_layer_sizes=(392, 392, 392), **own)
    init.fit(X)
    assert init.sampler_ == sampler
    assert init.best_loss_ == pytest.approx(best_loss, rel=1e-3)
    assert init.score(X[:200]) == pytest.approx(score, rel=1e-3)


def test_with_coherence_running_statistics_are_those_of_all_rows_of_pairs():
    # As without the paper's terms, which look at two rows: a pass of these alone has other ones.
    params = NORMALIZED | {"coherence": Coherence(batch_size=len(X), n_neighbors=5)}
    init = tiny(**params, batch_size=2, learning_rate_init=1e-12)
    of_terms = (init.set_params(**dict.fromkeys(PAPER_WEIGHTS, w)).fit(X) for w in (0.0, 1.0))
    arrays = (fitted.theta0_.arrays.items() for fitted in of_terms)
    without, beside = ({k: v for k, v in a if k.startswith("1.")} for a in arrays)
    for name, value in without.items():
        np.testing.assert_allclose(beside[name], value, atol=1e-6, err_msg=name)


def test_running_statistics_are_those_of_the_mini_batches_and_part_of_theta0():
    # So small a learning rate that float32 weights of ordinary size stay what they are.
    init = tiny(**NORMALIZED, learning_rate_init=1e-12, batch_size=len(X)).fit(X)
    mean, var, arrays = np.zeros(12), np.ones(12), init.theta0_.arrays
    H = X @ arrays["0.weight"].T + arrays["0.bias"]
    for _ in range(init.max_iter):
        mean = 0.9 * mean + 0.1 * H.mean(axis=0)
        var = 0.9 * var + 0.1 * H.var(axis=0, ddof=1)
    np.testing.assert_allclose(arrays["1.running_mean"], mean, atol=1e-5)
    np.testing.assert_allclose(arrays["1.running_var"], var, rtol=1e-4)
    clf = NetClassifier(warm_start_from=init, max_iter=0).fit(X, np.arange(len(X)) % 2)
    assert_same_arrays(clf.theta0_, init.theta0_)


@BATCH_NORM
def test_score_is_a_function_of_whole_mini_batches_and_changes_nothing(params):
    init = tiny(**params).fit(X)
    before = joblib.hash(init)
    score = init.score(X)
    assert isinstance(score, float)
    assert init.score(X) == init.score(X.astype(np.float32)) == score
    assert tiny(**params).fit(X).score(X, y=np.zeros(len(X))) == score
    assert joblib.hash(init) == before
    assert init.score(X[: 2 * BATCH + 5]) == init.score(X[: 2 * BATCH])
    fewer = init.score(X[:5])
    assert init.set_params(batch_size=5).score(X[:5]) == fewer


@pytest.mark.parametrize("coherence", [None, Coherence(batch_size=BATCH, n_neighbors=5)])
@pytest.mark.parametrize("diverge", [lambda p: p.grad.fill_(np.nan), lambda p: p.data.mul_(1e30)])
def test_a_training_that_diverges_later_leaves_the_best_window(diverge, coherence, window):
    def act(number, optimizer):
        for parameter in optimizer.param_groups[0]["params"] if number == 9 else ():
            diverge(parameter)

    window(6)
    whole = tiny(coherence=coherence).fit(X)
    warned = pytest.warns(ConvergenceWarning, match=r"after step 6;.*learning_rate_init")
    with warned, before_steps(act):
        init = tiny(coherence=coherence).fit(X)
    assert init.history_ == whole.history_[:1]
    assert init.n_iter_ == -(-6 // STEPS)
    assert np.isfinite(init.score(X))
    weights = []
    with before_steps(lambda n, optimizer: weights.append(copies_of(optimizer))):
        tiny(coherence=coherence).fit(X)
    assert all(map(torch.equal, init.to_module().parameters(), weights[6]))


def test_a_training_reads_no_memory_that_it_has_not_written():
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    try:
        assert np.isfinite(tiny().fit(X).best_loss_)
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_loss_that_ends_far_above_where_it_began_is_a_warning(window):
    window(2 * STEPS)
    with pytest.warns(ConvergenceWarning, match="in the best window.*smaller learning"):
        tiny(learning_rate_init=1.0).fit(X)


FORWARD = {
    "relu": lambda H: np.maximum(H, 0),
    "tanh": np.tanh,
    "gelu": lambda H: H * (1 + erf(H / np.sqrt(2))) / 2,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_hidden_activations_are_those_of_a_numpy_network(activation):
    init, H = tiny(activation=activation).fit(X), X
    for i in range(2):
        H = FORWARD[activation](H @ init.coefs_[i] + init.intercepts_[i])
    hidden = init.transform(X)
    assert hidden.dtype == np.float32
    np.testing.assert_allclose(init.feature_mean_, H.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(hidden, normalize(H - H.mean(axis=0)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(init.transform(X[:1]), hidden[:1], atol=1e-5)
    module = init.to_module().eval()
    logits = module(torch.from_numpy(X.astype(np.float32))).detach().numpy()
    expected = H @ init.coefs_[2] + init.intercepts_[2]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_a_data_frame_gives_names_of_features():
    rows, names = X[:, :6], list("abcdef")
    frame = pd.DataFrame(rows, columns=names, index=np.arange(len(rows)) + 7)
    init = tiny().set_output(transform="pandas").fit(frame)
    assert init.feature_names_in_.tolist() == names
    assert_same_fit(init, tiny().fit(rows))
    for out in (init.transform(frame), clone(init).fit_transform(frame)):
        assert out.columns.tolist() == [f"mmdinitializer{i}" for i in range(8)]
        assert out.index.equals(frame.index)
    with pytest.raises(ValueError, match="feature names should match"):
        init.transform(frame[names[::-1]])
    of_polars = tiny().fit(pl.DataFrame(rows, schema=names, orient="row"))
    assert of_polars.feature_names_in_.tolist() == names


def test_fewer_rows_than_a_mini_batch_are_one(window):
    window(1)
    params = NORMALIZED | {"max_iter": 3}
    init = tiny(batch_size=1000, **params).fit(X[:2])
    assert [record["step"] for record in init.history_] == [1, 2, 3]
    assert_same_fit(tiny(batch_size=2, **params).fit(X[:2]), init)


def test_verbose_shows_a_bar_on_stderr(capsys):
    tiny().fit(X).score(X)
    assert capsys.readouterr() == ("", "")
    tiny(verbose=True, max_iter=2).fit(X)
    out, err = capsys.readouterr()
    assert out == ""
    assert all(part in err for part in ("10/10", "loss="))


@pytest.mark.parametrize(
    ("y", "n_classes"),
    [
        (None, 2),
        ([0, 1, 2] * 8, 3),
        (["a", "b", "c", None] * 6, 3),
        (["a", "b", "c", "-1"] * 6, 3),
        ([0, 1, 2, -1] * 6, 3),
        ([-1, 1] * 12, 2),
        ([0.5, 1.0, 2.0] * 8, 2),
        ([np.float32(0.5), np.float32(1.5), 2.0] * 8, 2),
        ([[0, 1, 2]] * 24, 2),
    ],
)
def test_the_number_of_classes_is_that_of_labels(y, n_classes):
    X = np.random.default_rng(0).normal(size=(24, 4))
    init = MMDInitializer((3,), max_iter=0, random_state=0)
    assert init.fit(X, y).config_.n_classes == n_classes
    assert init.set_params(n_classes=5).fit(X, y).config_.n_classes == 5


@pytest.mark.parametrize("params", [{}, {"coherence": "auto"}])
def test_a_callback_sees_each_window_and_may_end_the_training(params, tmp_path):
    seen = []

    def callback(record, module):
        outputs = module(torch.rand(3, X.shape[1])).detach()  # draws from the caller's generator
        seen.append((dict(record), [weights.detach().clone() for weights in module.parameters()]))
        assert not module.training
        nn.init.zeros_(module.linears[0].weight)  # a copy, as the record is
        torch.set_grad_enabled(False)
        return record.pop("step") >= n_steps or outputs.sum()  # a logger may return its number

    params, n_steps = params | {"max_iter": 60, "n_classes": 3}, np.inf
    plain, init = tiny(**params).fit(X), tiny(**params, callback=callback).fit(X)
    assert_same_fit(init, plain)
    assert [record for record, _ in seen] == init.history_
    if "coherence" in params:  # theta0 is then the last weights
        assert all(map(torch.equal, seen[-1][1], init.to_module().parameters()))
    n_steps, path = init.history_[1]["step"], tmp_path / "a.safetensors"
    for _ in range(2):  # a training that was stopped does not go on
        stopped = tiny(**params, callback=callback, checkpoint=path).fit(X)
        assert stopped.history_ == plain.history_[:2]


def test_a_third_term_that_drowns_the_others_is_told():
    deep = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        deep[2].weight *= 1000.0
    with pytest.warns(
        ConvergenceWarning, match=r"try detachment_weight=0, because the term L_iod outweighs"
    ):
        tiny(module=deep, max_iter=1).fit(X)
    tiny(module=deep, max_iter=1, detachment_weight=0.0).fit(X)
