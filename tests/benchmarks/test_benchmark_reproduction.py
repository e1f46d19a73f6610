"""The report of the reproduction: whole documents of results made up, complete, in part, absent."""

import re

import numpy as np
import pytest

import readme_tables
import report
from protocol.rivals import RIVALS
from protocol.store import write_json
from reporting.appendix_tables import APPENDIX_TABLES, AVERAGING
from reporting.augmented_report import way_differences
from reporting.convnet_report import (
    PERCEPTRONS,
    convnet_differences,
    convnet_table,
    on_shared_tasks,
    perceptron_differences,
)
from reporting.expected import (
    AUGMENTED_MNIST,
    AUGMENTED_TEN_WAY,
    COHERENCE,
    CONVNET,
    CONVNET_TEN_WAY,
    DEGENERACIES,
    DETACHMENT,
    EXPECTED,
    GRADIENTS_MNIST,
    RIVAL_RUNS,
    SCALE,
    TABLES_HE,
    TABLES_XAVIER,
    THEOREMS,
)
from reporting.expected_averaged import (
    AVERAGED,
    SCALE_AVERAGED,
)
from reporting.findings import FIGURES
from reporting.item import progress
from reporting.kernels_report import kernels_table, shares_table
from reporting.library import Library
from reporting.main_tables import MAIN_TABLES, claims_table, scores_of_paper
from reporting.paper import ACCURACY
from reporting.reproduction import reproduction_report
from reporting.rivals_report import (
    ranking_table,
    rivals_sentences,
    rivals_table,
    scores_by_row,
)
from reporting.summary import summary_lines
from reporting.table import as_markdown
from reporting.task_tables import unpack_scores
from results_stand_in import (
    AUGMENTED,
    AVERAGED_ACCURACY,
    COHERENT,
    CONVOLUTIONAL,
    averaged,
    complete,
    convolutional,
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


@pytest.fixture
def whole(tmp_path):
    return write_all(tmp_path / "whole", complete())


@pytest.fixture
def part(tmp_path):
    return write_all(tmp_path / "part", partial_results())


@pytest.fixture
def empty(tmp_path):
    (tmp_path / "empty").mkdir()
    return Library(tmp_path / "empty")


# Tables


def test_the_paper_s_own_figures_agree_with_the_paper(whole):
    scores = scores_of_paper(whole.results("mnist-full.json"))
    for table in MAIN_TABLES:
        for init in ("xavier", "he"):
            agreeing, ordered = table.tallies(scores, init)
            assert agreeing.short.startswith("20 of 20 figures")
            assert ordered.short.startswith("16 of 16 orderings")
            rows = table.table(scores, init, missing="none").rows
            assert [row[1] for row in rows] == ["the paper", "here, 4 runs"] * 5
            for paper, own in zip(rows[::2], rows[1::2], strict=True):
                assert own[2:] == paper[2:]
    for table in APPENDIX_TABLES:
        tallies = table.tallies(whole)
        assert list(tallies) == ["", AVERAGING]
        assert not any(tally.exceptions for own in tallies.values() for tally in own)
        rows = table.table(whole).rows
        assert len(rows) % 3 == 0
        for paper, *both in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
            assert all(own[2:] == paper[2:] for own in both)


def test_claims_are_looked_at_task_by_task(whole):
    scores = scores_of_paper(whole.results("mnist-full.json"))
    rows = {row[0]: row[1:] for row in claims_table(scores, "xavier").rows}
    assert set(rows) == {n for n in ACCURACY if n.startswith("xavier")} - {"xavier/fcn/ours"}
    # The means' difference is the paper's.
    assert rows["xavier/fcn/scratch"][0].startswith("holds: +2.79 [")
    assert rows["xavier/fcn/scratch"][0].endswith("(+2.79)")
    worse = [s | {"accuracy": s["accuracy"] - 0.5} if s["method"] == "xavier/fcn/ours" else s
             for s in scores]  # fmt: skip
    assert claims_table(worse, "xavier").rows[0][1].startswith("does not hold: -47.21 [")
    assert claims_table([], "xavier").rows == []


def test_one_run_of_one_half(part):
    scores = scores_of_paper(part.results("mnist-full.json"))
    for table in MAIN_TABLES:
        assert table.tallies(scores, "xavier")[0].total == 20
        assert table.tallies(scores, "he") == []
        assert table.table(scores, "xavier", missing="no").rows[1][1] == "here, 1 run"
        he = table.table(scores, "he", missing=TABLES_HE.not_run).rows
        assert len(he) == 6
        assert he[-1][2].startswith("not run yet: `python benchmarks/mnist_tasks.py")
    softmax, dead, scale = APPENDIX_TABLES
    assert [tally.short[:6] for tally in softmax.tallies(part)[""]] == ["1 of 1"]
    assert [tally.short[:6] for tally in dead.tallies(part)[""]] == ["3 of 3"]
    assert scale.tallies(part)[""][0].total == 4
    *_, text, other = scale.table(part).rows
    assert text[:3] == ["the others", "here", SCALE.not_run]
    assert other[:3] == ["all", f"here, {AVERAGING}", SCALE_AVERAGED.not_run]


def test_other_data_and_networks_do_not_stand_beside_the_paper(tmp_path):
    files = complete()
    files["mnist-full.json"]["dataset"] = {"name": "digits"}
    for end in ("", "-mean-of-kernels"):
        files[f"degeneracies{end}.json"]["dataset"] = {"name": "digits"}
        files[f"scale-and-weight{end}.json"]["settings"]["hidden_layer_sizes"] = [4]
    library = write_all(tmp_path, files)
    assert scores_of_paper(library.results("mnist-full.json")) == []
    assert scores_of_paper(task_results(flat(COHERENT), classes=10)) == []
    assert [table.tallies(library) for table in APPENDIX_TABLES] == [{}, {}, {}]
    assert FIGURES[0].findings(library) == []


def test_each_reading_of_the_kernels_has_lines_of_its_own(tmp_path):
    file = "degeneracies-mean-of-kernels.json"
    library = write_all(tmp_path, {file: degeneracies()})
    assert [table.tallies(library) for table in APPENDIX_TABLES] == [{}, {}, {}], "of the sum"
    library = write_all(tmp_path, {file: averaged(degeneracies())})
    softmax, dead, scale = (table.tallies(library) for table in APPENDIX_TABLES)
    assert scale == {}
    assert softmax.keys() == dead.keys() == {AVERAGING}
    assert dead[AVERAGING][0].short.startswith("9 of 9 figures")
    assert APPENDIX_TABLES[1].table(library).rows[-1][:3] == ["all", "here", DEGENERACIES.not_run]
    text = reproduction_report(library)
    assert f"- With {AVERAGING}: 9 of 9 figures" in text
    assert f"Dead neurons: with {AVERAGING}, 9 of 9 figures" in text


def test_shares_of_the_first_term_are_multiples_of_the_other_two(whole):
    table = shares_table(whole.results("degeneracies-by-share.json"))
    assert [row[:2] for row in table.rows] == [
        ["1", "30.00 ± 1.00"],
        ["1/3", "29.00 ± 1.00"],
        ["1/9", "28.00 ± 1.00"],
    ]
    assert table.head[-1] == "dead, hidden 3"
    assert "theta0 after 5 passes over 60,000 images with K = 256" in table.title


def test_readings_of_the_kernels_are_compared_on_the_runs_and_tasks_of_both(whole, empty):
    one_run = task_results(flat(AVERAGED_ACCURACY, runs=1), kernels="mean")
    both = {"sum": whole.results(TABLES_XAVIER.file), "mean": one_run}
    scores = {kernels: scores_of_paper(results) for kernels, results in both.items()}
    table = kernels_table(scores, "5 passes")
    assert "; 1 run), theta0 after 5 passes: mean" in table.title
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["the paper's mean of four runs"] == ["+2.79", "+2.28", "+2.53", "+1.57"]
    assert rows["mean of the kernels"] == ["+2.50 [+2.50, +2.50]"] * 4
    # By hand, on the first run.
    own = {
        name: [s["accuracy"] for s in scores["sum"]
               if (s["method"], s["run"], s["n_labels"]) == (f"xavier/fcn/{name}", 0, 20)]
        for name in ("ours", "scratch")
    }  # fmt: skip
    gain = 100 * (np.mean(own["ours"]) - np.mean(own["scratch"]))
    assert rows["sum of the kernels"][2].startswith(f"{gain:+.2f} [")
    between = 80.5 - 100 * np.mean(own["ours"])
    assert rows["mean minus sum"][2].startswith(f"{between:+.2f} [")
    text = reproduction_report(whole)
    assert text.count("| mean minus sum |") == 2
    assert "(points; 2 runs), theta0 after 2 passes with K = 64: mean" in text
    files = {AVERAGED.file: task_results(flat(AVERAGED_ACCURACY, runs=1), kernels="mean")}
    for library in (empty, write_all(empty.folder, files)):
        text = reproduction_report(library)
        section = text[text.index("## How the kernels") : text.index("## Tables of the app")]
        assert TABLES_XAVIER.not_run[1:] in section
        assert (AVERAGED.not_run[1:] in section) == (library.results(AVERAGED.file) is None)
        assert "mean minus sum" not in section


# Figures


def test_the_paper_s_findings_hold_where_they_do(whole):
    for figure in FIGURES:
        found = figure.findings(whole)
        assert found
        assert all(finding.holds for finding in found)
        assert all(str(finding).startswith("The paper: ") for finding in found)


@pytest.mark.parametrize(
    ("file", "results", "expected"),
    [
        ("detachment-nearby.json", detachment((0.1, 1.3, 1.5, 1.9)), [False, True]),
        ("detachment-nearby.json", detachment((0.5, 0.3, 0.6, 0.9)), [True, False]),
        ("theorems.json", theorems(holds=False), [False, True, True]),
    ],
)
def test_a_finding_that_is_not_ours_is_said_to_be_none(tmp_path, file, results, expected):
    library = write_all(tmp_path, {file: results})
    (figure,) = [figure for figure in FIGURES if figure.expected.file == file]
    assert [finding.holds for finding in figure.findings(library)] == expected
    assert "Here: no (" in " ".join(map(str, figure.findings(library)))


def test_densities_and_uniformity_that_go_the_other_way(tmp_path):
    turned = degeneracies()
    turned["records"][0]["densities"] = densities(uniform=True, wide=False)
    turned["records"][1]["densities"] = densities(uniform=False, wide=True)
    closer = scales()
    for record in closer["records"]:
        record["uniformity"] = [0.5, 0.01 if record["degeneracy_weight"] == 1.0 else 0.2]
    library = write_all(tmp_path, {"degeneracies.json": turned, "scale-and-weight.json": closer})
    for figure in (FIGURES[0], FIGURES[3]):
        assert [finding.holds for finding in figure.findings(library)] == [False] * (
            2 if figure is FIGURES[0] else 1
        )


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
    (found,) = FIGURES[3].findings(write_all(tmp_path, {SCALE.file: results}))
    assert found.holds == holds
    assert "s^2 = 9" not in found.numbers


def test_figures_that_cannot_be_looked_at_have_no_findings(part, empty):
    # (0, 0) is not among the settings, and there is a single step.
    assert FIGURES[0].findings(part) == []
    short = detachment()
    short["records"] = short["records"][:1]
    write_json(empty.folder / "detachment-nearby.json", short)
    assert FIGURES[1].findings(empty) == []


# Rivals


def test_rivals_come_from_whichever_file_has_them(whole, part):
    rows = {row[0]: row for row in rivals_table(scores_by_row(whole)).rows}
    assert set(RIVALS) < set(rows)
    assert rows["rival/lsuv"][1:3] == ["4", "84.50, +9.00 [+9.00, +9.00]"]
    assert rows["xavier/fcn/scratch"][2] == "75.50"
    best, rival, network = rivals_sentences(scores_by_row(whole))
    assert "N = 5: features+logistic, augmented, by gradients (99.20)" in best
    assert "N = 40: gradients-svm (90.50)" in rival
    assert "tuned-scratch" in network
    *found, last = rivals_table(scores_by_row(part)).rows
    assert "rival/1-nn" in [row[0] for row in found]
    assert "rival/lsuv" in last[0]
    assert last[2] == RIVAL_RUNS.not_run
    assert len(rivals_sentences(scores_by_row(part))) == 2
    assert rivals_table({}).rows[0][1] == "0"


def test_a_rival_of_other_runs_is_compared_on_the_runs_that_both_have(tmp_path):
    early = task_results(flat(COHERENT))
    late = task_results(flat({"rival/lsuv": 90.0}, runs=1))
    library = write_all(tmp_path, {"mnist-coherence.json": early, "mnist-rivals.json": late})
    rows = {row[0]: row for row in rivals_table(scores_by_row(library)).rows}
    assert rows["rival/lsuv"][1:3] == ["1", "90.50, +15.00 [+15.00, +15.00]"]


def test_the_ranking_has_every_measured_row_once_and_the_best_one_first(whole, part, empty):
    table = ranking_table(scores_by_row(whole))
    means = [np.mean([float(cell) for cell in row[2:6]]) for row in table.rows]
    assert means == sorted(means, reverse=True)
    rows = {row[0]: row for row in table.rows}
    # Scratch and ours with five theta0s, four of them with the rows on their features.
    assert len(rows) == len(table.rows) == len(RIVALS) + 2 + 10
    assert rows["xavier/fcn/scratch"][-1] == "-"
    assert rows["lsuv"][1:] == ["4", *["84.50"] * 4, "+9.00 [+9.00, +9.00]"]
    # Paired: of a row with one run, only that run of scratch counts.
    assert {row[1] for row in ranking_table(scores_by_row(part)).rows} == {"1", "4"}
    assert ranking_table(scores_by_row(empty)).rows == []


# Augmentation


def test_augmentation_is_paired_with_the_same_rows_without_it(whole, empty):
    own, plain = (
        unpack_scores(whole.results(e.file)["scores"]) for e in (AUGMENTED_MNIST, COHERENCE)
    )
    table = way_differences("One minus the other", own, plain)
    assert table.title.startswith("One minus the other, on the same tasks")
    assert table.head == ["method", "N = 5", "N = 10", "N = 20", "N = 40"]
    assert {row[0]: row[1] for row in table.rows} == {
        "xavier/fcn/ours+coherence": "+1.00 [+1.00, +1.00]",
        "features+logistic": "+2.40 [+2.40, +2.40]",
    }
    assert way_differences("One minus the other", own, []).rows == []
    text = reproduction_report(whole)
    section = text[text.index("## Coherence with augmentation") : text.index("## Coherence in two")]
    assert section.count("With augmentation minus without") == 3
    assert "| rival/augmented-svm | 89.50 |" in section
    assert "above the best rival measured there (augmented-svm) at N = 5, 10, 20, 40" in section
    rounds = text[text.index("## Coherence in two") : text.index("## Coherence with neigh")]
    assert rounds.count("In two rounds minus in one") == 2
    assert "| features+logistic | +0.20 [+0.20, +0.20] |" in rounds
    gradients = text[text.index("## Coherence with neigh") : text.index("## A convolutional")]
    assert gradients.count("With neighbours by gradients minus by pixels") == 3
    assert gradients.count("By gradients at a separation of 4 minus by pixels at 2") == 1
    assert gradients.count("With augmentation minus without") == 1
    assert gradients.count("With augmentation and gradients minus without either") == 1
    assert "| features+logistic | +0.30 [+0.30, +0.30] |" in gradients
    assert gradients.count("| rival/gradients-svm | 90.50 ") == 4
    nothing = reproduction_report(empty)
    assert f"{AUGMENTED_TEN_WAY.not_run[1:]}." in nothing


def test_rows_with_augmentation_are_not_those_without(tmp_path):
    files = {COHERENCE.file: flat(COHERENT, runs=1), AUGMENTED_MNIST.file: flat(AUGMENTED, runs=1)}
    files = {file: task_results(scores) for file, scores in files.items()}
    rows = {row[0]: row for row in rivals_table(scores_by_row(write_all(tmp_path, files))).rows}
    found = {name: rows[name][2].split(",")[0] for name in rows if name.startswith("features")}
    assert found == {"features+logistic": "96.50", "features+logistic, augmented": "98.90"}


# A convolutional network


def test_the_convolutional_network_stands_beside_the_perceptron_on_the_tasks_they_share(whole):
    own, others = (unpack_scores(whole.results(e.file)["scores"]) for e in (CONVNET, COHERENCE))
    scores = on_shared_tasks(own, others)
    # Two of the four runs of the perceptron.
    assert {s["run"] for s in scores} == {0, 1}
    rows = {row[0]: row[1:] for row in convnet_table(scores).rows}
    assert list(rows)[:7] == [*CONVOLUTIONAL, *PERCEPTRONS.values()]
    assert set(rows) == {*CONVOLUTIONAL, *COHERENT, *RIVALS}
    assert rows["convnet/ours"][0] == "85.50 ± 0.00"
    assert rows["xavier/fcn/ours+coherence"][0] == "97.50 ± 0.00"
    paired = {row[0]: row[1:3] for row in perceptron_differences(scores).rows}
    assert paired == {
        "convnet/ours+coherence": ["xavier/fcn/ours+coherence", "+1.00 [+1.00, +1.00]"],
        "convnet/features+logistic": ["features+logistic", "+1.50 [+1.50, +1.50]"],
        "convnet/scratch": ["xavier/fcn/scratch", "+5.00 [+5.00, +5.00]"],
    }
    found = {(d.method, d.role): d.gain.mean for d in convnet_differences(scores)}
    assert set(found) == {
        (method, role)
        for method in ("convnet/ours+coherence", "convnet/features+logistic")
        for role in ("convnet/scratch", "rival/label-spreading", "best rival")
    }
    assert found["convnet/ours+coherence", "convnet/scratch"] == pytest.approx(18.0)
    assert found["convnet/features+logistic", "convnet/scratch"] == pytest.approx(17.5)


def test_the_convolutional_network_alone(tmp_path):
    library = write_all(tmp_path, {CONVNET.file: convolutional(runs=1)})
    text = reproduction_report(library)
    section = text[text.index("## A convolutional network") : text.index("## Accuracy against")]
    assert "- convnet/ours+coherence is above scratch at N = 5, 10, 20, 40." in section
    assert "| convnet/ours+coherence | 98.50 |" in section
    assert "| xavier/fcn/scratch |" not in section
    assert f"{CONVNET_TEN_WAY.not_run[1:]}." in section
    assert str(progress(CONVNET, library)).startswith("4 of 8 parts; the rest not run yet: `")


# What is expected


def test_progress_counts_the_parts(whole, part, empty):
    for expected in EXPECTED:
        assert str(progress(expected, empty)) == expected.not_run
        if expected.file in complete():
            assert str(progress(expected, whole)) == "measured"
    done = {e.file: progress(e, part) for e in (TABLES_XAVIER, DEGENERACIES, SCALE, DETACHMENT)}
    assert [p.done for p in done.values()] == [5, 1, 2, 0]
    assert str(done["mnist-full.json"]).startswith("5 of 20 parts; the rest not run yet: `")
    assert progress(TABLES_HE, part).done == 0
    assert progress(COHERENCE, part).whole
    assert progress(THEOREMS, part).done == 0


def test_every_item_says_what_to_run_and_how_long_it_takes():
    for expected in EXPECTED:
        assert re.fullmatch(r"python benchmarks/\w+\.py.*", expected.command)
        assert re.search(r"\b(minute|minutes|hour|hours)\b", expected.time)
        assert expected.parts >= 1
    assert len({expected.item for expected in EXPECTED}) == len(EXPECTED)


# The document


def links(text):
    return re.findall(r"\]\((?!https?:)([^)#]+)", text)


def test_a_complete_reproduction_asks_for_nothing(whole):
    (whole.folder / "coherence.png").write_bytes(b"")
    text = reproduction_report(whole)
    assert "ot run yet" not in text
    assert " *" not in re.sub(r"\(\* (not within|different)", "", text)
    assert links(text) == ["coherence.png"]
    for expected in EXPECTED:
        assert f"| {expected.file} |" in text
    assert "| abacus, 1 core | a |" in text
    assert "4 theta0 in 2.0 h, last call 1.5 min" in text


def test_a_part_of_it_says_what_is_there_and_what_to_run(part):
    text = reproduction_report(part)
    assert "5 of 20 parts; the rest not run yet" in text
    assert TABLES_HE.not_run in text
    assert "Not run yet: `python benchmarks/theorems.py`" in text
    assert "Here theta0 was learned in 5 passes over 60,000 images with K = 256" in text
    assert as_markdown(rivals_table(scores_by_row(part))) in text


def test_without_any_result_the_document_is_a_list_of_commands(empty):
    text = reproduction_report(empty)
    for expected in EXPECTED:
        assert f"| {expected.item} | {expected.file} | {expected.not_run} |" in text
    # The paper's figures stand there all the same.
    assert "82.42 ± 0.72" in text
    assert links(text) == []


@pytest.mark.parametrize("make", [complete, partial_results, dict])
def test_the_summary_has_five_lines_whatever_there_is(tmp_path, make):
    library = write_all(tmp_path, make())
    lines = summary_lines(library)
    assert len(lines) == 5
    assert all(line.endswith(".") and "\n" not in line for line in lines)
    assert ("ot run yet" in " ".join(lines)) == (make is not complete)
    assert all(f"- {line}\n" in reproduction_report(library) for line in lines)


def test_the_summary_names_the_rivals_of_coherence_and_those_of_other_files(tmp_path):
    coherent = flat(COHERENT | {"rival/label-spreading": 93.0})
    files = {
        COHERENCE.file: task_results(coherent),
        GRADIENTS_MNIST.file: task_results(flat({"rival/gradients-svm": 98.0})),
    }
    line = summary_lines(write_all(tmp_path, files))[-1]
    pixels, best = line.split(". ")[2:]
    assert pixels.startswith("Points over the best of the rivals that see pixels alone: +4.00 at N")
    assert pixels.endswith("+4.00 at N = 40 (label-spreading)")
    assert best.startswith("Points over the best rival of all on the same tasks: -1.00 at N = 5")
    assert best.endswith("-1.00 at N = 40 (gradients-svm).")


def test_notes_stand_in_the_document(empty):
    (empty.folder / "notes").mkdir()
    (empty.folder / "notes" / "dead-neurons.md").write_text("A riddle.\n")
    assert "\n\nA riddle.\n\n" in reproduction_report(empty)


# The command


def test_the_command_writes_checks_and_keeps(part, capsys):
    arguments = ["--results", str(part.folder)]
    path = part.folder / "REPORT.md"
    assert report.main([*arguments, "--check"]) == 1
    assert not path.exists()
    assert report.main(arguments) == 0
    text = path.read_text(encoding="utf-8")
    assert text == reproduction_report(part)
    assert report.main([*arguments, "--check"]) == 0
    capsys.readouterr()
    assert report.main(arguments) == 0
    assert capsys.readouterr().out == ""
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


def test_the_readme_quotes_the_summary(part):
    text = "<!-- table: REPORT.md report_summary -->\nold\n<!-- end of table -->"
    with pytest.raises(ValueError, match=r"no results 'REPORT\.md'"):
        readme_tables.rewrite(text, part.folder)
    report.main(["--results", str(part.folder)])
    made = readme_tables.rewrite(text, part.folder)
    assert "\n".join(f"- {line}" for line in summary_lines(part)) in made
    assert "\nold\n" not in made


def test_the_report_says_what_the_committed_results_say(capsys):
    assert report.main(["--check"]) == 0, capsys.readouterr().err


def test_committed_files_of_results_can_be_counted():
    library = Library(report.RESULTS)
    held = [e for e in EXPECTED if library.results(e.file) is not None]
    assert {COHERENCE, TABLES_XAVIER} <= set(held)
    assert all(0 < progress(e, library).done <= e.parts for e in held if e is not TABLES_HE)


def test_orderings_are_of_the_runs_that_ours_has():
    """Runs have tasks of their own: the mean over other runs says nothing of an ordering."""
    scores = like_the_paper(ACCURACY)
    kept = [s for s in scores if s["run"] == 0 or not s["method"].endswith("fcn/ours")]
    # In all other runs the others are far better.
    moved = [s | {"accuracy": s["accuracy"] + 0.2 * (s["run"] > 0)} for s in kept]
    alone = [s for s in kept if s["run"] == 0]
    for table in MAIN_TABLES:
        _, claims = table.tallies(moved, "xavier")
        assert claims == table.tallies(alone, "xavier")[1]
        assert claims.total == 16


def test_the_summary_says_how_many_runs_there_are_of_ours(tmp_path):
    scores = like_the_paper(ACCURACY)
    kept = [s for s in scores if s["run"] == 0 or not s["method"].endswith("fcn/ours")]
    library = write_all(tmp_path, {"mnist-full.json": task_results(kept)})
    assert "Xavier, 1 of 4 runs of ours, 4 of others: " in summary_lines(library)[0]
