"""The report in five lines, which the README quotes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.methods import FEATURES_THETA0
from protocol.rivals import ALL_RIVALS, RIVALS
from protocol.scratch import SCRATCH
from reporting.against_table import best_rival
from reporting.appendix_tables import APPENDIX_TABLES
from reporting.estimate import PAPER_RUNS
from reporting.expected import TABLES_XAVIER
from reporting.findings import FIGURES
from reporting.library import Library
from reporting.main_tables import MAIN_TABLES, MainTable, scores_of_paper
from reporting.rivals_report import scores_by_row
from reporting.task_tables import paired_difference

__all__ = ["summary_lines"]

NOT_YET = "not run yet"

# This row knows the images as they are; some rivals know more of them, and may be better.
BESIDE_COHERENCE: dict[str, Sequence[str]] = {
    "scratch": (SCRATCH.name,),
    "the best of the rivals that see pixels alone": RIVALS,
    "the best rival of all on the same tasks": ALL_RIVALS,
}
"""What ours with coherence is set beside -> the rows that it may be."""


def _runs_text(scores: list[dict[str, Any]], init: str) -> str:
    """How many of the paper's runs there are, of ours and of the methods it stands beside."""
    ours = {s["run"] for s in scores if s["method"] == f"{init}/fcn/ours"}
    runs = {s["run"] for s in scores}
    text = f"{len(ours)} of {PAPER_RUNS} runs"
    return text if ours == runs else f"{text} of ours, {len(runs)} of others"


def _main_line(table: MainTable, library: Library) -> str:
    scores = scores_of_paper(library.results(TABLES_XAVIER.file))
    halves = []
    for words, init in (("Xavier", "xavier"), ("He", "he")):
        tallies = table.tallies(scores, init)
        runs = _runs_text([s for s in scores if s["method"].startswith(f"{init}/")], init)
        said = ", ".join(tally.short for tally in tallies)
        halves.append(f"{words}, {runs}: {said}" if said else f"{words}: {NOT_YET}")
    return f"{table.name}. {'. '.join(halves)}."


def _appendix_line(library: Library) -> str:
    said = []
    for table in APPENDIX_TABLES:
        counts = [
            ", ".join([*([f"with {how}"] if how else []), *(tally.short for tally in tallies)])
            for how, tallies in table.tallies(library).items()
        ]
        said.append(f"{table.name}: {'; '.join(counts) or NOT_YET}")
    return f"Tables of the appendix. {'. '.join(said)}."


def _figures_line(library: Library) -> str:
    said = []
    for figure in FIGURES:
        findings = figure.findings(library)
        holds = sum(finding.holds for finding in findings)
        text = f"{holds} of {len(findings)} findings hold" if findings else NOT_YET
        said.append(f"{figure.title}: {text}")
    return f"Figures of the appendix, and the theorems. {'. '.join(said)}."


def _coherence_line(library: Library) -> str:
    cells = scores_by_row(library)
    own = {n: cell for (name, n), cell in cells.items() if name == FEATURES_THETA0}
    texts = []
    for words, rows in BESIDE_COHERENCE.items():
        # At each N the best of the rows; those that are the best somewhere are named.
        best = {n: best_rival(cells, n, own[n], rows) for n in sorted(own)}
        gains: dict[str, list[str]] = {}
        for n, name in best.items():
            gain = name and paired_difference(own[n], cells[name, n])
            if name and gain:
                text = f"{gain.mean:+.2f} at N = {n}"
                gains.setdefault(name.removeprefix("rival/"), []).append(text)
        said = [f"{', '.join(found)} ({name})" for name, found in gains.items()]
        if said:
            texts.append(f"Points over {words}: {', '.join(said)}")
    return f"Coherence, which is not the paper's, on MNIST. {'. '.join(texts) or 'Not run yet'}."


def summary_lines(library: Library) -> list[str]:
    """Five lines: the two tables, the appendix's tables, its figures, and what is ours."""
    return [
        *(_main_line(table, library) for table in MAIN_TABLES),
        _appendix_line(library),
        _figures_line(library),
        _coherence_line(library),
    ]
