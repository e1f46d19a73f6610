"""What ``coherence.py`` compares: objectives against time, and one change at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator

from protocol.methods import NetworkSettings
from sklearn_mmdinit import Coherence, MMDInitializer

__all__ = [
    "ABLATION",
    "DEFAULT",
    "OBJECTIVES",
    "PAPER",
    "Setting",
    "ablation_settings",
    "initializer_for",
    "time_settings",
]

PAPER = "paper"
DEFAULT = "default"

NO_PAPER_TERMS: dict[str, Any] = {
    "uniformity_weight": 0.0,
    "degeneracy_weight": 0.0,
    "detachment_weight": 0.0,
}

# The paper's objective with K = 64 in place of 256, a choice of budget: see budget.py.
OBJECTIVES: dict[str, dict[str, Any]] = {
    PAPER: {"n_perturbations": 64},
    "coherence": {"coherence": "auto", **NO_PAPER_TERMS},
    "both": {"coherence": "auto"},
}

# Values of each parameter, one at a time; the default itself is left out where it is among them.
VALUES: dict[str, tuple[Any, ...]] = {
    "coherence__separation": (1.0, 2.0, 4.0, 8.0),
    "coherence__walk_length": (3.0, 10.0, 20.0, 40.0),
    "coherence__n_neighbors": (5, 10, 20),
    "coherence__shared_neighbor_power": (0.0, 1.0, 2.0, 4.0),
    "coherence__weight": (4.0, 16.0, 64.0),
    "gain": (1.0, 3.0, 10.0, "auto"),
    "uniformity_weight": (0.0, 1.0 / 9.0),
    "degeneracy_weight": (0.0,),
    "detachment_weight": (0.0,),
    "keep": ("best",),
}


def _ablation() -> dict[str, dict[str, Any]]:
    """Changes of the default by the name of the setting."""
    default = MMDInitializer(coherence=Coherence()).get_params()
    changes: dict[str, dict[str, Any]] = {DEFAULT: {}}
    for parameter, values in VALUES.items():
        short = parameter.removeprefix("coherence__")
        for value in values:
            if value != default[parameter]:
                text = value if isinstance(value, str) else f"{value:g}"
                changes[f"{short}={text}"] = {parameter: value}
    changes["coherence_alone"] = NO_PAPER_TERMS
    return changes


ABLATION = _ablation()


@dataclass(frozen=True)
class Setting:
    """A pre-training of its own: its section, name and passes, and parameters that it sets."""

    section: str
    name: str
    passes: int
    changes: dict[str, Any]

    @property
    def method(self) -> str:
        """Name under which its scores are kept."""
        return f"{self.section}/{self.name}@{self.passes}"


def time_settings(
    names: Sequence[str], passes: Sequence[int], paper_passes: Sequence[int]
) -> list[Setting]:
    """Each objective after each number of passes: a schedule of its own, not a part of another.

    Parameters
    ----------
    names : sequence of str
        Keys of ``OBJECTIVES``.
    passes : sequence of int
        Of those with coherence, whose passes have an eighth of the steps.
    paper_passes : sequence of int
        Of the paper's objective.
    """
    return [
        Setting("time", name, number, OBJECTIVES[name])
        for name in names
        for number in sorted(set(paper_passes if name == PAPER else passes))
    ]


def ablation_settings(names: Sequence[str], passes: int) -> list[Setting]:
    """The default and its changes, all with so many passes."""
    return [Setting("ablation", name, passes, ABLATION[name]) for name in names]


def initializer_for(
    setting: Setting,
    network: NetworkSettings,
    *,
    random_state: int,
    graphs: Path,
    verbose: int = 0,
) -> BaseEstimator:
    """The unfitted initializer of a setting.

    Parameters
    ----------
    setting, network : Setting, NetworkSettings
        What to build.
    random_state : int
        Of the run.
    graphs : Path
        Cache of the graphs of an ablation. Where time counts each fit makes its own.
    verbose : int
        As the initializer takes it.
    """
    coherence = Coherence(memory=str(graphs)) if setting.section == "ablation" else None
    return MMDInitializer(
        network.hidden_layer_sizes,
        coherence=coherence,
        max_iter=setting.passes,
        device=network.device,
        random_state=random_state,
        verbose=verbose,
    ).set_params(**setting.changes)
