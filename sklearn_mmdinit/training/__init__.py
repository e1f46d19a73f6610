"""The training of theta0. This file has its settings, with "auto" resolved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._base.validation import is_auto

# Values of "auto": the paper's, and for coherence those found by benchmarks/coherence.py. That
# benchmark uses other tasks than the report.
_PAPER = {"n_perturbations": 256, "learning_rate_init": 2e-4, "max_iter": 5}
_COHERENT = {"n_perturbations": 32, "learning_rate_init": 4e-3}
# With coherence and max_iter="auto" a training has at least m and at most max(m, 1,500) steps.
# m is n_samples / 20, kept between 225 and 3,000.
_ROWS_FOR_EACH_STEP, _SMALLEST_MINIMUM, _LARGEST_MINIMUM, _MAXIMUM = 20, 225, 3000, 1500


@dataclass(frozen=True)
class CoherenceConfig:
    """The fourth term."""

    weight: float  # mu
    separation: float  # rho, the weight of unrelated pairs
    walk_length: float  # mean number of edges of a walk
    n_walks: int  # positive pairs a step


@dataclass(frozen=True)
class Config:
    """All settings of a pre-training, except its rows and its network."""

    n_classes: int  # the paper's d
    learning_rate_init: float  # of Adam, before it falls
    batch_size: int  # rows of a step for the paper's terms
    max_iter: int  # epochs over the rows; an upper limit if `ends_by_coherence`
    window: int  # steps over which the loss is averaged
    n_perturbations: int = 2  # the paper's K, and its M
    perturbation_scale: float = 0.0  # the paper's s
    sampler: str = "gram"  # or "functional"
    # The paper's weights of its three terms: 1, lambda and xi.
    uniformity_weight: float = 0.0
    degeneracy_weight: float = 0.0
    detachment_weight: float = 0.0
    # Whether expectations over the uniform law are exact; else they are means over samples.
    closed_form: bool = False
    # The fourth term. With it the learning rate falls over the last third, and theta0 is the
    # parameters at the end, not those of the best window.
    coherence: CoherenceConfig | None = None
    # The least and the largest number of steps if `ends_by_coherence`; else 0.
    fewest_steps: int = 0
    most_steps: int = 0

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
        """Pairs (row, network) of a step: a row that goes through K networks counts K times."""
        perturbed = self.n_perturbations * self.batch_size if self.has_paper_terms else 0
        return perturbed + (2 * self.coherence.n_walks if self.coherence else 0)

    @property
    def ends_by_coherence(self) -> bool:
        """Whether L_coh decides the number of steps, by `planned_steps`, and not max_iter."""
        return self.most_steps > 0


def resolve(
    parameters: Mapping[str, Any],
    coherence: Any,
    n_rows: int,
    n_classes: int,
    n_classes_is_known: bool = False,
) -> Config:
    """Settings for valid parameters of an MMDInitializer; `coherence` is None or a Coherence."""
    defaults: dict[str, Any] = dict(_PAPER)
    term, size, fewest, most = None, min(int(parameters["batch_size"]), n_rows), 0, 0
    if coherence is not None:
        n_walks = min(int(coherence.batch_size), n_rows)
        separation = coherence.separation
        if is_auto(separation):  # so that features separate as many groups as classes
            separation = max(n_classes / 5, 1.0) if n_classes_is_known else 2.0
        term = CoherenceConfig(
            float(coherence.weight),
            float(separation),
            float(coherence.walk_length),
            n_walks,
        )
        size = min(size, n_walks)
        defaults = _COHERENT | {"max_iter": 0}
        if is_auto(parameters["max_iter"]):
            fewest = min(max(n_rows // _ROWS_FOR_EACH_STEP, _SMALLEST_MINIMUM), _LARGEST_MINIMUM)
            most = max(fewest, _MAXIMUM)
            defaults["max_iter"] = math.ceil(most / (n_rows // n_walks))
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
        # With coherence few networks are drawn: exact expectations replace the paper's samples.
        closed_form=term is not None and n_classes == 2,
        coherence=term,
        fewest_steps=fewest,
        most_steps=most,
    )
