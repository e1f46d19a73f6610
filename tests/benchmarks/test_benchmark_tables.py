"""Tables of one file of results, by hand: what stands in the README, and beside the paper."""

import numpy as np
import pytest

import report
from protocol.store import write_json
from reporting.pages import DIGESTS
from reporting.results import Library, unpack_draws
from reporting.tables import TABLES, build_table, text_of
from reporting.task_tables import MEASURED_THERE, against_table, best_rival, wide_of
from reporting.time_tables import SPEED_KINDS
from results_stand_in import HEAD, SETTINGS, draws_of, records, task_results

HAND = task_results(
    records(
        {
            "xavier/fcn/ours": [[0.80, 0.90], [0.70, 0.90]],
            "xavier/fcn/scratch": [[0.70, 0.80], [0.70, 0.70]],
            "rival/umap-logistic": [[0.5, 0.5], [0.5, 0.5]],
        }
    )
)


def rows_of(kind, results):
    return {row[0]: row[1:] for row in build_table(kind, results).rows}


# Tasks


def test_figures_worked_out_by_hand_and_beside_them_the_paper_s_where_they_belong():
    # Means of the runs: 85 and 80. Their std: 5 / sqrt(2).
    assert rows_of("accuracy", HAND) == {
        "xavier/fcn/ours": ["82.50 ± 3.54 (82.42 ± 0.72)"],
        "xavier/fcn/scratch": ["72.50 ± 3.54 (79.63 ± 0.78)"],
        "rival/umap-logistic": ["50.00 ± 0.00"],
    }
    # Std over tasks: 10 / sqrt(2) and 20 / sqrt(2); mean 15 / sqrt(2), std 5.
    assert rows_of("task_std", HAND)["xavier/fcn/ours"] == ["10.61 ± 5.00 (4.76 ± 0.88)"]
    # Differences 10, 10, 0, 20: mean 10, variance 200 / 3; t(3) at 97.5 % is 3.182446. Neither
    # scratch itself nor what is no network has a row.
    gained = "+10.00 [-2.99, +22.99], runs [+10.00, +10.00] (+2.79)"
    assert rows_of("gain", HAND) == {"xavier/fcn/ours": [gained]}
    assert text_of(HAND, ["accuracy", "against"]).startswith("Test accuracy")


VERSUS = records(
    {
        "xavier/fcn/ours+coherence": [[0.95, 0.90], [0.90, 0.95]],
        "features+logistic": [[0.97, 0.97], [0.97, 0.97]],
        "xavier/fcn/scratch": [[0.75, 0.80], [0.80, 0.75]],
        "rival/umap-logistic": [[0.92, 0.93], [0.93, 0.92]],
        "rival/label-spreading": [[0.90, 0.90], [0.85, 0.85]],
        "rival/rbf-svm": [[0.99, 0.99], [0.99]],
    }
)


def test_differences_from_scratch_and_rivals_worked_out_by_hand():
    table = against_table(task_results(VERSUS))
    rows = {(row[0], row[1]): row[2] for row in table.rows}
    assert len(rows) == 6
    coherent = "xavier/fcn/ours+coherence"
    # 20, 10, 10, 20, and both runs have the mean 15; t(3) at 97.5 % is 3.182446.
    half = 3.182446 * np.sqrt(100 / 3 / 4)
    assert rows[coherent, "xavier/fcn/scratch"] == (
        f"+15.00 [{15 - half:+.2f}, {15 + half:+.2f}], runs [+15.00, +15.00]"
    )
    # 5, 0, 5, 10: the runs have 2.5 and 7.5; t(1) at 97.5 % is 12.7062.
    assert rows[coherent, "rival/label-spreading"].startswith("+5.00 [")
    assert rows[coherent, "rival/label-spreading"].endswith("runs [-26.77, +36.77]")
    # The SVM was not measured on every task.
    assert rows[coherent, MEASURED_THERE].endswith("(umap-logistic)")
    assert rows["features+logistic", "xavier/fcn/scratch"].startswith("+19.50 [")


def test_a_rival_of_more_tasks_than_ours_counts_on_ours_alone():
    # On the third task it is poor, which says nothing of the others.
    some = [score for score in VERSUS if score["method"] != "rival/rbf-svm"]
    some += records({"rival/rbf-svm": [[0.94, 0.94, 0.1], [0.94, 0.94, 0.1]]})
    best = best_rival(wide_of(task_results(some)), "xavier/fcn/ours+coherence")
    assert best == {5: "rival/rbf-svm"}


# The appendix


def test_dead_neurons_of_a_cell_are_those_of_the_worst_layer_of_each_run():
    def mean_and_std(mean):
        return {"mean": mean, "std": 1.0}

    settings = {"passes": 5, "rows": 60000, "n_perturbations": 128, "networks_a_ratio": 256}
    settings |= {"n_batches": 128, "batch_size": 32}
    cell = {"squared_scale": 0.5, "degeneracy_weight": 0.4, "uniformity": [0.5, 0.01]}
    found = [
        cell
        | {"degenerate_softmax_percent": mean_and_std(softmax)}
        | {"dead_neurons_percent": [*map(mean_and_std, dead)]}
        for softmax, dead in ((1.0, (3.0, 8.0, 0.0)), (2.0, (10.0, 2.0, 4.0)))
    ]
    results = {**HEAD, "settings": SETTINGS | settings, "records": found}
    # Softmax of 1 and 2, std 1 / sqrt(2); the worst layers have 8 and 10, std sqrt(2).
    own = ["2", "1.50 ± 0.71 (1.58 ± 0.72)", "9.00 ± 1.41 (5.48 ± 1.56)", "0.01"]
    assert rows_of("scale_and_weight", results) == {"s^2 = 0.5, lambda = 0.4": own}
    # Fewer networks than the paper's are owned up to.
    assert "with K = 128 (the paper's" in build_table("scale_and_weight", results).title


def test_points_where_a_theorem_fails_are_counted():
    forms = {"theorem": {"holds": [True, False]}, "sub_exponential": {"holds": [True] * 2}}
    records = [{"theorem": 1, "case": "m = 1", "forms": forms}]
    assert build_table("theorems", {"records": records}).rows == [
        ["1", "m = 1, as stated", "2", "not at 1"],
        ["1", "m = 1, of its proof", "2", "yes"],
    ]


def test_a_draw_that_is_missing_is_null_and_comes_back_as_none():
    results = draws_of({("a", 5): {"ours": [12.345678, 50], "svm": [50]}})
    first = {name: figures[0] for name, figures in results["scores"][0]["methods"].items()}
    assert first == {"ours": [12.35, 50.0], "svm": [50.0, None]}
    back = unpack_draws(results).set_index(["method", "draw"])["accuracy"]
    assert back.to_dict() == {("ours", 0): 12.35, ("ours", 1): 50.0, ("svm", 0): 50.0}


def test_rows_measured_again_replace_the_old_ones_and_parts_say_where_each_is_from(tmp_path):
    old = task_results(records({"a": [[0.5, 0.5]], "b": [[0.6, 0.6], [0.6, 0.6]]}))
    new = task_results(records({"b": [[0.9, 0.9]], "c": [[0.7, 0.7]]}))
    library = Library(tmp_path)
    for name, results in (("old", old), ("new", new | {"git_commit": "abc"})):
        write_json(tmp_path / f"{name}.json", results)
    report.merge_into(tmp_path, "old.json", str(tmp_path / "new.json"))
    whole = library.results("old.json")
    wide = wide_of(whole).T
    assert wide.mean(axis=1).to_dict() == pytest.approx({"a": 50.0, "b": 90.0, "c": 70.0})
    assert wide.notna().sum(axis=1).to_dict() == {"a": 2, "b": 2, "c": 2}  # one run of b is gone
    assert whole["settings"]["methods"] == ["a", "b", "c"]
    assert [part["git_commit"] for part in whole["parts"]] == [HEAD["git_commit"], "abc"]
    assert "git_commit" not in whole
    # Once more: what has parts keeps them.
    report.merge_into(tmp_path, "old.json", str(tmp_path / "new.json"))
    assert len(library.results("old.json")["parts"]) == 3


# The README's tables


@pytest.fixture
def folder(tmp_path):
    write_json(tmp_path / "results" / "hand.json", HAND)
    return tmp_path / "results"


def test_documents_are_rewritten_together_or_not_at_all(tmp_path, folder, capsys, monkeypatch):
    block = "before\n<!-- table: hand.json {} -->\nold\n<!-- end of table -->\nafter\n"
    first, second = tmp_path / "first.md", tmp_path / "second.md"
    monkeypatch.setattr(report, "DOCUMENTS", (first, second))
    monkeypatch.setattr(report, "APPENDICES", {})
    monkeypatch.setattr(report, "picture_is_stale", lambda library: False)
    arguments = ["--results", str(folder)]
    first.write_text(block.format("accuracy"))
    second.write_text(block.format("no_such_table"))
    assert report.main(arguments) == 2
    assert "second.md: unknown table 'no_such_table'" in capsys.readouterr().err
    second.write_text(block.format("gain"))
    assert report.main([*arguments, "--check"]) == 1
    assert "first.md differs" in capsys.readouterr().err
    assert "old" in first.read_text()
    assert report.main(arguments) == 0
    text = first.read_text()
    assert text.startswith("before\n<!-- table: hand.json accuracy -->\n")
    assert text.endswith("\n<!-- end of table -->\nafter\n")
    assert "| xavier/fcn/ours | 82.50 ± 3.54 (82.42 ± 0.72) |" in text
    assert "old" not in text + second.read_text()
    assert report.main([*arguments, "--check"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table: x.json gain -->\n<!-- end of table -->", "results 'x.json' cannot be read"),
        ("<!-- table: hand.json gain -->\n", "1 tables begin and 0 end"),
        ("<!-- table: hand.json -->\n<!-- end of table -->", "is written as"),
    ],
)
def test_a_wrong_comment_is_refused(folder, text, message):
    with pytest.raises(ValueError, match=message):
        report.rewrite(text, Library(folder))


def test_every_table_stands_once_in_the_guide_and_once_in_the_report_and_is_known():
    held = [
        (report.RESULTS in path.parents, *table.group("file", "kind"))
        for path in report.DOCUMENTS
        for table in report.BLOCK.finditer(path.read_text(encoding="utf-8"))
    ]
    assert len(set(held)) == len(held)
    kinds = {kind for *_, kind in held}
    assert kinds <= {*TABLES, *DIGESTS}
    assert kinds >= {*DIGESTS, *SPEED_KINDS}
