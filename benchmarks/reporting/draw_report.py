"""Which way of drawing labelled images is the paper's: networks from scratch under both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.tasks import DRAWS
from reporting.estimate import PAPER_RUNS, SPREADS
from reporting.expected import SCRATCH_NETWORKS
from reporting.grid import agreement, starred
from reporting.main_tables import our_grid, paper_grid
from reporting.paper import ACCURACY, TASK_STD, Row
from reporting.table import Table

__all__ = ["draw_sentences", "draw_table"]

RUNS = SPREADS["runs"]

Scores = list[dict[str, Any]]

LAWS = {
    "uniform": "10 N images of any digits (uniform)",
    "balanced": "exactly N of each digit (balanced)",
}
assert LAWS.keys() == DRAWS.keys()

KINDS = {"accuracy": ("mean accuracy", ACCURACY), "task_std": ("std over tasks", TASK_STD)}


def _agreement(kind: str, table: Mapping[str, Row], scores: Scores) -> str:
    ours, paper = our_grid(kind, scores, SCRATCH_NETWORKS), paper_grid(table, SCRATCH_NETWORKS)
    return agreement(ours, paper, RUNS).short


def draw_sentences(scores: dict[str, Scores]) -> list[str]:
    """How many figures of the paper's come out under each law of drawing."""
    return [
        f"{LAWS[law]}, {words}: {_agreement(kind, table, own)}."
        for law, own in scores.items()
        for kind, (words, table) in KINDS.items()
        if own
    ]


def draw_table(scores: dict[str, Scores]) -> Table:
    """Accuracy of each network from scratch: the paper's, and ours under each law.

    Parameters
    ----------
    scores : dict
        Scores by law, a key of ``protocol.tasks.DRAWS``.
    """
    paper = paper_grid(ACCURACY, SCRATCH_NETWORKS)
    grids = {law: our_grid("accuracy", own, SCRATCH_NETWORKS) for law, own in scores.items()}
    rows = []
    for name in SCRATCH_NETWORKS:
        rows.append([name, f"the paper, {PAPER_RUNS} runs", *(str(paper[c][name]) for c in paper)])
        for law, grid in grids.items():
            own = [grid[c].get(name) for c in paper]
            if all(figure is None for figure in own):
                continue
            runs = max(figure.n for figure in own if figure is not None)
            texts = [starred(e, paper[c][name], RUNS) for c, e in zip(paper, own, strict=True)]
            rows.append(["", f"{law}, {runs} run{'' if runs == 1 else 's'}", *texts])
    title = (
        "Networks from scratch by the law of the labelled images, test accuracy (%): mean over "
        f"tasks, ± std over runs (* {RUNS.differ})"
    )
    return Table(title, ["network", "", *paper], rows)
