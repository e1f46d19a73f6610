"""From the scores of single tasks to the paper's tables, beside the paper's figures.

Table 1: for each run the mean over the tasks; then mean and std over the runs.
Table 2: for each run the std over the tasks; then mean and std over the runs.
Gain: on each (run, task) the accuracy minus that of the same network from the same fresh
weights, on the same rows and with the same seed; mean and 95% t interval over all pairs.

All in percent, or percentage points; every std has the divisor n - 1. Pairs of one run share the
learned theta0, so with one run the interval speaks of tasks and draws and not of another theta0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from protocol.rivals import scratch_of
from reporting.paper import ACCURACY, TASK_STD, paper_difference, paper_figure
from reporting.table import Table

__all__ = [
    "CELLS",
    "Gain",
    "Summary",
    "accuracies_of",
    "build_table",
    "gain_text",
    "pack_scores",
    "paired_difference",
    "paired_gain",
    "summarize",
    "unpack_scores",
]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Gain:
    """Mean of paired differences and its 95% interval, in percentage points."""

    mean: float
    low: float | None
    high: float | None
    n_pairs: int


@dataclass(frozen=True)
class Summary:
    """One cell of the tables; a std over one run, or one task, is None."""

    method: str
    n_labels: int
    accuracy: float
    accuracy_std: float | None
    task_std: float | None
    task_std_std: float | None
    gain: Gain | None


def _std(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def paired_gain(differences: Sequence[float]) -> Gain:
    """Mean of the differences and the two-sided 95% t interval of that mean.

    One pair has no interval: its ends are None.
    """
    n, mean = len(differences), float(np.mean(differences))
    spread = _std(differences)
    if spread is None:
        return Gain(mean, None, None, n)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * spread / math.sqrt(n)
    return Gain(mean, mean - half, mean + half, n)


def paired_difference(
    one: Mapping[tuple[int, int], float], other: Mapping[tuple[int, int], float]
) -> Gain | None:
    """:func:`paired_gain` on the (run, task) that both have; None without any."""
    pairs = [pair for pair in one if pair in other]
    return paired_gain([one[pair] - other[pair] for pair in pairs]) if pairs else None


def pack_scores(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each method, run and N: short to store, and every score still in it."""
    packed: dict[tuple[str, int, int], dict[str, Any]] = {}
    for record in records:
        head = {name: record[name] for name in ("method", "run", "n_labels")}
        entry = packed.setdefault(
            (record["method"], record["run"], record["n_labels"]),
            head | {"tasks": [], "accuracies": []},
        )
        entry["tasks"].append(record["task"])
        entry["accuracies"].append(record["accuracy"])
    return list(packed.values())


def unpack_scores(packed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One record a score again, the inverse of :func:`pack_scores` up to order."""
    return [
        {
            "method": entry["method"],
            "run": entry["run"],
            "n_labels": entry["n_labels"],
            "task": task,
            "accuracy": accuracy,
        }
        for entry in packed
        for task, accuracy in zip(entry["tasks"], entry["accuracies"], strict=True)
    ]


def accuracies_of(
    scores: Iterable[dict[str, Any]],
) -> dict[tuple[str, int], dict[tuple[int, int], float]]:
    """Accuracies in percent: by (method, N), then by (run, task)."""
    table: dict[tuple[str, int], dict[tuple[int, int], float]] = {}
    for score in scores:
        cell = table.setdefault((score["method"], score["n_labels"]), {})
        cell[score["run"], score["task"]] = 100.0 * score["accuracy"]
    return table


def summarize(scores: Iterable[dict[str, Any]]) -> list[Summary]:
    """The cells of the tables, in the order in which methods and N first appear.

    Parameters
    ----------
    scores : iterable of dict
        Records with method, run, task, n_labels and accuracy (0 to 1).

    Returns
    -------
    list of Summary
        ``gain`` is None for a method that is scratch itself or no network, and where the same
        network from scratch was not evaluated on exactly the same tasks.
    """
    table = accuracies_of(scores)
    return [_summary(table, method, n) for method, n in table]


def _summary(
    table: dict[tuple[str, int], dict[tuple[int, int], float]], method: str, n_labels: int
) -> Summary:
    cell = table[method, n_labels]
    runs = sorted({run for run, _ in cell})
    of_run = [[value for (r, _), value in cell.items() if r == run] for run in runs]
    means = [float(np.mean(values)) for values in of_run]
    spreads = [spread for values in of_run if (spread := _std(values)) is not None]
    scratch = scratch_of(method)
    base = {} if scratch is None else table.get((scratch, n_labels), {})
    # Scratch may have runs that the method has not: the tasks of its own are those that count.
    paired = scratch not in (None, method) and cell.keys() <= base.keys()
    return Summary(
        method=method,
        n_labels=n_labels,
        accuracy=float(np.mean(means)),
        accuracy_std=_std(means),
        task_std=float(np.mean(spreads)) if spreads else None,
        task_std_std=_std(spreads),
        gain=paired_difference(cell, base) if paired else None,
    )


def _number(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def _with_paper(number: str, paper: tuple[float, float] | None) -> str:
    return number if paper is None else f"{number} ({_number(*paper)})"


def _accuracy_text(summary: Summary, paper: bool) -> str:
    figure = paper_figure(ACCURACY, summary.method, summary.n_labels) if paper else None
    return _with_paper(_number(summary.accuracy, summary.accuracy_std), figure)


def _task_std_text(summary: Summary, paper: bool) -> str:
    figure = paper_figure(TASK_STD, summary.method, summary.n_labels) if paper else None
    return _with_paper(_number(summary.task_std, summary.task_std_std), figure)


def _paper_gain(summary: Summary) -> str:
    gain = paper_difference(summary.method, scratch_of(summary.method) or "", summary.n_labels)
    return f" ({gain})" if gain else ""


def gain_text(gain: Gain | None) -> str:
    """The mean with its sign, and the interval where there is one."""
    if gain is None:
        return "-"
    text = f"{gain.mean:+.2f}"
    if gain.low is not None and gain.high is not None:
        text += f" [{gain.low:+.2f}, {gain.high:+.2f}]"
    return text


def _gain_cell(summary: Summary, paper: bool) -> str:
    has_pair = paper and summary.gain is not None
    return gain_text(summary.gain) + (_paper_gain(summary) if has_pair else "")


CELLS: dict[str, tuple[str, Callable[[Summary, bool], str]]] = {
    "accuracy": ("Test accuracy (%): mean over tasks, ± std over runs", _accuracy_text),
    "task_std": ("Std over tasks (%): mean over runs, ± std over runs", _task_std_text),
    "gain": (
        "Gain over the same network from scratch (points): mean of the paired differences "
        "and its 95% interval",
        _gain_cell,
    ),
}

NUMBERS = {"accuracy": "Table 1. ", "task_std": "Table 2. "}
"""The paper's numbers of its tables, for ours that are of the same."""


def build_table(kind: str, summaries: Sequence[Summary], *, paper: bool) -> Table:
    """One of the tables of ``CELLS``; a row with nothing in it is left out.

    Parameters
    ----------
    kind : {"accuracy", "task_std", "gain"}
        Which one.
    summaries : sequence of Summary
        From :func:`summarize`.
    paper : bool
        Whether the paper's figure stands in round brackets beside ours, and its number in the
        title.
    """
    if kind not in CELLS:
        raise ValueError(f"unknown table {kind!r}; valid names are {sorted(CELLS)}")
    title, text_of = CELLS[kind]
    columns = list(dict.fromkeys(s.n_labels for s in summaries))
    texts: dict[str, dict[int, str]] = {}
    for summary in summaries:
        texts.setdefault(summary.method, {})[summary.n_labels] = text_of(summary, paper)
    rows = [
        [method, *(cells.get(n, "-") for n in columns)]
        for method, cells in texts.items()
        if any(text != "-" for text in cells.values())
    ]
    note = " (the paper's figure in brackets)" if paper else ""
    title = NUMBERS.get(kind, "") + title if paper else title
    return Table(title + note, ["method", *(f"N = {n}" for n in columns)], rows)
