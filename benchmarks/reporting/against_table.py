"""What is learned with coherence against scratch and against rivals, task by task.

On each (run, task) the accuracy of a method minus that of the other on the same labelled rows;
mean and 95% t interval over all pairs, as in the table of gains, and the std over runs of the
mean of a run. The best rival is the one with the highest mean at that N on these very tasks, among
those that the same scores hold: another file may have better ones. It is chosen after the fact, to
its own advantage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from protocol.convnet_methods import CONVNET_FEATURES, CONVNET_FEATURES_THETA0
from protocol.methods import FEATURES, FEATURES_CV, FEATURES_THETA0
from protocol.rivals import ALL_RIVALS, scratch_of
from reporting.table import Table
from reporting.task_tables import Gain, accuracies_of, gain_text, paired_gain

__all__ = [
    "BEST_RIVAL",
    "MEASURED_THERE",
    "Difference",
    "against",
    "against_records",
    "against_table",
    "best_rival",
]

BEST_RIVAL = "best rival"
MEASURED_THERE = f"{BEST_RIVAL} measured there"
SPREADING = "rival/label-spreading"

THETA0_OF = {
    FEATURES: FEATURES_THETA0,
    FEATURES_CV: FEATURES_THETA0,
    CONVNET_FEATURES: CONVNET_FEATURES_THETA0,
}
"""Rows that fine-tune nothing, and the networks whose theta0 they are of."""

Cell = dict[tuple[int, int], float]


@dataclass(frozen=True)
class Difference:
    """A method minus another at an N, in points; ``other`` is a name, ``role`` why it is that."""

    method: str
    role: str
    other: str
    n_labels: int
    gain: Gain
    run_std: float | None


def _is_ours(method: str) -> bool:
    return method in THETA0_OF or method.endswith("/ours+coherence")


def _std_over_runs(differences: Cell) -> float | None:
    runs = sorted({run for run, _ in differences})
    means = [np.mean([d for (r, _), d in differences.items() if r == run]) for run in runs]
    return float(np.std(means, ddof=1)) if len(runs) > 1 else None


def against(scores: Iterable[dict[str, Any]]) -> list[Difference]:
    """Every difference there is a pair for: by method, then role, then N.

    Parameters
    ----------
    scores : iterable of dict
        Records with method, run, task, n_labels and accuracy (0 to 1).
    """
    table = accuracies_of(scores)
    found = []
    for method in dict.fromkeys(name for name, _ in table if _is_ours(name)):
        sizes = [n for name, n in table if name == method]
        for role in (scratch_of(THETA0_OF.get(method, method)), SPREADING, BEST_RIVAL):
            for n in sizes:
                own = table[method, n]
                other = best_rival(table, n, own) if role == BEST_RIVAL else role
                base = {} if other is None else table.get((other, n), {})
                # Only the same tasks make a pair; the other may have more of them.
                if role is None or other is None or not own.keys() <= base.keys():
                    continue
                differences = {pair: own[pair] - base[pair] for pair in own}
                gain = paired_gain(list(differences.values()))
                spread = _std_over_runs(differences)
                found.append(Difference(method, role, other, n, gain, spread))
    return found


def best_rival(
    table: Mapping[tuple[str, int], Cell],
    n_labels: int,
    own: Cell,
    rivals: Sequence[str] = ALL_RIVALS,
) -> str | None:
    """The rival with the highest mean on the tasks of ``own``; None where none has them all."""
    means = {
        name: float(np.mean([table[name, n_labels][pair] for pair in own]))
        for name in rivals
        if own.keys() <= table.get((name, n_labels), {}).keys()
    }
    return max(means, key=lambda name: means[name], default=None)


def against_table(differences: Sequence[Difference]) -> Table:
    """One row for each method and what it is compared with; the best rival is named."""
    sizes = list(dict.fromkeys(d.n_labels for d in differences))
    rows: dict[tuple[str, str], dict[int, str]] = {}
    for d in differences:
        text = gain_text(d.gain) + ("" if d.run_std is None else f" ± {d.run_std:.2f}")
        if d.role == BEST_RIVAL:
            text += f" ({d.other.removeprefix('rival/')})"
        against_what = MEASURED_THERE if d.role == BEST_RIVAL else d.role
        rows.setdefault((d.method, against_what), {})[d.n_labels] = text
    title = (
        "Difference on the same tasks and labelled images (points): mean, its 95% interval, "
        "± std over runs where there are several"
    )
    head = ["method", "against", *(f"N = {n}" for n in sizes)]
    return Table(title, head, [[*k, *(c.get(n, "-") for n in sizes)] for k, c in rows.items()])


def against_records(differences: Iterable[Difference]) -> list[dict[str, Any]]:
    """The differences as JSON can hold them."""
    return [asdict(difference) for difference in differences]
