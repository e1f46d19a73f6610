"""The settings of a pre-training, with "auto" resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .._base.validation import is_auto
from .schedule import ByCoherence, ByEpochs

PAPER_WEIGHTS = {"uniformity_weight": 1.0, "degeneracy_weight": 0.4, "detachment_weight": 1.0}

# Values of "auto": the paper's, and for coherence those of benchmarks/results/report/settings.md.
_PAPER = {
    "n_perturbations": 256,
    "batch_size": 32,
    "learning_rate_init": 2e-4,
    "max_iter": 5,
    **PAPER_WEIGHTS,
}
_COHERENT = {
    "n_perturbations": 8,
    "batch_size": 8,
    "learning_rate_init": 4e-3,
    "max_iter": None,  # by coherence
    **dict.fromkeys(PAPER_WEIGHTS, 0.0),
}
# With coherence and max_iter="auto" the fewest steps are n_samples / 20, kept between these limits,
# and the most are the second limit.
_ROWS_FOR_EACH_STEP, _FEWEST, MOST_STEPS = 20, 225, 3000

# Steps whose means decide when the rate falls and which weights are best.
_WINDOW, _COHERENT_WINDOW = 100, 50

# Weight of L_coh beside the paper's terms. Without them it only scales the loss.
COHERENCE_WEIGHT = 16.0


@dataclass(frozen=True)
class CoherenceConfig:
    """The contrastive loss."""

    separation: float  # rho, the weight of unrelated pairs
    n_pairs: int  # positive pairs a step


@dataclass(frozen=True)
class Config:
    """All settings of a pre-training, except its rows and its network."""

    n_classes: int  # the paper's d
    learning_rate_init: float  # of Adam, before it falls
    schedule: ByEpochs | ByCoherence  # when the training ends
    batch_size: int  # rows of a step for the paper's terms
    n_classes_is_known: bool = False  # from labels, a parameter or the module; else it is 2
    n_perturbations: int = 2  # the paper's K, and its M
    perturbation_scale: float = 0.0  # the paper's s
    # The paper's weights of its three terms: 1, lambda and xi.
    uniformity_weight: float = 0.0
    degeneracy_weight: float = 0.0
    detachment_weight: float = 0.0
    # The contrastive loss. With it the learning rate falls over the last third, and theta0 is the
    # parameters at the end, not those of the best window.
    coherence: CoherenceConfig | None = None

    @property
    def has_paper_terms(self) -> bool:
        """Whether the loss has any of the paper's three terms."""
        return any((self.uniformity_weight, self.degeneracy_weight, self.detachment_weight))

    @property
    def term_names(self) -> tuple[str, ...]:
        """Names of what :func:`sklearn_mmdinit.training.loop.loss_terms` returns."""
        names = ["loss"] + ["uniformity", "degeneracy"] * self.has_paper_terms
        names += ["detachment"] * bool(self.detachment_weight)
        return tuple(names + ["coherence"] * (self.coherence is not None))

    @property
    def window(self) -> int:
        """Steps whose means decide when the rate falls and which weights are best."""
        return _COHERENT_WINDOW if self.coherence else _WINDOW

    @property
    def rows_a_step(self) -> int:
        """Rows of an epoch that a step takes."""
        return self.coherence.n_pairs if self.coherence else self.batch_size

    @property
    def rows_in_flight(self) -> int:
        """Rows that pass a network in a step: one that passes K networks counts K times."""
        perturbed = self.n_perturbations * self.batch_size if self.has_paper_terms else 0
        return perturbed + (2 * self.coherence.n_pairs if self.coherence else 0)

    def for_rows(self, n_rows: int) -> Config:
        """These settings for a mini-batch of at most `n_rows`."""
        term = self.coherence and replace(self.coherence, n_pairs=min(self.rows_a_step, n_rows))
        return replace(self, batch_size=min(self.batch_size, n_rows), coherence=term)


def resolve(
    parameters: Mapping[str, Any],
    coherence: Any,
    n_classes: int,
    n_classes_is_known: bool,
    n_rows: int | None,
    n_loaded: int | None = None,
) -> Config:
    """Settings for valid parameters of an MMDInitializer; `coherence` is None or a Coherence.

    `n_rows` is None if it is not known; `n_loaded` is the size of a loader's mini-batches, or None
    if rows are not streamed. One of the two is known.
    """
    defaults: dict[str, Any] = dict(_PAPER if coherence is None else _COHERENT)
    chosen = {
        name: default if is_auto(parameters[name]) else parameters[name]
        for name, default in defaults.items()
    }
    most_rows = n_loaded or n_rows or 0  # of a step
    term = None
    if coherence is not None:
        separation = coherence.separation
        if is_auto(separation):  # so that features separate as many groups as classes
            separation = max(n_classes / 5, 1.0) if n_classes_is_known else 2.0
        # The paper's terms take first inputs of these pairs.
        most_rows = n_loaded or min(int(coherence.batch_size), most_rows)
        term = CoherenceConfig(float(separation), n_pairs=most_rows)
    schedule: ByEpochs | ByCoherence
    if term is not None and chosen["max_iter"] is None:
        wanted = MOST_STEPS if n_rows is None else n_rows // _ROWS_FOR_EACH_STEP
        fewest = min(max(wanted, _FEWEST), MOST_STEPS)
        schedule = ByCoherence(fewest, MOST_STEPS, _COHERENT_WINDOW)
    else:
        schedule = ByEpochs(int(chosen["max_iter"]))
    return Config(
        n_classes=n_classes,
        n_classes_is_known=n_classes_is_known,
        learning_rate_init=float(chosen["learning_rate_init"]),
        schedule=schedule,
        batch_size=min(int(chosen["batch_size"]), most_rows),
        n_perturbations=int(chosen["n_perturbations"]),
        perturbation_scale=float(parameters["perturbation_scale"]),
        **{name: float(chosen[name]) for name in PAPER_WEIGHTS},
        coherence=term,
    )
