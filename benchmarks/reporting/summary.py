"""The report in five lines, which the README quotes."""

from __future__ import annotations

from typing import Any

from protocol.methods import FEATURES_THETA0
from protocol.scratch import SCRATCH
from reporting.against_table import BEST_RIVAL, against
from reporting.appendix_tables import APPENDIX_TABLES
from reporting.estimate import PAPER_RUNS
from reporting.expected import COHERENCE, TABLES_XAVIER
from reporting.findings import FIGURES
from reporting.library import Library
from reporting.main_tables import MAIN_TABLES, MainTable, scores_of_paper
from reporting.task_tables import unpack_scores

__all__ = ["summary_lines"]

NOT_YET = "not run yet"


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
        counts = ", ".join(tally.short for tally in table.tallies(library))
        said.append(f"{table.name}: {counts or NOT_YET}")
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
    results = library.results(COHERENCE.file)
    differences = against(unpack_scores(results["scores"])) if results else []
    own = [d for d in differences if d.method == FEATURES_THETA0]
    texts = []
    for words, wanted in (("scratch", SCRATCH.name), ("the best rival", BEST_RIVAL)):
        gains = [f"{d.gain.mean:+.2f} at N = {d.n_labels}" for d in own if d.role == wanted]
        if gains:
            texts.append(f"Points over {words}: {', '.join(gains)}")
    return f"Coherence, which is not the paper's, on MNIST. {'. '.join(texts) or 'Not run yet'}."


def summary_lines(library: Library) -> list[str]:
    """Five lines: the two tables, the appendix's tables, its figures, and what is ours."""
    return [
        *(_main_line(table, library) for table in MAIN_TABLES),
        _appendix_line(library),
        _figures_line(library),
        _coherence_line(library),
    ]
