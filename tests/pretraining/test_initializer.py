"""What the two initializers learn, remember and hand on."""

import pickle

import joblib
import numpy as np
import pytest
import torch
from scipy.special import erf
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import MLPClassifier, MMDInitializer, RandomLabelInitializer
from sklearn_mmdinit._network import module_from_theta0
from sklearn_mmdinit._objective.detachment import detachment

# 80 rows by 16: five steps a pass.
BATCH, STEPS = 16, 5
KINDS = pytest.mark.parametrize(
    "kind", [MMDInitializer, RandomLabelInitializer], ids=lambda kind: kind.__name__
)


@pytest.fixture(scope="module")
def X():
    return StandardScaler().fit_transform(load_digits().data[: BATCH * STEPS])


def tiny(kind=MMDInitializer, **params):
    defaults = {"hidden_layer_sizes": (12, 8), "batch_size": BATCH, "max_iter": 3}
    defaults |= {"learning_rate_init": 2e-3, "window": STEPS, "random_state": 0}
    if issubclass(kind, MMDInitializer):
        defaults |= {"n_perturbations": 8}
    return kind(**{**defaults, **params})


def assert_same_arrays(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def assert_same_fit(a, b):
    assert_same_arrays(a.theta0_.arrays, b.theta0_.arrays)
    assert a.theta0_.architecture == b.theta0_.architecture
    assert a.history_ == b.history_
    assert a.loss_curve_ == b.loss_curve_
    assert (a.best_loss_, a.n_iter_) == (b.best_loss_, b.n_iter_)


# fit and partial_fit


@KINDS
@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("window", [1, 3, STEPS, 7, 100])
def test_fit_is_max_iter_times_partial_fit(kind, batch_norm, window, X):
    fitted = tiny(kind, batch_norm=batch_norm, window=window).fit(X)
    passes = tiny(kind, batch_norm=batch_norm, window=window)
    for _ in range(fitted.max_iter):
        passes.partial_fit(X)
    assert_same_fit(passes, fitted)
    # Not only the best so far: where the next pass starts is the same too.
    assert_same_fit(passes.partial_fit(X), fitted.partial_fit(X))


def test_passes_go_on_in_another_process(X):
    whole = tiny(window=3).fit(X)
    passes = tiny(window=3)
    for _ in range(whole.max_iter):
        passes = pickle.loads(pickle.dumps(passes.partial_fit(X)))
    assert_same_fit(passes, whole)


def test_fit_starts_anew(X):
    init = tiny()
    assert_same_fit(init.fit(X).fit(X), tiny().fit(X))
    assert_same_fit(init.partial_fit(X).fit(X), tiny().fit(X))


class Watched:
    """An objective, and what to make of its terms, given the number of the call and the rows."""

    def __init__(self, objective, watch):
        self.objective, self.watch, self.calls = objective, watch, 0

    def __getattr__(self, name):
        return getattr(self.objective, name)

    def __call__(self, module, X, random):
        self.calls += 1
        return self.watch(self.calls, X, self.objective(module, X, random))


class Recording(MMDInitializer):
    """Remembers the first column of every mini-batch."""

    def _objective(self):
        def watch(call, X, terms):
            seen.append(X[:, 0].tolist())
            return terms

        seen = self.seen = getattr(self, "seen", [])
        return Watched(super()._objective(), watch)


@pytest.mark.parametrize("window", [3, 100])
def test_a_pass_visits_every_row_once_in_an_order_of_its_own(window, X):
    numbered = X.copy()
    numbered[:, 0] = np.arange(len(X))
    init = tiny(Recording, window=window).fit(numbered)
    assert {len(batch) for batch in init.seen} == {BATCH}
    passes = np.reshape(init.seen, (init.max_iter, -1))
    for order in passes:
        np.testing.assert_array_equal(np.sort(order), np.arange(len(X)))
    assert len({tuple(order) for order in [*passes, range(len(X))]}) == init.max_iter + 1


def test_rows_beyond_the_last_mini_batch_wait_for_another_pass(X):
    numbered = X[:37].copy()
    numbered[:, 0] = np.arange(37)
    init = tiny(Recording, max_iter=6).fit(numbered)
    passes = np.reshape(init.seen, (6, 2 * BATCH))
    assert all(len(set(order)) == 2 * BATCH for order in passes)
    assert set(passes.ravel()) == set(range(37)), "it is not always the same ones that wait"


def test_partial_fit_takes_new_rows(X):
    init = tiny().partial_fit(X)
    before = init.theta0_
    init.partial_fit(X[:50])  # three steps
    assert init.n_iter_ == 2
    init.partial_fit(X[:40])  # two
    assert [record["step"] for record in init.history_] == [STEPS, 2 * STEPS]
    assert before.arrays["linears.0.weight"].shape == init.coefs_[0].T.shape


class Interrupted(MMDInitializer):
    """The third step after the first pass is interrupted, once."""

    interruptions = 1

    def _objective(self):
        def watch(call, X, terms):
            if call == 3 and hasattr(self, "theta0_") and Interrupted.interruptions:
                Interrupted.interruptions -= 1
                raise KeyboardInterrupt
            return terms

        return Watched(super()._objective(), watch)


def test_an_interrupted_pass_leaves_no_trace(X):
    interrupted = tiny(Interrupted, window=2).partial_fit(X)
    with pytest.raises(KeyboardInterrupt):
        interrupted.partial_fit(X)
    undisturbed = tiny(window=2).partial_fit(X)
    assert_same_fit(interrupted, undisturbed)
    assert_same_fit(interrupted.partial_fit(X), undisturbed.partial_fit(X))


# randomness


@KINDS
def test_random_state_decides_all(kind, X):
    first = tiny(kind, random_state=3).fit(X)
    assert_same_fit(tiny(kind, random_state=3).fit(X), first)
    assert_same_fit(tiny(kind, random_state=np.random.RandomState(3)).fit(X), first)
    assert joblib.hash(tiny(kind, random_state=3).fit(X)) == joblib.hash(first)
    for other in (4, np.random.RandomState(4), None):
        different = tiny(kind, random_state=other).fit(X)
        assert not np.array_equal(different.coefs_[0], first.coefs_[0])
        assert different.loss_curve_ != first.loss_curve_


def test_a_random_state_object_moves_on(X):
    init = tiny(random_state=np.random.RandomState(3))
    first = init.fit(X).coefs_[0]
    assert not np.array_equal(init.fit(X).coefs_[0], first)


def global_generators():
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return name, keys.tobytes(), rest, torch.random.get_rng_state().numpy().tobytes()


@KINDS
def test_global_generators_are_left_alone(kind, X):
    before = global_generators()
    init = tiny(kind, output="hidden", batch_norm=True).fit(X)
    init.partial_fit(X).score(X)
    init.transform(X)
    assert global_generators() == before
    tiny(kind, random_state=None).fit(X)
    assert global_generators() != before, "None is NumPy's own, as everywhere in scikit-learn"


def test_global_generators_have_no_influence(X):
    first = tiny().fit(X)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        assert_same_fit(tiny().fit(X), first)


# what is kept


@KINDS
@pytest.mark.parametrize("batch_norm", [False, True])
def test_theta0_is_where_the_best_window_ends(kind, batch_norm, X):
    # A window a pass, so that the parameters at the end of each are known.
    init, ends = tiny(kind, learning_rate_init=0.05, batch_norm=batch_norm), []
    while len(ends) < 4 or np.argmin(init.loss_curve_) == len(ends) - 1:
        assert len(ends) < 12
        ends.append(init.partial_fit(X)._state.current)
        best = ends[np.argmin(init.loss_curve_)]
        assert_same_arrays(init.theta0_.arrays, best.arrays)
    assert best is not ends[-1]
    whole = tiny(kind, learning_rate_init=0.05, batch_norm=batch_norm, max_iter=len(ends))
    assert_same_arrays(whole.fit(X).theta0_.arrays, best.arrays)


def test_the_run_stopped_at_the_best_window_has_the_same_theta0(X):
    # A window ends in the middle of a pass: seven steps of five a pass.
    long = tiny(window=7, max_iter=9, learning_rate_init=0.05).fit(X)
    best = int(np.argmin(long.loss_curve_))
    enough = -(-7 * (best + 1) // STEPS)  # passes until that window has ended
    short = tiny(window=7, max_iter=enough, learning_rate_init=0.05).fit(X)
    assert len(short.loss_curve_) < len(long.loss_curve_)
    assert_same_arrays(short.theta0_.arrays, long.theta0_.arrays)
    before = tiny(window=7, max_iter=enough - 1, learning_rate_init=0.05).fit(X)
    assert not np.array_equal(before.coefs_[0], long.coefs_[0])


def test_coefs_and_intercepts_are_theta0_in_scikit_learns_orientation(X):
    init = tiny().fit(X)
    assert [W.shape for W in init.coefs_] == [(64, 12), (12, 8), (8, 2)]
    assert [b.shape for b in init.intercepts_] == [(12,), (8,), (2,)]
    for i, (W, b) in enumerate(zip(init.coefs_, init.intercepts_, strict=True)):
        np.testing.assert_array_equal(W.T, init.theta0_.arrays[f"linears.{i}.weight"])
        np.testing.assert_array_equal(b, init.theta0_.arrays[f"linears.{i}.bias"])
        assert type(W) is type(b) is np.ndarray


def test_what_is_written_into_them_does_not_reach_theta0(X):
    init = tiny().fit(X)
    before, score = [W.copy() for W in init.coefs_], init.score(X)
    for array in init.coefs_ + init.intercepts_:
        array[:] = 7.0
    assert init.score(X) == score
    np.testing.assert_array_equal(init.coefs_[0], before[0])


@pytest.mark.parametrize("sizes", [7, [7], (7,), np.array([7]), (np.int64(7),)])
def test_one_hidden_layer_may_be_written_in_many_ways(sizes, X):
    architecture = tiny(hidden_layer_sizes=sizes, max_iter=0).fit(X).theta0_.architecture
    assert architecture.hidden_layer_sizes == (7,)


def test_a_window_is_the_mean_of_its_steps_and_nothing_else(X):
    steps = tiny(window=1, max_iter=4).fit(X).history_
    windows = tiny(window=3, max_iter=4).fit(X).history_
    assert [record["step"] for record in steps] == list(range(1, 4 * STEPS + 1))
    assert [record["step"] for record in windows] == [3, 6, 9, 12, 15, 18]
    for i, record in enumerate(windows):
        for name in ("loss", "uniformity", "degeneracy", "detachment"):
            mean = np.mean([step[name] for step in steps[3 * i : 3 * i + 3]])
            assert record[name] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize(("degeneracy_weight", "detachment_weight"), [(0.4, 1.0), (0, 0), (3, 0.2)])
def test_the_loss_is_the_weighted_sum_of_its_terms(degeneracy_weight, detachment_weight, X):
    init = tiny(degeneracy_weight=degeneracy_weight, detachment_weight=detachment_weight).fit(X)
    assert len(init.history_) == init.max_iter
    for record in init.history_:
        assert record["loss"] == pytest.approx(
            record["uniformity"]
            + degeneracy_weight * record["degeneracy"]
            + detachment_weight * record["detachment"],
            rel=1e-5,
        )
        assert record["degeneracy"] > 0, "terms of weight 0 are recorded all the same"
        assert record["detachment"] > 0


@KINDS
def test_curve_and_best_loss_are_those_of_the_history(kind, X):
    init = tiny(kind, window=2).fit(X)
    names = {"step", "loss"}
    if kind is MMDInitializer:
        names |= {"uniformity", "degeneracy", "detachment"}
    assert all(record.keys() == names for record in init.history_)
    assert init.loss_curve_ == [record["loss"] for record in init.history_]
    assert init.best_loss_ == min(init.loss_curve_)
    assert init.n_iter_ == init.max_iter


@KINDS
def test_a_first_window_that_never_ends_is_recorded_and_its_end_is_theta0(kind, X):
    short, exact = tiny(kind, window=1000).fit(X), tiny(kind, window=3 * STEPS).fit(X)
    assert_same_fit(short, exact)
    assert [record["step"] for record in short.history_] == [3 * STEPS]


@KINDS
def test_no_pass_at_all_gives_the_random_weights(kind, X):
    init = tiny(kind, max_iter=0).fit(X)
    assert (init.history_, init.loss_curve_, init.n_iter_) == ([], [], 0)
    assert init.best_loss_ == np.inf
    assert not any(b.any() for b in init.intercepts_)
    # Xavier: uniform within sqrt(6 / (n_in + n_out)).
    bounds = [np.sqrt(6 / sum(W.shape)) for W in init.coefs_]
    for W, bound in zip(init.coefs_, bounds, strict=True):
        assert 0.8 * bound < np.abs(W).max() <= bound
    assert_same_fit(init.partial_fit(X), tiny(kind, max_iter=1).fit(X))


# learning


VARIANTS = {
    "relu": {},
    "tanh": {"activation": "tanh"},
    "gelu": {"activation": "gelu"},
    "batch norm": {"batch_norm": True},
    "three classes": {"n_classes": 3},
    "he": {"init": "he"},
    "biased": {"mmd_estimator": "biased"},
    "closed form": {"reference": "closed_form"},
    "direct": {"sampler": "direct"},
    "gram": {"sampler": "gram"},
    "no hidden layer": {"hidden_layer_sizes": ()},
}


@pytest.mark.parametrize("params", VARIANTS.values(), ids=VARIANTS)
def test_the_loss_falls_and_the_score_rises(params):
    X = StandardScaler().fit_transform(load_digits().data[:288])
    train, test = X[:256], X[256:]
    init = tiny(learning_rate_init=5e-3, max_iter=4, window=8, n_perturbations=24, batch_size=32)
    init.set_params(**params).fit(train)
    start = clone(init).set_params(max_iter=0).fit(train)
    assert init.loss_curve_[-1] < 0.9 * init.loss_curve_[0]
    assert init.best_loss_ < 0.9 * init.loss_curve_[0]
    assert init.score(test) > start.score(test) + 0.02
    assert init.theta0_.architecture.n_classes == params.get("n_classes", 2)


# score


def test_score_is_minus_the_weighted_sum_of_the_terms(X):
    init = tiny().fit(X)

    def score(degeneracy_weight, detachment_weight):
        init.set_params(degeneracy_weight=degeneracy_weight, detachment_weight=detachment_weight)
        return init.score(X)

    uniformity = score(0, 0)
    degeneracy, detached = score(1, 0) - uniformity, score(0, 1) - uniformity
    assert degeneracy < 0
    assert score(0.7, 2.5) == pytest.approx(
        uniformity + 0.7 * degeneracy + 2.5 * detached, rel=1e-4
    )
    # L_iod has no randomness: it can be taken from the network itself.
    module = module_from_theta0(init.theta0_)
    batches = torch.from_numpy(X.astype(np.float32)).split(BATCH)
    mean = np.mean([detachment(module, batch).item() for batch in batches])
    assert detached == pytest.approx(-mean, rel=1e-4)


@KINDS
@pytest.mark.parametrize("batch_norm", [False, True])
def test_score_is_a_function_and_changes_nothing(kind, batch_norm, X):
    init = tiny(kind, batch_norm=batch_norm).fit(X)
    before = joblib.hash(init)
    score = init.score(X)
    assert isinstance(score, float)
    assert init.score(X) == score
    assert init.score(X.astype(np.float32)) == score
    assert tiny(kind, batch_norm=batch_norm).fit(X).score(X, y=np.zeros(len(X))) == score
    assert joblib.hash(init) == before


def test_score_takes_whole_mini_batches(X):
    init = tiny().fit(X)
    assert init.score(X[: 2 * BATCH + 5]) == init.score(X[: 2 * BATCH])
    fewer = init.score(X[:5])
    assert init.set_params(batch_size=5).score(X[:5]) == fewer


def test_a_search_over_unlabelled_data(X):
    scales = [0.3, 0.7, 1.5]
    folds = KFold(2)
    search = GridSearchCV(tiny(), {"perturbation_scale": scales}, cv=folds, error_score="raise")
    search.fit(X)
    by_hand = [
        np.mean([tiny(perturbation_scale=s).fit(X[a]).score(X[b]) for a, b in folds.split(X)])
        for s in scales
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], by_hand)
    assert search.best_params_ == {"perturbation_scale": scales[int(np.argmax(by_hand))]}
    assert search.score(X) == search.best_estimator_.score(X)


# transform to hidden activations; the passthrough is in test_initializer_output


FORWARD = {
    "relu": lambda H: np.maximum(H, 0),
    "tanh": np.tanh,
    "gelu": lambda H: H * (1 + erf(H / np.sqrt(2))) / 2,
}


@KINDS
@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("activation", FORWARD)
def test_hidden_activations_are_those_of_a_numpy_network(kind, batch_norm, activation, X):
    init = tiny(kind, activation=activation, batch_norm=batch_norm, output="hidden").fit(X)
    H, arrays = X, init.theta0_.arrays
    for i in range(2):
        H = H @ init.coefs_[i] + init.intercepts_[i]
        if batch_norm:
            w, b, mean, var = (
                arrays[f"norms.{i}.{name}"]
                for name in ("weight", "bias", "running_mean", "running_var")
            )
            H = (H - mean) / np.sqrt(var + 1e-5) * w + b
        H = FORWARD[activation](H)
    hidden = init.transform(X)
    assert hidden.dtype == np.float32
    np.testing.assert_allclose(hidden, H, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(init.transform(X[:1]), hidden[:1], atol=1e-5)


# stopping


@KINDS
@pytest.mark.parametrize("patience", [1, 3])
def test_an_unreachable_tol_stops_after_its_patience(kind, patience, X):
    params = {"window": 2, "max_iter": 50}
    init = tiny(kind, tol=1e9, n_iter_no_change=patience, **params).fit(X)
    # The first window improves on nothing at all, which is more than any tol.
    n_windows = 1 + patience
    assert [record["step"] for record in init.history_] == [2 * (i + 1) for i in range(n_windows)]
    assert init.n_iter_ == -(-2 * n_windows // STEPS) < init.max_iter
    # What was learned until then is what is learned without tol.
    whole = tiny(kind, window=2, max_iter=init.n_iter_).fit(X)
    assert init.history_ == whole.history_[:n_windows]


def test_windows_that_improve_by_more_than_tol_reset_the_patience(X):
    losses = tiny(window=1, max_iter=4).fit(X).loss_curve_
    tol, patience = 0.01, 2
    best, stale, expected = np.inf, 0, None
    for i, loss in enumerate(losses):
        stale = 0 if best - loss > tol else stale + 1
        best = min(best, loss)
        if stale == patience:
            expected = i + 1
            break
    init = tiny(window=1, max_iter=4, tol=tol, n_iter_no_change=patience).fit(X)
    assert expected not in (None, 1 + patience), "the data should reset it at least once"
    assert len(init.loss_curve_) == expected


@KINDS
def test_a_loss_that_is_never_finite_is_an_error(kind, X):
    with pytest.raises(ValueError, match=r"not finite.*learning_rate_init than 1e\+30"):
        tiny(kind, learning_rate_init=1e30).fit(X)


class Diverging(MMDInitializer):
    """Its loss is not finite from the ninth step on."""

    def _objective(self):
        return Watched(
            super()._objective(), lambda call, X, terms: terms * (np.nan if call > 8 else 1.0)
        )


def test_a_loss_that_diverges_later_leaves_the_best_window(X):
    with pytest.warns(ConvergenceWarning, match=r"not finite.*learning_rate_init than 0.002"):
        init = tiny(Diverging, window=4).fit(X)
    healthy = tiny(window=4).fit(X)
    assert init.history_ == healthy.history_[:2]
    # A run that stops at the same window.
    stopped = tiny(window=4, tol=1e9, n_iter_no_change=1).fit(X)
    assert_same_arrays(init.theta0_.arrays, stopped.theta0_.arrays)
    assert np.isfinite(init.score(X[:BATCH]))


def test_passes_after_a_divergence_have_means_of_their_own(X):
    # Ten steps a window, five a pass: it diverges in the middle of a window.
    class Late(MMDInitializer):
        def _objective(self):
            def watch(call, X, terms):
                return terms * (np.nan if call > 2 and self.broken else 1.0)

            return Watched(super()._objective(), watch)

    init = tiny(Late, window=10, max_iter=2)
    init.broken = False
    init.fit(X).partial_fit(X)
    init.broken = True
    with pytest.warns(ConvergenceWarning, match="between steps 15 and 20"):
        init.partial_fit(X)
    init.broken = False
    for _ in range(3):
        init.partial_fit(X)
    losses = init.loss_curve_
    assert min(losses) > 0.5 * max(losses), "a window of few steps is a mean as well"


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("setting", ["float64", "no_grad"])
def test_settings_of_pytorch_s_make_no_difference(setting, batch_norm):
    X = np.random.default_rng(0).normal(size=(40, 6))
    y = np.arange(40) % 2

    def learned():
        params = {"batch_norm": batch_norm, "random_state": 0}
        init = MMDInitializer(
            (5, 4), n_perturbations=4, window=5, batch_size=8, max_iter=2, **params
        )
        init.fit(X).partial_fit(X)
        clf = MLPClassifier(warm_start_from=init, max_iter=2, random_state=0).fit(X, y)
        return init.history_, init.score(X), *init.theta0_.arrays.values(), clf.predict_proba(X)

    plain = learned()
    try:
        if setting == "float64":
            torch.set_default_dtype(torch.float64)
        with torch.set_grad_enabled(setting != "no_grad"):
            found = learned()
    finally:
        torch.set_default_dtype(torch.float32)
    for ours, theirs in zip(found, plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_adam_begins_anew_after_a_divergence(X):
    class Late(MMDInitializer):
        def _objective(self):
            own = super()._objective()
            return Watched(own, lambda call, X, terms: terms * (np.nan if self.broken else 1.0))

    init = tiny(Late, window=5, max_iter=20)
    init.broken = False
    init.fit(X)
    init.broken = True
    with pytest.warns(ConvergenceWarning, match="not finite"):
        init.partial_fit(X)
    init.broken = False
    moves, before = [], init._state.current.arrays
    for _ in range(4):
        init.partial_fit(X)
        after = init._state.current.arrays
        moves.append(np.mean([np.abs(after[name] - before[name]).mean() for name in after]))
        before = after
    # Moments of a few steps, taken for those of a hundred, would make the second pass leap.
    assert max(moves[1:]) < 1.5 * moves[0]
