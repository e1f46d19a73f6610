"""Which way of drawing labelled images is the paper's: networks from scratch under both."""

from __future__ import annotations

from typing import Any

from protocol.methods import METHODS, PAPER_METHODS
from protocol.tasks import DRAWS
from reporting.estimate import PAPER_RUNS, SPREADS, Estimate
from reporting.grid import Grid, agreement
from reporting.main_tables import paper_grid
from reporting.paper import ACCURACY, N_LABELS, TASK_STD
from reporting.table import Table
from reporting.task_tables import summarize

__all__ = ["SCRATCH_NETWORKS", "draw_sentences", "draw_table"]

SCRATCH_NETWORKS = tuple(name for name in PAPER_METHODS if METHODS[name].pretraining == "scratch")
"""The paper's rows that need no theta0."""

RUNS = SPREADS["runs"]

Scores = list[dict[str, Any]]

LAWS = {
    "uniform": "10 N images of any digits (uniform)",
    "balanced": "exactly N of each digit (balanced)",
}
assert LAWS.keys() == DRAWS.keys()

KINDS = {"accuracy": ("mean accuracy", ACCURACY), "task_std": ("std over tasks", TASK_STD)}


def _grid(scores: Scores, kind: str) -> Grid:
    grid: dict[str, dict[str, Estimate]] = {f"N = {n}": {} for n in N_LABELS}
    for summary in summarize(s for s in scores if s["method"] in SCRATCH_NETWORKS):
        runs = {s["run"] for s in scores if s["method"] == summary.method}
        mean = summary.accuracy if kind == "accuracy" else summary.task_std
        std = summary.accuracy_std if kind == "accuracy" else summary.task_std_std
        if mean is not None and f"N = {summary.n_labels}" in grid:
            grid[f"N = {summary.n_labels}"][summary.method] = Estimate(mean, std, len(runs))
    return grid


def _paper(kind: str) -> Grid:
    table = KINDS[kind][1]
    both = paper_grid(table, "xavier"), paper_grid(table, "he")
    return {
        column: {
            name: estimate
            for grid in both
            for name, estimate in grid[column].items()
            if name in SCRATCH_NETWORKS
        }
        for column in both[0]
    }


def draw_sentences(scores: dict[str, Scores]) -> list[str]:
    """How many figures of the paper's come out under each law of drawing."""
    return [
        f"{LAWS[law]}, {words}: {agreement(_grid(own, kind), _paper(kind), RUNS).short}."
        for law, own in scores.items()
        for kind, (words, _) in KINDS.items()
        if own
    ]


def draw_table(scores: dict[str, Scores]) -> Table:
    """Accuracy of each network from scratch: the paper's, and ours under each law.

    Parameters
    ----------
    scores : dict
        Scores by law, a key of ``protocol.tasks.DRAWS``.
    """
    paper = _paper("accuracy")
    grids = {law: _grid(own, "accuracy") for law, own in scores.items()}
    rows = []
    for name in SCRATCH_NETWORKS:
        rows.append([name, f"the paper, {PAPER_RUNS} runs", *(str(paper[c][name]) for c in paper)])
        for law, grid in grids.items():
            own = [grid[c].get(name) for c in paper]
            if all(figure is None for figure in own):
                continue
            runs = max(figure.n for figure in own if figure is not None)
            texts = [
                "-" if e is None else f"{e}{'' if RUNS.same(e, paper[c][name]) else ' *'}"
                for c, e in zip(paper, own, strict=True)
            ]
            rows.append(["", f"{law}, {runs} run{'' if runs == 1 else 's'}", *texts])
    title = (
        "Networks from scratch by the law of the labelled images, test accuracy (%): mean over "
        f"tasks, ± std over runs (* not within {RUNS.words})"
    )
    return Table(title, ["network", "", *paper], rows)
