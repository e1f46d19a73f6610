"""The choice of s and lambda: the table by hand, a partial grid, and the script whole."""

import json
import shutil

import numpy as np
import pytest

import readme_tables
import scale_and_weight
from data.datasets import load_digits_dataset, standardize
from reporting.scale_figure import draw_uniformity
from reporting.scale_tables import records_by_cell, scale_and_weight_table
from sklearn_mmdinit import MMDInitializer

TINY = [
    "--dataset=digits",
    *("--hidden-layer-sizes", "4", "3"),
    "--rows=320",
    "--epochs=2",
    "--n-perturbations=4",
    *("--squared-scales", "0.5", "2"),
    *("--weights", "0.4"),
    "--quick",
    "--quiet",
]


def _run(output, *more):
    return scale_and_weight.main([*TINY, "--output", str(output), *more])


def _results(output):
    return json.loads((output / "digits_scale_and_weight.json").read_text())


def _cells(results):
    return [(r["squared_scale"], r["degeneracy_weight"], r["run"]) for r in results["records"]]


def _undrawn(results, path):
    """In the place of a picture, which takes longest."""
    return f"{path.name} left out"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two cells of the grid, two runs each."""
    output = tmp_path_factory.mktemp("scale")
    assert _run(output, "--runs=2") == 0
    return output


@pytest.fixture
def output(finished, tmp_path, monkeypatch):
    """A copy of it, to go on with, without pictures."""
    monkeypatch.setattr(scale_and_weight, "draw_uniformity", _undrawn)
    return shutil.copytree(finished, tmp_path / "output")


def test_the_script_runs_a_part_of_the_grid_and_shows_the_rest(finished):
    results = _results(finished)
    assert _cells(results) == [(0.5, 0.4, 0), (2.0, 0.4, 0), (0.5, 0.4, 1), (2.0, 0.4, 1)]
    assert [record["theta0"]["random_state"] for record in results["records"]] == [0, 0, 1, 1]
    rows = scale_and_weight_table(results).rows
    assert len(rows) == 12
    assert [row[2] for row in rows].count("2") == 2
    assert [row[3] == "not yet run" for row in rows].count(True) == 10
    assert all("±" in cell for row in rows if row[2] == "2" for cell in row[3:])
    assert {"versions", "hardware", "git_commit"} <= results.keys()
    assert (finished / "digits_scale_and_weight.png").read_bytes().startswith(b"\x89PNG")


def test_the_curve_is_the_history_of_an_initializer_of_that_scale_and_weight(finished):
    X = standardize(load_digits_dataset())[0][:320]
    initializer = MMDInitializer(
        (4, 3),
        perturbation_scale=2.0**0.5,
        degeneracy_weight=0.4,
        n_perturbations=4,
        max_iter=2,
        window=10,
        random_state=1,
    ).fit(X)
    record = _results(finished)["records"][3]
    assert record["steps"] == [10, 20]
    expected = [window["uniformity"] for window in initializer.history_]
    assert record["uniformity"] == pytest.approx(expected)


def test_the_curve_of_averaged_kernels_is_a_ninth_of_the_history(output):
    assert _run(output, "--kernels", "mean", "--squared-scales", "0.5") == 0
    X = standardize(load_digits_dataset())[0][:320]
    initializer = MMDInitializer(
        (4, 3), uniformity_weight=1 / 9, n_perturbations=4, max_iter=2, window=10, random_state=0
    ).fit(X)
    results = json.loads((output / "digits_scale_and_weight_mean_of_kernels.json").read_text())
    (record,) = results["records"]
    expected = [window["uniformity"] / 9 for window in initializer.history_]
    assert record["uniformity"] == pytest.approx(expected)
    assert "K = 4, the kernels averaged" in scale_and_weight_table(results).title
    assert _cells(_results(output))[0] == (0.5, 0.4, 0), "those of the sum are as they were"


def test_the_rest_of_the_grid_is_added_to_what_is_there(output, monkeypatch):
    fitted = []
    partial_fit = MMDInitializer.partial_fit

    def counted(self, X, y=None):
        fitted.append((round(self.perturbation_scale**2, 6), self.degeneracy_weight))
        return partial_fit(self, X, y)

    monkeypatch.setattr(MMDInitializer, "partial_fit", counted)
    assert _run(output, "--squared-scales", "0.5", "3", "--weights", "0.2") == 0
    assert fitted == [(0.5, 0.2)] * 2 + [(3.0, 0.2)] * 2
    results = _results(output)
    assert results["settings"]["squared_scales"] == [0.2, 0.5, 1.0, 2.0, 3.0]
    # One run was asked for: of the other one nothing is shown.
    assert _cells(results) == [(0.5, 0.2, 0), (0.5, 0.4, 0), (2.0, 0.4, 0), (3.0, 0.2, 0)]


def test_a_second_call_learns_nothing(output, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("done already")

    before = _results(output)
    monkeypatch.setattr(MMDInitializer, "partial_fit", forbidden)
    monkeypatch.setattr(scale_and_weight, "measure_ratios", forbidden)
    assert _run(output, "--runs=2") == 0
    assert _results(output) == before


def test_an_interrupted_run_shows_what_there_is_and_goes_on(
    finished, tmp_path, monkeypatch, capsys
):
    partial_fit, passes = MMDInitializer.partial_fit, []
    monkeypatch.setattr(scale_and_weight, "draw_uniformity", _undrawn)

    def interrupted(self, X, y=None):
        if len(passes) == 3:
            raise KeyboardInterrupt
        passes.append(self.perturbation_scale)
        return partial_fit(self, X, y)

    with monkeypatch.context() as patch:
        patch.setattr(MMDInitializer, "partial_fit", interrupted)
        assert _run(tmp_path, "--runs=2") == 130
    assert "goes on from here" in capsys.readouterr().err
    assert _cells(_results(tmp_path)) == [(0.5, 0.4, 0)]
    assert _run(tmp_path, "--runs=2") == 0

    def figures(output):
        kept = ("degenerate_softmax_percent", "dead_neurons_percent", "uniformity", "digest")
        return [[record[name] for name in kept] for record in _results(output)["records"]]

    assert figures(tmp_path) == figures(finished)


# The table, worked out by hand


def _record(square, weight, run, degenerate, dead):
    return {
        "squared_scale": square,
        "degeneracy_weight": weight,
        "run": run,
        "degenerate_softmax_percent": {"mean": degenerate, "std": 1.0},
        "dead_neurons_percent": [{"mean": value, "std": 1.0} for value in dead],
        "steps": [100, 200, 300][: 3 - run],
        "uniformity": [0.3, 0.2, 0.1][: 3 - run],
    }


def _hand(dataset, *records):
    settings = {
        "squared_scales": [0.5, 3.0],
        "weights": [0.4, 1.0],
        "runs": 2,
        "hidden_layer_sizes": [392, 392, 392],
        "rows": 60000,
        "passes": 5,
        "n_perturbations": 128,
        "networks_a_ratio": 256,
        "n_batches": 128,
        "batch_size": 32,
    }
    return {"dataset": {"name": dataset}, "settings": settings, "records": list(records)}


RECORDS = (
    _record(0.5, 0.4, 0, 1.0, (3.0, 8.0, 0.0)),
    _record(3.0, 0.4, 0, 40.0, (5.0, 1.0, 6.0)),
    _record(0.5, 0.4, 1, 2.0, (10.0, 2.0, 4.0)),
)


def test_dead_neurons_are_those_of_the_worst_layer_of_each_run():
    table = scale_and_weight_table(_hand("mnist", *RECORDS))
    assert table.head == ["s^2", "lambda", "runs", "DS", "DS, the paper", "IOD", "IOD, the paper"]
    # Runs of 1 and 2, std 1 / sqrt(2); their worst layers have 8 and 10, std sqrt(2).
    assert table.rows == [
        ["0.5", "0.4", "2", "1.50 ± 0.71", "1.58 ± 0.72", "9.00 ± 1.41", "5.48 ± 1.56"],
        ["0.5", "1", "0", "not yet run", "1.41 ± 0.72", "not yet run", "34.15 ± 28.81"],
        ["3", "0.4", "1", "40.00", "-", "6.00", "-"],
        ["3", "1", "0", "not yet run", "-", "not yet run", "-"],
    ]
    # Fewer networks than the paper's are owned up to.
    assert "after 5 passes over 60,000 images with K = 128 (the paper: " in table.title


def test_of_other_images_the_paper_has_none():
    table = scale_and_weight_table(_hand("digits", *RECORDS))
    assert table.head == ["s^2", "lambda", "runs", "DS", "IOD"]
    assert table.rows[0] == ["0.5", "0.4", "2", "1.50 ± 0.71", "9.00 ± 1.41"]
    assert "paper" not in table.title


def test_an_empty_grid_is_a_table_and_no_picture(tmp_path):
    results = _hand("mnist")
    assert [row[3] for row in scale_and_weight_table(results).rows] == ["not yet run"] * 4
    said = draw_uniformity(results, tmp_path / "x.png")
    assert said == "x.png not drawn: nothing was run yet"
    assert list(tmp_path.iterdir()) == []


def test_a_partial_grid_is_drawn_with_runs_of_unequal_length(tmp_path):
    results = _hand("mnist", *RECORDS)
    assert [len(runs) for runs in records_by_cell(results).values()] == [2, 0, 1, 0]
    assert "written" in draw_uniformity(results, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_the_readme_has_the_table(finished):
    text = "<!-- table: digits_scale_and_weight.json scale_and_weight -->\n<!-- end of table -->"
    made = readme_tables.rewrite(text, finished)
    assert made.count("| not yet run | not yet run |") == 10
    assert np.char.count(made, "±") >= 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--squared-scales", "-0.5"), "must be a number above 0, got -0.5"),
        (("--weights", "nan"), "must be a number above 0, got nan"),
        (("--runs", "0"), "must be 1 or more, got 0"),
        (("--n-perturbations", "1"), "must be 2 or more, got 1"),
    ],
)
def test_bad_options_are_refused_by_the_parser(tmp_path, capsys, more, message):
    with pytest.raises(SystemExit, match="2"):
        _run(tmp_path, *more)
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_defaults_are_said_where_they_are_not_the_paper_s():
    options = scale_and_weight._parser().parse_args(["--dataset=digits", "--output=x"])
    settings = scale_and_weight._prepare(options).settings
    assert (settings["n_perturbations"], settings["runs"], settings["n_batches"]) == (128, 1, 128)
    assert "The paper takes 256 perturbed networks a step" in scale_and_weight.__doc__
