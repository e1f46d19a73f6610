"""The benchmark on binary tasks, end to end on scikit-learn's digits with a tiny network."""

import json

import pytest

import mnist_tasks
from protocol import evaluation, pretrained
from protocol.methods import PAPER_METHODS
from protocol.rival_classifiers import CLASSIFIERS
from protocol.store import ScoreLog
from protocol.task_plan import plan_of
from reporting.task_tables import unpack_scores

TINY = [
    "--dataset=digits",
    "--hidden-layer-sizes=4",
    "--epochs=1",
    "--coherent-epochs=1",
    "--n-perturbations=4",
    "--tasks=2",
    *("--n-labels", "5", "10"),
    "--jobs=1",
    "--quiet",
]


def _run(output, *more):
    return mnist_tasks.main([*TINY, "--output", str(output), *more])


def _results(output, stem):
    return json.loads((output / f"{stem}.json").read_text())


def _scores(output, stem="digits_tasks"):
    return {
        (s["method"], s["run"], s["task"], s["n_labels"]): s["accuracy"]
        for s in unpack_scores(_results(output, stem)["scores"])
    }


def test_the_script_prints_the_tables_and_writes_the_files(tmp_path, capsys):
    assert _run(tmp_path, "--rivals", "--runs", "2") == 0
    printed = capsys.readouterr()
    assert printed.err == ""  # --quiet
    assert all(title in printed.out for title in ("Test accuracy", "Std over", "Gain over", "Diff"))
    assert "Table 1." not in printed.out  # they are not the paper's images
    names = ("xavier/fcn/ours", "xavier/fcn/ours+coherence", "features+logistic", *CLASSIFIERS)
    assert all(name in printed.out for name in ("xavier/fcn/scratch", *names))
    results = json.loads((tmp_path / "digits_tasks.json").read_text())
    assert set(results) >= {"versions", "hardware", "git_commit", "settings", "scores", "theta0"}
    assert results["settings"]["seed"] == 0
    assert [(theta0["method"], theta0["run"]) for theta0 in results["theta0"]] == [
        (name, run) for run in (0, 1) for name in names[:2]
    ]
    # Against scratch, label spreading and the best rival; two methods, two N.
    assert len(results["against"]) == 3 * 2 * 2
    assert len(_scores(tmp_path)) == 8 * 2 * 2 * 2
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
    assert sum(n_fits) == 4 * 2 * 2 - 3
    assert _run(tmp_path / "whole") == 0
    assert _scores(tmp_path / "cut") == _scores(tmp_path / "whole")


def test_workers_give_the_scores_of_one_process_and_other_methods_change_none(tmp_path):
    assert _run(tmp_path / "one") == 0
    more = ("--methods", "xavier/fcn*/*", "--n-labels", "10", "--jobs", "2")
    assert _run(tmp_path / "two", *more) == 0
    one, two = _scores(tmp_path / "one"), _scores(tmp_path / "two")
    common = one.keys() & two.keys()
    assert len(common) == 3 * 2
    for key in common:
        # Two of the 500 test images: another number of threads may round otherwise.
        assert one[key] == pytest.approx(two[key], abs=0.004)


def test_runs_to_choose_settings_by_are_those_of_a_longer_series(tmp_path):
    only = ("--methods", "*/fcn/scratch")
    assert _run(tmp_path / "all", *only, "--runs", "3") == 0
    assert _run(tmp_path / "late", *only, "--first-run", "1", "--runs", "2") == 0
    own = tmp_path / "late", "digits_tasks_from_run_1"
    assert _results(*own)["settings"]["first_run"] == 1
    late = _scores(*own)
    assert {run for _, run, _, _ in late} == {1, 2}
    assert late.items() <= _scores(tmp_path / "all").items()


def test_the_task_with_all_classes(tmp_path, capsys):
    ten_way = ("--classes", "10", "--rivals", "--n-labels", "3")
    assert _run(tmp_path, *ten_way) == 0
    results = json.loads((tmp_path / "digits_ten_way.json").read_text())
    assert results["settings"]["classes"] == 10
    scores = unpack_scores(results["scores"])
    assert len(scores) == 8 * 2
    # Three labels a digit, and every method is above chance; the rivals by far.
    spreading = [s["accuracy"] for s in scores if s["method"] == "rival/label-spreading"]
    assert min(spreading) > 0.6
    assert "(82.42" not in capsys.readouterr().out  # the paper's figures are of binary tasks


@pytest.mark.parametrize(
    ("option", "value", "stem"),
    [
        ("augmentation", "digits", "digits_tasks_augmented_as_digits"),
        ("augmentation", "clothes", "digits_tasks_augmented_as_clothes"),
        ("neighbors", "gradients", "digits_tasks_by_gradients"),
        ("separation", 4.0, "digits_tasks_separation_4"),
        ("rounds", 2, "digits_tasks_2_rounds"),
    ],
)
def test_another_way_to_learn_has_results_of_its_own(option, value, stem, tmp_path):
    only = ("--methods", "*/fcn/scratch", "features+logistic", "--n-labels", "5")
    only = (*only, "--coherent-epochs", "1")
    assert _run(tmp_path, *only) == 0
    plain = _scores(tmp_path)
    assert _run(tmp_path, *only, f"--{option}", str(value)) == 0
    assert _scores(tmp_path) == plain  # its file is another one
    own = tmp_path, stem
    assert _results(*own)["settings"][option] == value
    found = _scores(*own)
    assert found.keys() == plain.keys()
    # Not every single one: 500 test images leave room for a tie.
    changed = {key[0] for key, accuracy in found.items() if accuracy != plain[key]}
    assert changed == {"features+logistic"}


def test_balanced_draws_have_results_of_their_own(tmp_path):
    only = ("--methods", "*/fcn/scratch", "--n-labels", "5")
    assert _run(tmp_path, *only) == 0
    uniform = _scores(tmp_path)
    assert _run(tmp_path, *only, "--draw", "balanced") == 0
    assert _scores(tmp_path) == uniform  # its file is another one
    own = tmp_path, "digits_tasks_balanced"
    assert _results(*own)["settings"]["draw"] == "balanced"
    balanced = _scores(*own)
    assert balanced.keys() == uniform.keys()
    assert balanced != uniform


def test_the_presets():
    def plan(*argv):
        return plan_of(mnist_tasks._parser().parse_args(argv))

    assert plan("--preset", "paper").methods == PAPER_METHODS
    assert plan("--preset", "paper").coherent_passes is None
    assert plan().coherent_passes == 4
    assert (plan().epochs, plan().n_perturbations, plan().tasks) == (2, 64, 20)
    assert plan("--classes", "10").tasks == 10
    assert plan("--classes", "10", "--tasks", "3").tasks == 3
    assert plan("--coherent-epochs", "7", "--dataset", "digits").coherent_passes == 7


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
        (("--classes", "10", "--n-labels", "500"), "N = 500 labelled rows of each class"),
        (("--classes", "10", "--draw", "balanced"), "--draw balanced is for binary tasks"),
        (("--draw", "balanced", "--n-labels", "500"), "N = 500 takes up to 600 labelled rows of a"),
        (
            ("--methods", "features+logistic-cv", "--n-labels", "1", "5"),
            "with two classes N must be 5 or more, got 1",
        ),
        (("--address", "tcp://a:1"), "--address tcp://a:1: loky has this machine's processes"),
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
