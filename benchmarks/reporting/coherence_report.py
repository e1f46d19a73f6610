"""What coherence, which is ours and not the paper's, adds: on three kinds of tasks, and by time."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.coherence_settings import OBJECTIVES, PAPER
from protocol.methods import NetworkSettings
from reporting.against_table import BEST_RIVAL, MEASURED_THERE, Difference
from reporting.coherence_tables import Point

__all__ = ["standing_sentences", "time_sentences"]

FEWER = OBJECTIVES[PAPER]["n_perturbations"]


def _verdict(difference: Difference) -> str:
    gain = difference.gain
    if gain.low is None or gain.high is None or gain.low * gain.high <= 0.0:
        return "within the noise of"
    return "above" if gain.mean > 0.0 else "below"


def _other(difference: Difference) -> str:
    if difference.role != BEST_RIVAL:
        return "scratch"
    # By its name: another file of the same tasks may have a better one.
    return f"the {MEASURED_THERE} ({difference.other.removeprefix('rival/')})"


def _by_verdict(differences: Sequence[Difference]) -> str:
    sizes: dict[str, list[str]] = {}
    for difference in differences:
        text = f"{_verdict(difference)} {_other(difference)}"
        sizes.setdefault(text, []).append(str(difference.n_labels))
    return ", ".join(f"{text} at N = {', '.join(ns)}" for text, ns in sizes.items())


def standing_sentences(differences: Sequence[Difference]) -> list[str]:
    """Where each row of ours stands against scratch and the best rival of the same scores, by N."""
    said = []
    for method in dict.fromkeys(d.method for d in differences):
        own = [d for d in differences if d.method == method]
        scratch = [d for d in own if d.role.endswith("/scratch")]
        rival = [d for d in own if d.role == BEST_RIVAL]
        texts = [_by_verdict(found) for found in (scratch, rival) if found]
        said.append(f"{method} is {'; '.join(texts)}.")
    return said


def time_sentences(points: Sequence[Point]) -> list[str]:
    """The least time in which both objectives together overtake the best of the paper's alone."""
    of = {
        name: [p for p in points if p.section == "time" and p.setting == name]
        for name in ("paper", "both")
    }
    if not (of["paper"] and of["both"]):
        return []
    said = []
    for n in of["paper"][0].accuracy:
        best = max(of["paper"], key=lambda p: p.accuracy[n])
        above = [p for p in of["both"] if p.accuracy[n] > best.accuracy[n]]
        text = (
            f"N = {n}: the paper's objective with {FEWER} perturbed networks a step (the paper has "
            f"{NetworkSettings().n_perturbations}) reaches {best.accuracy[n]:.2f} in "
            f"{best.seconds:.3g} s"
        )
        if above:
            first = min(above, key=lambda p: p.seconds)
            text += f", with coherence {first.accuracy[n]:.2f} in {first.seconds:.3g} s."
        else:
            text += ", and with coherence no point is above that."
        said.append(text)
    return said
