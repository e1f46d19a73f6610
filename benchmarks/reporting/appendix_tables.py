"""The three tables of the paper's appendix beside ours, and what of them is reproduced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from reporting.estimate import PAPER_RUNS, SPREADS, Estimate, Spread, estimate_of
from reporting.expected import DEGENERACIES, DEGENERACIES_AVERAGED, SCALE, SCALE_AVERAGED
from reporting.grid import Grid, Tally, agreement, holding, orderings, side_by_side
from reporting.item import Expected
from reporting.library import Library
from reporting.paper import (
    DEAD_NEURONS,
    DEGENERATE_SOFTMAX,
    SCALE_AND_WEIGHT,
    compares_with_paper,
)
from reporting.table import Table

__all__ = ["APPENDIX_TABLES", "AppendixTable"]

HIDDEN = tuple(f"hidden {layer}" for layer in (1, 2, 3))


def _loss_name(weight: float, detachment: float) -> str:
    return f"lambda = {weight:g}, xi = {detachment:g}"


def _scale_name(square: float, weight: float) -> str:
    return f"s^2 = {square:g}, lambda = {weight:g}"


def _figure(percent: dict[str, Any]) -> Estimate:
    """Mean and std over mini-batches of one theta0."""
    return Estimate(percent["mean"], percent["std"], 1)


def _degeneracies(expected: Expected, library: Library) -> dict[str, dict[str, Any]]:
    """Records by the name of their loss."""
    results = library.results(expected.file)
    if results is None or not compares_with_paper(results):
        return {}
    return {
        _loss_name(record["degeneracy_weight"], record["detachment_weight"]): record
        for record in results["records"]
        if record["degeneracy_weight"] is not None  # the fresh weights have none
    }


def _softmax_grid(expected: Expected, library: Library) -> Grid:
    records = _degeneracies(expected, library)
    return {"ratio": {k: _figure(r["degenerate_softmax_percent"]) for k, r in records.items()}}


def _dead_grid(expected: Expected, library: Library) -> Grid:
    records = _degeneracies(expected, library)
    return {
        column: {k: _figure(r["dead_neurons_percent"][i]) for k, r in records.items()}
        for i, column in enumerate(HIDDEN)
    }


def _scale_grid(expected: Expected, library: Library) -> Grid:
    results = library.results(expected.file)
    if results is None or not compares_with_paper(results):
        return {}
    runs: dict[str, dict[str, list[float]]] = {"DS": {}, "IOD": {}}
    for record in results["records"]:
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
    """A table of the appendix.

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
        From what measures ours, and a library, to ours.
    expected : Expected
        What measures them.
    """

    name: str
    title: str
    what: str
    spread: Spread
    paper: Callable[[], Grid]
    read: Callable[[Expected, Library], Grid]
    expected: Expected

    def ours(self, library: Library) -> Grid:
        """Our figures; empty where there are none beside which the paper's may stand."""
        return self.read(self.expected, library)

    def table(self, library: Library) -> Table:
        """The paper's figures and ours."""
        ours = self.ours(library)
        rows = next(iter(ours.values()), {})
        here = {row: self._here(estimate.n) for row, estimate in rows.items()}
        return side_by_side(
            self.title,
            self.what,
            ours,
            self.paper(),
            self.spread,
            here=here,
            missing=self.expected.not_run,
        )

    def _here(self, runs: int) -> str:
        if self.spread is not SPREADS["runs"]:
            return "here"
        return f"here, {runs} run{'' if runs == 1 else 's'}"

    def tallies(self, library: Library) -> list[Tally]:
        """What agrees and which of the paper's orderings hold; only what can be looked at."""
        ours, paper = self.ours(library), self.paper()
        found = [
            agreement(ours, paper, self.spread),
            holding(orderings(ours, paper, self.spread), "orderings of the paper hold"),
        ]
        return [tally for tally in found if tally.total]

    def learned(self, library: Library) -> str:
        """How theta0 was learned here; nothing where the file of the table is not there."""
        results = library.results(self.expected.file)
        if results is None:
            return ""
        settings = results["settings"]
        return (
            f"Here theta0 was learned in {settings['passes']} passes over {settings['rows']:,} "
            f"images with K = {settings['n_perturbations']}; in the paper in 5 over 60,000 with "
            "K = 256."
        )


def _tables(how: str, degeneracies: Expected, scale: Expected) -> Iterator[AppendixTable]:
    """The three tables, in the order of the paper, by one reading of its L_uni."""
    over_batches, over_runs = SPREADS["mini-batches"], SPREADS["runs"]
    yield AppendixTable(
        f"Degenerate softmax{how}",
        "Perturbed networks with degenerate softmax (%): mean ± std over 128 mini-batches",
        "loss",
        over_batches,
        _paper_softmax,
        _softmax_grid,
        degeneracies,
    )
    yield AppendixTable(
        f"Dead neurons{how}",
        "Fully dead neurons of each hidden layer (%): mean ± std over 128 mini-batches",
        "loss",
        over_batches,
        _paper_dead,
        _dead_grid,
        degeneracies,
    )
    yield AppendixTable(
        f"Scale s and weight lambda{how}",
        "Degenerate softmax (DS, %) and dead neurons of the worst layer (IOD, %): mean, ± std over "
        "runs",
        "setting",
        over_runs,
        _paper_scale,
        _scale_grid,
        scale,
    )


APPENDIX_TABLES = (
    *_tables("", DEGENERACIES, SCALE),
    *_tables(" by averaged kernels", DEGENERACIES_AVERAGED, SCALE_AVERAGED),
)
"""By the paper's text, and with the mean of L_uni's kernels in place of their sum."""
