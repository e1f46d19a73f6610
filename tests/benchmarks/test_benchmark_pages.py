"""The report: of results made up, and the committed one."""

import re

import pytest

import report
from reporting import headline
from reporting.claims import Claim, choices_table, claims_table
from reporting.results import Library
from reporting.task_tables import wide_of
from results_stand_in import draws_of, flat, records, task_results, write_all
from runs import APPENDICES, RUNS

REPORT_PAGES = {*(report.RESULTS / "report").glob("*.md")}
APPENDIX_PAGES = [report.RESULTS / "report" / f"{name}.md" for name in APPENDICES]
INTERVAL = re.compile(r"\[[-+]?[\d.]+, [-+]?[\d.]+\]")
RUN_OF = {run.file: run for run in RUNS}

COHERENT = {
    "xavier/fcn/scratch": 75.0,
    "xavier/fcn/ours+coherence": 97.0,
    "features+EmbeddingClassifier": 97.5,
    "features+logistic": 96.0,
    "rival/umap-logistic": 90.0,
    "rival/label-spreading": 96.0,
}


# What is declared


def test_every_run_says_what_to_do_and_has_its_file():
    for run in RUNS:
        assert (report.RESULTS.parent / run.command.split()[0]).is_file()
        assert not run.beside or run.beside in RUN_OF
    assert all(bool(run.section) == bool(run.title) for run in RUNS)
    assert len(RUN_OF) == len(RUNS)
    assert {path.name for path in report.RESULTS.glob("*.json")} == {*RUN_OF}


def test_what_the_readme_says_of_one_label_a_digit_is_in_its_files():
    found = wide_of(Library(report.RESULTS).results("mnist-ten-way-images.json"))
    single = found.xs(1, level="n_labels")["features+EmbeddingClassifier"]
    assert len(single) == 100
    choices = (
        "mean of 100 random choices of the ten labelled images: 90 of the 100 give at least "
        f"{single.quantile(0.1):.1f} %, the worst {single.min():.0f} %."
    )
    readme = report.RESULTS.parents[1] / "README.md"
    assert choices in " ".join(readme.read_text(encoding="utf-8").split())


# The command


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "theorems.json").write_text("{")
    with pytest.raises(ValueError, match=r"results 'theorems.json' cannot be read: Expecting"):
        Library(tmp_path).results("theorems.json")


# The README's table and picture


def headline_files(lift=0.0):
    """All that the README's rows are made of."""
    of_one_label = records({name: [[value / 100]] for name, value in COHERENT.items()}, 1)
    of_all = task_results(flat(COHERENT))
    files = dict.fromkeys(["mnist-images.json", "fashion-augmented.json"], of_all)
    files["mnist-ten-way-images.json"] = task_results(of_one_label)
    of_sentences = {"prototypes": [60], "logistic, C = 100": [50]}
    of_sentences["EmbeddingClassifier"] = [70 + lift]
    of_choices = {("mnist", 10): {"random": [60], "k-means of rows": [70], "k-means": [80]}}
    files["first-labels.json"] = draws_of(of_choices)
    table = dict.fromkeys([("hwu64", 1), ("banking77", 1)], of_sentences)
    files["embeddings.json"] = draws_of(table)
    return files


def test_the_headline_has_the_best_rival_of_each_kind_of_data(tmp_path):
    table = headline.headline_table(write_all(tmp_path, headline_files()))
    assert table.head[2:] == ["best other method", "this package"]
    digits, *_, sentences = table.rows
    assert sentences[1:] == ["50.0", "60.0", "70.0"]
    assert digits[1:] == ["75.0", "96.0", "97.5"]


def test_the_picture_is_drawn_again_where_its_figures_are_others(tmp_path):
    library, path = write_all(tmp_path, headline_files()), tmp_path / headline.PICTURE
    assert report.picture_is_stale(library)
    assert headline.draw_headline(library, path) == f"{path} written"
    assert not report.picture_is_stale(library)
    write_all(tmp_path, headline_files(lift=1.0))
    assert report.picture_is_stale(library)


def test_the_report_says_what_the_committed_results_say(capsys):
    assert report.main(["--check"]) == 0, capsys.readouterr().err
    text = "".join(path.read_text(encoding="utf-8") for path in APPENDIX_PAGES)
    assert all(f"\n### {run.title}\n" in text for run in RUNS if run.section)
    for note in (report.RESULTS / "notes").iterdir():
        assert note.read_text(encoding="utf-8").strip() in text, note.name


def test_the_report_is_read_on_one_screen_and_a_page_a_topic():
    first = (report.RESULTS / "REPORT.md").read_text(encoding="utf-8")
    assert first.count("\n") <= 60
    for path in REPORT_PAGES - {*APPENDIX_PAGES}:
        text = path.read_text(encoding="utf-8")
        assert f"](report/{path.name})" in first, path.name
        assert text.count("\n") <= 250 or path.name == "files.md", path.name
        # Figures with intervals stand in tables.
        paragraphs = re.sub(r"^\|.*\|$", "", text, flags=re.MULTILINE).split("\n\n")
        assert all(len(INTERVAL.findall(words)) <= 1 for words in paragraphs), path.name


def test_a_claim_is_compared_with_the_best_rival_of_its_runs_and_with_fresh_weights(tmp_path):
    """By hand: 97, 96 and 75 in each run, and a rival that is measured in one run alone."""
    scores = [*flat(COHERENT), *records({"rival/rbf-svm": [[1.0, 1.0]]})]
    library = write_all(tmp_path, {"own.json": task_results(scores)})
    claim = Claim("what", "page.md", "own.json", 5, "xavier/fcn/ours+coherence")
    table = claims_table((claim,), library)
    words, over, ours, best, above, fresh, above_fresh, minutes = table.rows[0]
    assert (words, over, ours) == ("[what](report/page.md)", "4 runs", "97.5")
    assert (best, above) == ("96.5 (label-spreading)", "+1.00 [+1.00, +1.00]")
    assert (fresh, above_fresh, minutes) == ("75.5", "+22.00 [+22.00, +22.00]", "-")
    (own, rival) = choices_table((claim,), library).rows
    assert own == ["what", "ours", "8", "97.5", "0.5", "97.0", "97.0"]
    assert rival[1:4] == ["label-spreading", "8", "96.5"]
