"""The report of the reproduction as one Markdown document, made of the committed results alone.

A section is a list of blocks, which are paragraphs, tables or lists; what was not measured yet is
said in the words of ``reporting.expected``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from reporting.against_table import against, against_table
from reporting.appendix_tables import APPENDIX_TABLES
from reporting.augmented_report import way_differences
from reporting.budget_tables import budget_table
from reporting.budget_tables import points_of_results as budget_points
from reporting.coherence_report import standing_sentences, time_sentences
from reporting.coherence_tables import points_of_results, time_table
from reporting.convnet_report import (
    convnet_differences,
    convnet_table,
    on_shared_tasks,
    perceptron_differences,
)
from reporting.draw_report import draw_sentences, draw_table
from reporting.expected import (
    AUGMENTED_MNIST,
    AUGMENTED_TEN_WAY,
    BALANCED,
    BATCH_NORM,
    BUDGET,
    CLOTHES,
    COHERENCE,
    CONVNET,
    CONVNET_GRADIENTS,
    CONVNET_TEN_WAY,
    CONVNET_TEN_WAY_AUGMENTED,
    CONVNET_TEN_WAY_GRADIENTS,
    EXPECTED,
    FASHION,
    GRADIENTS_FASHION,
    GRADIENTS_MNIST,
    GRADIENTS_TEN_WAY,
    RIVAL_RUNS,
    TABLES_HE,
    TABLES_XAVIER,
    TEN_WAY,
    TIME,
    TUNING,
    TWO_ROUNDS_MNIST,
    TWO_ROUNDS_TEN_WAY,
)
from reporting.expected_averaged import (
    AVERAGED,
    SHARES,
    SHORT,
    SHORT_AVERAGED,
)
from reporting.findings import FIGURES
from reporting.item import Expected, progress
from reporting.kernels_report import kernels_table, shares_table
from reporting.library import Library
from reporting.made_with import made_with_table
from reporting.main_tables import MAIN_TABLES, claims_table, scores_of_paper
from reporting.rivals_report import rivals_sentences, rivals_table, scores_by_row
from reporting.summary import summary_lines
from reporting.table import Table, as_markdown
from reporting.task_tables import build_table, summarize, unpack_scores
from reporting.tuning_table import tried_of_records, tuning_table

__all__ = ["reproduction_report"]

Blocks = list[str]
Scores = list[dict[str, Any]]

HALVES = {"Xavier": ("xavier", TABLES_XAVIER), "He": ("he", TABLES_HE)}


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(table: Table) -> Blocks:
    """A table, or nothing where it has no row."""
    return [as_markdown(table)] if table.rows else []


def _said(expected: Expected) -> str:
    """A paragraph for an item that is not there."""
    text = expected.not_run
    return f"{text[0].upper()}{text[1:]}."


def _state(library: Library) -> Blocks:
    rows = [[e.item, e.file, str(progress(e, library))] for e in EXPECTED]
    return _table(Table("What there is, and what is missing", ["item", "file", "state"], rows))


def _main_tables(library: Library) -> Blocks:
    scores = scores_of_paper(library.results(TABLES_XAVIER.file))
    blocks = []
    for table in MAIN_TABLES:
        blocks.append(f"## {table.name}")
        for words, (init, expected) in HALVES.items():
            blocks.append(f"### {words}")
            blocks.append(_list(tally.sentence for tally in table.tallies(scores, init)))
            blocks += _table(table.table(scores, init, missing=expected.not_run))
            if table.kind == "accuracy":
                blocks += _table(claims_table(scores, init))
    return [*blocks, library.picture("mnist-full.png", "Accuracy by the number of labels")]


def _draw(library: Library) -> Blocks:
    blocks = ["## How labelled images are drawn"]
    if library.results(BALANCED.file) is None:
        return [*blocks, _said(BALANCED)]
    files = {"uniform": TABLES_XAVIER.file, "balanced": BALANCED.file}
    scores = {law: scores_of_paper(library.results(file)) for law, file in files.items()}
    blocks += [_list(draw_sentences(scores)), *_table(draw_table(scores))]
    return [*blocks, library.note("labelled-images")]


def _batch_norm(library: Library) -> Blocks:
    blocks = ["## Batch normalisation by the paper's objective"]
    scores = scores_of_paper(library.results(BATCH_NORM.file))
    if not scores:
        return [*blocks, _said(BATCH_NORM)]
    return [
        *blocks,
        BATCH_NORM.item + ".",
        *_table(build_table("gain", summarize(scores), paper=True)),
    ]


def _kernels(library: Library) -> Blocks:
    blocks = ["## How the kernels are put together", library.note("kernels")]
    shares = library.results(SHARES.file)
    blocks += [_said(SHARES)] if shares is None else _table(shares_table(shares))
    for summed, averaged in ((TABLES_XAVIER, AVERAGED), (SHORT, SHORT_AVERAGED)):
        of_reading = {"sum": summed, "mean": averaged}
        results = {k: library.results(e.file) for k, e in of_reading.items()}
        scores = {k: scores_of_paper(found) for k, found in results.items()}
        missing = [expected for k, expected in of_reading.items() if not scores[k]]
        blocks += map(_said, missing)
        if results["mean"] is not None and not missing:
            settings = results["mean"]["settings"]
            how = f"{settings['epochs']} passes with K = {settings['n_perturbations']}"
            blocks += _table(kernels_table(scores, how))
    return blocks


def _appendix(library: Library) -> Blocks:
    blocks = ["## Tables of the appendix"]
    for table in APPENDIX_TABLES:
        blocks.append(f"### {table.name}")
        blocks.append(
            _list(
                f"With {how}: {tally.sentence}" if how else tally.sentence
                for how, tallies in table.tallies(library).items()
                for tally in tallies
            )
        )
        blocks += [*_table(table.table(library)), table.learned(library)]
        blocks.append(library.note(table.name.lower().replace(" ", "-")))
    blocks.append("## Figures of the appendix, and the theorems")
    for figure in FIGURES:
        findings = figure.findings(library)
        blocks.append(f"### {figure.title}")
        blocks.append(_list(map(str, findings)) if findings else _said(figure.expected))
        blocks.append(library.picture(figure.picture, figure.title))
    return blocks


def _rivals(library: Library) -> Blocks:
    cells = scores_by_row(library)
    blocks = ["## Rivals"]
    if cells:
        blocks += [_list(rivals_sentences(cells)), *_table(rivals_table(cells))]
    else:
        blocks.append(_said(RIVAL_RUNS))
    tuned = library.results(TUNING.file)
    if tuned is None:
        blocks.append(_said(TUNING))
    else:
        blocks += _table(tuning_table(tried_of_records(tuned["tried"]), first=5))
    return [*blocks, library.picture("mnist-rivals.png", "Accuracy of the rivals")]


def _standing(scores: Scores) -> Blocks:
    """Where our rows stand against scratch and rivals, and the accuracy of all."""
    differences = against(scores)
    accuracy = build_table("accuracy", summarize(scores), paper=False)
    said = standing_sentences(differences)
    blocks = [_list(said)] if said else []
    return [*blocks, *_table(against_table(differences)), *_table(accuracy)]


def _kinds(
    library: Library,
    kinds: Mapping[str, tuple[Expected, Expected | None]],
    body: Callable[[Scores, Scores], Blocks],
) -> Blocks:
    """A part for each kind of tasks: its scores, and those of another file to set beside them."""
    blocks = []
    for words, (expected, beside) in kinds.items():
        blocks.append(f"### {words}")
        results, others = (e and library.results(e.file) for e in (expected, beside))
        if results is None:
            blocks.append(_said(expected))
            continue
        blocks += body(*(unpack_scores(r["scores"]) if r else [] for r in (results, others)))
        picture = expected.file.replace(".json", ".png")
        blocks.append(library.picture(picture, f"{words}: accuracy by the number of labels"))
    return blocks


def _coherence(library: Library) -> Blocks:
    kinds = {
        "MNIST": (COHERENCE, None),
        "Fashion-MNIST": (FASHION, None),
        "The ten digits themselves": (TEN_WAY, None),
    }
    own = _kinds(library, kinds, lambda scores, _: _standing(scores))
    return ["## Coherence, which is not the paper's", *own]


def _way(words: str, library: Library, kinds: Mapping[str, tuple[Expected, Expected]]) -> Blocks:
    """Another way to learn with coherence: first what it adds, then where it stands."""

    def body(scores: Scores, others: Scores) -> Blocks:
        return [*_table(way_differences(words, scores, others)), *_standing(scores)]

    return _kinds(library, kinds, body)


def _augmentation(library: Library) -> Blocks:
    kinds = {
        "MNIST, with augmentation": (AUGMENTED_MNIST, COHERENCE),
        "The ten digits themselves, with augmentation": (AUGMENTED_TEN_WAY, TEN_WAY),
        "The ten digits themselves, by the convolutional network with augmentation": (
            CONVNET_TEN_WAY_AUGMENTED,
            CONVNET_TEN_WAY,
        ),
    }
    own = _way("With augmentation minus without", library, kinds)
    return ["## Coherence with augmentation", library.note("augmentation"), *own]


def _rounds(library: Library) -> Blocks:
    kinds = {
        "MNIST, in two rounds": (TWO_ROUNDS_MNIST, AUGMENTED_MNIST),
        "The ten digits themselves, in two rounds": (TWO_ROUNDS_TEN_WAY, AUGMENTED_TEN_WAY),
    }
    own = _way("In two rounds minus in one", library, kinds)
    return ["## Coherence in two rounds", library.note("rounds"), *own]


def _gradients(library: Library) -> Blocks:
    mnist = {
        "MNIST, with augmentation and neighbours by gradients": (GRADIENTS_MNIST, AUGMENTED_MNIST),
        "The ten digits themselves, with augmentation and neighbours by gradients": (
            GRADIENTS_TEN_WAY,
            AUGMENTED_TEN_WAY,
        ),
        "The ten digits themselves, by the convolutional network with both": (
            CONVNET_TEN_WAY_GRADIENTS,
            CONVNET_TEN_WAY_AUGMENTED,
        ),
    }
    both = {
        "MNIST, by the convolutional network with both": (CONVNET_GRADIENTS, CONVNET),
    }
    fashion = {
        "Fashion-MNIST, with neighbours by gradients": (GRADIENTS_FASHION, FASHION),
    }
    clothes = {
        "Fashion-MNIST, with augmentation as well": (CLOTHES, GRADIENTS_FASHION),
    }
    own = [
        *_way("With neighbours by gradients minus by pixels", library, mnist),
        *_way("With augmentation and gradients minus without either", library, both),
        *_way("By gradients at a separation of 4 minus by pixels at 2", library, fashion),
        *_way("With augmentation minus without", library, clothes),
    ]
    return ["## Coherence with neighbours by gradients", library.note("gradients"), *own]


def _convnet(library: Library) -> Blocks:
    def body(own: Scores, others: Scores) -> Blocks:
        scores = on_shared_tasks(own, others)
        differences = convnet_differences(scores)
        tables = (
            convnet_table(scores),
            against_table(differences),
            perceptron_differences(scores),
        )
        blocks = [block for table in tables for block in _table(table)]
        return [_list(standing_sentences(differences)), *blocks]

    kinds = {
        "MNIST, by the convolutional network": (CONVNET, COHERENCE),
        "The ten digits themselves, by the convolutional network": (CONVNET_TEN_WAY, TEN_WAY),
    }
    return ["## A convolutional network", *_kinds(library, kinds, body)]


def _time(library: Library) -> Blocks:
    blocks = ["## Accuracy against time"]
    results = library.results(TIME.file)
    if results is None:
        blocks.append(_said(TIME))
    else:
        points = points_of_results(results)
        blocks += [_list(time_sentences(points)), *_table(time_table(points))]
        blocks.append(library.picture("coherence.png", "Accuracy against pre-training time"))
    results = library.results(BUDGET.file)
    if results is None:
        return [*blocks, _said(BUDGET)]
    blocks += [_list(results["statement"]), *_table(budget_table(budget_points(results)))]
    return [*blocks, library.picture("mnist-budget.png", "Accuracy and loss against time")]


def _made_with(library: Library) -> Blocks:
    files = [*(e.file for e in EXPECTED), "mnist-diagnostics.json"]
    return ["## How it was measured", *_table(made_with_table(library, files))]


def _joined(blocks: Sequence[str]) -> str:
    return "\n\n".join(block for block in blocks if block)


def reproduction_report(library: Library) -> str:
    """The whole document.

    Parameters
    ----------
    library : Library
        The folder of results, where the document will stand too: its links are from there.
    """
    opening = [
        "# Report of the reproduction",
        library.note("opening"),
        "## In short",
        _list(summary_lines(library)),
        *_state(library),
    ]
    ours = (_coherence, _augmentation, _rounds, _gradients, _convnet, _time)
    sections = (_main_tables, _draw, _batch_norm, _kernels, _appendix, _rivals, *ours, _made_with)
    return _joined([*opening, *(block for make in sections for block in make(library))]) + "\n"
