"""What the paper says of its figures and theorems, and whether our numbers say the same.

The paper prints no numbers here, so a finding is a sentence of its, a yes or no of ours, and the
numbers that this rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from reporting.paper import compares_with_paper, kernels_of
from reporting.results import Library, Results
from reporting.study_tables import density_figures, setting_of

# The paper has no numbers for "close to 0, except": an L_uni of summed kernels that is close, and
# by how many times that of lambda = 1 must be above the highest of the others.
CLOSE_TO_ZERO = 0.02
APART = 1.5
WEIGHTS = [0.2, 0.4, 1.0]
N_KERNELS = 9


class Finding(NamedTuple):
    """What the paper found, whether we did, and our numbers."""

    said: str
    holds: bool
    numbers: str

    def __str__(self) -> str:
        return f"The paper: {self.said}. Here: {'yes' if self.holds else 'no'} ({self.numbers})."


def _densities(results: Results) -> Iterator[Finding]:
    """Before, and after with the first term alone: uniform at an image, constant over images."""
    records = {setting_of(record): record for record in results["records"]}
    measured = [records.get(setting, {}).get("densities") for setting in (None, (0.0, 0.0))]
    if None in measured:
        return
    before, after = map(density_figures, measured)
    yield Finding(
        "with the first term alone predictions at an image become uniform over perturbations",
        after[0] < before[0],
        f"distance from uniform {before[0]:.3f} before, {after[0]:.3f} after",
    )
    yield Finding(
        "and each perturbed network becomes a constant function of the image",
        after[1] < before[1],
        f"std of a network's predictions {before[1]:.3f} before, {after[1]:.3f} after",
    )


def _nearby(results: Results) -> Iterator[Finding]:
    """The last step against the first, near theta0."""
    if len(results["records"]) < 2:
        return
    first, last = (np.mean(results["records"][i]["nearby"], axis=1) for i in (0, -1))
    shares = pd.Series(last / first, index=results["settings"]["squared_scales"])
    said = ", ".join(f"s^2 = {square:g}: x {share:.2g}" for square, share in shares.items())
    small = shares[shares.index <= 0.5]
    if len(small):
        yield Finding(
            "minimising L_iod at theta0 lowers it nearby too, for s^2 = 0.2 and 0.5",
            bool(small.max() < 1.0),
            f"last step against the first, {said}",
        )
    if len(shares) > 1:
        yield Finding(
            "the effect diminishes as s grows",
            shares.is_monotonic_increasing,
            f"last step against the first, {said}",
        )


def _uniformity(results: Results) -> Iterator[Finding]:
    """L_uni of the last window, mean over the runs, for each s that has every lambda."""
    frame = pd.DataFrame(results["records"])
    frame["last"] = [values[-1] for values in frame["uniformity"]]
    ends = frame.pivot_table("last", "squared_scale", "degeneracy_weight")
    if not set(WEIGHTS) <= set(ends):
        return
    compared = ends.dropna(subset=WEIGHTS)
    if compared.empty:
        return
    # An average of nine kernels is as close at a ninth.
    close = CLOSE_TO_ZERO / (N_KERNELS if kernels_of(results) == "mean" else 1)
    highest = compared[[weight for weight in compared if weight < 1.0]].max(axis=1)
    numbers = "; ".join(
        f"s^2 = {square:g}: "
        + ", ".join(f"{value:.2g} at {w:g}" for w, value in row.dropna().items())
        for square, row in compared.iterrows()
    )
    yield Finding(
        "L_uni comes close to 0, except with lambda = 1",
        bool(((highest <= close) & (compared[1.0] >= APART * highest)).all()),
        f"L_uni at the end by lambda, {numbers}",
    )


# Number -> what the theorem says.
THEOREMS = {
    1: "a perturbation leaves a ball at most as often as Theorem 1 bounds it",
    2: "a perturbed network gives a class at least the share of Theorem 2",
    3: "a row of a layer's Jacobian has the norm of Theorem 3 under He's weights",
}


def _flags(record: dict[str, Any]) -> list[bool]:
    """Whether the theorem holds at each point, of each form of its bound."""
    forms = record.get("forms", {}).values()
    return record.get("holds", []) + [flag for points in forms for flag in points["holds"]]


def _theorems(results: Results) -> Iterator[Finding]:
    for number, words in THEOREMS.items():
        own = [record for record in results["records"] if record["theorem"] == number]
        flags = [flag for record in own for flag in _flags(record)]
        if flags:
            yield Finding(words, all(flags), f"{sum(flags)} of {len(flags)} points")


class PaperFigure(NamedTuple):
    """A figure of the paper, or its theorems: our file, and what follows from its numbers."""

    title: str
    stem: str
    read: Callable[[Results], Iterator[Finding]]

    @property
    def file(self) -> str:
        return f"{self.stem}.json"

    def findings(self, library: Library) -> list[Finding]:
        """Empty where nothing was measured of the paper's data and network."""
        results = library.results(self.file)
        # The theorems need no data.
        if not results or ("dataset" in results and not compares_with_paper(results)):
            return []
        return list(self.read(results))


FIGURES = (
    PaperFigure("Densities of predictions, with the first term alone", "degeneracies", _densities),
    PaperFigure("Detachment near theta0", "detachment-nearby", _nearby),
    PaperFigure("L_uni along the steps, by s and lambda", "scale-and-weight", _uniformity),
    PaperFigure(
        "L_uni along the steps, by s and lambda, by averaged kernels",
        "scale-and-weight-mean-of-kernels",
        _uniformity,
    ),
    PaperFigure("The theorems", "theorems", _theorems),
)
"""In the order of the paper."""
