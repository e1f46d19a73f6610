"""The paper's tables beside ours: figure by figure, ordering by ordering, in a table and in words.

Two kinds of spread stand in the paper. Over its four runs ours agrees where the difference of the
means lies in its own 95% interval. Over mini-batches of a single theta0, which says nothing of
another theta0, "close" is all that is meant: less than two of the paper's standard deviations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from reporting.layout import Table, mean_and_std, texts
from reporting.paper import compares_with_paper, kernels_of, paper_table
from reporting.results import Library
from reporting.statistics import (
    Estimates,
    Ordering,
    Same,
    orderings,
    within_batches,
    within_runs,
)
from reporting.study_tables import ratios_by_setting, scale_figures
from reporting.task_tables import FIGURES, TITLES
from runs import PAPER_RUNS, SCRATCH, run_of

# Exceptions that are named one by one; the table has the others.
MOST_NAMED = 6
AVERAGING = "kernels averaged"


class Spread(NamedTuple):
    """What a std is over: in words what agrees and what does not, and whether figures do."""

    agree: str
    differ: str
    same: Same


# With one run of ours it is the t interval of a fifth run in place of Welch's.
OVER_RUNS = Spread(
    "not different from the paper's at 95 % (Welch)",
    "different from the paper's at 95 % (Welch)",
    within_runs,
)
OVER_BATCHES = Spread(
    "within two of the paper's standard deviations over mini-batches",
    "not within two of the paper's standard deviations over mini-batches",
    within_batches,
)


class Tally(NamedTuple):
    """How many of some things are so, what they are, and those that are not."""

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


@dataclass
class Beside:
    """Figures of ours beside a table of the paper's, of whose rows and columns they become."""

    ours: Estimates
    paper: Estimates
    spread: Spread
    # What is said of the rows that ours lacks, and what a line of ours is called.
    missing: str = ""
    name: str = "here"

    def __post_init__(self) -> None:
        shape = {"index": self.paper.mean.index, "columns": self.paper.mean.columns}
        self.ours = Estimates(*(part.reindex(**shape) for part in self.ours))
        self.there = self.ours.mean.notna()
        self.same = pd.DataFrame(self.spread.same(self.ours, self.paper), **shape)

    def agreement(self) -> Tally:
        """Which figures of ours agree with the paper's."""
        names = [
            f"{row}, {column} ({self.ours.mean[column][row]:.2f}, the paper "
            f"{mean_and_std(self.paper.mean[column][row], self.paper.std[column][row])})"
            for column in self.there
            for row in self.there.index[self.there[column] & ~self.same[column]]
        ]
        kept = int((self.same & self.there).to_numpy().sum())
        return Tally(kept, f"figures {self.spread.agree}", tuple(names))

    def texts(self) -> pd.DataFrame:
        """Our figures, a star where one disagrees with the paper's."""
        stars = np.where(self.there & ~self.same, " *", "")
        return texts(mean_and_std, self.ours.mean, self.ours.std) + stars

    def label(self, row: str) -> str:
        """What a line is called: with how many runs it has, where they are what spreads."""
        if self.spread is not OVER_RUNS:
            return self.name
        runs = int(self.ours.n.loc[row].max())
        return f"{self.name}, {runs} run{'' if runs == 1 else 's'}"


def holding(found: Sequence[Ordering], words: str) -> Tally:
    """Which of the paper's orderings hold here; the words say which orderings these are."""
    names = [
        f"{o.above} above {o.below}, {o.column} ({o.difference:+.2f})"
        for o in found
        if not o.difference > 0.0
    ]
    return Tally(len(found) - len(names), words, tuple(names))


def side_by_side(title: str, what: str, ours: Sequence[Beside], paper_name: str) -> Table:
    """The paper's figures, and under each row those of ours, with a star where one disagrees.

    Rows that were not measured have the paper's line alone, and a last line says so of them.
    """
    paper, spread = ours[0].paper, ours[0].spread
    of_paper, of_ours = texts(mean_and_std, paper.mean, paper.std), [own.texts() for own in ours]
    lines = []
    for row in of_paper.index:
        lines.append([row, paper_name, *of_paper.loc[row]])
        for own, cells in zip(ours, of_ours, strict=True):
            if own.there.loc[row].any():
                lines.append(["", own.label(row), *cells.loc[row]])
    for own in ours:
        lacks = ~own.there.any(axis=1)
        if own.missing and lacks.any():
            rest = "all" if lacks.all() else "the others"
            lines.append([rest, own.name, own.missing, *[""] * (len(of_paper.columns) - 1)])
    frame = pd.DataFrame(lines, columns=[what, "", *of_paper.columns])
    return Table(f"{title} (* {spread.differ})", frame)


# Tables 1 and 2


def _paper_rows(kind: str, rows: Iterable[str]) -> Estimates:
    return Estimates(*(part.loc[list(rows)] for part in paper_table(kind)))


def _estimates(kind: str, wide: pd.DataFrame) -> Estimates:
    """Ours with the paper's names of columns."""
    found = FIGURES[kind](wide)
    return Estimates(*(part.rename(columns="N = {}".format) for part in found))


def runs_of(wide: pd.DataFrame) -> set[int]:
    """The runs of which there is any score."""
    return set(wide.dropna(how="all").index.get_level_values("run"))


@dataclass(frozen=True)
class MainTable:
    """One of the paper's two tables of its main text; ``claim`` says what its orderings are."""

    kind: str
    name: str
    claim: str

    @property
    def title(self) -> str:
        return f"Table {self.name[6]}. {TITLES[self.kind]}"

    def _beside(self, wide: pd.DataFrame, init: str, missing: str = "") -> Beside:
        rows = [row for row in paper_table(self.kind).mean.index if row.startswith(f"{init}/")]
        own = wide[[row for row in rows if row in wide]]
        return Beside(_estimates(self.kind, own), _paper_rows(self.kind, rows), OVER_RUNS, missing)

    def table(self, wide: pd.DataFrame, init: str, missing: str) -> Table:
        """The paper's figures and ours for one kind of fresh weights."""
        return side_by_side(self.title, "network", [self._beside(wide, init, missing)], "the paper")

    def tallies(self, wide: pd.DataFrame, init: str) -> list[Tally]:
        """What agrees, and which of the paper's claims hold; only what can be looked at."""
        ours = f"{init}/fcn/ours"
        beside = self._beside(wide, init)
        # Runs have tasks of their own, and some methods more runs than others.
        runs = runs_of(wide[[ours]]) if ours in wide else set()
        shared = wide[wide.index.get_level_values("run").isin(runs)]

        def against_all(rows: Sequence[str]) -> Iterable[tuple[str, str]]:
            return [(ours, other) for other in rows if ours in rows and other != ours]

        # The paper claims each of these, also where two of its figures are close.
        claims = orderings(self._beside(shared, init).ours.mean, beside.paper, None, against_all)
        found = [beside.agreement(), holding(claims, self.claim)]
        return [tally for tally in found if tally.total]


MAIN = (
    MainTable(
        "accuracy",
        "Table 1 (accuracy)",
        "orderings of the paper (ours above another network at an N) hold",
    ),
    MainTable(
        "task_std",
        "Table 2 (spread over tasks)",
        "orderings of the paper (ours and another network at an N) hold",
    ),
)


# How labelled images are drawn

LAWS = {
    "uniform": "10 N images of any digits (uniform)",
    "balanced": "exactly N of each digit (balanced)",
}
KINDS = {"accuracy": "mean accuracy", "task_std": "std over tasks"}


def _from_scratch(kind: str, wide: pd.DataFrame, name: str = "here") -> Beside:
    own = _estimates(kind, wide[[row for row in SCRATCH if row in wide]])
    return Beside(own, _paper_rows(kind, SCRATCH), OVER_RUNS, name=name)


def draw_sentences(laws: Mapping[str, pd.DataFrame]) -> list[str]:
    """How many figures of the paper's come out under each law of drawing labelled images."""
    return [
        f"{LAWS[law]}, {words}: {_from_scratch(kind, wide).agreement().short}."
        for law, wide in laws.items()
        for kind, words in KINDS.items()
        if len(wide)
    ]


def draw_table(laws: Mapping[str, pd.DataFrame]) -> Table:
    """Accuracy of each network from scratch: the paper's, and ours under each law."""
    title = (
        "Networks from scratch by the law of the labelled images, test accuracy (%): mean over "
        "tasks, ± std over runs"
    )
    ours = [_from_scratch("accuracy", wide, law) for law, wide in laws.items()]
    return side_by_side(title, "network", ours, f"the paper, {PAPER_RUNS} runs")


# The appendix


@dataclass(frozen=True)
class AppendixTable:
    """A table of the appendix, by the paper's text and by another reading of it.

    Of the files of results, what a row is, and what the paper's std is over.
    """

    kind: str
    name: str
    title: str
    what: str
    spread: Spread
    stem: str

    def _besides(self, library: Library) -> dict[str, Beside]:
        """Ours by reading of L_uni: what is said of it, which is nothing of the text's."""
        found = {}
        for kernels, said, end in (("sum", "", ""), ("mean", AVERAGING, "-mean-of-kernels")):
            file = f"{self.stem}{end}.json"
            paper, results = paper_table(self.kind), library.results(file)
            ours = Estimates(*(part.iloc[:0] for part in paper))
            if results and compares_with_paper(results) and kernels_of(results) == kernels:
                read = scale_figures if self.spread is OVER_RUNS else ratios_by_setting
                ours = read(results)
            name = f"here, {said}" if said else "here"
            found[said] = Beside(ours, paper, self.spread, run_of(file).not_run, name)
        return found

    def table(self, library: Library) -> Table:
        """The paper's figures and ours."""
        ours = list(self._besides(library).values())
        return side_by_side(self.title, self.what, ours, "the paper")

    def tallies(self, library: Library) -> dict[str, list[Tally]]:
        """What agrees and which orderings hold, by reading; those without figures left out."""
        found = {}
        for said, beside in self._besides(library).items():
            ordered = orderings(beside.ours.mean, beside.paper, self.spread.same)
            both = [beside.agreement(), holding(ordered, "orderings of the paper hold")]
            if own := [tally for tally in both if tally.total]:
                found[said] = own
        return found

    def learned(self, library: Library) -> str:
        """How theta0 was learned here; nothing where no file of the table is there."""
        found = [library.results(f"{self.stem}{end}.json") for end in ("", "-mean-of-kernels")]
        settings = [results["settings"] for results in found if results]
        ways = [
            f"in {s['passes']} passes over {s['rows']:,} images with K = {s['n_perturbations']}"
            for s in settings
        ]
        if not ways:
            return ""
        said = ", or ".join(dict.fromkeys(ways))
        return f"Here theta0 was learned {said}; in the paper in 5 over 60,000 with K = 256."


APPENDIX = (
    AppendixTable(
        "degenerate_softmax",
        "Degenerate softmax",
        "Perturbed networks with degenerate softmax (%): mean ± std over 128 mini-batches",
        "loss",
        OVER_BATCHES,
        "degeneracies",
    ),
    AppendixTable(
        "dead_neurons",
        "Dead neurons",
        "Fully dead neurons of each hidden layer (%): mean ± std over 128 mini-batches",
        "loss",
        OVER_BATCHES,
        "degeneracies",
    ),
    AppendixTable(
        "scale_and_weight",
        "Scale s and weight lambda",
        "Degenerate softmax (DS, %) and dead neurons of the worst layer (IOD, %): mean, ± std over "
        "runs",
        "setting",
        OVER_RUNS,
        "scale-and-weight",
    ),
)
"""In the order of the paper."""
