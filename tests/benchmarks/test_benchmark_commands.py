"""Every other command, end to end on the small digits: what it writes, refuses and goes on from."""

import math

import numpy as np
import pytest
from scipy import stats

import degeneracies
import mnist_tasks
import scale_and_weight
import small_networks
import theorems
from data.datasets import load_digits_dataset, standardize
from protocol import studies
from protocol.diagnostics import degenerate_softmax_ratio
from protocol.tasks import diagnostics_seed
from protocol.theory import perturbation_std
from protocol.theta0s import theta0_digest
from results_stand_in import status_of, written
from sklearn_mmdinit import MMDInitializer

X = standardize(load_digits_dataset())[0]
DIGITS = ("--dataset=digits", "--quiet")
APPENDIX = (*DIGITS, "--hidden-layer-sizes", "4", "3", "--epochs=2")
K4 = "--n-perturbations=4"

# What each command is called with; all in a few seconds.
TINY = {
    degeneracies: (*APPENDIX, K4),
    scale_and_weight: (*APPENDIX, K4, "--runs=2"),
    theorems: ("--quiet",),
}
FEW = {"N_DRAWS": 20_000, "N_RADII": 8, "NETWORK_WIDTHS": (8,), "N_CLASSES": (2, 3)}
FEW |= {"SQUARED_SCALES": (0.5, 8.0), "N_NETWORKS": 5, "N_ROWS": 256, "WIDTHS": (4, 16, 64)}


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Few mini-batches and few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies, "N_BATCHES", 4)
        patch.setattr(scale_and_weight, "SQUARED_SCALES", (0.5, 2.0))
        patch.setattr(scale_and_weight, "WEIGHTS", (0.4,))
        for name, value in FEW.items():
            patch.setattr(theorems, name, value)
        yield


def run(command, output, *more):
    return status_of(command, [*TINY.get(command, ()), "--output", output, *more])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """``finished(command)``: the output folder of a whole run; no test changes what is there."""
    folders = {}

    def whole(command):
        if command not in folders:
            folders[command] = tmp_path_factory.mktemp("whole")
            assert run(command, folders[command]) == 0
        return folders[command]

    return whole


# What is true of every command


@pytest.mark.parametrize("command", TINY, ids=lambda command: command.__name__)
def test_a_second_call_does_nothing_again(command, finished, capsys):
    output = finished(command)
    before = written(output)
    assert {"claim", "versions", "hardware", "git_commit"} <= before.keys()
    logs = {path: path.read_bytes() for path in output.glob("*.jsonl")}
    capsys.readouterr()
    assert run(command, output) == 0
    assert written(output) == before  # with seconds of the first call
    assert {path: path.read_bytes() for path in logs} == logs
    printed = capsys.readouterr()
    assert printed.err == ""  # --quiet
    assert "written" in printed.out


@pytest.mark.parametrize(
    ("command", "more", "message"),
    [
        (scale_and_weight, ("--runs", "0"), "must be 1 or more, got 0"),
        (theorems, ("--seed", "-1"), "must be 0 or more, got -1"),
        (small_networks, ("--tasks", "VGG"), "unknown task 'VGG'; valid names are two convo"),
        (mnist_tasks, (*DIGITS, "--n-labels=500"), "N = 500 is too many for 1297 training rows, 1"),
    ],
)
def test_bad_options_are_refused_before_any_work(command, more, message, tmp_path, capsys):
    assert run(command, tmp_path, *more) == 2
    assert list(tmp_path.iterdir()) == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


# The appendix


def fitted(**params):
    """By the package itself what the commands learn with APPENDIX and K4."""
    own = {"n_perturbations": 4, "max_iter": 2, "random_state": 0}
    return MMDInitializer((4, 3), **{**own, **params}).fit(X)


def test_degeneracies_are_the_package_s_own_figures_of_every_setting(finished):
    records = written(finished(degeneracies))["records"]
    settings = [(r["degeneracy_weight"], r["detachment_weight"]) for r in records]
    assert settings == [(None, None), (0.0, 0.0), (0.4, 0.0), (0.0, 1.0), (0.4, 1.0)]
    initializer = fitted(degeneracy_weight=0.0, detachment_weight=0.0)
    assert records[1]["digest"] == theta0_digest(initializer.theta0_)
    common = {"n_batches": 4, "seed": diagnostics_seed(seed=0)}
    ratios = 100 * degenerate_softmax_ratio(initializer.to_module(), X, **common)
    expected = {"mean": ratios.mean(), "std": ratios.std(ddof=1)}
    assert records[1]["degenerate_softmax_percent"] == pytest.approx(expected)


def test_theta0_of_the_binary_tasks_is_not_learned_again(tmp_path):
    common = [*DIGITS, "--hidden-layer-sizes=4", "--epochs=1", K4, "--output", tmp_path]
    tasks = "--first-run=0 --methods xavier/fcn/ours --tasks=1 --n-labels=5 --jobs=1"
    assert status_of(mnist_tasks, [*common, *tasks.split()]) == 0
    assert status_of(degeneracies, common) == 0
    assert len(list((tmp_path / "theta0").iterdir())) == 4  # settings


def test_the_grid_has_every_run_and_the_curve_is_the_history_of_its_initializer(finished):
    results = written(finished(scale_and_weight))
    cells = [(r["squared_scale"], r["degeneracy_weight"], r["run"]) for r in results["records"]]
    assert cells == [(0.5, 0.4, 0), (2.0, 0.4, 0), (0.5, 0.4, 1), (2.0, 0.4, 1)]
    initializer = fitted(perturbation_scale=2.0**0.5, random_state=1)
    assert results["records"][3]["steps"] == [40, 80]
    expected = [record["uniformity"] for record in initializer.history_]
    assert results["records"][3]["uniformity"] == pytest.approx(expected)


# theorems.py


def test_norms_have_the_law_of_norms_of_drawn_vectors():
    std, rng = perturbation_std((784, 2, 2, 2, 2)), np.random.default_rng(1)
    direct = np.linalg.norm(rng.standard_normal((5_000, std.size)) * std, axis=1)
    assert stats.ks_2samp(theorems.drawn_norms(std, 20_000, seed=0), direct).pvalue > 1e-3


@pytest.mark.parametrize("d", [3, 4])
def test_shares_of_a_network_add_up_and_the_bound_is_below_them(d, monkeypatch):
    monkeypatch.setattr(theorems, "SQUARED_SCALES", (0.01, 8.0, 20.0))
    monkeypatch.setattr(theorems, "N_NETWORKS", 20)
    found = theorems.class_points(X[:50], d, seed=0)
    shares = np.array(found["shares"]).reshape(-1, d)
    assert len(shares) == 3 * 20  # scales, networks
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-5)  # there are no ties
    expected = np.maximum(1.0 - math.sqrt(d) * np.array(found["distances"]), 0.0)
    np.testing.assert_allclose(found["bounds"], expected, atol=1e-5)
    assert all(found["holds"])
    # Only long perturbations make the bound speak.
    assert max(found["bounds"][: 20 * d]) == 0.0
    assert max(found["bounds"][-20 * d :]) > 0.5


def test_row_norms_of_he_networks_are_near_their_exact_moments(monkeypatch):
    monkeypatch.setattr(theorems, "N_ROWS", 16 * 60)
    found = theorems.jacobian_points(X, 16, seed=0)
    assert found["n_networks"] == 60
    assert found["holds"] == [True]
    assert abs(found["mean"] - found["expected_mean"]) < 4 * found["standard_error"] < 0.1
