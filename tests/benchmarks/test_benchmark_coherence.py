"""Coherence against time, and one change at a time: the tables by hand, and the script whole."""

import json
import shutil

import numpy as np
import pytest

import coherence
import readme_tables
from protocol import evaluation, pretrained
from protocol.coherence_settings import (
    ABLATION,
    DEFAULT,
    NO_PAPER_TERMS,
    OBJECTIVES,
    Setting,
    ablation_settings,
    initializer_for,
    time_settings,
)
from protocol.methods import NetworkSettings
from protocol.tasks import random_tasks
from reporting.coherence_figure import draw_coherence
from reporting.coherence_tables import (
    COHERENCE_TABLES,
    coherence_points,
    points_of_results,
    scratch_accuracy,
)
from reporting.table import as_text
from sklearn_mmdinit import Coherence, MMDInitializer

# Settings


def _initializer(setting, tmp_path):
    return initializer_for(setting, NetworkSettings(), random_state=0, graphs=tmp_path)


@pytest.mark.parametrize("name", ABLATION)
def test_a_setting_is_the_default_but_for_what_it_names(name, tmp_path):
    (setting,) = ablation_settings([name], 6)
    initializer = _initializer(setting, tmp_path)
    initializer._resolved()._check_params()
    default = MMDInitializer(
        coherence=Coherence(memory=str(tmp_path)), max_iter=6, random_state=0
    ).get_params()
    changed = {
        parameter: value
        for parameter, value in initializer.get_params().items()
        if parameter != "coherence" and value != default[parameter]
    }
    assert changed == setting.changes == ABLATION[name]
    assert bool(changed) == (name != DEFAULT)


def test_the_ablation_changes_every_parameter_that_it_is_to():
    changed = {parameter for changes in ABLATION.values() for parameter in changes}
    wanted = ("separation", "walk_length", "n_neighbors", "shared_neighbor_power", "weight")
    assert changed == {
        *(f"coherence__{name}" for name in wanted),
        *NO_PAPER_TERMS,
        "gain",
        "keep",
    }


def test_against_time_each_number_of_passes_is_a_setting_with_a_graph_of_its_own(tmp_path):
    settings = time_settings(list(OBJECTIVES), (4, 1), (2,))
    assert [setting.method for setting in settings] == [
        "time/paper@2",
        "time/coherence@1",
        "time/coherence@4",
        "time/both@1",
        "time/both@4",
    ]
    for setting in settings:
        initializer = _initializer(setting, tmp_path)
        initializer._resolved()._check_params()
        assert initializer.max_iter == setting.passes
        assert initializer.coherence == (None if setting.name == "paper" else "auto")


# The tables, worked out by hand

# Method -> accuracies (%) of two tasks in each of two runs at N = 5; ten more at N = 20.
HAND = {
    "xavier/fcn/scratch": (70.0, 80.0, 70.0, 80.0),
    "time/both@1": (80.0, 90.0, 80.0, 90.0),
    "time/both@4": (90.0, 90.0, 80.0, 80.0),
    "ablation/default@6": (80.0, 80.0, 80.0, 80.0),
    "ablation/gain=1@6": (81.0, 79.0, 83.0, 81.0),
}
SECONDS = {"time/both@1": 10.0, "time/both@4": 40.0, "ablation/default@6": 60.0}


def _points(hand):
    scores = [
        {
            "method": method,
            "run": 4 + i // 2,
            "task": i % 2,
            "n_labels": n,
            "accuracy": (accuracy + (10.0 if n == 20 else 0.0)) / 100.0,
        }
        for method, accuracies in hand.items()
        for i, accuracy in enumerate(accuracies)
        for n in (5, 20)
    ]
    records = []
    for method in hand:
        section, _, rest = method.partition("/")
        if section in ("time", "ablation"):
            name, _, passes = rest.partition("@")
            head = {"section": section, "name": name, "passes": int(passes), "changes": {}}
            seconds = SECONDS.get(method, 50.0)
            # Two runs, the second of which was held up.
            records += [head | {"run": 4 + r, "seconds": seconds + 7 * r} for r in range(2)]
    return coherence_points(records, scores), scores


def test_differences_are_from_scratch_and_from_the_default():
    points, scores = _points(HAND)
    found = {Setting(p.section, p.setting, p.passes, {}).method: p for p in points}
    both = found["time/both@4"]
    assert both.seconds == pytest.approx(40.0)
    assert both.accuracy == pytest.approx({5: 85.0, 20: 95.0})
    # Differences 20, 10, 10, 0: variance 200 / 3; t(3) at 97.5 % is 3.182446.
    gain = both.difference[5]
    assert gain.mean == pytest.approx(10.0)
    assert gain.high - gain.mean == pytest.approx(3.182446 * np.sqrt(200 / 3 / 4), rel=1e-6)
    changed = found["ablation/gain=1@6"].difference[20]
    assert (changed.mean, changed.n_pairs) == (pytest.approx(1.0), 4)
    assert found["ablation/default@6"].difference == {5: None, 20: None}
    assert scratch_accuracy(scores) == pytest.approx({5: 75.0, 20: 85.0})


def test_the_tables_have_a_row_for_each_point_of_their_section():
    points, _ = _points(HAND)
    time = COHERENCE_TABLES["coherence_time"](points)
    assert [row[:4] for row in time.rows] == [
        ["both", "1", "10", "85.00"],
        ["both", "4", "40", "85.00"],
    ]
    ablation = COHERENCE_TABLES["coherence_ablation"](points)
    assert [row[0] for row in ablation.rows] == ["default", "gain=1"]
    assert ablation.rows[0][2] == "reference"
    assert ablation.rows[1][2].startswith("+1.00 [")
    assert "6 passes" in ablation.title
    assert {len(row) for row in ablation.rows} == {len(ablation.head)}


def test_without_the_default_an_ablation_has_no_differences(tmp_path):
    points, scores = _points({k: v for k, v in HAND.items() if k == "ablation/gain=1@6"})
    assert points[0].difference == {5: None, 20: None}
    assert as_text(COHERENCE_TABLES["coherence_ablation"](points)).count("  -") == 2
    path = tmp_path / "x.png"
    said = draw_coherence(points, scratch_accuracy(scores), path, title="")
    assert "nothing was measured against time" in said
    assert not path.exists()


# The script

TINY = [
    "--dataset=digits",
    "--hidden-layer-sizes=4",
    *("--settings", "both", "paper", "default", "gain=1"),
    *("--passes", "1", "2"),
    "--paper-passes=1",
    "--budget=1",
    "--tasks=2",
    *("--n-labels", "5", "10"),
    "--jobs=1",
    "--quiet",
]


def _run(output, *more):
    return coherence.main([*TINY, "--output", str(output), *more])


def _results(output):
    return json.loads((output / "digits_coherence.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The output folder of a whole run."""
    output = tmp_path_factory.mktemp("coherence")
    assert _run(output) == 0
    return output


@pytest.fixture
def output(finished, tmp_path):
    """A copy of it, to go on with."""
    return shutil.copytree(finished, tmp_path / "output")


def _forbidden(*args, **kwargs):
    raise AssertionError("done already")


def test_the_script_writes_the_files(finished):
    results = _results(finished)
    assert set(results) >= {"versions", "hardware", "git_commit", "plan", "points", "scores"}
    assert [(p.section, p.setting, p.passes) for p in points_of_results(results)] == [
        ("time", "paper", 1),
        ("time", "both", 1),
        ("time", "both", 2),
        ("ablation", "default", 1),
        ("ablation", "gain=1", 1),
    ]
    assert all(record["seconds"] > 0 and record["passes"] > 0 for record in results["theta0"])
    assert (finished / "digits_coherence.png").read_bytes().startswith(b"\x89PNG")


def test_settings_are_chosen_on_other_runs_than_those_that_are_reported(finished):
    results = _results(finished)
    assert {record["run"] for record in results["theta0"]} == {4}
    assert {entry["run"] for entry in results["scores"]} == {4}
    assert [record["random_state"] for record in results["theta0"]] == [4] * 5
    kept = [json.loads(line) for line in (finished / "scores.jsonl").read_text().splitlines()]
    tasks = {(record["task"], tuple(record["values"])) for record in kept}
    assert tasks == {(t.index, t.values) for t in random_tasks(10, 2, seed=0, run=4)}


def test_a_second_call_learns_and_evaluates_nothing(output, monkeypatch, capsys):
    before = _results(output)
    monkeypatch.setattr(evaluation, "cross_val_score", _forbidden)
    monkeypatch.setattr(pretrained, "_write", _forbidden)
    assert _run(output) == 0
    assert _results(output) == before
    printed = capsys.readouterr()
    assert printed.err == ""  # --quiet
    assert "One change at a time" in printed.out
    # A part of the settings is at hand as well.
    assert _run(output, "--settings", "gain=1", "--sections", "ablation") == 0
    assert [p.setting for p in points_of_results(_results(output))] == ["gain=1"]


def test_an_interrupted_run_goes_on_to_the_same_scores(finished, tmp_path, monkeypatch, capsys):
    partial_fit, passes = MMDInitializer.partial_fit, []

    def interrupted(self, X, y=None):
        if len(X) > 100:  # but for the fits of an instant that say what "auto" stands for
            if len(passes) == 3:
                raise KeyboardInterrupt
            passes.append(self.max_iter)
        return partial_fit(self, X, y)

    with monkeypatch.context() as patch:
        patch.setattr(MMDInitializer, "partial_fit", interrupted)
        assert _run(tmp_path) == 130
    assert "goes on from here" in capsys.readouterr().err
    assert passes == [1, 1, 2]
    assert _run(tmp_path) == 0
    assert _results(tmp_path)["scores"] == _results(finished)["scores"]


def test_the_readme_has_both_tables(finished):
    points = points_of_results(_results(finished))
    for kind, build in COHERENCE_TABLES.items():
        text = f"<!-- table: digits_coherence.json {kind} -->\nold\n<!-- end of table -->"
        made = readme_tables.rewrite(text, finished)
        for row in build(points).rows:
            assert "| " + " | ".join(row) + " |" in made


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--settings", "k7"), "unknown setting 'k7'; valid names are paper, coherence, both"),
        (("--sections", "time", "--settings", "gain=1"), "valid names are paper, coherence, both"),
        (("--n-labels", "500"), "N = 500 takes 6000 labelled rows; the training set has 1297"),
    ],
)
def test_bad_options_are_refused_before_any_work(tmp_path, capsys, more, message):
    assert _run(tmp_path, *more) == 2
    assert list(tmp_path.iterdir()) == []
    assert message in capsys.readouterr().err


def test_the_settings_can_be_listed(capsys):
    assert coherence.main(["--list-settings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "time/paper: {'n_perturbations': 64}"
    assert len(lines) == len(OBJECTIVES) + len(ABLATION)
