"""The training of theta0; in this file its settings, with "auto" resolved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._base.validation import is_auto

# What "auto" stands for: the paper's values, and with coherence those that benchmarks/coherence.py
# chose, on other tasks than the report's.
_PAPER = {"n_perturbations": 256, "learning_rate_init": 2e-4, "max_iter": 5}
_COHERENT = {"n_perturbations": 32, "learning_rate_init": 4e-3}
# With coherence: one step for so many rows, and at least and at most so many steps.
_ROWS_OF_A_STEP, _FEWEST_STEPS, _MOST_STEPS = 20, 200, 3000

# Share of the learning rate that is left at the end of a half cosine: not 0, so that epochs beyond
# the last planned one still learn.
_LEFT = 0.02


@dataclass(frozen=True)
class CoherenceConfig:
    """The fourth term."""

    weight: float  # mu
    separation: float  # rho, the weight of unrelated pairs
    walk_length: float  # mean number of edges of a walk
    n_walks: int  # positive pairs a step


@dataclass(frozen=True)
class Config:
    """All settings of a pre-training beside its rows and its network."""

    n_classes: int  # the paper's d
    learning_rate_init: float  # of Adam; the first one where it falls
    batch_size: int  # rows a step that pass the paper's terms
    max_iter: int  # epochs over the rows
    window: int  # steps over which the loss is averaged
    n_perturbations: int = 2  # the paper's K, and its M
    perturbation_scale: float = 0.0  # the paper's s
    sampler: str = "auto"  # how perturbed networks are drawn
    uniformity_weight: float = 0.0  # 1, lambda and xi in the paper
    degeneracy_weight: float = 0.0
    detachment_weight: float = 0.0
    # Whether expectations over the uniform law are exact, and not over samples.
    closed_form: bool = False
    # The fourth term. With it the learning rate falls along a half cosine, and theta0 is the
    # parameters at the end, not those of the best window.
    coherence: CoherenceConfig | None = None

    @property
    def has_paper_terms(self) -> bool:
        """Whether the loss has any of the paper's three terms."""
        return any((self.uniformity_weight, self.degeneracy_weight, self.detachment_weight))

    @property
    def term_names(self) -> tuple[str, ...]:
        """Names of what :func:`sklearn_mmdinit.training.loop.loss_terms` returns."""
        names = ["loss", *(("uniformity", "degeneracy") if self.has_paper_terms else ())]
        names += ["detachment"] if self.detachment_weight else []
        return (*names, *(["coherence"] if self.coherence else []))

    @property
    def rows_a_step(self) -> int:
        """Rows of an epoch that a step takes."""
        return self.coherence.n_walks if self.coherence else self.batch_size

    @property
    def rows_in_flight(self) -> int:
        """Rows that pass a network in a step, those of perturbed networks included."""
        perturbed = self.n_perturbations * self.batch_size if self.has_paper_terms else 0
        return perturbed + (2 * self.coherence.n_walks if self.coherence else 0)

    def rate(self, done: float) -> float:
        """The learning rate after a share of the planned epochs."""
        if self.coherence is None:
            return self.learning_rate_init
        share = 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
        return self.learning_rate_init * (_LEFT + (1.0 - _LEFT) * share)


def resolve(parameters: Mapping[str, Any], coherence: Any, n_rows: int, n_classes: int) -> Config:
    """What the valid parameters of an MMDInitializer stand for, `coherence` resolved already."""
    defaults: dict[str, Any] = dict(_PAPER)
    term, size = None, min(int(parameters["batch_size"]), n_rows)
    if coherence is not None:
        n_walks = min(int(coherence.batch_size), n_rows)
        term = CoherenceConfig(
            float(coherence.weight),
            float(coherence.separation),
            float(coherence.walk_length),
            n_walks,
        )
        size = min(size, n_walks)
        n_steps = min(max(n_rows // _ROWS_OF_A_STEP, _FEWEST_STEPS), _MOST_STEPS)
        defaults = _COHERENT | {"max_iter": math.ceil(n_steps / (n_rows // n_walks))}
    chosen = {
        name: default if is_auto(parameters[name]) else parameters[name]
        for name, default in defaults.items()
    }
    return Config(
        n_classes=n_classes,
        learning_rate_init=float(chosen["learning_rate_init"]),
        batch_size=size,
        max_iter=int(chosen["max_iter"]),
        window=int(parameters["window"]),
        n_perturbations=int(chosen["n_perturbations"]),
        perturbation_scale=float(parameters["perturbation_scale"]),
        sampler=parameters["sampler"],
        uniformity_weight=float(parameters["uniformity_weight"]),
        degeneracy_weight=float(parameters["degeneracy_weight"]),
        detachment_weight=float(parameters["detachment_weight"]),
        # Without the noise of the samples where few networks are drawn; they are the paper's.
        closed_form=term is not None and n_classes == 2,
        coherence=term,
    )
