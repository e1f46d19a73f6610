"""L_iod near theta0: the perturbation, the steps, and the script whole, on tiny networks."""

import json
import math
import shutil
from itertools import pairwise

import numpy as np
import pytest

import detachment_nearby
from data.datasets import load_digits_dataset, standardize
from protocol.detachment_curve import CHANGES, DetachmentCurve, log_spaced_steps, perturbed
from reporting.detachment_figure import draw_detachment
from reporting.detachment_tables import detachment_table
from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit.theory import perturbation_std

X = standardize(load_digits_dataset())[0]
TINY = [
    "--dataset=digits",
    *("--hidden-layer-sizes", "4", "3"),
    "--rows=96",
    "--epochs=2",
    "--quick",
    "--quiet",
]


def _run(output, *more):
    return detachment_nearby.main([*TINY, "--output", str(output), *more])


def _results(output):
    return json.loads((output / "digits_detachment_nearby.json").read_text())


def _undrawn(results, path):
    """In the place of a picture, which takes longest."""
    return f"{path.name} left out"


def _initializer(**changed):
    parameters = {**CHANGES, "max_iter": 2, "device": "cpu", "random_state": 0, **changed}
    return MMDInitializer((6, 5), **parameters)


def test_the_readings_of_the_loss_are_kept_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(detachment_nearby, "draw_detachment", _undrawn)
    assert _run(tmp_path) == 0
    assert _run(tmp_path, "--jacobian-at", "activation") == 0
    other = tmp_path / "digits_detachment_nearby_at_activation.json"
    found = [_results(tmp_path), json.loads(other.read_text())]
    assert [r["settings"]["jacobian_at"] for r in found] == ["pre_activation", "activation"]
    assert found[0]["records"][0]["at_theta0"] != found[1]["records"][0]["at_theta0"]


# Steps and perturbations


@pytest.mark.parametrize("last", [1, 2, 9, 100, 9375])
def test_steps_rise_from_one_to_the_last(last):
    steps = log_spaced_steps(last)
    assert (steps[0], steps[-1]) == (1, last)
    assert all(low < high for low, high in pairwise(steps))
    ratios = np.array(steps[1:]) / np.array(steps[:-1])
    assert (ratios[np.array(steps[:-1]) > 10] < 1.6).all()


def test_a_perturbation_has_the_paper_s_law_and_a_length_proportional_to_s():
    theta0 = _initializer(max_iter=0).fit(X[:32]).theta0_
    std = perturbation_std(theta0.architecture, 1.0)
    rng = np.random.default_rng(0)

    def change(noise, scale):
        other = perturbed(theta0, noise, scale)
        parts = [
            (other.arrays[name] - theta0.arrays[name]).ravel()
            for layer in range(theta0.architecture.n_layers)
            for name in (f"linears.{layer}.weight", f"linears.{layer}.bias")
        ]
        return np.concatenate(parts)

    noise = rng.standard_normal(std.size)
    np.testing.assert_allclose(change(noise, 1.0), noise * std, atol=1e-6)
    np.testing.assert_allclose(change(noise, 3.0), 3.0 * change(noise, 1.0), atol=1e-5)
    np.testing.assert_array_equal(change(np.zeros(std.size), 1.0), 0.0)
    # A weight of the first layer is perturbed by s over the root of its 64 inputs, a bias of the
    # two outputs by s over the root of 2.
    assert std[0] == pytest.approx(1 / 8)
    assert std[-1] == pytest.approx(1 / math.sqrt(2))


def test_what_is_learned_does_not_depend_on_s():
    """So that one pre-training serves all panels."""
    near, far = (_initializer(perturbation_scale=scale).fit(X[:64]) for scale in (0.1, 2.0))
    for name, array in near.theta0_.arrays.items():
        np.testing.assert_array_equal(array, far.theta0_.arrays[name])
    fresh = _initializer(max_iter=0).fit(X[:64]).theta0_
    assert any((array != near.theta0_.arrays[n]).any() for n, array in fresh.arrays.items())


# The script


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    output = tmp_path_factory.mktemp("detachment")
    assert _run(output) == 0
    return output


@pytest.fixture
def output(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "output")


def test_the_script_measures_fresh_weights_and_log_spaced_steps(finished):
    results = _results(finished)
    assert [record["step"] for record in results["records"]] == [0, *log_spaced_steps(6)]
    assert results["settings"]["squared_scales"] == [0.2, 0.5, 1.0, 2.0]
    assert results["settings"]["changes"]["n_perturbations"] == 2
    assert {"versions", "hardware", "git_commit"} <= results.keys()
    for record in results["records"]:
        assert np.shape(record["nearby"]) == (4, 4)
        assert min(record["at_theta0"], np.min(record["nearby"])) >= 0.0
    losses = [record["at_theta0"] for record in results["records"]]
    assert losses[-1] < losses[0]
    assert (finished / "digits_detachment_nearby.png").read_bytes().startswith(b"\x89PNG")


def test_figures_are_the_loss_of_the_package(finished):
    """At the fresh weights, by an initializer whose loss has no other term."""
    rows = X[:96]
    scorer = MMDInitializer((4, 3), **CHANGES, max_iter=0, random_state=0).fit(rows)
    record = _results(finished)["records"][0]
    # The script takes the same 96 rows in another order: other mini-batches, the same mean.
    assert record["at_theta0"] == pytest.approx(-scorer.score(rows), rel=1e-5)


def test_a_second_call_learns_and_measures_nothing(output, monkeypatch):
    before = _results(output)

    def forbidden(*args, **kwargs):
        raise AssertionError("done already")

    monkeypatch.setattr(DetachmentCurve, "_measure", forbidden)
    monkeypatch.setattr(detachment_nearby, "draw_detachment", _undrawn)
    assert _run(output) == 0
    assert _results(output) == before


def test_other_scales_are_measured_on_the_theta0_that_are_there(output, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("learned already")

    monkeypatch.setattr(MMDInitializer, "partial_fit", forbidden)
    assert _run(output, "--squared-scales", "0.5", "--draws", "1") == 0
    results = _results(output)
    assert {np.shape(record["nearby"]) for record in results["records"]} == {(1, 1)}
    assert len(results["records"]) == 1 + len(log_spaced_steps(6))
    assert "±" not in "".join(cell for row in detachment_table(results).rows for cell in row)
    assert (output / "digits_detachment_nearby.png").exists()  # a band of one draw is a line


@pytest.mark.parametrize("when", ["learning", "measuring"])
def test_an_interrupted_run_goes_on_to_the_same_figures(
    finished, tmp_path, monkeypatch, capsys, when
):
    name = {"learning": "partial_fit", "measuring": "score"}[when]
    method, calls = getattr(MMDInitializer, name), []
    monkeypatch.setattr(detachment_nearby, "draw_detachment", _undrawn)

    def interrupted(self, *args):
        calls.append(name)
        # While it learns, before the second step and after the two that warm up; while it
        # measures, at the second step, each step having 1 + 4 x 4 losses.
        if len(calls) == {"learning": 3, "measuring": 40}[when]:
            raise KeyboardInterrupt
        return method(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(MMDInitializer, name, interrupted)
        assert _run(tmp_path) == 130
    assert "goes on from here" in capsys.readouterr().err
    there = {"learning": [0], "measuring": [0, 1]}[when]
    assert [record["step"] for record in _results(tmp_path)["records"]] == there
    assert _run(tmp_path) == 0
    assert _results(tmp_path)["records"] == _results(finished)["records"]


# Table and picture


def _hand(n_steps):
    records = [
        {"step": step, "at_theta0": 1.0 / (1 + step), "nearby": [[0.5, 1.5], [2.0, 4.0]]}
        for step in range(n_steps)
    ]
    settings = {"squared_scales": [0.2, 2.0], "draws": 2}
    return {"dataset": {"name": "hand"}, "settings": settings, "records": records}


def test_the_table_has_some_of_the_steps_the_first_and_the_last_among_them():
    table = detachment_table(_hand(11))
    assert table.head == ["step", "at theta0", "s^2 = 0.2", "s^2 = 2"]
    assert [row[0] for row in table.rows] == ["0", "2", "4", "6", "8", "10"]
    assert table.rows[0][1:] == ["1", "1 ± 0.71", "3 ± 1.4"]
    assert [row[0] for row in detachment_table(_hand(2)).rows] == ["0", "1"]
    assert detachment_table(_hand(0)).rows == []


@pytest.mark.parametrize("n_steps", [0, 1])
def test_without_a_step_there_is_no_picture(tmp_path, n_steps):
    said = draw_detachment(_hand(n_steps), tmp_path / "x.png")
    assert said == "x.png not drawn: no step was measured yet"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--squared-scales", "0"), "must be a number above 0, got 0"),
        (("--draws", "0"), "must be 1 or more, got 0"),
        (("--n-perturbations", "4"), "unrecognized arguments: --n-perturbations 4"),
    ],
)
def test_bad_options_are_refused_by_the_parser(tmp_path, capsys, more, message):
    with pytest.raises(SystemExit, match="2"):
        _run(tmp_path, *more)
    assert message in capsys.readouterr().err
