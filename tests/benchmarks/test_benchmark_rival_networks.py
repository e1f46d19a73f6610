"""The rivals as contenders on the digits: paired with scratch, learned once, selected by name."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import tune_scratch
from data.datasets import load_digits_dataset
from protocol import pretrained, rival_networks
from protocol.bench import Bench
from protocol.evaluation import evaluate, scaled
from protocol.methods import NetworkSettings
from protocol.rival_augmented import AUGMENTED
from protocol.rival_classifiers import CLASSIFIERS, principal_components
from protocol.rival_gradients import AUGMENTED_GRADIENTS, GRADIENTS
from protocol.rival_networks import NETWORKS
from protocol.rivals import ALL_RIVALS, RIVALS, Rivals, scratch_of, select_rivals
from protocol.scratch import SCRATCH, scratch_contender
from protocol.store import ScoreLog
from protocol.tasks import random_tasks
from protocol.tuned_scratch import GRID, PAPER, TUNED, FineTuning, fine_tuning_contender
from reporting.task_tables import build_table, summarize
from reporting.tuning_table import as_records, tried_of_records, tried_settings, tuning_table
from sklearn_mmdinit import OrientedGradients

RESULTS = Path(tune_scratch.__file__).parent / "results"
SIZES = (16, 8)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """The digits with a small network, three tasks and short trainings."""
    monkeypatch.setitem(rival_networks.AUTOENCODER, "max_iter", 2)
    monkeypatch.setitem(rival_networks.SELF_TRAINING, "max_iter", 1)
    monkeypatch.setattr(rival_networks, "SELF_TRAINING_ROWS", 60)
    dataset = load_digits_dataset()
    X, data = scaled(dataset)
    options = argparse.Namespace(seed=0, output=tmp_path, quiet=True)
    tasks = {0: random_tasks(10, 3, seed=0, run=0)}
    return Bench(dataset, X, data, NetworkSettings(SIZES), tasks, options)


def contenders_of(bench, run=0, names=tuple(NETWORKS)):
    found, records = Rivals(names, bench).of_run(run)
    return {contender.name: contender for contender in found}, records


def start_of(contender, bench, seed=3):
    """The weights a fit of it starts from."""
    rows = slice(0, 60)
    pipeline = clone(contender.make(seed)).fit(bench.X[rows], bench.data.y_train[rows] > 4)
    return pipeline[-1].theta0_.arrays


def scores_beside_scratch(bench, found, folder):
    return evaluate(
        [scratch_contender(bench.X, bench.network), *found.values()],
        bench.tasks[0],
        (5,),
        data=bench.data,
        log=ScoreLog(folder / "scores.jsonl"),
        seed=0,
        quiet=True,
    )


# Contenders


def test_every_rival_is_evaluated_on_the_tasks_of_scratch(bench, tmp_path):
    found, records = contenders_of(bench, names=RIVALS)
    assert tuple(found) == RIVALS
    assert [record["method"] for record in records] == ["rival/autoencoder"]
    assert json.dumps(records)
    scores = scores_beside_scratch(bench, found, tmp_path)
    assert len(scores) == 10 * 3
    gains = {row[0] for row in build_table("gain", summarize(scores), paper=True).rows}
    assert gains == set(NETWORKS)  # those alone are a network, and have its scratch as a pair
    accuracy = {s["method"]: s["accuracy"] for s in scores if s["task"] == 0}
    assert len(set(accuracy.values())) > 5


def test_what_a_rival_does_not_bring_is_what_scratch_has_in_the_same_fit(bench):
    found, _ = contenders_of(bench)
    fresh = start_of(scratch_contender(bench.X, bench.network), bench)
    kept = {
        "rival/pca-layer": {1, 2},
        "rival/autoencoder": {2},
        "rival/lsuv": set(),
        "rival/tuned-scratch": {0, 1, 2},
    }
    for name, layers in kept.items():
        own = start_of(found[name], bench)
        same = {i for i in range(3) if np.array_equal(own[k := f"linears.{i}.weight"], fresh[k])}
        assert same == layers, name


def test_lsuv_draws_other_weights_for_another_fit(bench):
    found, _ = contenders_of(bench, names=["rival/lsuv"])
    first, again, other = (start_of(found["rival/lsuv"], bench, seed)["linears.0.weight"]
                           for seed in (3, 3, 4))  # fmt: skip
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_self_training_sees_rows_of_the_training_set_alone(bench):
    found, _ = contenders_of(bench, names=["rival/self-training"])
    rows = found["rival/self-training"].make(0)[-1].X_unlabelled
    pool = {row.tobytes() for row in bench.X_unlabelled}
    assert len(rows) == 60
    assert all(row.tobytes() in pool for row in rows)


def test_identities_differ_and_say_what_is_changed(bench):
    found, _ = contenders_of(bench)
    identities = [json.dumps(contender.identity, sort_keys=True) for contender in found.values()]
    assert len(set(identities)) == len(NETWORKS)
    scratch = scratch_contender(bench.X, bench.network).identity
    for contender in found.values():
        assert {k: v for k, v in contender.identity.items() if k != "change"} == scratch


def test_an_encoder_is_learned_once_a_run_and_found_again(bench, monkeypatch):
    def digest(run):
        found, _ = contenders_of(bench, run, ["rival/autoencoder"])
        return found["rival/autoencoder"].identity["change"]["encoder"]

    first, other = digest(0), digest(1)
    assert first != other

    def forbidden(*args, **kwargs):
        raise AssertionError("learned already")

    monkeypatch.setattr(pretrained, "_write", forbidden)
    assert (digest(0), digest(1)) == (first, other)


def test_with_all_classes_the_networks_have_as_many_outputs(bench):
    ten = Bench(
        bench.dataset, bench.X, bench.data, NetworkSettings(SIZES, classes=10), {}, bench.options
    )
    found, _ = contenders_of(ten)
    X, y = bench.X[:100], bench.data.y_train[:100]
    for contender in found.values():
        assert set(clone(contender.make(0)).fit(X, y).predict(X)) <= set(range(10))


# Names


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (None, []),
        ([], list(CLASSIFIERS)),
        (["*"], list(RIVALS)),
        (["lsuv", "rival/1-nn"], ["rival/1-nn", "rival/lsuv"]),
        (["*-svm", "tuned*"], ["rival/rbf-svm", "rival/k-means-svm", "rival/tuned-scratch"]),
    ],
)
def test_rivals_are_selected_by_name_or_pattern(patterns, expected):
    assert select_rivals(patterns) == expected


def test_rivals_with_changed_copies_are_there_with_augmentation_alone():
    assert select_rivals([], augmented=True) == [*CLASSIFIERS, *AUGMENTED]
    assert select_rivals(["*"], augmented=True) == [*RIVALS, *AUGMENTED]
    assert select_rivals(["augmented-svm"], augmented=True) == ["rival/augmented-svm"]
    with pytest.raises(ValueError, match="unknown rival 'rival/augmented-svm'"):
        select_rivals(["augmented-svm"])
    assert scratch_of("rival/augmented-svm") is None
    assert scratch_of("rival/augmented-scratch") == SCRATCH.name


def test_rivals_with_changed_copies_learn_the_tasks_of_scratch(bench, tmp_path):
    bench = replace(bench, network=replace(bench.network, augmentation="digits"))
    found, records = contenders_of(bench, names=tuple(AUGMENTED))
    assert (tuple(found), records) == (tuple(AUGMENTED), [])
    svm = found["rival/augmented-svm"]
    assert [svm.make(seed).random_state for seed in (3, 4)] == [3, 4], "each task has its own"
    scores = scores_beside_scratch(bench, found, tmp_path)
    by_name = {name: [s["accuracy"] for s in scores if s["method"] == name] for name in found}
    assert all(len(own) == 3 and np.mean(own) > 0.6 for own in by_name.values())


def test_rivals_with_gradients_are_there_with_gradients_alone():
    assert select_rivals([], gradients=True) == [*CLASSIFIERS, *GRADIENTS]
    assert select_rivals(["*"], gradients=True) == [*RIVALS, *GRADIENTS]
    both = select_rivals(["*"], gradients=True, augmented=True)
    assert both == list(ALL_RIVALS) == [*RIVALS, *GRADIENTS, *AUGMENTED, AUGMENTED_GRADIENTS]
    with pytest.raises(ValueError, match="unknown rival 'rival/gradients-svm'"):
        select_rivals(["gradients-svm"], augmented=True)
    assert {scratch_of(name) for name in GRADIENTS} == {None}


def test_rivals_with_gradients_differ_from_others_in_what_they_read_alone(bench, tmp_path):
    plain, _ = contenders_of(bench, names=tuple(GRADIENTS.values()))
    found, records = contenders_of(bench, names=tuple(GRADIENTS))
    assert (tuple(found), records) == (tuple(GRADIENTS), [])
    for name, of in GRADIENTS.items():
        own, pixels = found[name], plain[of]
        embedding = ["OrientedGradients", OrientedGradients().get_params()]
        assert own.identity == pixels.identity | {"embedding": embedding}
        assert own.X.shape == pixels.X.shape
        assert type(own.make(0)) is type(pixels.make(0))
    svm = found["rival/gradients-svm"].X
    gradients = OrientedGradients().fit_transform(bench.X)
    expected = principal_components(gradients[: len(bench.X_unlabelled)], 0).transform(gradients)
    np.testing.assert_allclose(svm, expected, atol=1e-4)
    assert found["rival/gradients-label-spreading"].make(0).spread.shape[0] == (
        len(bench.X_unlabelled)
    )
    scores = scores_beside_scratch(bench, found, tmp_path)
    by_name = {name: [s["accuracy"] for s in scores if s["method"] == name] for name in found}
    assert all(len(own) == 3 and np.mean(own) > 0.6 for own in by_name.values())


def test_a_rival_gets_gradients_of_changed_copies(bench, tmp_path):
    bench = replace(bench, network=replace(bench.network, augmentation="digits"))
    found, records = contenders_of(bench, names=("rival/augmented-svm", AUGMENTED_GRADIENTS))
    plain, own = found["rival/augmented-svm"], found[AUGMENTED_GRADIENTS]
    assert records == []
    assert own.identity.items() > plain.identity.items()
    estimator = own.make(7)
    assert estimator.random_state == 7
    rows = slice(0, 60)
    fitted = estimator.fit(bench.X[rows], bench.data.y_train[rows] > 4).estimator_
    gradients = OrientedGradients().fit_transform(bench.X)
    expected = principal_components(gradients[: len(bench.X_unlabelled)], 0).transform(gradients)
    np.testing.assert_allclose(fitted[:-1].transform(bench.X), expected, atol=1e-4)
    assert len(fitted[-1].support_) > 60, "of the copies, too"
    scores = scores_beside_scratch(bench, {own.name: own}, tmp_path)
    assert np.mean([s["accuracy"] for s in scores if s["method"] == own.name]) > 0.6


def test_an_unknown_rival_is_refused_with_the_valid_ones():
    with pytest.raises(ValueError, match=r"unknown rival 'rival/gan'; valid names are rival/1-nn"):
        select_rivals(["lsuv", "gan"])


def test_networks_are_paired_with_scratch_and_classifiers_with_nothing():
    assert {scratch_of(name) for name in NETWORKS} == {SCRATCH.name}
    assert {scratch_of(name) for name in (*CLASSIFIERS, "features+logistic")} == {None}
    assert scratch_of("he/fcn+bn/rlabel") == "he/fcn+bn/scratch"


# The fine-tuning of scratch


def test_a_fine_tuning_sets_its_three_values_and_nothing_else(bench):
    scratch = scratch_contender(bench.X, bench.network)
    setting = FineTuning(3e-3, 4, 0.5)
    tuned = fine_tuning_contender(scratch, setting.name, setting).make(0)[-1]
    fitted = tuned.fit(bench.X[:60], bench.data.y_train[:60] > 4)
    assert fitted.n_iter_ == 4
    (group,) = fitted.net_.optimizer_.param_groups
    assert (group["lr"], group["weight_decay"]) == (3e-3, 0.5)
    own, plain = tuned.get_params(), scratch.make(0)[-1].get_params()
    changed = {name for name in plain if own[name] is not plain[name] and own[name] != plain[name]}
    # Splitters are compared by identity.
    assert changed - {"validation_split"} == {"learning_rate_init", "max_iter", "skorch_params"}


def test_the_paper_s_fine_tuning_is_scratch_itself(bench):
    scratch = scratch_contender(bench.X, bench.network)
    same = fine_tuning_contender(scratch, PAPER.name, PAPER)
    X, y = bench.X[:60], bench.data.y_train[:60] > 4
    one, other = (clone(c.make(0)).fit(X, y).predict_proba(X) for c in (scratch, same))
    np.testing.assert_allclose(one, other, rtol=1e-5)
    assert PAPER in GRID
    assert len({setting.name for setting in GRID}) == len(GRID)


SCORES = [
    {"method": m, "run": 4, "task": t, "n_labels": n, "accuracy": a + (0.1 if n == 20 else 0.0)}
    for m, accuracies in {"a": (0.7, 0.8), "b": (0.8, 0.8)}.items()
    for t, a in enumerate(accuracies)
    for n in (5, 20)
]


def test_settings_stand_best_first_with_paired_differences():
    best, reference = tried_settings(SCORES, reference="a")
    assert (best.setting, reference.setting) == ("b", "a")
    assert best.accuracy == pytest.approx({5: 80.0, 20: 90.0})
    assert best.mean == pytest.approx(85.0)
    # Differences 10 and 0.
    assert (best.difference.mean, best.difference.n_pairs) == (pytest.approx(5.0), 2)
    assert reference.difference is None
    back = tried_of_records(json.loads(json.dumps(as_records([best, reference]))))
    assert back == [best, reference]
    assert [row[0] for row in tuning_table(back, first=1).rows] == ["b", "a"]
    assert tuning_table(back, first=1).rows[1][-1] == "reference"


def test_the_search_writes_what_it_chose(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tune_scratch, "GRID", (PAPER, FineTuning(1e-2, 30, 0.0)))
    arguments = ["--dataset", "digits", "--hidden-layer-sizes", "8", "--tasks", "2", "--runs", "1"]
    arguments += ["--jobs", "1", "--quiet", "--output", str(tmp_path)]
    assert tune_scratch.main(arguments) == 0
    results = json.loads((tmp_path / "digits_tuned_scratch.json").read_text())
    # Thirty epochs of a tiny network on some dozens of rows beat ten.
    assert results["chosen"] == {"learning_rate": 1e-2, "epochs": 30, "weight_decay": 0.0}
    assert results["settings"]["first_run"] == 4
    assert len(results["tried"]) == 2
    assert tried_of_records(results["tried"])[0].setting in capsys.readouterr().out
    assert tune_scratch.main([*arguments, "--n-labels", "500"]) == 2
    assert "N = 500 takes 6000 labelled rows" in capsys.readouterr().err


def test_the_tuned_values_are_those_of_the_committed_search():
    results = json.loads((RESULTS / "tuned-scratch.json").read_text(encoding="utf-8"))
    assert FineTuning(**results["chosen"]) == TUNED
    assert {tried["setting"] for tried in results["tried"]} == {s.name for s in GRID}
    assert results["settings"]["first_run"] >= 4
    assert tried_of_records(results["tried"])[0].setting == TUNED.name
