"""The report: whole documents of results made up, complete, in part, absent; and the committed."""

import re

import numpy as np
import pytest

import readme_tables
import report
from protocol.methods import NAMES
from protocol.rivals import ALL_RIVALS, RIVALS
from reporting import pages
from reporting.results import Library
from reporting.tables import build_table
from reporting.task_tables import differences_table, ranking_table
from results_stand_in import (
    AUGMENTED,
    COHERENT,
    complete,
    flat,
    partial_results,
    task_results,
    write_all,
)
from runs import CONVNET, RUNS, run_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("whole"), complete())


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("part"), partial_results())


@pytest.fixture
def empty(tmp_path):
    return Library(tmp_path)


# What is declared


def test_every_run_says_what_to_do_and_names_rows_that_there_are():
    for run in RUNS:
        assert re.match(r"\w+\.py( |$)", run.command)
        assert (readme_tables.RESULTS.parent / run.command.split()[0]).is_file()
        assert re.search(r"\b(minutes?|hours?)\b", run.time)
        assert {*run.methods} <= {*NAMES, *CONVNET, *ALL_RIVALS}
        assert not run.beside or run_of(run.beside)
    assert len({run.title for run in RUNS}) == len(RUNS)
    assert run_of("mnist-rivals.json").methods == RIVALS
    assert run_of("mnist-rivals.json").arguments[-2:] == ["--rivals", "*"]
    with pytest.raises(ValueError, match="no measurement is declared for 'x'"):
        run_of("x")


def test_progress_counts_the_parts(whole, part):
    for run in RUNS:
        assert pages.progress(run, None) == 0
        assert not run.section or pages.progress(run, whole.results(run.file)) >= run.parts
    files = ("mnist-full.json", "degeneracies.json", "scale-and-weight.json")
    done = [pages.progress(run_of(file), part.results(file)) for file in files]
    assert done == [5, 1, 2]


def test_every_committed_file_is_declared_and_can_be_counted():
    library = Library(readme_tables.RESULTS)
    assert {path.name for path in library.folder.glob("*.json")} == {run.file for run in RUNS}
    for run in RUNS:
        assert 0 < pages.progress(run, library.results(run.file)) <= run.parts


# Beside the paper


def test_the_paper_s_own_figures_agree_with_the_paper(whole):
    rows = pages.agreement_table(whole).rows
    assert [row[2] for row in rows[:4]] == ["20 of 20"] * 4
    assert [row[2] for row in rows[4:]] == ["4 of 4"] * 2 + ["9 of 9"] * 2 + ["24 of 24"] * 2
    for kind in ("accuracy", "task_std"):
        assert "*" not in str(build_table(kind, whole.results("mnist-full.json")).rows)


def test_one_run_of_one_half(part):
    assert pages.agreement_table(part).rows == [
        ["Table 1, accuracy, Xavier", "1", "20 of 20"],
        ["Table 2, spread over tasks, Xavier", "1", "20 of 20"],
        ["Degenerate softmax, sum of the kernels", "1", "1 of 1"],
        ["Dead neurons, sum of the kernels", "1", "3 of 3"],
        ["Scale s and weight lambda, sum of the kernels", "1", "4 of 4"],
    ]


def test_other_data_and_networks_do_not_stand_beside_the_paper(tmp_path):
    files = complete()
    files["mnist-full.json"]["settings"]["classes"] = 10
    for end in ("", "-mean-of-kernels"):
        files[f"degeneracies{end}.json"]["dataset"] = {"name": "digits"}
        files[f"scale-and-weight{end}.json"]["settings"]["hidden_layer_sizes"] = [4]
    assert pages.agreement_table(write_all(tmp_path, files)).rows == []


# Rows of several files


def test_a_row_of_other_runs_or_ways_is_its_own_and_compared_on_shared_runs(tmp_path):
    files = {
        "mnist-coherence.json": flat(COHERENT),
        "mnist-rivals.json": flat({"rival/lsuv": 90.0}, runs=1),
        "mnist-augmented.json": flat(AUGMENTED, runs=1),
    }
    library = write_all(tmp_path, {file: task_results(scores) for file, scores in files.items()})
    rows = {row[0]: row for row in ranking_table(library).rows}
    assert rows["lsuv"][1:3] == ["1", "90.50"]
    assert rows["lsuv"][-1] == "+15.00 [+15.00, +15.00]"
    found = {name: row[2] for name, row in rows.items() if "features" in name[:8]}
    assert found == {"features+logistic": "96.50", "features+logistic, augmented": "98.90"}


def test_the_ranking_has_every_measured_row_once_and_the_best_one_first(whole, part, empty):
    table = ranking_table(whole)
    means = [np.mean([float(cell) for cell in row[2:6]]) for row in table.rows]
    assert means == sorted(means, reverse=True)
    rows = {row[0]: row for row in table.rows}
    # Scratch and ours with five theta0s, four of them with the rows on their features.
    assert len(rows) == len(table.rows) == len(RIVALS) + 2 + 10
    assert rows["xavier/fcn/scratch"][-1] == "-"
    assert rows["lsuv"][1:] == ["4", *["84.50"] * 4, "+9.00 [+9.00, +9.00]"]
    every = {row[0]: row for row in ranking_table(whole, every=True).rows}
    assert every["lsuv"][6:] == ["+9.00 [+9.00, +9.00]"] * 4
    # Paired: of a row with one run, only that run of scratch counts.
    assert {row[1] for row in ranking_table(part).rows} == {"1", "4"}
    assert ranking_table(empty).rows == []


def test_another_way_is_paired_with_the_same_rows_without_it(whole):
    own, plain = (whole.results(f"mnist-{name}.json") for name in ("augmented", "coherence"))
    table = differences_table("One minus the other", own, plain)
    assert table.title.startswith("One minus the other, on the same tasks")
    assert table.head == ["method", "N = 5", "N = 10", "N = 20", "N = 40"]
    assert {row[0]: row[1] for row in table.rows} == {
        "xavier/fcn/ours+coherence": "+1.00 [+1.00, +1.00]",
        "features+logistic": "+2.40 [+2.40, +2.40]",
    }
    assert differences_table("One minus itself", own, own).rows == []


def test_the_convolutional_network_stands_beside_the_perceptron(whole):
    own, others = (whole.results(f"mnist-{name}.json") for name in ("convnet", "coherence"))
    # On two of the four runs of the perceptron.
    assert {row[0]: row[1] for row in differences_table("", own, others).rows} == {
        "convnet/ours+coherence": "+1.00 [+1.00, +1.00]",
        "convnet/features+logistic": "+1.50 [+1.50, +1.50]",
        "convnet/scratch": "+5.00 [+5.00, +5.00]",
    }


# The document


def links(text):
    return re.findall(r"\]\((?!https?:)([^)#]+)", text)


def test_a_complete_reproduction_asks_for_nothing(whole):
    (whole.folder / "coherence.png").write_bytes(b"")
    text = pages.report(whole)
    assert "ot run yet" not in text
    assert links(text) == ["coherence.png"]
    assert text.count("The mean of the kernels minus their sum, on") == 2
    assert text.count("With augmentation minus without, on") >= 2
    assert "| abacus, 1 core | a |" in text
    for run in RUNS:
        assert f"\n### {run.title}\n" in text or not run.section
    assert len(pages.commands(whole).rows) == sum(bool(run.section) for run in RUNS)


def test_a_part_of_it_says_what_is_there_and_what_to_run(part):
    text = pages.report(part)
    assert "5 of 40 parts; the rest not run yet" in text
    assert "\nNot run yet: `python benchmarks/theorems.py`" in text
    kernels = text[text.index("## How the kernels") : text.index("## The appendix")]
    assert run_of("mnist-mean-of-kernels.json").not_run[1:] in kernels
    assert "minus their sum" not in kernels


def test_without_any_result_the_document_is_a_list_of_commands(empty):
    text = pages.report(empty)
    for run in RUNS:
        assert not run.section or f"| {run.file} | {run.title} | {run.not_run} |" in text
    assert links(text) == []
    (empty.folder / "notes").mkdir()
    (empty.folder / "notes" / "scale-s-and-weight-lambda.md").write_text("A riddle.\n")
    assert "\n\nA riddle.\n\n" in pages.report(empty)


# The command


def test_the_command_writes_checks_and_keeps(tmp_path, capsys):
    library = write_all(tmp_path, partial_results())
    arguments, path = ["--results", str(tmp_path)], tmp_path / "REPORT.md"
    quote = "<!-- table: REPORT.md agreement -->\nold\n<!-- end of table -->"
    with pytest.raises(ValueError, match=r"no results 'REPORT\.md'"):
        readme_tables.rewrite(quote, tmp_path)
    assert report.main([*arguments, "--check"]) == 1
    assert not path.exists()
    assert report.main(arguments) == 0
    text = path.read_text(encoding="utf-8")
    assert text == pages.report(library)
    assert report.main([*arguments, "--check"]) == 0
    capsys.readouterr()
    assert report.main(arguments) == 0
    assert capsys.readouterr().out == ""
    made = readme_tables.rewrite(quote, tmp_path)
    assert "| Table 1, accuracy, Xavier | 1 | 20 of 20 |" in made
    path.write_text(text.replace("82.42", "92.42"), encoding="utf-8")
    assert report.main([*arguments, "--check"]) == 1
    assert "differs from what its results say" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"), [("{", "theorems.json is not JSON"), ("[]", "holds a list")]
)
def test_a_damaged_file_is_named(empty, capsys, content, message):
    (empty.folder / "theorems.json").write_text(content)
    assert report.main(["--results", str(empty.folder)]) == 2
    assert message in capsys.readouterr().err


def test_the_report_says_what_the_committed_results_say(capsys):
    assert report.main(["--check"]) == 0, capsys.readouterr().err
