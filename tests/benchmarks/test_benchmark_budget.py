"""Accuracy against pre-training time: the choice by hand, and the script whole."""

import json
import shutil

import numpy as np
import pytest

import budget
import readme_tables
from protocol import checkpoints, evaluation, yardstick
from protocol.budget_settings import (
    DEFAULT_SETTINGS,
    REFERENCE,
    SETTINGS,
    curve_name,
    initializer_for,
)
from protocol.methods import NetworkSettings
from protocol.store import ScoreLog
from protocol.yardstick import Yardstick
from reporting.budget_tables import (
    budget_points,
    budget_table,
    choose,
    full_table,
    points_of_results,
    statement,
)
from reporting.table import as_text
from sklearn_mmdinit import MMDInitializer


@pytest.fixture(autouse=True, scope="module")
def _short_yardstick():
    """Two mini-batches in place of 32: the most expensive part of a tiny run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yardstick, "N_BATCHES", 2)
        yield


# The choice, worked out by hand

# Setting and passes -> seconds, and accuracies (%) of four tasks at N = 5. Against paper@5:
#   k64@1     -0.5 +0.5 -1.5 +0.5: mean -0.25, within by the mean alone
#   k64@2     all +0.1: within by both readings
#   k32@5     mean -0.31: not within, and the cheapest of all
#   paper@1   mean 0, wide, and dearer than k64@1
HAND = {
    ("paper", 1): (100.0, (81.0, 81.0, 83.0, 83.0)),
    ("paper", 5): (500.0, (80.0, 82.0, 84.0, 82.0)),
    ("k64", 1): (30.0, (79.5, 82.5, 82.5, 82.5)),
    ("k64", 2): (60.0, (80.1, 82.1, 84.1, 82.1)),
    ("k32", 5): (10.0, (79.69, 81.69, 83.69, 81.69)),
}


def _points(hand, *, drop_task=None):
    checkpoints = [
        {
            "setting": setting,
            "passes": passes,
            "run": run,
            "steps": 10 * passes,
            # Two runs whose mean is the figure above.
            "seconds": seconds + (1.0 if run else -1.0),
            "loss": 0.5 + run,
            "degenerate_softmax": 0.0,
        }
        for (setting, passes), (seconds, _) in hand.items()
        for run in range(2)
    ]
    scores = [
        {
            "method": curve_name(*point),
            "run": task // 2,
            "task": task % 2,
            "n_labels": n,
            # The mean over the two N is the figure above.
            "accuracy": (accuracy + (5.0 if n == 20 else -5.0)) / 100.0,
        }
        for point, (_, accuracies) in hand.items()
        for task, accuracy in enumerate(accuracies)
        for n in (5, 20)
        if (point, task) != drop_task
    ]
    return budget_points(checkpoints, scores)


def _named(point):
    return (point.setting, point.passes)


def test_the_cheapest_within_the_margin_of_a_case_worked_out_by_hand():
    points = _points(HAND)
    by_name = {_named(point): point for point in points}
    assert by_name["k64", 1].seconds == pytest.approx(30.0)
    assert by_name["k64", 1].loss == pytest.approx(1.0)
    assert by_name["k64", 1].accuracy == pytest.approx({5: 81.75 - 5.0, 20: 81.75 + 5.0})
    gain = by_name["k64", 1].difference
    assert gain.mean == pytest.approx(-0.25)
    # Deviations -0.25, 0.75, -1.25, 0.75: variance 2.75 / 3; t(3) at 97.5 % is 3.182446.
    assert gain.mean - gain.low == pytest.approx(3.182446 * np.sqrt(2.75 / 3 / 4), rel=1e-6)
    assert gain.n_pairs == 4  # a task counts once, not once for each N
    choice = choose(points)
    assert _named(choice.reference) == ("paper", 5)
    assert _named(choice.by_mean) == ("k64", 1)
    assert _named(choice.by_interval) == ("k64", 2)
    said = statement(choice)
    assert "k64, 1 pass: 30 s, 6 % of the full cost, -0.25 [" in said
    assert "k64, 2 passes: 60 s, 12 % of the full cost, +0.10 [+0.10, +0.10]" in said


@pytest.mark.parametrize(("drop", "inside"), [(0.3, True), (0.301, False)])
@pytest.mark.parametrize("level", range(60, 70))  # sums round up for some, down for others
def test_the_margin_itself_is_inside_it(drop, inside, level):
    accuracies = (level, level + 1)
    hand = {
        ("paper", 5): (500.0, accuracies),
        ("k32", 5): (10.0, tuple(accuracy - drop for accuracy in accuracies)),
    }
    choice = choose(_points(hand))
    expected = ("k32", 5) if inside else ("paper", 5)
    assert _named(choice.by_mean) == expected
    assert ("none but itself" in statement(choice).splitlines()[1]) is not inside


def test_a_point_on_other_tasks_is_not_compared():
    points = _points(HAND, drop_task=(("k64", 1), 3))
    assert next(p for p in points if _named(p) == ("k64", 1)).difference is None
    assert _named(choose(points).by_mean) == ("k64", 2)


def test_without_the_full_setting_nothing_is_chosen():
    points = _points({key: value for key, value in HAND.items() if key[0] != "paper"})
    assert choose(points) is None
    assert len(full_table(points).rows) == 3
    assert "reference" not in as_text(budget_table(points))


def test_the_short_table_has_each_setting_where_it_is_first_good_enough():
    rows = budget_table(_points(HAND)).rows
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("paper", "5", "100.0 %"),
        ("k64", "1", "6.0 %"),
        ("paper", "1", "20.0 %"),
        ("k32", "5", "2.0 %"),  # never is: it stands last
    ]
    assert rows[0][-1] == "reference"


# Settings


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_is_the_paper_s_but_for_what_it_names(setting):
    initializer = initializer_for(setting, NetworkSettings(), random_state=0)
    initializer._resolved()._check_params()
    paper = MMDInitializer(n_perturbations=256, max_iter=5, random_state=0).get_params()
    changed = {k: v for k, v in initializer.get_params().items() if v != paper[k]}
    assert changed == SETTINGS[setting]
    assert REFERENCE in DEFAULT_SETTINGS
    assert set(DEFAULT_SETTINGS) <= set(SETTINGS)


# The yardstick


def test_the_yardstick_is_the_paper_s_loss_and_does_not_care_how_theta0_was_learned(tmp_path):
    X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    network, log = NetworkSettings((5,)), ScoreLog(tmp_path / "losses.jsonl")
    yardstick = Yardstick(X, network, random_state=0, log=log)
    paper = initializer_for("paper", network, random_state=0).set_params(max_iter=2).fit(X)
    fresh = initializer_for("k32", network, random_state=0).set_params(max_iter=0).fit(X)
    other = initializer_for("k32", network, random_state=0).set_params(max_iter=60).fit(X)
    measured = yardstick.measure(paper.theta0_)
    assert measured["loss"] == -paper.score(X)
    assert 0.0 <= measured["degenerate_softmax"] <= 1.0
    assert len(measured["dead_neurons"]) == 1
    assert yardstick.measure(other.theta0_)["loss"] < yardstick.measure(fresh.theta0_)["loss"]
    assert len(log.read()) == 3
    assert yardstick.measure(paper.theta0_) == measured
    assert len(log.read()) == 3


# The script

TINY = [
    "--dataset=digits",
    "--hidden-layer-sizes=4",
    *("--settings", "paper", "k32"),
    *("--passes", "0.05", "0.1"),
    *("--n-labels", "5", "10"),
    "--tasks=2",
    "--jobs=1",
    "--quiet",
]


def _run(output, *more):
    return budget.main([*TINY, "--output", str(output), *more])


def _results(output):
    return json.loads((output / "digits_budget.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The output folder of a whole run."""
    output = tmp_path_factory.mktemp("budget")
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
    assert set(results) >= {"versions", "hardware", "git_commit", "plan", "scores", "statement"}
    points = points_of_results(results)
    assert [_named(p) for p in points] == [
        ("paper", 0.05),
        ("paper", 0.1),
        ("k32", 0.05),
        ("k32", 0.1),
    ]
    assert [p.steps for p in points] == [2, 4, 2, 4]
    assert points[0].seconds < points[1].seconds
    assert all(np.isfinite(p.loss) and set(p.accuracy) == {5, 10} for p in points)
    assert all(p.difference.n_pairs == 2 for p in points)
    window = {"step", "loss", "uniformity", "degeneracy", "detachment"}
    assert all(set(c["last_window"]) == window for c in results["checkpoints"])
    assert "Full setting: paper, 0.1 passes" in results["statement"][0]
    assert (finished / "digits_budget.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_call_learns_and_evaluates_nothing(output, monkeypatch, capsys):
    before = _results(output)
    monkeypatch.setattr(evaluation, "cross_val_score", _forbidden)
    monkeypatch.setattr(checkpoints, "_timed_fit", _forbidden)
    monkeypatch.setattr(Yardstick, "_measure", _forbidden)
    assert _run(output) == 0
    after = _results(output)
    assert after["scores"] == before["scores"]
    assert after["checkpoints"] == before["checkpoints"]
    printed = capsys.readouterr()
    assert printed.err == ""  # --quiet
    assert "Cheapest whose mean accuracy is within 0.3 points" in printed.out
    # A part of the settings and passes is at hand as well.
    assert _run(output, "--settings", "k32", "--passes", "0.05") == 0
    assert "add paper to --settings" in capsys.readouterr().out


def test_an_interrupted_run_goes_on_to_the_same_scores(finished, tmp_path, monkeypatch, capsys):
    timed_fit, fits = checkpoints._timed_fit, []

    def interrupted(initializer, rows):
        if len(fits) == 3:
            raise KeyboardInterrupt
        fits.append(len(rows))
        return timed_fit(initializer, rows)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_timed_fit", interrupted)
        assert _run(tmp_path) == 130
    assert "goes on from here" in capsys.readouterr().err
    assert _run(tmp_path) == 0
    assert _results(tmp_path)["scores"] == _results(finished)["scores"]


def test_what_another_seed_learned_is_not_taken_for_this_one_s(tmp_path, monkeypatch):
    """Run 1 of seed 0 and run 0 of seed 1 share a ``random_state``, but not the order of rows."""
    timed_fit, fits = checkpoints._timed_fit, []

    def counted(initializer, rows):
        fits.append(rows.sum())
        return timed_fit(initializer, rows)

    monkeypatch.setattr(checkpoints, "_timed_fit", counted)
    few = ("--settings", "k32", "--passes", "0.05", "--n-labels", "5")
    assert _run(tmp_path, *few, "--runs", "2") == 0
    assert _run(tmp_path, *few, "--seed", "1") == 0
    assert len(fits) == len(set(fits)) == 3


def test_cost_can_be_measured_apart_from_the_learning(output):
    assert _run(output, "--time-steps", "2") == 0
    results = _results(output)
    assert results["seconds_from"] == "steps x seconds a step"
    for record in results["checkpoints"]:
        times = results["seconds_a_step"][record["setting"]]
        assert len(times["rounds"]) == 3
        assert times["seconds_a_step"] == np.median(times["rounds"])
        assert record["seconds"] == record["steps"] * times["seconds_a_step"]
        assert record["seconds_while_learning"] > 0.0


def test_the_readme_has_the_short_table(finished):
    text = "<!-- table: digits_budget.json budget -->\nold\n<!-- end of table -->"
    made = readme_tables.rewrite(text, finished)
    points = points_of_results(_results(finished))
    for row in budget_table(points).rows:
        assert "| " + " | ".join(row) + " |" in made
    assert "old" not in made


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--settings", "k7"), "unknown setting 'k7'; valid names are paper, closed_form"),
        (("--passes", "0.001"), "a pass has 40 steps"),
        (("--n-labels", "500"), "N = 500 takes 6000 labelled rows; the training set has 1297"),
    ],
)
def test_bad_options_are_refused_before_any_work(tmp_path, capsys, more, message):
    assert _run(tmp_path, *more) == 2
    assert list(tmp_path.iterdir()) == []
    assert message in capsys.readouterr().err


def test_no_passes_are_refused_by_the_parser(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        _run(tmp_path, "--passes", "0")
    assert "must be a number above 0, got 0" in capsys.readouterr().err


def test_the_settings_can_be_listed(capsys):
    assert budget.main(["--list-settings"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == "k128: {'n_perturbations': 128}"
