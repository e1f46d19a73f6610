"""The report against cases worked out by hand, and the README's tables."""

import json
import math

import numpy as np
import pytest
from scipy import stats

import readme_tables
from protocol.store import write_json
from reporting.against_table import MEASURED_THERE, against, against_table
from reporting.coherence_report import standing_sentences
from reporting.library import Library
from reporting.precision_table import precision_table
from reporting.table import as_text
from reporting.task_tables import build_table, pack_scores, paired_gain, summarize, unpack_scores

# Report


def _records(table):
    return [
        {"method": method, "run": run, "task": task, "n_labels": 5, "accuracy": accuracy}
        for method, runs in table.items()
        for run, accuracies in enumerate(runs)
        for task, accuracy in enumerate(accuracies)
    ]


HAND = _records(
    {
        "xavier/fcn/ours": [[0.80, 0.90], [0.70, 0.90]],
        "xavier/fcn/scratch": [[0.70, 0.80], [0.70, 0.70]],
        "rival/1-nn": [[0.5, 0.5], [0.5, 0.5]],
    }
)


def test_the_tables_of_a_case_worked_out_by_hand():
    ours, scratch, rival = summarize(HAND)
    # Means of the runs: 85 and 80. Their std: 5 / sqrt(2).
    assert ours.accuracy == pytest.approx(82.5)
    assert ours.accuracy_std == pytest.approx(5 / math.sqrt(2))
    # Std over tasks: 10 / sqrt(2) and 20 / sqrt(2); mean 15 / sqrt(2), std 5.
    assert ours.task_std == pytest.approx(15 / math.sqrt(2))
    assert ours.task_std_std == pytest.approx(5.0)
    # Differences 10, 10, 0, 20: mean 10, variance 200 / 3; t(3) at 97.5 % is 3.182446.
    half = 3.182446 * math.sqrt(200 / 3 / 4)
    assert ours.gain.mean == pytest.approx(10.0)
    assert ours.gain.low == pytest.approx(10.0 - half, rel=1e-6)
    assert ours.gain.high == pytest.approx(10.0 + half, rel=1e-6)
    assert ours.gain.n_pairs == 4
    assert (scratch.gain, rival.gain) == (None, None)
    assert (rival.accuracy, rival.task_std) == (50.0, 0.0)


def test_the_interval_is_scipy_s_and_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        differences = rng.normal(1.0, 2.0, size=8)
        gain = paired_gain(differences)
        expected = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
        assert (gain.low, gain.high) == pytest.approx((expected.low, expected.high))
        covered += gain.low <= 1.0 <= gain.high
    assert 930 <= covered <= 970  # three standard deviations of a binomial


def test_one_pair_and_one_run_have_no_spread():
    ours, _ = summarize(_records({"xavier/fcn/ours": [[0.9]], "xavier/fcn/scratch": [[0.8]]}))
    assert ours.gain.mean == pytest.approx(10.0)
    assert (ours.gain.low, ours.gain.high) == (None, None)
    assert (ours.accuracy_std, ours.task_std, ours.task_std_std) == (None, None, None)


def test_unequal_tasks_are_not_paired():
    records = _records({"xavier/fcn/ours": [[0.9, 0.9]], "xavier/fcn/scratch": [[0.8]]})
    assert summarize(records)[0].gain is None


def test_packed_scores_come_back_whole():
    def key(record):
        return (record["method"], record["run"], record["task"])

    back = unpack_scores(json.loads(json.dumps(pack_scores(HAND))))
    assert sorted(back, key=key) == sorted(HAND, key=key)


def test_the_paper_s_figures_stand_beside_ours():
    text = as_text(build_table("accuracy", summarize(HAND), paper=True))
    assert "82.50 ± 3.54 (82.42 ± 0.72)" in text
    assert text.startswith("Table 1. ")
    assert "(82.42" not in as_text(build_table("accuracy", summarize(HAND), paper=False))
    gain = as_text(build_table("gain", summarize(HAND), paper=True))
    assert "(+2.79)" in gain
    assert "scratch " not in gain.split("\n", 1)[1]  # a row of dashes says nothing


def test_an_unknown_table_is_refused():
    with pytest.raises(ValueError, match=r"unknown table 'x'.*accuracy"):
        build_table("x", summarize(HAND), paper=False)


# Against scratch and rivals

VERSUS = _records(
    {
        "xavier/fcn/ours+coherence": [[0.95, 0.90], [0.90, 0.95]],
        "features+logistic": [[0.97, 0.97], [0.97, 0.97]],
        "xavier/fcn/scratch": [[0.75, 0.80], [0.80, 0.75]],
        "rival/1-nn": [[0.92, 0.93], [0.93, 0.92]],
        "rival/label-spreading": [[0.90, 0.90], [0.85, 0.85]],
        "rival/rbf-svm": [[0.99, 0.99], [0.99]],
    }
)


def test_differences_of_a_case_worked_out_by_hand():
    found = {(d.method, d.role): d for d in against(VERSUS)}
    coherent = "xavier/fcn/ours+coherence"
    scratch = found[coherent, "xavier/fcn/scratch"]
    # Differences 20, 10, 10, 20; both runs have the mean 15.
    assert scratch.gain.mean == pytest.approx(15.0)
    half = 3.182446 * math.sqrt(100 / 3 / 4)
    assert scratch.gain.low == pytest.approx(15.0 - half, rel=1e-6)
    assert scratch.gain.n_pairs == 4
    assert scratch.run_std == pytest.approx(0.0, abs=1e-9)
    # Differences 5, 0, 5, 10: the runs have 2.5 and 7.5.
    spreading = found[coherent, "rival/label-spreading"]
    assert spreading.gain.mean == pytest.approx(5.0)
    assert spreading.run_std == pytest.approx(5.0 / math.sqrt(2))
    # The SVM was not measured on every task.
    best = found[coherent, "best rival"]
    assert best.other == "rival/1-nn"
    assert best.gain.mean == pytest.approx(0.0, abs=1e-9)
    assert found["features+logistic", "xavier/fcn/scratch"].gain.mean == pytest.approx(19.5)
    assert len(found) == 6


def test_the_best_rival_is_named_at_each_n():
    more = [record | {"n_labels": 10} for record in VERSUS]
    for record in more:
        if record["method"] == "rival/label-spreading":
            record["accuracy"] = 0.99
    table = against_table(against(VERSUS + more))
    assert table.head == ["method", "against", "N = 5", "N = 10"]
    (row,) = [r for r in table.rows if r[:2] == ["features+logistic", MEASURED_THERE]]
    assert row[2].startswith("+4.50 [")
    assert row[2].endswith("± 0.00 (1-nn)")
    assert row[3].endswith("(label-spreading)")


def test_a_rival_of_more_tasks_than_ours_counts_on_ours_alone():
    # On the third task it is poor, which says nothing of the others.
    more = _records({"rival/rbf-svm": [[0.94, 0.94, 0.1], [0.94, 0.94, 0.1]]})
    some = [record for record in VERSUS if record["method"] != "rival/rbf-svm"]
    found = {(d.method, d.role): d for d in against(some + more)}
    best = found["xavier/fcn/ours+coherence", "best rival"]
    assert best.other == "rival/rbf-svm"
    assert best.gain.mean == pytest.approx(-1.5)
    assert best.gain.n_pairs == 4


def test_the_sentence_names_the_rival_that_it_speaks_of():
    more = [record | {"n_labels": 10} for record in VERSUS]
    for record in more:
        if record["method"] == "rival/label-spreading":
            record["accuracy"] = 0.99
    _, said = standing_sentences(against(VERSUS + more))
    assert said == (
        "features+logistic is above scratch at N = 5, 10; "
        "above the best rival measured there (1-nn) at N = 5, "
        "below the best rival measured there (label-spreading) at N = 10."
    )


def test_without_rivals_there_is_scratch_alone():
    some = [record for record in VERSUS if not record["method"].startswith("rival")]
    assert {d.role for d in against(some)} == {"xavier/fcn/scratch"}
    assert against_table(against([])).rows == []


# The README's tables


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    made = {
        "dataset": {"name": "mnist", "source": "nowhere"},
        "settings": {"hidden_layer_sizes": [392, 392, 392]},
        "scores": pack_scores(HAND),
    }
    write_json(folder / "hand.json", made)
    return folder


@pytest.mark.parametrize(
    ("changed", "of_the_paper"),
    [
        ({}, True),
        ({"dataset": {"name": "fashion-mnist"}}, False),
        ({"settings": {"hidden_layer_sizes": [392] * 3, "classes": 10}}, False),
        ({"settings": {"hidden_layer_sizes": [4]}}, False),
        ({"settings": {"network": "convnet"}}, False),
    ],
)
def test_a_table_has_the_paper_s_number_where_its_figures_belong(results, changed, of_the_paper):
    path = results / "hand.json"
    write_json(path, json.loads(path.read_text()) | changed)
    for kind, number in (("accuracy", "Table 1."), ("task_std", "Table 2.")):
        block = f"<!-- table: hand.json {kind} -->\n<!-- end of table -->\n"
        text = readme_tables.rewrite(block, results)
        assert (number in text) == ("in brackets" in text) == of_the_paper


def test_readme_tables_round_trip(tmp_path, results, capsys):
    readme = tmp_path / "README.md"
    block = "<!-- table: hand.json {} -->\nold\n<!-- end of table -->\n"
    readme.write_text("before\n" + block.format("accuracy") + "between\n" + block.format("gain"))
    arguments = ["--documents", str(readme), "--results", str(results)]
    assert readme_tables.main([*arguments, "--check"]) == 1
    assert "old" in readme.read_text()
    assert readme_tables.main(arguments) == 0
    text = readme.read_text()
    assert text.startswith("before\n<!-- table: hand.json accuracy -->\n")
    assert "\nbetween\n" in text
    assert "old" not in text
    assert "| xavier/fcn/ours | 82.50 ± 3.54 (82.42 ± 0.72) |" in text
    assert "| xavier/fcn/ours | +10.00 [-2.99, +22.99] (+2.79) |" in text
    assert readme_tables.main([*arguments, "--check"]) == 0
    assert readme_tables.main(arguments) == 0
    assert readme.read_text() == text
    assert "differs" in capsys.readouterr().err


def test_two_documents_are_rewritten_together_or_not_at_all(tmp_path, results, capsys):
    block = "<!-- table: hand.json {} -->\nold\n<!-- end of table -->\n"
    first, second = tmp_path / "first.md", tmp_path / "second.md"
    arguments = ["--documents", str(first), str(second), "--results", str(results)]
    first.write_text(block.format("accuracy"))
    second.write_text(block.format("no_such_table"))
    assert readme_tables.main(arguments) == 2
    assert "old" in first.read_text()
    assert "second.md: unknown table 'no_such_table'" in capsys.readouterr().err
    second.write_text(block.format("gain"))
    assert readme_tables.main([*arguments, "--check"]) == 1
    said = capsys.readouterr().err
    assert "first.md differs" in said
    assert "second.md differs" in said
    assert readme_tables.main(arguments) == 0
    assert "old" not in first.read_text() + second.read_text()
    assert readme_tables.main([*arguments, "--check"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table: x.json gain -->\n<!-- end of table -->", "no results 'x.json'.*hand.json"),
        ("<!-- table: hand.json x -->\n<!-- end of table -->", "unknown table 'x'"),
        ("<!-- table: hand.json gain -->\n", "1 tables begin and 0 end"),
        ("<!-- table: hand.json -->\n<!-- end of table -->", "is written as"),
    ],
)
def test_a_wrong_comment_is_refused(results, text, message):
    with pytest.raises(ValueError, match=message):
        readme_tables.rewrite(text, results)


def test_every_table_stands_in_one_document_and_once():
    held = [
        table
        for path in readme_tables.DOCUMENTS
        for table in readme_tables.tables_in(path.read_text(encoding="utf-8"))
    ]
    assert len(set(held)) == len(held)
    assert {kind for _, kind in held} == {*readme_tables.TABLES, *readme_tables.DIGESTS}


def test_the_readme_says_what_the_committed_results_say(capsys):
    assert readme_tables.main(["--check"]) == 0, capsys.readouterr().err


def test_rounded_products_are_compared_on_the_same_tasks(tmp_path):
    def part(accuracies, loss):
        scores = [
            {"method": "xavier/fcn/ours", "run": 0, "task": t, "n_labels": 5, "accuracy": a}
            for t, a in enumerate(accuracies)
        ]
        theta0 = {"method": "xavier/fcn/ours", "run": 0, "best_loss": loss}
        return {"theta0": [theta0], "scores": pack_scores(scores)}

    write_json(tmp_path / "mnist-short.json", part([0.8, 0.9], 0.25))
    assert [row[0] for row in precision_table(Library(tmp_path)).rows] == ["float32"]
    write_json(tmp_path / "mnist-short-bfloat16.json", part([0.82, 0.9], 0.125))
    table = precision_table(Library(tmp_path))
    assert table.head == ["precision", "loss", "N = 5"]
    assert table.rows[:2] == [["float32", "0.2500", "85.00"], ["bfloat16", "0.1250", "86.00"]]
    # Differences of 2 and 0 points: t(1) at 97.5 % is 12.706.
    assert table.rows[2] == ["difference", "", "+1.00 [-11.71, +13.71]"]
