"""The paper's Tables 1 and 2 beside ours, and what of them is reproduced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.methods import METHODS, PAPER_METHODS
from reporting.estimate import PAPER_RUNS, SPREADS, Estimate
from reporting.grid import Grid, Ours, Tally, agreement, holding, orderings, side_by_side
from reporting.paper import (
    ACCURACY,
    N_LABELS,
    TASK_STD,
    Row,
    paper_difference,
    tasks_compare_with_paper,
)
from reporting.table import Table
from reporting.task_tables import (
    Gain,
    Summary,
    accuracies_of,
    gain_text,
    paired_difference,
    summarize,
    unpack_scores,
)

__all__ = [
    "MAIN_TABLES",
    "MainTable",
    "claims_table",
    "our_grid",
    "paper_grid",
    "scores_of_paper",
]

RUNS = SPREADS["runs"]

Scores = list[dict[str, Any]]

Cell = dict[tuple[int, int], float]
"""Accuracies (%) by (run, task)."""


def scores_of_paper(results: dict[str, Any] | None) -> Scores:
    """The scores of a file that may stand beside the paper's; none of any other."""
    if results is None:
        return []
    return unpack_scores(results["scores"]) if tasks_compare_with_paper(results) else []


def _column(n_labels: int) -> str:
    return f"N = {n_labels}"


def _networks(init: str) -> list[str]:
    return [name for name in PAPER_METHODS if METHODS[name].init == init]


def paper_grid(table: Mapping[str, Row], networks: Sequence[str]) -> Grid:
    """The paper's figures of some networks."""
    return {
        _column(n): {name: Estimate(*table[name][place], PAPER_RUNS) for name in networks}
        for place, n in enumerate(N_LABELS)
    }


def _runs(scores: Iterable[dict[str, Any]], method: str) -> int:
    return len({score["run"] for score in scores if score["method"] == method})


def _accuracy(summary: Summary) -> tuple[float | None, float | None]:
    return summary.accuracy, summary.accuracy_std


def _task_std(summary: Summary) -> tuple[float | None, float | None]:
    return summary.task_std, summary.task_std_std


FIGURES = {"accuracy": _accuracy, "task_std": _task_std}


def our_grid(kind: str, scores: Scores, networks: Sequence[str]) -> Grid:
    """Ours of the same networks; `kind` is a key of ``FIGURES``."""
    grid: dict[str, dict[str, Estimate]] = {_column(n): {} for n in N_LABELS}
    for summary in summarize(s for s in scores if s["method"] in networks):
        mean, std = FIGURES[kind](summary)
        if summary.n_labels in N_LABELS and mean is not None:
            runs = _runs(scores, summary.method)
            grid[_column(summary.n_labels)][summary.method] = Estimate(mean, std, runs)
    return grid


def _of_shared_runs(scores: Scores, init: str) -> Scores:
    """The scores of the runs in which there is ours."""
    runs = {s["run"] for s in scores if s["method"] == f"{init}/fcn/ours"}
    return [s for s in scores if s["run"] in runs]


def _ours_against_all(rows: Sequence[str]) -> Iterable[tuple[str, str]]:
    """The paper's claims are of its method against each of the others."""
    return [
        (ours, other)
        for ours in rows
        if METHODS[ours].pretraining == "ours"
        for other in rows
        if other != ours
    ]


def _verdict(gain: Gain) -> str:
    """Whether ours is above, and whether the interval leaves out 0."""
    clear = gain.low is not None and gain.high is not None and gain.low * gain.high > 0.0
    return ("holds" if gain.mean > 0.0 else "does not hold") + ("" if clear else ", unclear")


def claims_table(scores: Scores, init: str) -> Table:
    """Ours against each other network, task by task, and whether the paper's claim holds."""
    ours, table = f"{init}/fcn/ours", accuracies_of(scores)
    rows = []
    for other in _networks(init):
        texts = []
        for n in N_LABELS:
            gain = paired_difference(table.get((ours, n), {}), table.get((other, n), {}))
            paper = paper_difference(ours, other, n)
            texts.append("-" if gain is None else f"{_verdict(gain)}: {gain_text(gain)} ({paper})")
        if other != ours and any(text != "-" for text in texts):
            rows.append([other, *texts])
    title = (
        f"Whether {ours} is above each other network at each N, as in the paper: mean of the "
        "paired differences (points) and its 95% interval, the paper's difference in brackets; "
        "unclear where the interval holds 0"
    )
    return Table(title, ["against", *map(_column, N_LABELS)], rows)


@dataclass(frozen=True)
class MainTable:
    """One of the paper's two tables of its main text.

    Parameters
    ----------
    kind : str
        Key of ``reporting.task_tables.CELLS``.
    name : str
        For a summary.
    title : str
        Of the table.
    claim : str
        What its orderings say.
    paper : mapping
        The paper's figures.
    """

    kind: str
    name: str
    title: str
    claim: str
    paper: Mapping[str, Row]

    def table(self, scores: Scores, init: str, *, missing: str) -> Table:
        """The paper's figures and ours for one kind of fresh weights."""
        here = {}
        for name in _networks(init):
            runs = _runs(scores, name)
            here[name] = f"here, {runs} run{'' if runs == 1 else 's'}"
        ours = Ours(our_grid(self.kind, scores, _networks(init)), missing, here=here)
        paper = paper_grid(self.paper, _networks(init))
        return side_by_side(self.title, "network", [ours], paper, RUNS)

    def tallies(self, scores: Scores, init: str) -> list[Tally]:
        """What agrees, and which of the paper's claims hold; only what can be looked at."""
        networks = _networks(init)
        ours, paper = our_grid(self.kind, scores, networks), paper_grid(self.paper, networks)
        # Runs have tasks of their own, and some methods more runs than others.
        shared = our_grid(self.kind, _of_shared_runs(scores, init), networks)
        # The paper claims each of these, also where two of its figures are close.
        claims = orderings(shared, paper, None, pairs=_ours_against_all)
        found = [agreement(ours, paper, RUNS), holding(claims, self.claim)]
        return [tally for tally in found if tally.total]


MAIN_TABLES = (
    MainTable(
        "accuracy",
        "Table 1 (accuracy)",
        "Table 1. Test accuracy (%): mean over tasks, ± std over runs",
        "orderings of the paper (ours above another network at an N) hold",
        ACCURACY,
    ),
    MainTable(
        "task_std",
        "Table 2 (spread over tasks)",
        "Table 2. Std over tasks (%): mean over runs, ± std over runs",
        "orderings of the paper (ours and another network at an N) hold",
        TASK_STD,
    ),
)
"""In the order of the paper."""
