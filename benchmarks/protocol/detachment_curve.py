"""L_iod at theta0 and at networks near it, while L_iod alone is minimised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from protocol.appendix_bench import AppendixBench
from protocol.checkpoints import Checkpoint, learn_along, portion_ends
from protocol.provenance import provenance
from protocol.store import digest_of
from protocol.study import Cell
from protocol.tasks import diagnostics_seed, shuffled_rows
from protocol.theta0_measures import BATCH_SIZE
from sklearn_mmdinit import Architecture, Theta0, load_theta0
from sklearn_mmdinit.theory import perturbation_std

__all__ = ["DetachmentCurve", "log_spaced_steps", "perturbed"]

# The loss is L_iod alone. The other two terms are still computed, for the history, with two
# perturbed networks, the fewest there can be; more uniform samples than that keep the bandwidths
# of L_uni where its fast form serves.
CHANGES: dict[str, Any] = {
    "uniformity_weight": 0.0,
    "degeneracy_weight": 0.0,
    "detachment_weight": 1.0,
    "n_perturbations": 2,
    "n_uniform_samples": 32,
    "keep": "last",
}


def log_spaced_steps(last: int, a_decade: int = 6) -> list[int]:
    """Whole numbers from 1 to ``last``, rising by nearly the same factor.

    Parameters
    ----------
    last : int
        The last one.
    a_decade : int, default=6
        How many there are from 10 to 100, and so on; below 10 whole numbers lie wider.
    """
    n = math.ceil(a_decade * math.log10(last))
    return sorted({*(round(10 ** (i / a_decade)) for i in range(n)), last})


def _std(theta0: Theta0, *scale: float) -> np.ndarray:
    assert isinstance(theta0.architecture, Architecture)  # as all theta0 here are
    return perturbation_std(theta0.architecture, *scale)


def perturbed(theta0: Theta0, noise: np.ndarray, perturbation_scale: float) -> Theta0:
    """Theta0 plus a perturbation of the paper's standard deviations.

    Parameters
    ----------
    theta0 : Theta0
        Where it starts, without batch normalisation.
    noise : ndarray of shape (m,)
        Standard normal, one number a parameter: layer by layer, weights before biases.
    perturbation_scale : float
        The paper's s.
    """
    epsilon = noise * _std(theta0, perturbation_scale)
    arrays, start = {}, 0
    for layer in range(theta0.architecture.n_layers):
        for name in (f"linears.{layer}.weight", f"linears.{layer}.bias"):
            array = theta0.arrays[name]
            own = epsilon[start : start + array.size].reshape(array.shape)
            arrays[name] = (array + own).astype(np.float32)
            start += array.size
    return Theta0(theta0.architecture, arrays)


@dataclass(frozen=True)
class DetachmentCurve:
    """One pre-training, looked at after some of its steps.

    Its path does not depend on s, since perturbed networks have no weight in its loss; s is only
    how far from theta0 one looks. The perturbations are the same at each step, and for each s
    the same up to their length.

    Parameters
    ----------
    bench : AppendixBench
        Images and network.
    squared_scales : tuple of float
        Values of s squared.
    n_draws : int
        Perturbations of each.
    n_rows : int
        Images, a part of those learned from, on which L_iod is measured.
    """

    bench: AppendixBench
    squared_scales: tuple[float, ...]
    n_draws: int
    n_rows: int

    @cached_property
    def ends(self) -> list[int]:
        """Steps after which theta0 is kept: those of the curve, and the ends of passes."""
        return portion_ends(self.steps, self._steps_a_pass)

    @cached_property
    def steps(self) -> list[int]:
        return log_spaced_steps(self._steps_a_pass * self.bench.network.epochs)

    @property
    def _steps_a_pass(self) -> int:
        return len(self.bench.X) // BATCH_SIZE

    @cached_property
    def _initializer(self) -> Any:
        return self.bench.initializer(CHANGES)

    @cached_property
    def _checkpoints(self) -> dict[int, Checkpoint]:
        """All that is to be learned, at the first call for any of it."""
        bench, seed = self.bench, self.bench.options.seed
        found = learn_along(
            self._initializer,
            bench.X,
            self.steps,
            order=partial(_order_of_pass, len(bench.X), seed=seed),
            name="detachment-alone",
            folder=bench.options.output / "detachment",
            X_digest=digest_of([bench.X_digest, seed]),
            commit=provenance()["git_commit"],
        )
        return {checkpoint.steps: checkpoint for checkpoint in found}

    @cached_property
    def _scorer(self) -> tuple[Any, np.ndarray]:
        """What measures L_iod of a theta0 that is put in its place, and the rows."""
        bench = self.bench
        rows = shuffled_rows(len(bench.X), "yardstick", seed=bench.options.seed)
        X = bench.X[rows[: min(self.n_rows, len(rows))]]
        return bench.initializer({**CHANGES, "max_iter": 0, "verbose": 0}).fit(X), X

    def _loss(self, theta0: Theta0) -> float:
        scorer, X = self._scorer
        scorer.theta0_ = theta0
        return float(-scorer.score(X))

    def _measure(self, step: int) -> dict[str, Any]:
        theta0 = load_theta0(self._checkpoints[step].path) if step else self.bench.fresh()
        m = _std(theta0).size
        rng = np.random.default_rng(diagnostics_seed(seed=self.bench.options.seed))
        noises = [rng.standard_normal(m, dtype=np.float32) for _ in range(self.n_draws)]
        return {
            "at_theta0": self._loss(theta0),
            "nearby": [
                [self._loss(perturbed(theta0, noise, math.sqrt(square))) for noise in noises]
                for square in self.squared_scales
            ],
        }

    def _key(self, step: int) -> str:
        """The steps before it are in it: a portion that ends there changes the order of rows."""
        passed: Sequence[int] = [end for end in self.ends if end <= step]
        fit_key, seed = self.bench.fit_key(CHANGES), self.bench.options.seed
        return digest_of([fit_key, seed, passed, self.squared_scales, self.n_draws, self.n_rows])

    def cells(self) -> tuple[Cell, ...]:
        """One for each step of the curve, and before them the fresh weights."""
        return tuple(
            Cell(
                f"L_iod near theta0 after {step} steps",
                {"step": step},
                self._key(step),
                partial(self._measure, step),
            )
            for step in (0, *self.steps)
        )


def _order_of_pass(n: int, number: int, *, seed: int) -> np.ndarray:
    return shuffled_rows(n, "passes", 0, number, seed=seed)
