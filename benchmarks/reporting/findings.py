"""What the paper says of its figures and theorems, and whether our numbers say the same.

The paper prints no numbers here, so a finding is a sentence of its, a yes or no of ours, and the
numbers that this rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from protocol.kernels import KERNELS
from reporting.expected import (
    DEGENERACIES,
    DETACHMENT,
    DETACHMENT_AT_ACTIVATION,
    SCALE,
    THEOREMS,
)
from reporting.expected_averaged import (
    SCALE_AVERAGED,
)
from reporting.item import Expected
from reporting.library import Library
from reporting.paper import SCALE_AND_WEIGHT, compares_with_paper, kernels_of

__all__ = ["FIGURES", "Finding", "PaperFigure"]

# The paper has no numbers for "close to 0, except": an L_uni of summed kernels that is close, and
# by how many times that of lambda = 1 must be above the highest of the others.
CLOSE_TO_ZERO = 0.02
APART = 1.5


@dataclass(frozen=True)
class Finding:
    """What the paper found, whether we did, and our numbers."""

    said: str
    holds: bool
    numbers: str

    def __str__(self) -> str:
        return f"The paper: {self.said}. Here: {'yes' if self.holds else 'no'} ({self.numbers})."


def _densities(results: dict[str, Any]) -> Iterator[Finding]:
    """Before, and after with the first term alone: uniform at an image, constant over images."""
    records = {(r["degeneracy_weight"], r["detachment_weight"]): r for r in results["records"]}
    measured = [records.get(key, {}).get("densities") for key in ((None, None), (0.0, 0.0))]
    if None in measured:
        return
    before, after = (_distance(densities) for densities in measured)
    yield Finding(
        "with the first term alone predictions at an image become uniform over perturbations",
        after < before,
        f"distance from uniform {before:.3f} before, {after:.3f} after",
    )
    wide, narrow = (_width(densities) for densities in measured)
    yield Finding(
        "and each perturbed network becomes a constant function of the image",
        narrow < wide,
        f"std of a network's predictions {wide:.3f} before, {narrow:.3f} after",
    )


def _distance(densities: dict[str, Any]) -> float:
    """Kolmogorov and Smirnov's, mean over the images."""
    samples = densities["over_perturbations"]
    return float(np.mean([stats.kstest(values, "uniform").statistic for values in samples]))


def _width(densities: dict[str, Any]) -> float:
    """Std over images, mean over the networks."""
    return float(np.asarray(densities["over_inputs"]).std(axis=1, ddof=1).mean())


def _nearby(results: dict[str, Any]) -> Iterator[Finding]:
    """The last step against the first, at theta0 and near it."""
    scales, records = results["settings"]["squared_scales"], results["records"]
    if len(records) < 2:
        return
    first, last = (np.asarray(records[i]["nearby"]).mean(axis=1) for i in (0, -1))
    shares = dict(zip(scales, (last / first).tolist(), strict=True))
    numbers = ", ".join(f"s^2 = {square:g}: x {share:.2g}" for square, share in shares.items())
    small = [share for square, share in shares.items() if square <= 0.5]
    if small:
        yield Finding(
            "minimising L_iod at theta0 lowers it nearby too, for s^2 = 0.2 and 0.5",
            max(small) < 1.0,
            f"last step against the first, {numbers}",
        )
    if len(shares) > 1:
        yield Finding(
            "the effect diminishes as s grows",
            list(shares.values()) == sorted(shares.values()),
            f"last step against the first, {numbers}",
        )


def _close_except_at_one(by_weight: dict[float, float], share: float) -> bool:
    """Both halves of the sentence: the others are close to 0, and lambda = 1 stands apart."""
    highest = max(value for weight, value in by_weight.items() if weight < 1.0)
    return highest <= share * CLOSE_TO_ZERO and by_weight[1.0] >= APART * highest


def _uniformity(results: dict[str, Any]) -> Iterator[Finding]:
    """L_uni of the last window, mean over the runs, for each s."""
    ends: dict[float, dict[float, list[float]]] = {}
    weights = {weight for _, weight in SCALE_AND_WEIGHT}
    for record in results["records"]:
        of_scale = ends.setdefault(record["squared_scale"], {})
        of_scale.setdefault(record["degeneracy_weight"], []).append(record["uniformity"][-1])
    compared = {
        square: {weight: float(np.mean(values)) for weight, values in of_scale.items()}
        for square, of_scale in sorted(ends.items())
        if weights <= of_scale.keys()
    }
    if not compared:
        return
    share = KERNELS[kernels_of(results)]  # an average of nine is as close at a ninth
    numbers = "; ".join(
        f"s^2 = {square:g}: "
        + ", ".join(f"{value:.2g} at {weight:g}" for weight, value in sorted(by_weight.items()))
        for square, by_weight in compared.items()
    )
    yield Finding(
        "L_uni comes close to 0, except with lambda = 1",
        all(_close_except_at_one(by_weight, share) for by_weight in compared.values()),
        f"L_uni at the end by lambda, {numbers}",
    )


def _flags(value: Any) -> Iterator[bool]:
    """Every entry of every list that is called ``holds``, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "holds":
                yield from inner
            else:
                yield from _flags(inner)


# Number -> what the theorem says.
THEOREM_WORDS = {
    1: "a perturbation leaves a ball at most as often as Theorem 1 bounds it",
    2: "a perturbed network gives a class at least the share of Theorem 2",
    3: "a row of a layer's Jacobian has the norm of Theorem 3 under He's weights",
}


def _theorems(results: dict[str, Any]) -> Iterator[Finding]:
    for number, words in THEOREM_WORDS.items():
        flags = [
            flag
            for record in results["records"]
            if record["theorem"] == number
            for flag in _flags(record)
        ]
        if flags:
            yield Finding(words, all(flags), f"{sum(flags)} of {len(flags)} points")


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper, or its theorems: our picture and what follows from our numbers.

    Parameters
    ----------
    title : str
        Heading.
    picture : str
        File of ours.
    expected : Expected
        What measures it.
    read : callable
        From the results to the findings.
    on_mnist : bool, default=True
        Whether only MNIST and the paper's network count.
    """

    title: str
    picture: str
    expected: Expected
    read: Callable[[dict[str, Any]], Iterator[Finding]]
    on_mnist: bool = True

    def findings(self, library: Library) -> list[Finding]:
        """Empty where nothing was measured."""
        results = library.results(self.expected.file)
        if results is None or (self.on_mnist and not compares_with_paper(results)):
            return []
        return list(self.read(results))


FIGURES = (
    PaperFigure(
        "Densities of predictions, with the first term alone",
        "degeneracies.png",
        DEGENERACIES,
        _densities,
    ),
    PaperFigure("Detachment near theta0", "detachment-nearby.png", DETACHMENT, _nearby),
    PaperFigure(
        "Detachment near theta0, with Jacobians with respect to activations",
        "detachment-nearby-at-activation.png",
        DETACHMENT_AT_ACTIVATION,
        _nearby,
    ),
    PaperFigure(
        "L_uni along the steps, by s and lambda", "scale-and-weight.png", SCALE, _uniformity
    ),
    PaperFigure(
        "L_uni along the steps, by s and lambda, by averaged kernels",
        "scale-and-weight-mean-of-kernels.png",
        SCALE_AVERAGED,
        _uniformity,
    ),
    PaperFigure("The theorems", "theorems.png", THEOREMS, _theorems, on_mnist=False),
)
"""In the order of the paper."""
