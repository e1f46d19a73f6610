"""MMDInitializer with coherence: what it learns, and the same life as without."""

import pickle

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import StandardScaler
from torch import nn

from nets import Tied, assert_same_arrays, assert_same_fit
from sklearn_mmdinit import Coherence, MLPClassifier, MMDInitializer, mmd_init_
from sklearn_mmdinit.graph.walks import Walk
from sklearn_mmdinit.training.config import PAPER_WEIGHTS, resolve
from sklearn_mmdinit.training.minibatches import PositivePairs, RowBatches
from sklearn_mmdinit.training.schedule import ByCoherence, ByEpochs, rate_factor
from sklearn_mmdinit.training.state import State

X, Y = make_blobs(240, n_features=6, centers=4, cluster_std=1.0, random_state=3)
X = StandardScaler().fit_transform(X)


def small(coherence="auto", **params):
    if coherence == "auto":
        coherence = Coherence(batch_size=40, n_neighbors=5, separation=1.0)
    params = {"max_iter": 3, "random_state": 0} | params
    return MMDInitializer((16, 12), coherence=coherence, **params)


def kernel(init):
    """Cosine similarity of the hidden activations of all rows."""
    *body, _ = init.to_module().layers()
    with torch.no_grad():
        H = nn.Sequential(*body)(torch.tensor(X, dtype=torch.float32))
    return cosine_similarity(H)


def test_inputs_of_a_cluster_move_together_and_few_labels_are_enough():
    learned = small(max_iter="auto").fit(X)
    assert learned.converged_
    C = kernel(learned)
    same = Y[:, None] == Y
    np.fill_diagonal(same, False)
    off = ~same & ~np.eye(len(Y), dtype=bool)
    fresh = kernel(small(max_iter=0).fit(X))
    assert C[same].mean() > 0.8
    assert C[off].mean() < 0.4 < fresh[off].mean()
    assert learned.history_[-1]["coherence"] < 0.375  # half of what is possible without learning
    one_each = [int(np.flatnonzero(label == Y)[0]) for label in range(4)]
    for few in (one_each, np.arange(0, len(X), 20)):
        clf = MLPClassifier(warm_start_from=learned, random_state=0)
        assert clf.fit(X[few], Y[few] % 2).score(X, Y % 2) > 0.95


def test_the_paper_s_terms_are_added_by_their_weights():
    assert tuple(small().fit(X).history_[0]) == ("step", "loss", "coherence")
    init = small(degeneracy_weight=0.3, detachment_weight=2.0, uniformity_weight=0.5).fit(X)
    for record in init.history_:
        assert tuple(record) == ("step", "loss", *(n[:-7] for n in PAPER_WEIGHTS), "coherence")
        expected = 0.5 * record["uniformity"] + 0.3 * record["degeneracy"]
        expected += 2.0 * record["detachment"] + 16.0 * record["coherence"]
        assert 0 < record["loss"] - expected < 1.0  # a penalty of the scale of activations


@pytest.mark.filterwarnings("ignore:Pre-training has not converged")
def test_pairs_of_one_row_need_no_graph():
    def noise(rows):
        return rows + 0.3 * torch.randn_like(rows)

    pairs = Coherence(n_neighbors=0, batch_size=40, separation=1.0, augmentation=noise)
    init = small(pairs, max_iter="auto").fit(X)
    assert init.history_[-1]["coherence"] < 0.375  # half of what is possible without learning
    score = init.score(X)
    assert init.set_params(coherence__walk_length=3.0).score(X) == score
    assert init.set_params(coherence=None).score(X) == score, "as of the fit"
    init.coherence = pairs
    assert np.isfinite(init.score(X[:2]))


def test_a_last_layer_that_is_not_trained_is_zero():
    weights = dict.fromkeys(PAPER_WEIGHTS, 0.1)
    alone, with_terms = small().fit(X), small(**weights).fit(X)
    assert not alone.coefs_[-1].any()
    assert not alone.intercepts_[-1].any()
    assert all(coef.any() for coef in (*alone.coefs_[:-1], *with_terms.coefs_))
    coherence = Coherence(batch_size=40, n_neighbors=5)
    tied = MMDInitializer(module=Tied(6, 2), coherence=coherence, max_iter=1, random_state=0).fit(X)
    assert tied.theta0_.arrays["last.weight"].any()


def test_partners_stay_in_their_component_and_walks_follow_from_seed_and_step_alone():
    # Two rings of twenty rows.
    walk = Walk.on(csr_array(np.kron(np.eye(2), np.roll(np.eye(20), 1, axis=1))))
    pairs = PositivePairs(walk, 3.0, seed=7)
    batches = RowBatches(np.arange(40)[:, None], 5, 7, np.asarray, pairs)
    rows = batches.gathered(batches.order(0), 0)[..., 0]
    assert rows.shape == (8, 10)
    np.testing.assert_array_equal(np.sort(rows[:, :5].ravel()), np.arange(40))
    np.testing.assert_array_equal(rows[:, :5] // 20, rows[:, 5:] // 20)
    assert (rows[:, :5] != rows[:, 5:]).mean() > 0.8
    order = np.random.default_rng(0).permutation(40).reshape(8, 5)
    whole = batches.gathered(order, 3)
    parts = [batches.gathered(order[:2], 3), batches.gathered(order[2:], 5)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert (batches.gathered(order, 4) != whole).any()


def config(n_rows=60_000, **params):
    own = MMDInitializer(**params)
    coherence = Coherence() if own.coherence == "auto" else own.coherence
    return resolve(vars(own), coherence, 2, True, n_rows)


def planned_steps(levels, fewest):
    return ByCoherence(fewest, 1500, 50).n_steps(State(0, None, levels=levels))


def test_the_rate_is_constant_and_falls_to_two_per_cent_over_the_last_third():
    factors = [rate_factor(i, 120) for i in range(150)]
    assert set(factors[:81]) == {1.0}
    assert factors[100] == pytest.approx(0.51)
    assert (np.diff(factors[80:121]) < 0).all()
    assert factors[120:] == pytest.approx([0.02] * 30)


@pytest.mark.parametrize(
    ("levels", "n_steps"),
    [
        ([], 1500),
        ([1.0, 0.9, 0.8], 1500),  # it may still fall
        ([0.9, 0.9], 1500),  # 150 steps would be too few
        ([1.0, 0.9, 0.89], 225),
        ([1.0, 0.9, 0.8, 0.7, 0.69, 0.6], 375),  # what came later does not count
        ([0.5, 0.35, 0.3, 0.295], 600),  # rows cluster: twice as long
        ([0.9**i for i in range(11)] + [0.34], 1500),  # but not longer than that
        ([0.6, 0.7, 0.8], 225),
        ([0.9**i for i in range(40)], 1500),
        ([1.0] * 4, 1500),  # features that tell nothing are no end
        ([2.0] * 4 + [0.8] * 2, 450),
    ],
)
def test_the_fall_begins_when_the_level_has_stopped_falling(levels, n_steps):
    assert planned_steps(levels, 225) == n_steps


def test_a_network_that_gives_all_rows_the_same_has_not_converged():
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    nn.init.zeros_(module[0].weight.requires_grad_(False))
    nn.init.ones_(module[0].bias)
    init = MMDInitializer(module=module, coherence=Coherence(batch_size=40), max_iter=40)
    with pytest.warns(ConvergenceWarning, match="L_coh is 1, no lower .*max_iter='auto' or 80"):
        assert init.fit(X).converged_ is False


@pytest.mark.parametrize("n_frozen", [1, 2, 4])
def test_a_frozen_last_layer_keeps_its_weights_and_one_before_is_to_be_trained(n_frozen):
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    for parameter in [net[2].bias, net[2].weight, net[0].bias, net[0].weight][:n_frozen]:
        parameter.requires_grad_(False)
    before = [array.clone() for array in net[2].parameters()]
    if n_frozen < 4:
        mmd_init_(net, X, coherence="auto", max_iter=1, random_state=0)
        assert all(map(torch.equal, before, net[2].parameters()))
    net[0].requires_grad_(False), net[2].requires_grad_(True)
    with pytest.raises(ValueError, match="coherence needs a trainable layer before"):
        mmd_init_(net, X, coherence="auto", random_state=0)


def test_a_warm_start_goes_on_from_theta0():
    init = small(warm_start=True).fit(X[:200])
    assert_same_fit(init, small().fit(X[:200]))
    before = init.theta0_
    pickle.loads(pickle.dumps(init)).fit(X)  # in another process
    init.set_params(max_iter=0).fit(X)
    assert_same_arrays(init.theta0_, before)
    np.testing.assert_allclose(init.theta0_.row_mean, X.mean(axis=0), atol=1e-6)
    init.set_params(max_iter=2).fit(X, np.zeros(len(X)))  # of two classes
    assert init.n_iter_ == 2, "a new schedule"
    assert np.abs(init.theta0_.coefs[0] - before.coefs[0]).max() > 1e-3
    fresh = clone(init).fit(X)
    assert fresh.warm_start
    assert_same_fit(fresh, small(max_iter=2).fit(X))


@pytest.mark.parametrize(("y", "separation"), [(None, 2.0), (np.arange(240) % 2, 1.0)])
def test_a_warm_start_keeps_the_separation_of_the_first_fit(y, separation):
    init = small(Coherence(batch_size=40, n_neighbors=5), warm_start=True, max_iter=0)
    assert init.fit(X, y).config_.coherence.separation == separation
    assert init.fit(X).config_.coherence.separation == separation


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"hidden_layer_sizes": (16,)}, r"hidden_layer_sizes=.*the module here is .*=\(16,\)"),
        ({"activation": "tanh"}, "activation='relu', but the module here is .*'tanh'"),
        ({"n_classes": 3}, r"size mismatch for linears.2.bias: .*\[2\].*\[3\]"),
    ],
)
def test_a_warm_start_refuses_another_network(changed, words):
    init = small(warm_start=True, max_iter=0).fit(X)
    before = init.theta0_
    with pytest.raises((ValueError, RuntimeError), match=f"(?s){words}"):
        init.set_params(**changed).fit(X)
    with pytest.raises(ValueError, match="X has 5 features"):
        init.fit(X[:, :5])
    assert init.theta0_ is before
    init.set_params(warm_start=False).fit(X[:, :5])


def test_a_training_that_is_still_falling_has_a_warning():
    slow = small(max_iter=150 // (len(X) // 40) + 1, learning_rate_init=3e-4)
    with pytest.warns(
        ConvergenceWarning, match=r"not converged: L_coh fell from .*; try max_iter='auto' or"
    ):
        assert slow.fit(X).converged_ is False
    slow.set_params(coherence=None, max_iter=1, n_perturbations=8)
    assert slow.fit(X).converged_ is None


@pytest.mark.parametrize(
    ("n_rows", "fewest", "most"),
    [(20, 225, 3000), (6_000, 300, 3000), (20_000, 1000, 3000), (100_000, 3000, 3000)],
)
def test_auto_has_a_step_for_every_twenty_rows_at_least(n_rows, fewest, most):
    of_auto = config(n_rows, coherence="auto")
    schedule, term = of_auto.schedule, of_auto.coherence
    assert (schedule.fewest, schedule.most) == (fewest, most)
    assert term == config(coherence=Coherence(batch_size=of_auto.rows_a_step)).coherence
    assert config(n_rows, coherence="auto", max_iter=3).schedule == ByEpochs(3)


def test_there_are_at_most_as_many_neighbours_as_other_distinct_rows():
    X = np.random.default_rng(0).integers(0, 3, (200, 2)).astype(float)  # nine, as of categories
    init = MMDInitializer((4,), coherence="auto", n_perturbations=4, max_iter=1, random_state=0)
    most = clone(init).set_params(coherence=Coherence(n_neighbors=8))
    assert_same_fit(init.fit(X), most.fit(X))
    small = Coherence(n_neighbors=np.uint8(255), walk_length=np.uint8(40))
    assert_same_fit(init.set_params(coherence=small).fit(X), most.fit(X))
    assert len(init.fit(np.random.default_rng(0).normal(size=(6, 3))).history_) == 1
    with pytest.raises(ValueError, match="all 6 rows of X are equal"):
        init.fit(np.ones((6, 3)))
