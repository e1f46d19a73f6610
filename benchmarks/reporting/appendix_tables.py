"""The three tables of the paper's appendix beside ours, and what of them is reproduced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reporting.estimate import PAPER_RUNS, SPREADS, Estimate, Spread, estimate_of
from reporting.expected import DEGENERACIES, SCALE
from reporting.expected_averaged import DEGENERACIES_AVERAGED, SCALE_AVERAGED
from reporting.grid import Grid, Ours, Tally, agreement, holding, orderings, side_by_side
from reporting.item import Expected
from reporting.library import Library
from reporting.paper import (
    DEAD_NEURONS,
    DEGENERATE_SOFTMAX,
    SCALE_AND_WEIGHT,
    compares_with_paper,
    kernels_of,
)
from reporting.table import Table

__all__ = ["APPENDIX_TABLES", "AVERAGING", "AppendixTable"]

AVERAGING = "kernels averaged"
# What is said of a reading of L_uni, a key of protocol.kernels.KERNELS; the text's goes without.
SAID = {"sum": "", "mean": AVERAGING}

Records = list[dict[str, Any]]

HIDDEN = tuple(f"hidden {layer}" for layer in (1, 2, 3))


def _loss_name(weight: float, detachment: float) -> str:
    return f"lambda = {weight:g}, xi = {detachment:g}"


def _scale_name(square: float, weight: float) -> str:
    return f"s^2 = {square:g}, lambda = {weight:g}"


def _figure(percent: dict[str, Any]) -> Estimate:
    """Mean and std over mini-batches of one theta0."""
    return Estimate(percent["mean"], percent["std"], 1)


def _by_loss(records: Records) -> dict[str, dict[str, Any]]:
    return {
        _loss_name(record["degeneracy_weight"], record["detachment_weight"]): record
        for record in records
        if record["degeneracy_weight"] is not None  # the fresh weights have none
    }


def _softmax_grid(records: Records) -> Grid:
    found = _by_loss(records)
    return {"ratio": {k: _figure(r["degenerate_softmax_percent"]) for k, r in found.items()}}


def _dead_grid(records: Records) -> Grid:
    found = _by_loss(records)
    return {
        column: {k: _figure(r["dead_neurons_percent"][i]) for k, r in found.items()}
        for i, column in enumerate(HIDDEN)
    }


def _scale_grid(records: Records) -> Grid:
    runs: dict[str, dict[str, list[float]]] = {"DS": {}, "IOD": {}}
    for record in records:
        row = _scale_name(record["squared_scale"], record["degeneracy_weight"])
        softmax = record["degenerate_softmax_percent"]["mean"]
        dead = max(layer["mean"] for layer in record["dead_neurons_percent"])
        runs["DS"].setdefault(row, []).append(softmax)
        runs["IOD"].setdefault(row, []).append(dead)
    return {
        column: {row: estimate_of(values) for row, values in rows.items()}
        for column, rows in runs.items()
    }


def _paper_softmax() -> Grid:
    return {"ratio": {_loss_name(*k): Estimate(*v, 1) for k, v in DEGENERATE_SOFTMAX.items()}}


def _paper_dead() -> Grid:
    return {
        column: {_loss_name(*k): Estimate(*v[i], 1) for k, v in DEAD_NEURONS.items()}
        for i, column in enumerate(HIDDEN)
    }


def _paper_scale() -> Grid:
    return {
        column: {_scale_name(*k): Estimate(*v[i], PAPER_RUNS) for k, v in SCALE_AND_WEIGHT.items()}
        for i, column in enumerate(("DS", "IOD"))
    }


@dataclass(frozen=True)
class AppendixTable:
    """A table of the appendix, by the paper's text and by another reading of it.

    Parameters
    ----------
    name : str
        For a summary.
    title : str
        Of the table.
    what : str
        What a row is.
    spread : Spread
        What the paper's std is over.
    paper : callable
        Its figures.
    read : callable
        From records of ours to the same.
    expected : dict of str to Expected
        What measures ours, by reading of L_uni.
    """

    name: str
    title: str
    what: str
    spread: Spread
    paper: Callable[[], Grid]
    read: Callable[[Records], Grid]
    expected: Mapping[str, Expected]

    def table(self, library: Library) -> Table:
        """The paper's figures and ours."""
        ours = [self._ours(kernels, library) for kernels in self.expected]
        return side_by_side(self.title, self.what, ours, self.paper(), self.spread)

    def _grid(self, kernels: str, library: Library) -> Grid:
        """What may stand beside the paper's figures, of one reading; another's is left out."""
        results = library.results(self.expected[kernels].file)
        if results is None or not compares_with_paper(results) or kernels_of(results) != kernels:
            return self.read([])
        return self.read(results["records"])

    def _ours(self, kernels: str, library: Library) -> Ours:
        grid, said = self._grid(kernels, library), SAID[kernels]
        name = f"here, {said}" if said else "here"
        here = {}
        if self.spread is SPREADS["runs"]:
            rows = next(iter(grid.values()), {})
            here = {r: f"{name}, {e.n} run{'' if e.n == 1 else 's'}" for r, e in rows.items()}
        return Ours(grid, self.expected[kernels].not_run, name, here)

    def tallies(self, library: Library) -> dict[str, list[Tally]]:
        """What agrees and which of the paper's orderings hold, by reading; empty lists left out.

        The key is what is said of a reading: nothing of the text's.
        """
        found = {}
        for kernels in self.expected:
            ours, paper = self._grid(kernels, library), self.paper()
            both = [
                agreement(ours, paper, self.spread),
                holding(orderings(ours, paper, self.spread), "orderings of the paper hold"),
            ]
            if own := [tally for tally in both if tally.total]:
                found[SAID[kernels]] = own
        return found

    def learned(self, library: Library) -> str:
        """How theta0 was learned here; nothing where no file of the table is there."""
        ways: dict[str, None] = {}
        for expected in self.expected.values():
            results = library.results(expected.file)
            if results is not None:
                settings = results["settings"]
                way = (
                    f"in {settings['passes']} passes over {settings['rows']:,} images with "
                    f"K = {settings['n_perturbations']}"
                )
                ways[way] = None
        if not ways:
            return ""
        said = ", or ".join(ways)
        return f"Here theta0 was learned {said}; in the paper in 5 over 60,000 with K = 256."


OF_DEGENERACIES = {"sum": DEGENERACIES, "mean": DEGENERACIES_AVERAGED}
OF_SCALES = {"sum": SCALE, "mean": SCALE_AVERAGED}

APPENDIX_TABLES = (
    AppendixTable(
        "Degenerate softmax",
        "Perturbed networks with degenerate softmax (%): mean ± std over 128 mini-batches",
        "loss",
        SPREADS["mini-batches"],
        _paper_softmax,
        _softmax_grid,
        OF_DEGENERACIES,
    ),
    AppendixTable(
        "Dead neurons",
        "Fully dead neurons of each hidden layer (%): mean ± std over 128 mini-batches",
        "loss",
        SPREADS["mini-batches"],
        _paper_dead,
        _dead_grid,
        OF_DEGENERACIES,
    ),
    AppendixTable(
        "Scale s and weight lambda",
        "Degenerate softmax (DS, %) and dead neurons of the worst layer (IOD, %): mean, ± std over "
        "runs",
        "setting",
        SPREADS["runs"],
        _paper_scale,
        _scale_grid,
        OF_SCALES,
    ),
)
"""In the order of the paper."""
