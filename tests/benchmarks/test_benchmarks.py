"""The benchmark on binary tasks, end to end on scikit-learn's digits with a tiny network."""

import pytest

import mnist_tasks
from protocol.contenders import CLASSIFIERS
from protocol.methods import CONVNET_NAMES, CONVNET_SCRATCH, PAPER_METHODS, NetworkSettings
from protocol.store import Log
from results_stand_in import status_of, written

TINY = (
    "--dataset=digits --hidden-layer-sizes=4 --epochs=1 --coherent-epochs=1 --n-perturbations=4 "
    "--tasks=2 --n-labels 5 10 --jobs=1 --quiet"
)


def _run(output, *more):
    return status_of(mnist_tasks, [*TINY.split(), "--output", output, *more])


def _scores(output, **settings):
    return {
        (entry["method"], entry["run"], task, entry["n_labels"]): accuracy
        for entry in written(output, **settings)["scores"]
        for task, accuracy in zip(entry["tasks"], entry["accuracies"], strict=True)
    }


def _plan(*argv):
    return mnist_tasks.plan_of(mnist_tasks._parser().parse_args(argv))


def test_the_script_prints_the_tables_and_writes_the_files(tmp_path, capsys):
    assert _run(tmp_path, "--rivals", *CLASSIFIERS, "--runs", "2") == 0
    printed = capsys.readouterr()
    assert printed.err == ""  # --quiet
    assert all(title in printed.out for title in ("Test accuracy", "Std over", "Gain over", "Diff"))
    names = ("xavier/fcn/ours", "xavier/fcn/ours+coherence", "features+logistic", *CLASSIFIERS)
    assert all(name in printed.out for name in ("xavier/fcn/scratch", *names))
    results = written(tmp_path)
    assert set(results) >= {"versions", "hardware", "git_commit", "settings", "scores", "theta0"}
    assert results["settings"]["seed"] == 0
    assert [(theta0["method"], theta0["run"]) for theta0 in results["theta0"]] == [
        (name, run) for run in (8, 9) for name in names[:2]
    ]
    assert len(_scores(tmp_path)) == 6 * 2 * 2 * 2
    assert all(0.0 <= accuracy <= 1.0 for accuracy in _scores(tmp_path).values())


def test_an_interrupted_run_goes_on_to_the_same_scores_and_a_second_one_does_nothing_again(
    tmp_path, monkeypatch, capsys
):
    append, kept = Log.append, []

    def interrupted(self, record):
        if len(kept) == 3:
            raise KeyboardInterrupt
        kept.append(record["key"])
        append(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "append", interrupted)
        assert _run(tmp_path / "cut") == 130
    assert "goes on from here" in capsys.readouterr().err
    log = tmp_path / "cut" / "scores.jsonl"
    for _ in range(2):
        assert _run(tmp_path / "cut") == 0
        # An empty line stands before each score, and none is there twice.
        assert len(log.read_text().splitlines()) == 2 * len(Log(log).records) == 2 * 4 * 2 * 2
    assert set(kept) < set(Log(log).records)
    assert _run(tmp_path / "whole") == 0
    assert _scores(tmp_path / "cut") == _scores(tmp_path / "whole")


def test_workers_give_the_scores_of_one_process_and_other_methods_change_none(tmp_path):
    assert _run(tmp_path / "one", "--methods", "*/fcn/scratch", "features+logistic") == 0
    more = ("--methods", "xavier/fcn*/scratch", "--n-labels", "10", "--jobs", "2")
    assert _run(tmp_path / "two", *more) == 0
    one, two = _scores(tmp_path / "one"), _scores(tmp_path / "two")
    common = one.keys() & two.keys()
    assert len(common) == 2
    assert {key: one[key] for key in common} == {key: two[key] for key in common}


def test_the_command_on_a_convolutional_network(tmp_path, capsys):
    convnet = ("--network", "convnet", "--n-labels", "5", "--rivals", "rbf-svm")
    assert _run(tmp_path, *convnet) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in (*CONVNET_NAMES, "rival/rbf-svm"))
    results = written(tmp_path)
    assert [record["method"] for record in results["theta0"]] == list(CONVNET_NAMES[:2])
    methods = {key[0] for key in _scores(tmp_path)}
    assert methods == {*CONVNET_NAMES, "rival/rbf-svm"}
    assert _run(tmp_path, *convnet, "--classes", "10", "--methods", CONVNET_SCRATCH) == 0
    found = written(tmp_path, classes=10)["scores"]
    assert [score["method"] for score in found] == [CONVNET_SCRATCH, "rival/rbf-svm"]


# Plans


def test_the_presets():
    assert _plan("--preset", "paper").methods == PAPER_METHODS
    # What the quick one is was chosen on run 0.
    assert (_plan("--preset", "paper").first_run, _plan().first_run) == (0, 8)
    assert _plan("--classes", "10", "--tasks", "3").tasks == 3
    assert _plan("--coherent-epochs", "7", "--dataset", "digits").coherent_epochs == 7
    assert _plan("--network", "convnet").methods == CONVNET_NAMES
    ways = {"augmentation": "clothes", "neighbors": "gradients", "kernels": "mean"}
    options = [f"--{name}={value}" for name, value in ways.items()]
    settings = NetworkSettings.of(_plan(*options, "--separation=4"))
    assert vars(settings).items() >= {**ways, "separation": 4.0}.items()
    with pytest.raises(ValueError, match="unknown method 'xavier/fcn/ours'; valid names are conv"):
        _plan("--network", "convnet", "--methods", "xavier/fcn/ours")
