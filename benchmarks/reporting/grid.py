"""A table of the paper's and the same table of ours, cell by cell: side by side, and in a sentence.

A grid is what both are: estimates by column, then by row. Ours may lack cells, which were not
measured yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from reporting.estimate import Estimate, Spread
from reporting.table import Table

__all__ = [
    "Grid",
    "Ordering",
    "Ours",
    "Tally",
    "agreement",
    "all_pairs",
    "cells",
    "holding",
    "orderings",
    "side_by_side",
    "starred",
]

Grid = Mapping[str, Mapping[str, Estimate]]
"""Column -> row -> figure."""

Pairs = Callable[[Sequence[str]], Iterable[tuple[str, str]]]
"""From the rows to those that are compared with each other."""

# Exceptions that are named one by one; the table has the others.
MOST_NAMED = 6


@dataclass(frozen=True)
class Ordering:
    """Two rows that the paper orders in a column.

    Parameters
    ----------
    column : str
        Where.
    above, below : str
        The rows, by the paper's figures.
    difference : float
        Ours, above minus below: the ordering holds where it is positive.
    """

    column: str
    above: str
    below: str
    difference: float

    @property
    def holds(self) -> bool:
        return self.difference > 0.0


def cells(ours: Grid, paper: Grid) -> list[tuple[str, str]]:
    """(column, row) of every figure that both have, in the paper's order."""
    return [(c, r) for c in paper for r in paper[c] if r in ours.get(c, {})]


def all_pairs(rows: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Each row with each other one."""
    return combinations(rows, 2)


def orderings(
    ours: Grid, paper: Grid, spread: Spread | None, pairs: Pairs = all_pairs
) -> list[Ordering]:
    """Orderings of the paper, for the rows that ours has.

    Parameters
    ----------
    ours, paper : Grid
        Figures.
    spread : Spread or None
        Two figures of the paper's that are the same by it have no order; None: all have one.
    pairs : callable
        Which rows are compared.
    """
    found = []
    for column, figures in paper.items():
        own = ours.get(column, {})
        for one, other in pairs([row for row in figures if row in own]):
            if spread is not None and spread.same(figures[one], figures[other]):
                continue
            above, below = sorted((one, other), key=lambda row: -figures[row].mean)
            found.append(Ordering(column, above, below, own[above].mean - own[below].mean))
    return found


def starred(ours: Estimate | None, paper: Estimate, spread: Spread) -> str:
    """A figure of ours, with a star where it disagrees with the paper's."""
    return "-" if ours is None else f"{ours}{'' if spread.same(ours, paper) else ' *'}"


@dataclass(frozen=True)
class Ours:
    """Figures of ours that stand under the paper's, a line a row.

    Parameters
    ----------
    grid : Grid
        The figures.
    missing : str
        What is said of the rows that it lacks.
    name : str, default="here"
        What a line is called.
    here : mapping of str to str, default={}
        By row, what its line is called where that is something else: how many runs it has.
    """

    grid: Grid
    missing: str
    name: str = "here"
    here: Mapping[str, str] = field(default_factory=dict)


def side_by_side(title: str, what: str, ours: Sequence[Ours], paper: Grid, spread: Spread) -> Table:
    """The paper's figures, and under them each of ours with a star where it disagrees.

    Rows that were not measured have the paper's line alone, and a last line says so of them.

    Parameters
    ----------
    title : str
        Of the table.
    what : str
        Head of the first column: what a row is.
    ours : sequence of Ours
        What stands under the paper's figures.
    paper : Grid
        Figures; every row is in each column.
    spread : Spread
        By which figures agree.
    """
    columns = list(paper)
    rows = list(next(iter(paper.values())))
    lines = []
    for row in rows:
        lines.append([row, "the paper", *(str(paper[c][row]) for c in columns)])
        for own in ours:
            figures = [own.grid.get(c, {}).get(row) for c in columns]
            if any(figure is not None for figure in figures):
                pairs = zip(columns, figures, strict=True)
                texts = [starred(figure, paper[c][row], spread) for c, figure in pairs]
                lines.append(["", own.here.get(row, own.name), *texts])
    for own in ours:
        measured = {row for column in columns for row in own.grid.get(column, {})}
        if not measured >= set(rows):
            rest = "the others" if measured.intersection(rows) else "all"
            lines.append([rest, own.name, own.missing, *([""] * (len(columns) - 1))])
    return Table(f"{title} (* {spread.differ})", [what, "", *columns], lines)


@dataclass(frozen=True)
class Tally:
    """How many of some things are so, what they are, and those that are not.

    Parameters
    ----------
    kept : int
        How many are.
    words : str
        The things and what they are or do: ``figures within two stds``.
    exceptions : tuple of str
        Those that are not.
    """

    kept: int
    words: str
    exceptions: tuple[str, ...]

    @property
    def total(self) -> int:
        return self.kept + len(self.exceptions)

    @property
    def short(self) -> str:
        return f"{self.kept} of {self.total} {self.words}"

    @property
    def sentence(self) -> str:
        if not self.exceptions:
            return f"{self.short}."
        more = len(self.exceptions) - MOST_NAMED
        named = "; ".join(self.exceptions[:MOST_NAMED])
        return f"{self.short}; not: {named}" + (f"; and {more} more." if more > 0 else ".")


def agreement(ours: Grid, paper: Grid, spread: Spread) -> Tally:
    """Which of our figures agree with the paper's."""
    both = cells(ours, paper)
    off = [(c, r) for c, r in both if not spread.same(ours[c][r], paper[c][r])]
    names = (f"{r}, {c} ({ours[c][r].mean:.2f}, the paper {paper[c][r]})" for c, r in off)
    return Tally(len(both) - len(off), f"figures {spread.agree}", tuple(names))


def holding(found: Sequence[Ordering], words: str) -> Tally:
    """Which of the paper's orderings hold here; the words say which orderings these are."""
    names = (
        f"{o.above} above {o.below}, {o.column} ({o.difference:+.2f})" for o in found if not o.holds
    )
    return Tally(sum(o.holds for o in found), words, tuple(names))
