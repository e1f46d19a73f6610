"""Ours among its rivals on the paper's tasks: every row there is, whichever file it is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from protocol.methods import FEATURES, FEATURES_THETA0
from protocol.rival_networks import NETWORKS
from protocol.rivals import ALL_RIVALS, RIVALS
from protocol.scratch import SCRATCH
from reporting.expected import (
    AUGMENTED_MNIST,
    COHERENCE,
    GRADIENTS_MNIST,
    RIVAL_RUNS,
    TABLES_XAVIER,
    TWO_ROUNDS_MNIST,
)
from reporting.library import Library
from reporting.main_tables import scores_of_paper
from reporting.table import Table
from reporting.task_tables import accuracies_of, gain_text, paired_difference

__all__ = ["ranking_table", "rivals_sentences", "rivals_table", "scores_by_row"]

# Tasks, labelled images and seeds are the same in all of them; a later file has the last word.
# A method whose theta0 was learned in another way is a row of its own.
WAYS = {
    AUGMENTED_MNIST.file: "augmented",
    TWO_ROUNDS_MNIST.file: "augmented, two rounds",
    GRADIENTS_MNIST.file: "augmented, by gradients",
}
FILES = (TABLES_XAVIER.file, COHERENCE.file, RIVAL_RUNS.file, *WAYS)

OURS = ("xavier/fcn/ours", FEATURES_THETA0, FEATURES)
OF_WAYS = {
    (file, name): f"{name}, {way}"
    for file, way in WAYS.items()
    for name in (FEATURES_THETA0, FEATURES)
}
ROWS = (SCRATCH.name, *OURS, *OF_WAYS.values(), *ALL_RIVALS)

Cells = dict[tuple[str, int], dict[tuple[int, int], float]]
"""Accuracies (%): by (row, N), then by (run, task)."""


def scores_by_row(library: Library) -> Cells:
    """What the files hold of the rows, on the paper's tasks."""
    found: Cells = {}
    for file in FILES:
        for (name, n), cell in accuracies_of(scores_of_paper(library.results(file))).items():
            key = OF_WAYS.get((file, name), name), n
            if key[0] in ROWS:
                found[key] = found.get(key, {}) | cell
    return found


def _sizes(cells: Cells) -> list[int]:
    return sorted({n for _, n in cells})


def _cell_text(cells: Cells, row: str, n_labels: int) -> str:
    own, base = cells.get((row, n_labels), {}), cells.get((SCRATCH.name, n_labels), {})
    if not own:
        return "-"
    text = f"{np.mean(list(own.values())):.2f}"
    gain = "-" if row == SCRATCH.name else _gain(own, base)
    return text if gain == "-" else f"{text}, {gain}"


def _runs(cells: Cells, row: str) -> int:
    return len({run for (name, _), cell in cells.items() if name == row for run, _ in cell})


def rivals_table(cells: Cells) -> Table:
    """Accuracy of each row, and its difference from scratch; those not run yet in the last line."""
    sizes = _sizes(cells)
    rows = [
        [row, str(_runs(cells, row)), *(_cell_text(cells, row, n) for n in sizes)]
        for row in ROWS
        if _runs(cells, row)
    ]
    missing = [row for row in (SCRATCH.name, *OURS, *RIVALS) if not _runs(cells, row)]
    if missing:
        rows.append([", ".join(missing), "0", RIVAL_RUNS.not_run, *([""] * (len(sizes) - 1))])
    title = (
        "Test accuracy (%), and the difference from the network from scratch on the same tasks and "
        "labelled images (points) with its 95% interval"
    )
    return Table(title, ["method", "runs", *(f"N = {n}" for n in sizes)], rows)


def ranking_table(cells: Cells) -> Table:
    """Accuracy of each row, the best one first, and what it adds to scratch at the fewest labels.

    The difference is paired, so that rows of unequal numbers of runs can be compared.
    """
    sizes = _sizes(cells)
    means = {
        row: [float(np.mean(list(cells[row, n].values()))) for n in sizes]
        for row in ROWS
        if sizes and all((row, n) in cells for n in sizes)
    }
    ranked = sorted(means, key=lambda row: -float(np.mean(means[row])))
    base = {n: cells.get((SCRATCH.name, n), {}) for n in sizes[:1]}
    rows = [
        [
            row.removeprefix("rival/"),
            str(_runs(cells, row)),
            *(f"{mean:.2f}" for mean in means[row]),
            *("-" if row == SCRATCH.name else _gain(cells[row, n], base[n]) for n in base),
        ]
        for row in ranked
    ]
    head = ["method", "runs", *(f"N = {n}" for n in sizes)]
    title = "Test accuracy (%), mean over 20 tasks a run, and the paired difference from scratch"
    return Table(title, [*head, *(f"over scratch, N = {n}" for n in base)], rows)


def _gain(own: Mapping[tuple[int, int], float], base: Mapping[tuple[int, int], float]) -> str:
    return gain_text(paired_difference(own, base))


def _best(cells: Cells, rows: Sequence[str], n_labels: int) -> str | None:
    means = {
        row: float(np.mean(list(cells[row, n_labels].values())))
        for row in rows
        if (row, n_labels) in cells
    }
    best = max(means, key=lambda row: means[row], default=None)
    return None if best is None else f"{best.removeprefix('rival/')} ({means[best]:.2f})"


KINDS: Mapping[str, Sequence[str]] = {
    "The best of all rows": ROWS,
    "The best rival": ALL_RIVALS,
    "The best rival that is a network, without changed copies": tuple(NETWORKS),
}


def rivals_sentences(cells: Cells) -> list[str]:
    """Which row is the best at each N, of all and of the rivals."""
    said = []
    for words, rows in KINDS.items():
        best = {n: _best(cells, rows, n) for n in _sizes(cells)}
        named = [f"N = {n}: {name}" for n, name in best.items() if name is not None]
        if named:
            said.append(f"{words}, by mean accuracy: {', '.join(named)}.")
    return said
