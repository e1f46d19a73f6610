"""The report: whole documents of results made up, complete, in part, absent; and the committed."""

import re

import numpy as np
import pytest

import readme_tables
import report
from protocol.methods import NAMES
from protocol.rivals import ALL_RIVALS, RIVALS
from protocol.store import write_json
from reporting import pages
from reporting.comparison import APPENDIX, AVERAGING, MAIN, draw_sentences, draw_table
from reporting.findings import FIGURES
from reporting.results import Library
from reporting.task_tables import (
    PERCEPTRONS,
    accuracy_table,
    claims_table,
    differences_table,
    kernels_table,
    paper_tasks,
    perceptron_differences,
    ranking_table,
    rivals_sentences,
    rivals_table,
    rows_of_all_files,
    wide_of,
    with_perceptron,
)
from results_stand_in import (
    AUGMENTED,
    AVERAGED,
    COHERENT,
    CONVOLUTIONAL,
    PAPER_METHODS,
    averaged,
    complete,
    degeneracies,
    densities,
    detachment,
    flat,
    like_the_paper,
    partial_results,
    scales,
    task_results,
    theorems,
    write_all,
)
from runs import CONVNET, RUNS, SCRATCH, run_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("whole"), complete())


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("part"), partial_results())


@pytest.fixture
def empty(tmp_path):
    return Library(tmp_path)


def wide_of_scores(scores, **settings):
    return paper_tasks(task_results(scores, **settings))


def section(text, begin, end):
    return text[text.index(f"## {begin}") : text.index(f"## {end}")]


# What is declared


def test_every_run_says_what_to_do_and_names_rows_that_there_are():
    for run in RUNS:
        assert re.match(r"\w+\.py( |$)", run.command)
        assert (readme_tables.RESULTS.parent / run.command.split()[0]).is_file()
        assert re.search(r"\b(minutes?|hours?)\b", run.time)
        assert {*run.methods} <= {*NAMES, *CONVNET, *ALL_RIVALS}
        assert not run.beside or run_of(run.beside)
    assert len({run.name for run in RUNS}) == len(RUNS)
    assert run_of("mnist-rivals.json").methods == RIVALS
    assert run_of("mnist-rivals.json").arguments[-2:] == ["--rivals", "*"]
    with pytest.raises(ValueError, match="no measurement is declared for 'x'"):
        run_of("x")


def test_progress_counts_the_parts(whole, part):
    for run in RUNS:
        assert pages.progress(run, None) == 0
        if run.section:
            assert pages.progress(run, whole.results(run.file)) >= run.parts
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
    wide = paper_tasks(whole.results("mnist-full.json"))
    for table in MAIN:
        for init in ("xavier", "he"):
            agreeing, ordered = table.tallies(wide, init)
            assert agreeing.short.startswith("20 of 20 figures")
            assert ordered.short.startswith("16 of 16 orderings")
            rows = table.table(wide, init, "none").rows
            assert [row[1] for row in rows] == ["the paper", "here, 4 runs"] * 5
            assert all(
                own[2:] == paper[2:] for paper, own in zip(rows[::2], rows[1::2], strict=True)
            )
    for table in APPENDIX:
        tallies = table.tallies(whole)
        assert list(tallies) == ["", AVERAGING]
        assert not any(tally.exceptions for own in tallies.values() for tally in own)
        rows = table.table(whole).rows
        for paper, *both in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
            assert all(own[2:] == paper[2:] for own in both)


def test_claims_are_looked_at_task_by_task():
    rows = {
        row[0]: row[1:] for row in claims_table(wide_of_scores(like_the_paper()), "xavier").rows
    }
    assert set(rows) == {n for n in PAPER_METHODS if n.startswith("xavier")} - {"xavier/fcn/ours"}
    # The means' difference is the paper's.
    assert rows["xavier/fcn/scratch"][0].startswith("holds: +2.79 [")
    assert rows["xavier/fcn/scratch"][0].endswith("(+2.79)")
    worse = like_the_paper(["xavier/fcn/ours"], by=-0.5) + like_the_paper(["xavier/fcn/scratch"])
    (row,) = claims_table(wide_of_scores(worse), "xavier").rows
    assert row[1].startswith("does not hold: -47.21 [")
    assert claims_table(wide_of(None), "xavier").rows == []


def test_orderings_are_of_the_runs_that_ours_has():
    """Runs have tasks of their own: the mean over other runs says nothing of an ordering."""
    kept = [s for s in like_the_paper() if s["run"] == 0 or not s["method"].endswith("fcn/ours")]
    # In all other runs the others are far better.
    moved = [s | {"accuracy": s["accuracy"] + 0.2 * (s["run"] > 0)} for s in kept]
    alone = [s for s in kept if s["run"] == 0]
    for table in MAIN:
        _, claims = table.tallies(wide_of_scores(moved), "xavier")
        assert claims == table.tallies(wide_of_scores(alone), "xavier")[1]
        assert claims.total == 16


def test_one_run_of_one_half(part):
    wide = paper_tasks(part.results("mnist-full.json"))
    for table in MAIN:
        assert table.tallies(wide, "xavier")[0].total == 20
        assert table.tallies(wide, "he") == []
        assert table.table(wide, "xavier", "no").rows[1][1] == "here, 1 run"
        he = table.table(wide, "he", "not run yet").rows
        assert len(he) == 6
        assert he[-1][2] == "not run yet"
    softmax, dead, scale = APPENDIX
    assert [tally.short[:6] for tally in softmax.tallies(part)[""]] == ["1 of 1"]
    assert [tally.short[:6] for tally in dead.tallies(part)[""]] == ["3 of 3"]
    assert scale.tallies(part)[""][0].total == 4
    *_, text, other = scale.table(part).rows
    assert text[:3] == ["the others", "here", run_of("scale-and-weight.json").not_run]
    missing = run_of("scale-and-weight-mean-of-kernels.json").not_run
    assert other[:3] == ["all", f"here, {AVERAGING}", missing]


def test_other_data_networks_and_readings_do_not_stand_beside_the_paper(tmp_path):
    files = complete()
    for end in ("", "-mean-of-kernels"):
        files[f"degeneracies{end}.json"]["dataset"] = {"name": "digits"}
        files[f"scale-and-weight{end}.json"]["settings"]["hidden_layer_sizes"] = [4]
    library = write_all(tmp_path, files)
    assert wide_of_scores(flat(COHERENT), classes=10).empty
    assert [table.tallies(library) for table in APPENDIX] == [{}, {}, {}]
    assert FIGURES[0].findings(library) == []
    write_json(tmp_path / "degeneracies-mean-of-kernels.json", degeneracies())  # of the sum
    assert APPENDIX[1].tallies(library) == {}
    write_json(tmp_path / "degeneracies-mean-of-kernels.json", averaged(degeneracies()))
    assert APPENDIX[1].tallies(library)[AVERAGING][0].short.startswith("9 of 9 figures")


def test_the_law_that_gives_the_paper_s_figures_has_all_of_them():
    laws = {
        "uniform": wide_of_scores(like_the_paper(by=-0.09)),
        "balanced": wide_of_scores(like_the_paper()),
    }
    said = draw_sentences(laws)
    assert said[0].startswith("10 N images of any digits (uniform), mean accuracy: 0 of 16 figures")
    assert said[2].startswith("exactly N of each digit (balanced), mean accuracy: 16 of 16 figures")
    rows = draw_table(laws).rows
    assert [row[0] for row in rows if row[0]] == list(SCRATCH)
    heads = ["the paper, 4 runs", "uniform, 4 runs", "balanced, 4 runs"]
    assert [row[1] for row in rows[:3]] == heads
    assert all(text.endswith(" *") for text in rows[1][2:])
    assert not any("*" in text for text in rows[2][2:])


def test_readings_of_the_kernels_are_compared_on_the_runs_and_tasks_of_both():
    both = {
        "sum": wide_of_scores(like_the_paper()),
        "mean": wide_of_scores(flat(AVERAGED, runs=1), kernels="mean"),
    }
    table = kernels_table(both, "5 passes")
    assert "; 1 run), theta0 after 5 passes: mean" in table.title
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["the paper's mean of four runs"] == ["+2.79", "+2.28", "+2.53", "+1.57"]
    assert rows["mean of the kernels"] == ["+2.50 [+2.50, +2.50]"] * 4
    own = both["sum"].loc[(20, 0), "xavier/fcn/ours"].mean()
    gain = own - both["sum"].loc[(20, 0), "xavier/fcn/scratch"].mean()
    assert rows["sum of the kernels"][2].startswith(f"{gain:+.2f} [")
    assert rows["mean minus sum"][2].startswith(f"{80.5 - own:+.2f} [")


# Findings


def test_the_paper_s_findings_hold_where_they_do(whole):
    for figure in FIGURES:
        found = figure.findings(whole)
        assert found
        assert all(finding.holds for finding in found)


def turned(results):
    """Densities that go the other way."""
    results["records"][0]["densities"] = densities(True, False)
    results["records"][1]["densities"] = densities(False, True)
    return results


@pytest.mark.parametrize(
    ("file", "results", "expected"),
    [
        ("degeneracies.json", turned(degeneracies()), [False, False]),
        ("detachment-nearby.json", detachment((0.1, 1.3, 1.5, 1.9)), [False, True]),
        ("detachment-nearby.json", detachment((0.5, 0.3, 0.6, 0.9)), [True, False]),
        ("theorems.json", theorems(holds=False), [False, True, True]),
        # (0, 0) is not among the settings; nothing was learned.
        ("degeneracies.json", degeneracies([(0.4, 1.0)]), []),
        ("detachment-nearby.json", detachment() | {"records": []}, []),
    ],
)
def test_a_finding_that_is_not_ours_is_said_to_be_none(tmp_path, file, results, expected):
    library = write_all(tmp_path, {file: results})
    figure = next(figure for figure in FIGURES if figure.file == file)
    assert [finding.holds for finding in figure.findings(library)] == expected
    assert ("Here: no (" in " ".join(map(str, figure.findings(library)))) == (False in expected)


@pytest.mark.parametrize(
    ("ends", "holds"),
    [
        ((0.01, 0.02, 0.03), True),
        ((0.0045, 0.012, 0.014), False),  # the highest, and yet not apart from the others
        ((0.01, 0.03, 0.3), False),  # apart, but the others are not close to 0
    ],
)
def test_uniformity_is_close_to_zero_except_at_one(tmp_path, ends, holds):
    results = scales()
    of_weight = dict(zip((0.2, 0.4, 1.0), ends, strict=True))
    for record in results["records"]:
        record["uniformity"] = [0.5, of_weight[record["degeneracy_weight"]]]
    # Where a weight is missing nothing is said, whatever the others are.
    results["records"] += [
        record | {"squared_scale": 9.0, "uniformity": [0.5, 0.5]}
        for record in results["records"]
        if record["degeneracy_weight"] != 0.4
    ]
    library = write_all(tmp_path, {"scale-and-weight.json": results})
    (found,) = FIGURES[2].findings(library)
    assert found.holds == holds
    assert "s^2 = 9" not in found.numbers


# Rows of several files


def test_rivals_come_from_whichever_file_has_them(whole, part, empty):
    wide = rows_of_all_files(whole)
    rows = {row[0]: row for row in rivals_table(wide, "no").rows}
    assert set(RIVALS) < set(rows)
    assert rows["rival/lsuv"][1:3] == ["4", "84.50, +9.00 [+9.00, +9.00]"]
    assert rows["xavier/fcn/scratch"][2] == "75.50"
    best, rival, network = rivals_sentences(wide)
    assert "N = 5: features+logistic, augmented, by gradients (99.20)" in best
    assert "N = 40: gradients-svm (90.50)" in rival
    assert "tuned-scratch" in network
    *found, last = rivals_table(rows_of_all_files(part), "not run").rows
    assert "rival/1-nn" in [row[0] for row in found]
    assert "rival/lsuv" in last[0]
    assert last[2] == "not run"
    assert len(rivals_sentences(rows_of_all_files(part))) == 2
    assert rivals_table(rows_of_all_files(empty), "no").rows[0][1] == "0"


def test_a_row_of_other_runs_or_ways_is_its_own_and_compared_on_shared_runs(tmp_path):
    files = {
        "mnist-coherence.json": flat(COHERENT),
        "mnist-rivals.json": flat({"rival/lsuv": 90.0}, runs=1),
        "mnist-augmented.json": flat(AUGMENTED, runs=1),
    }
    library = write_all(tmp_path, {file: task_results(scores) for file, scores in files.items()})
    rows = {row[0]: row for row in rivals_table(rows_of_all_files(library), "no").rows}
    assert rows["rival/lsuv"][1:3] == ["1", "90.50, +15.00 [+15.00, +15.00]"]
    found = {name: row[2].split(",")[0] for name, row in rows.items() if "features" in name[:8]}
    assert found == {"features+logistic": "96.50", "features+logistic, augmented": "98.90"}


def test_the_ranking_has_every_measured_row_once_and_the_best_one_first(whole, part, empty):
    table = ranking_table(rows_of_all_files(whole))
    means = [np.mean([float(cell) for cell in row[2:6]]) for row in table.rows]
    assert means == sorted(means, reverse=True)
    rows = {row[0]: row for row in table.rows}
    # Scratch and ours with five theta0s, four of them with the rows on their features.
    assert len(rows) == len(table.rows) == len(RIVALS) + 2 + 10
    assert rows["xavier/fcn/scratch"][-1] == "-"
    assert rows["lsuv"][1:] == ["4", *["84.50"] * 4, "+9.00 [+9.00, +9.00]"]
    # Paired: of a row with one run, only that run of scratch counts.
    assert {row[1] for row in ranking_table(rows_of_all_files(part)).rows} == {"1", "4"}
    assert ranking_table(rows_of_all_files(empty)).rows == []
    alone = ranking_table(rows_of_all_files(part).drop(columns="xavier/fcn/scratch"))
    assert {row[-1] for row in alone.rows} == {"-"}


def test_another_way_is_paired_with_the_same_rows_without_it(whole):
    own, plain = (wide_of(whole.results(f"mnist-{n}.json")) for n in ("augmented", "coherence"))
    table = differences_table("One minus the other", own, plain)
    assert table.title.startswith("One minus the other, on the same tasks")
    assert table.head == ["method", "N = 5", "N = 10", "N = 20", "N = 40"]
    assert {row[0]: row[1] for row in table.rows} == {
        "xavier/fcn/ours+coherence": "+1.00 [+1.00, +1.00]",
        "features+logistic": "+2.40 [+2.40, +2.40]",
    }
    assert differences_table("One minus the other", own, wide_of(None)).rows == []


def test_the_convolutional_network_stands_beside_the_perceptron_on_the_tasks_they_share(whole):
    own, others = (wide_of(whole.results(f"mnist-{n}.json")) for n in ("convnet", "coherence"))
    wide = with_perceptron(own, others)
    # Two of the four runs of the perceptron.
    assert set(wide.index.get_level_values("run")) == {0, 1}
    rows = {row[0]: row[1:] for row in accuracy_table(wide).rows}
    assert list(rows)[:7] == [*CONVOLUTIONAL, *PERCEPTRONS.values()]
    assert set(rows) == {*CONVOLUTIONAL, *COHERENT, *RIVALS}
    assert rows["convnet/ours"][0] == "85.50 ± 0.00"
    assert {row[0]: row[1:3] for row in perceptron_differences(wide).rows} == {
        "convnet/ours+coherence": ["xavier/fcn/ours+coherence", "+1.00 [+1.00, +1.00]"],
        "convnet/features+logistic": ["features+logistic", "+1.50 [+1.50, +1.50]"],
        "convnet/scratch": ["xavier/fcn/scratch", "+5.00 [+5.00, +5.00]"],
    }


# The document


def links(text):
    return re.findall(r"\]\((?!https?:)([^)#]+)", text)


def test_a_complete_reproduction_asks_for_nothing(whole):
    (whole.folder / "coherence.png").write_bytes(b"")
    text = pages.report(whole)
    assert "ot run yet" not in text
    assert " *" not in re.sub(r"\(\* (not within|different)", "", text)
    assert links(text) == ["coherence.png"]
    assert text.count("| mean minus sum |") == 2
    assert "(points; 2 runs), theta0 after 2 passes with K = 64: mean" in text
    assert "| abacus, 1 core | a |" in text
    assert "4 theta0 in 2.0 h, last call 1.5 min" in text
    augmented = section(text, "Coherence with aug", "Coherence in two")
    assert augmented.count("With augmentation minus without") == 3
    assert "above the best rival measured there (augmented-svm) at N = 5, 10, 20, 40" in augmented
    rounds = section(text, "Coherence in two", "Coherence with neigh")
    assert rounds.count("In two rounds minus in one") == 2
    gradients = section(text, "Coherence with neigh", "A convolutional")
    assert gradients.count("With neighbours by gradients minus by pixels") == 3
    assert gradients.count("| rival/gradients-svm | 90.50 ") == 4
    for run in RUNS:
        assert not run.section or f"| {run.file} |" in text
        assert f"| `{run.file}`" in pages.commands(whole) or not run.section


def test_a_part_of_it_says_what_is_there_and_what_to_run(part):
    text = pages.report(part)
    assert "5 of 20 parts; the rest not run yet" in text
    assert "Not run yet: `python benchmarks/theorems.py`" in text
    assert "Here theta0 was learned in 5 passes over 60,000 images with K = 256" in text
    kernels = section(text, "How the kernels", "Tables of the app")
    assert run_of("mnist-mean-of-kernels.json").not_run[1:] in kernels
    assert "mean minus sum" not in kernels
    convnet = section(text, "A convolutional network", "Accuracy against")
    assert f"{run_of('mnist-convnet-ten-way.json').not_run[1:]}." in convnet


def test_without_any_result_the_document_is_a_list_of_commands(empty):
    text = pages.report(empty)
    for run in RUNS:
        assert not run.section or f"| {run.name} | {run.file} | {run.not_run} |" in text
    # The paper's figures stand there all the same.
    assert "82.42 ± 0.72" in text
    assert links(text) == []
    (empty.folder / "notes").mkdir()
    (empty.folder / "notes" / "dead-neurons.md").write_text("A riddle.\n")
    assert "\n\nA riddle.\n\n" in pages.report(empty)


@pytest.mark.parametrize("make", [complete, partial_results, dict])
def test_the_summary_has_five_lines_whatever_there_is(tmp_path, make):
    library = write_all(tmp_path, make())
    lines = pages.summary(library)
    assert len(lines) == 5
    assert all(line.endswith(".") for line in lines)
    assert ("ot run yet" in " ".join(lines)) == (make is not complete)
    text = pages.report(library)
    assert all(f"- {line}\n" in text for line in lines)


def test_the_summary_names_rivals_of_other_files_and_counts_the_runs_of_ours(tmp_path):
    kept = [s for s in like_the_paper() if s["run"] == 0 or not s["method"].endswith("fcn/ours")]
    files = {
        "mnist-full.json": kept,
        "mnist-coherence.json": flat(COHERENT | {"rival/label-spreading": 93.0}),
        "mnist-gradients.json": flat({"rival/gradients-svm": 98.0}),
    }
    library = write_all(tmp_path, {file: task_results(scores) for file, scores in files.items()})
    first, *_, last = pages.summary(library)
    assert "Xavier, 1 of 4 runs of ours, 4 of others: " in first
    pixels, best = last.split(". ")[2:]
    assert pixels.startswith("Points over the best of the rivals that see pixels alone: +4.00 at N")
    assert pixels.endswith("+4.00 at N = 40 (label-spreading)")
    assert best.endswith("-1.00 at N = 40 (gradients-svm).")


# The command


def test_the_command_writes_checks_and_keeps(tmp_path, capsys):
    library = write_all(tmp_path, partial_results())
    arguments, path = ["--results", str(tmp_path)], tmp_path / "REPORT.md"
    quote = "<!-- table: REPORT.md report_summary -->\nold\n<!-- end of table -->"
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
    assert "\n".join(f"- {line}" for line in pages.summary(library)) in made
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
