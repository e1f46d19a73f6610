"""The benchmark on binary tasks, end to end on scikit-learn's digits with a tiny network."""

import json

import pytest

import mnist_tasks
from protocol import evaluation, pretrained
from protocol.rivals import RIVALS
from protocol.store import ScoreLog
from report.task_tables import unpack_scores

TINY = [
    "--dataset=digits",
    "--hidden-layer-sizes=4",
    "--epochs=1",
    "--n-perturbations=4",
    "--tasks=2",
    *("--n-labels", "5", "10"),
    "--jobs=1",
    "--quiet",
]


def _run(output, *more):
    return mnist_tasks.main([*TINY, "--output", str(output), *more])


def _scores(output):
    results = json.loads((output / "digits_tasks.json").read_text())
    return {
        (s["method"], s["run"], s["task"], s["n_labels"]): s["accuracy"]
        for s in unpack_scores(results["scores"])
    }


def test_the_script_prints_the_tables_and_writes_the_files(tmp_path, capsys):
    assert _run(tmp_path, "--rivals", "--runs", "2") == 0
    printed = capsys.readouterr()
    assert printed.err == ""  # --quiet
    assert all(title in printed.out for title in ("Table 1.", "Table 2.", "Gain over"))
    assert all(name in printed.out for name in ("xavier/fcn/ours", "xavier/fcn/scratch", *RIVALS))
    results = json.loads((tmp_path / "digits_tasks.json").read_text())
    assert set(results) >= {"versions", "hardware", "git_commit", "settings", "scores", "theta0"}
    assert results["settings"]["seed"] == 0
    assert [theta0["run"] for theta0 in results["theta0"]] == [0, 1]
    assert len(_scores(tmp_path)) == 6 * 2 * 2 * 2
    assert all(0.0 <= accuracy <= 1.0 for accuracy in _scores(tmp_path).values())
    assert (tmp_path / "digits_tasks.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_call_does_no_work_again(tmp_path, monkeypatch):
    assert _run(tmp_path) == 0
    first = _scores(tmp_path)

    def forbidden(*args, **kwargs):
        raise AssertionError("done already")

    monkeypatch.setattr(evaluation, "cross_val_score", forbidden)
    monkeypatch.setattr(pretrained, "_write", forbidden)
    assert _run(tmp_path) == 0
    assert _scores(tmp_path) == first


def test_an_interrupted_run_goes_on_to_the_same_scores(tmp_path, monkeypatch, capsys):
    append = ScoreLog.append
    kept = []

    def interrupted(self, record):
        if len(kept) == 3:
            raise KeyboardInterrupt
        kept.append(record["key"])
        append(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(ScoreLog, "append", interrupted)
        assert _run(tmp_path / "cut") == 130
    assert "goes on from here" in capsys.readouterr().err
    n_fits = []
    cross_val_score = evaluation.cross_val_score

    def counted(*args, cv, **kwargs):
        n_fits.append(len(cv))
        return cross_val_score(*args, cv=cv, **kwargs)

    monkeypatch.setattr(evaluation, "cross_val_score", counted)
    assert _run(tmp_path / "cut") == 0
    assert sum(n_fits) == 2 * 2 * 2 - 3
    assert _run(tmp_path / "whole") == 0
    assert _scores(tmp_path / "cut") == _scores(tmp_path / "whole")


def test_workers_give_the_scores_of_one_process_and_other_methods_change_none(tmp_path):
    assert _run(tmp_path / "one") == 0
    more = ("--methods", "xavier/fcn*/*", "--n-labels", "10", "--jobs", "2")
    assert _run(tmp_path / "two", *more) == 0
    one, two = _scores(tmp_path / "one"), _scores(tmp_path / "two")
    common = one.keys() & two.keys()
    assert len(common) == 2 * 2
    for key in common:
        # Two of the 500 test images: another number of threads may round otherwise.
        assert one[key] == pytest.approx(two[key], abs=0.004)


def test_another_seed_has_other_scores(tmp_path):
    assert _run(tmp_path, "--methods", "*/fcn/scratch") == 0
    first = _scores(tmp_path)
    assert _run(tmp_path, "--methods", "*/fcn/scratch", "--seed", "1") == 0
    assert _scores(tmp_path) != first


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--methods", "lecun/*"), "unknown method 'lecun/*'; valid names are xavier/fcn/ours"),
        (("--n-labels", "500"), "N = 500 takes 6000 labelled rows; the training set has 1297"),
        (("--tasks", "2000"), "n_tasks = 2000: 10 classes have between 1 and 1022"),
    ],
)
def test_bad_options_are_refused_before_any_work(tmp_path, capsys, more, message):
    assert _run(tmp_path, *more) == 2
    assert list(tmp_path.iterdir()) == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_zero_tasks_are_refused_by_the_parser(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        _run(tmp_path, "--tasks", "0")
    assert "must be 1 or more, got 0" in capsys.readouterr().err
