"""Pre-trainings that differ in some parameters, each measured on the same binary tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from sklearn.base import BaseEstimator

from protocol import methods
from protocol.evaluation import Bench
from sklearn_mmdinit import Coherence, MMDInitializer


@dataclass(frozen=True)
class Variant:
    """Parameters that a pre-training changes, ``max_iter`` and those of its coherence among them.

    ``name`` is that of its scores, ``description`` begins the record of its theta0. With ``C`` a
    logistic regression on its features is scored, and without it the fine-tuned network.
    """

    name: str
    description: dict[str, Any]
    changes: dict[str, Any]
    C: float | None = None
    as_paper: bool | None = None  # how the network is fine-tuned, as in network_contender

    def initializer(self, hidden_layer_sizes: Sequence[int], **params: Any) -> BaseEstimator:
        initializer = MMDInitializer(hidden_layer_sizes, coherence=Coherence(), **params)
        return initializer.set_params(**self.changes)


def measure_variants(variants: Sequence[Variant], bench: Bench) -> dict[str, list[dict[str, Any]]]:
    """Records of every theta0, and all scores; each variant is finished before the next."""
    records, scores = [], []
    for run, variant in product(bench.tasks, variants):
        bench.say(f"run {run}: {variant.name}")
        initializer = variant.initializer(
            bench.network.hidden_layer_sizes,
            device=bench.network.device,
            random_state=bench.seed_of(run),
        )
        learned = bench.learn(initializer, "variant")
        records.append(variant.description | {"run": run} | learned.record())
        if variant.C is None:
            contender = bench.fine_tuned(variant.name, learned, variant.as_paper)
        else:
            contender = methods.features_contender(variant.name, bench.X, learned, variant.C)
        scores += bench.evaluate({run: [contender]}, title=variant.name)
    return {"theta0": records, "scores": scores}
