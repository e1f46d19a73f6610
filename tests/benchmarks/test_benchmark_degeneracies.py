"""What each term of the loss prevents: the tables by hand, and the script whole, on tiny nets."""

import json
import shutil

import numpy as np
import pytest
from scipy import stats

import degeneracies
import mnist_tasks
import readme_tables
from data.datasets import load_digits_dataset, standardize
from protocol import pretrained
from protocol.appendix_bench import theta0_name
from protocol.tasks import diagnostics_seed, shuffled_rows
from protocol.theta0_measures import measure_densities
from reporting.degeneracy_figure import draw_densities
from reporting.degeneracy_tables import (
    DEGENERACY_TABLES,
    dead_neurons_table,
    degenerate_softmax_table,
    densities_table,
)
from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit.diagnostics import degenerate_softmax_ratio, prediction_samples

TINY = [
    "--dataset=digits",
    *("--hidden-layer-sizes", "4", "3"),
    "--rows=64",
    "--epochs=2",
    "--n-perturbations=4",
    "--quick",
    "--quiet",
]
PAPER_SETTINGS = [(0.0, 0.0), (0.4, 0.0), (0.0, 1.0), (0.4, 1.0)]


def _run(output, *more):
    return degeneracies.main([*TINY, "--output", str(output), *more])


def _undrawn(results, path):
    """In the place of a picture, which takes longest."""
    return f"{path.name} left out"


def _results(output):
    return json.loads((output / "digits_degeneracies.json").read_text())


def _settings(results):
    return [(r["degeneracy_weight"], r["detachment_weight"]) for r in results["records"]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    output = tmp_path_factory.mktemp("degeneracies")
    assert _run(output) == 0
    return output


@pytest.fixture
def output(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "output")


def test_the_script_writes_every_setting_after_the_fresh_weights(finished):
    results = _results(finished)
    assert _settings(results) == [(None, None), *PAPER_SETTINGS]
    assert {"versions", "hardware", "git_commit", "measured_at_commits"} <= results.keys()
    assert len({record["digest"] for record in results["records"]}) == 5
    for record in results["records"][1:]:
        assert record["theta0"]["passes"] == 2
        assert record["theta0"]["random_state"] == 0
        assert len(record["dead_neurons_percent"]) == 2
    with_densities = [s for s, r in zip(_settings(results), results["records"], strict=True)
                      if "densities" in r]  # fmt: skip
    assert with_densities == [(None, None), (0.0, 0.0), (0.4, 1.0)]
    assert (finished / "digits_degeneracies.png").read_bytes().startswith(b"\x89PNG")


def test_figures_are_the_package_s_own(finished):
    """For the setting that leaves both terms out, learned again here."""
    X = standardize(load_digits_dataset())[0][:64]
    initializer = MMDInitializer(
        (4, 3),
        degeneracy_weight=0.0,
        detachment_weight=0.0,
        n_perturbations=4,
        max_iter=2,
        random_state=0,
    ).fit(X)
    seed = diagnostics_seed(seed=0)
    ratios = 100 * degenerate_softmax_ratio(initializer, X, n_batches=16, random_state=seed)
    record = _results(finished)["records"][1]
    assert record["degenerate_softmax_percent"] == pytest.approx(
        {"mean": ratios.mean(), "std": ratios.std(ddof=1)}
    )


def test_the_readings_of_the_kernels_are_kept_apart(output, monkeypatch):
    """Averaged they are a ninth of the first term: where it is alone, hardly another theta0."""
    monkeypatch.setattr(degeneracies, "draw_densities", _undrawn)
    assert _run(output, "--kernels", "mean", "--settings", "0,0", "0.4,1") == 0
    assert _run(output) == 0
    summed = _results(output)
    path = output / "digits_degeneracies_mean_of_kernels.json"
    averaged = json.loads(path.read_text())
    assert len(averaged["records"]) == 3
    assert [r["settings"]["kernels"] for r in (summed, averaged)] == ["sum", "mean"]
    losses = [
        {(r["degeneracy_weight"], r["detachment_weight"]): r["theta0"]["best_loss"] for r in rows}
        for rows in (summed["records"][1:], averaged["records"][1:])
    ]
    assert losses[1][0.0, 0.0] == pytest.approx(losses[0][0.0, 0.0] / 9, rel=0.01)
    assert losses[1][0.4, 1.0] < 0.8 * losses[0][0.4, 1.0]


def test_densities_are_over_perturbations_at_inputs_and_over_inputs_of_networks():
    X = standardize(load_digits_dataset())[0][:96]
    initializer = MMDInitializer((5,), max_iter=0, random_state=0).fit(X)
    found = measure_densities(initializer.theta0_, X, seed=4)
    at_inputs, of_networks = (
        np.array(found[f"over_{name}"]) for name in ("perturbations", "inputs")
    )
    assert at_inputs.shape == (4, 1024)
    assert of_networks.shape == (4, 96)
    rows = shuffled_rows(96, "diagnostics", 1, seed=4)
    seed = diagnostics_seed(seed=4)
    expected = prediction_samples(initializer, X[rows], n_perturbations=4, random_state=seed)
    np.testing.assert_allclose(of_networks, expected[:, :, 0], atol=1e-4)
    # Other networks than those, at one of the inputs: the same law.
    many = prediction_samples(initializer, X[rows[2]][None], n_perturbations=4000, random_state=9)
    assert stats.ks_2samp(at_inputs[2], many[:, 0, 0]).pvalue > 1e-3


def test_a_second_call_learns_and_measures_nothing(output, monkeypatch, capsys):
    before = _results(output)

    def forbidden(*args, **kwargs):
        raise AssertionError("done already")

    monkeypatch.setattr(MMDInitializer, "partial_fit", forbidden)
    monkeypatch.setattr(degeneracies, "measure_ratios", forbidden)
    monkeypatch.setattr(degeneracies, "draw_densities", _undrawn)
    assert _run(output) == 0
    assert _results(output) == before
    assert capsys.readouterr().err == ""  # --quiet


def test_an_interrupted_run_shows_what_there_is_and_goes_on(
    finished, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(degeneracies, "draw_densities", _undrawn)
    partial_fit, passes = MMDInitializer.partial_fit, []

    def interrupted(self, X, y=None):
        if len(passes) == 3:
            raise KeyboardInterrupt
        passes.append((self.degeneracy_weight, self.detachment_weight))
        return partial_fit(self, X, y)

    with monkeypatch.context() as patch:
        patch.setattr(MMDInitializer, "partial_fit", interrupted)
        assert _run(tmp_path) == 130
    printed = capsys.readouterr()
    assert "goes on from here" in printed.err
    assert printed.out.count("not yet run") == 3 + 3 * 2
    assert _settings(_results(tmp_path)) == [(None, None), (0.0, 0.0)]

    def counted(self, X, y=None):
        passes.append((self.degeneracy_weight, self.detachment_weight))
        return partial_fit(self, X, y)

    with monkeypatch.context() as patch:
        patch.setattr(MMDInitializer, "partial_fit", counted)
        assert _run(tmp_path) == 0
    # The pass before the interruption was kept: each setting was learned for two passes in all.
    assert passes == [setting for setting in PAPER_SETTINGS for _ in range(2)]

    def figures(output):
        return [r["degenerate_softmax_percent"] for r in _results(output)["records"]]

    assert figures(tmp_path) == figures(finished)


def test_theta0_of_the_binary_tasks_is_not_learned_again(tmp_path, monkeypatch):
    common = ["--dataset=digits", "--hidden-layer-sizes", "4", "--epochs=1", "--n-perturbations=4",
              "--quiet", "--output", str(tmp_path)]  # fmt: skip
    tasks = ["--methods", "xavier/fcn/ours", "--tasks=1", "--n-labels=5", "--jobs=1"]
    assert mnist_tasks.main([*common, *tasks]) == 0
    (kept,) = (tmp_path / "theta0").iterdir()

    def forbidden(*args, **kwargs):
        raise AssertionError("kept already")

    monkeypatch.setattr(pretrained, "_write", forbidden)
    monkeypatch.setattr(degeneracies, "draw_densities", _undrawn)
    assert degeneracies.main([*common, "--quick", "--settings", "0.4,1"]) == 0
    assert list((tmp_path / "theta0").iterdir()) == [kept]


def test_files_of_other_settings_are_named_after_them():
    paper = {"degeneracy_weight": 0.4, "detachment_weight": 1.0, "perturbation_scale": 0.5**0.5}
    assert theta0_name(paper) == theta0_name({}) == "xavier/fcn/ours"
    other = theta0_name(paper | {"degeneracy_weight": 0.0})
    assert other == "xavier/fcn/ours_degeneracy_weight=0"


# The tables, worked out by hand


def _record(setting, degenerate, dead):
    return {
        "degeneracy_weight": setting[0],
        "detachment_weight": setting[1],
        "degenerate_softmax_percent": {"mean": degenerate, "std": 0.5},
        "dead_neurons_percent": [{"mean": value, "std": None} for value in dead],
    }


def _hand(dataset="mnist", records=()):
    return {
        "dataset": {"name": dataset},
        "settings": {
            "shown": [[0.0, 0.0], [0.0, 1.0], [0.3, 2.0]],
            "hidden_layer_sizes": [392, 392, 392],
            "rows": 60000,
            "passes": 1,
            "n_perturbations": 64,
            "networks_a_ratio": 256,
            "n_batches": 128,
            "batch_size": 32,
        },
        "records": list(records),
    }


RECORDS = [
    _record((None, None), 11.0, (0.0, 1.0, 2.0)),
    _record((0.0, 0.0), 80.0, (50.0, 60.0, 70.0)),
    _record((0.3, 2.0), 3.0, (1.0, 2.0, 3.0)),
]


def test_the_paper_s_figures_stand_beside_ours():
    table = degenerate_softmax_table(_hand(records=RECORDS))
    assert table.head == ["lambda", "xi", "ours", "the paper"]
    assert table.rows == [
        ["fresh weights", "-", "11.00 ± 0.50", "-"],
        ["0", "0", "80.00 ± 0.50", "89.32 ± 0.94"],
        ["0", "1", "not yet run", "80.83 ± 1.03"],
        ["0.3", "2", "3.00 ± 0.50", "-"],
    ]
    assert "after 1 pass over 60,000 images with K = 64" in table.title
    dead = dead_neurons_table(_hand(records=RECORDS))
    assert dead.rows[1][2:] == [
        "50.00 (52.11 ± 3.07)",
        "60.00 (63.88 ± 1.30)",
        "70.00 (80.08 ± 0.61)",
    ]
    assert dead.rows[2] == ["0", "1", *["not yet run"] * 3]  # the paper has no such row


def test_of_other_images_the_paper_has_none():
    results = _hand("digits", RECORDS)
    assert degenerate_softmax_table(results).head == ["lambda", "xi", "ours"]
    assert "paper" not in dead_neurons_table(results).title
    assert all("(" not in cell for row in dead_neurons_table(results).rows for cell in row)


def test_densities_in_two_numbers():
    grid = (np.arange(1000) + 0.5) / 1000
    uniform = {"over_perturbations": [grid.tolist()] * 4, "over_inputs": [[0.9] * 50] * 4}
    (row,) = densities_table(_hand(records=[RECORDS[1] | {"densities": uniform}])).rows
    # A grid of the middles of 1,000 intervals is 1/2000 away from uniform; a constant has no std.
    distance, std = float(row[2]), float(row[3])
    assert (distance, std) == (pytest.approx(0.0005, abs=5e-4), 0.0)
    sharp = uniform | {"over_perturbations": [[0.5] * 9] * 4, "over_inputs": [grid.tolist()] * 4}
    (row,) = densities_table(_hand(records=[RECORDS[1] | {"densities": sharp}])).rows
    assert (float(row[2]), float(row[3])) == pytest.approx((0.5, 1 / np.sqrt(12)), abs=1e-3)


def test_without_densities_there_is_no_picture_and_no_error(tmp_path):
    for records in ([], RECORDS):
        said = draw_densities(_hand(records=records), tmp_path / "x.png")
        assert said == "x.png not drawn: no setting with densities was run yet"
    assert list(tmp_path.iterdir()) == []


def test_the_readme_has_both_tables(finished):
    for kind, build in DEGENERACY_TABLES.items():
        text = f"<!-- table: digits_degeneracies.json {kind} -->\nold\n<!-- end of table -->"
        made = readme_tables.rewrite(text, finished)
        rows = build(_results(finished)).rows
        assert len(rows) == 5
        assert all("| " + " | ".join(row) + " |" in made for row in rows)


# Options


def test_a_setting_of_one_s_own_stands_behind_the_paper_s(tmp_path):
    assert _run(tmp_path, "--settings", "0.3,2", "0.3,2") == 0
    results = _results(tmp_path)
    assert _settings(results) == [(None, None), (0.3, 2.0)]
    column = [row[:3] for row in degenerate_softmax_table(results).rows]
    assert [row[:2] for row in column[1:]] == [["0", "0"], ["0.4", "0"], ["0", "1"], ["0.4", "1"],
                                               ["0.3", "2"]]  # fmt: skip
    assert [row[2] == "not yet run" for row in column] == [False, True, True, True, True, False]


@pytest.mark.parametrize("value", ["0.4", "0.4,1,2", "a,b", "-1,0", "inf,0", "nan,0"])
def test_a_setting_that_is_no_pair_of_weights_is_refused(tmp_path, value, capsys):
    with pytest.raises(SystemExit, match="2"):
        _run(tmp_path, f"--settings={value}")
    assert f"must be LAMBDA,XI, two numbers of 0 or more such as 0.4,1, got {value!r}" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("rows", ["31", "1298"])
def test_too_few_or_too_many_rows_are_refused_before_any_work(tmp_path, rows, capsys):
    assert _run(tmp_path, "--rows", rows) == 2
    assert f"--rows must be from 32 to 1297, which there are, got {rows}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_one_perturbed_network_is_refused_by_the_parser(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        _run(tmp_path, "--n-perturbations", "1")
    assert "must be 2 or more, got 1" in capsys.readouterr().err


def test_by_default_as_many_passes_as_make_the_paper_s_steps(tmp_path):
    def passes(*argv):
        options = degeneracies._parser().parse_args([*argv, "--dataset=digits", "--output=x"])
        return degeneracies._prepare(options).settings["passes"]

    assert passes() == 234  # 9,375 steps, 40 a pass
    assert passes("--quick") == 5
    assert passes("--epochs", "3") == 3
