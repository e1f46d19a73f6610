"""The report: documents of results made up, in part and absent; and the committed ones."""

import pytest

import report
from reporting import headline, pages
from reporting.results import Library
from reporting.statistics import accuracy_over_runs
from reporting.tables import build_table
from reporting.task_tables import wide_of
from results_stand_in import (
    PAPER_METHODS,
    degeneracies,
    flat,
    like_the_paper,
    scales,
    task_results,
    write_all,
)
from runs import RUNS

RUN_OF = {run.file: run for run in RUNS}

COHERENT = {
    "xavier/fcn/scratch": 75.0,
    "xavier/fcn/ours+coherence": 97.0,
    "features+logistic": 96.0,
}


@pytest.fixture
def empty(tmp_path):
    return Library(tmp_path)


@pytest.fixture
def part(tmp_path):
    """Some files, some in part."""
    xavier = [name for name in PAPER_METHODS if name.startswith("xavier")]
    files = {
        "mnist-full.json": task_results(like_the_paper(xavier, runs=1)),
        "degeneracies.json": degeneracies([(0.4, 1.0)]),
        "scale-and-weight.json": scales([(0.5, 0.4), (0.5, 1.0)], runs=1),
        "mnist-coherence.json": task_results(flat(COHERENT | {"rival/1-nn": 80.0})),
    }
    return write_all(tmp_path, files)


# What is declared


def test_every_run_says_what_to_do():
    for run in RUNS:
        assert (report.RESULTS.parent / run.command.split()[0]).is_file()
        assert not run.beside or run.beside in RUN_OF
    assert len({run.title for run in RUNS}) == len(RUNS)
    assert len(RUN_OF) == len(RUNS)


def test_progress_counts_the_parts(part):
    files = ("mnist-full.json", "degeneracies.json", "scale-and-weight.json", "theorems.json")
    assert [pages.progress(RUN_OF[f], part.results(f)) for f in files] == [1, 1, 2, 0]
    committed = Library(report.RESULTS)
    assert {path.name for path in committed.folder.glob("*.json")} == {*RUN_OF}
    for run in RUNS:
        assert 0 < pages.progress(run, committed.results(run.file)) <= run.cells


def test_what_the_readme_says_of_one_label_a_digit_is_in_its_files():
    library = Library(report.RESULTS)
    found = accuracy_over_runs(wide_of(library.results("mnist-ten-way-images.json")))
    tuned = accuracy_over_runs(wide_of(library.results("mnist-ten-way-tuned.json"))).mean[1]
    mean, std = found.mean[1], found.std[1]
    rival, ours = mean.filter(like="rival/").max(), "xavier/fcn/ours+coherence"
    said = f"{mean[ours]:.1f} % ± {std[ours]:.1f}; the best rival there {rival:.1f} %, "
    said += f"fresh weights {mean['xavier/fcn/scratch']:.1f} % "
    said += f"(tuned for it {tuned['rival/tuned-scratch']:.1f} %)."
    readme = report.RESULTS.parents[1] / "README.md"
    assert said in " ".join(readme.read_text(encoding="utf-8").split())


# Beside the paper


def test_the_paper_s_own_figures_agree_with_the_paper(tmp_path):
    tasks = task_results(like_the_paper())
    files = {"degeneracies.json": degeneracies(), "scale-and-weight.json": scales()}
    library = write_all(tmp_path, files | {"mnist-full.json": tasks})
    found = [row[1:3] for row in pages.agreement_table(library).rows]
    assert found[:4] == [["4", "20 of 20"]] * 4
    assert found[4:] == [["1", "4 of 4"], ["1", "9 of 9"], ["4", "24 of 24"]]
    for kind in ("accuracy", "task_std"):
        assert "*" not in str(build_table(kind, tasks).rows)
        assert "the paper's figure" in build_table(kind, tasks).title


def test_other_data_and_networks_do_not_stand_beside_the_paper(tmp_path):
    small = scales()
    small["settings"]["hidden_layer_sizes"] = [4]
    files = {
        "mnist-full.json": task_results(like_the_paper(), classes=10),
        "degeneracies.json": degeneracies() | {"dataset": {"name": "digits"}},
        "scale-and-weight.json": small,
    }
    assert pages.agreement_table(write_all(tmp_path, files)).rows == []


# The document


def test_a_part_of_it_says_what_is_there_and_what_to_run(part):
    text = pages.report(part)
    assert "2 of 48 parts; the rest not run yet" in text
    assert "\nNot run yet: `python benchmarks/theorems.py`" in text
    kernels = text[text.index("## How the kernels") : text.index("## The appendix")]
    assert RUN_OF["mnist-mean-of-kernels.json"].not_run[1:] in kernels
    assert "minus their sum" not in kernels


def test_without_any_result_the_document_is_a_list_of_commands(empty):
    text = pages.report(empty)
    for run in RUNS:
        assert not run.section or f"| {run.file} | {run.title} | {run.not_run} |" in text
    assert "](" not in text
    (empty.folder / "notes").mkdir()
    (empty.folder / "notes" / "scale-s-and-weight-lambda.md").write_text("A riddle.\n")
    assert "\n\nA riddle.\n\n" in pages.report(empty)


# The command


def test_the_command_writes_the_report_unless_it_is_to_check_it(part, monkeypatch):
    monkeypatch.setattr(report, "DOCUMENTS", ())
    arguments, path = ["--results", str(part.folder)], part.folder / "REPORT.md"
    assert report.main([*arguments, "--check"]) == 1
    assert not path.exists()
    assert report.main(arguments) == 0
    assert path.read_text(encoding="utf-8") == pages.report(part)


def test_a_damaged_file_is_named(empty, capsys):
    (empty.folder / "theorems.json").write_text("{")
    assert report.main(["--results", str(empty.folder)]) == 2
    assert "theorems.json is not JSON" in capsys.readouterr().err


# The README's table and picture


def headline_files(lift=0.0):
    """All that the README's rows are made of."""
    ours = COHERENT | {"xavier/fcn/ours+coherence": 98.0 + lift}
    paper = {"xavier/fcn/ours": 80.0, "rival/rbf-svm": 85.0, "rival/shared-label-spreading": 93.0}
    paper |= {"rival/gradients-shared-label-spreading": 98.0}
    return {
        "mnist-rivals.json": task_results(flat(paper)),
        "mnist-coherence.json": task_results(flat(COHERENT)),
        "mnist-gradients.json": task_results(flat(ours)),
    }


def test_the_readme_s_picture_is_drawn_again_for_other_figures_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(report, "DOCUMENTS", ())
    library = write_all(tmp_path, headline_files())
    arguments, path = ["--results", str(library.folder)], library.folder / headline.PICTURE
    assert report.main(arguments) == 0
    drawn = path.read_bytes()
    assert report.main([*arguments, "--check"]) == report.main(arguments) == 0
    assert path.read_bytes() == drawn
    write_all(tmp_path, headline_files(lift=1.0))
    assert report.main([*arguments, "--check"]) == 1
    assert "in-words.png differs from" in capsys.readouterr().err
    assert path.read_bytes() == drawn
    assert report.main(arguments) == 0
    assert path.read_bytes() != drawn


def test_the_report_says_what_the_committed_results_say(capsys):
    assert report.main(["--check"]) == 0, capsys.readouterr().err
    text = (report.RESULTS / "REPORT.md").read_text(encoding="utf-8")
    assert all(f"\n### {run.title}\n" in text for run in RUNS if run.section)
    for note in (report.RESULTS / "notes").iterdir():
        assert note.read_text(encoding="utf-8").strip() in text, note.name
