"""What the commands of the appendix measure of a theta0, and the theta0s they learn."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from protocol import command
from protocol.diagnostics import dead_neuron_ratio, degenerate_softmax_ratio
from protocol.evaluation import Bench, load_scaled
from protocol.methods import KERNELS, NetworkSettings, initializer_of
from protocol.store import Log, commit, digest_of
from protocol.tasks import diagnostics_seed
from protocol.theta0s import fit_key, theta0_digest
from sklearn_mmdinit import Theta0

N_BATCHES = 128
BATCH_SIZE = 32
N_PERTURBATIONS = 256
PERTURBATION_SCALE = math.sqrt(0.5)

PAPER = {"degeneracy_weight": 0.4, "detachment_weight": 1.0}
PAPER |= {"perturbation_scale": PERTURBATION_SCALE}

# Five epochs over 60,000 images in mini-batches of 32.
PAPER_STEPS = 9375

METHOD = "xavier/fcn/ours"
FRESH: dict[str, Any] = {"max_iter": 0}
"""The change that leaves the weights as pre-training begins from them."""

Cell = tuple[dict[str, Any], dict[str, Any]]
"""What a record says of a setting, and the changed parameters."""


def _percent(ratios: np.ndarray) -> dict[str, float]:
    """Mean and std over mini-batches."""
    return {"mean": 100.0 * float(ratios.mean()), "std": 100.0 * float(ratios.std(ddof=1))}


def measure_ratios(
    theta0: Theta0, X: np.ndarray, *, seed: int, perturbation_scale: float = PERTURBATION_SCALE
) -> dict[str, Any]:
    """Degenerate softmax and fully dead neurons (%) on mini-batches of rows X (n, n_features).

    Mini-batches and perturbations follow from the seed: they are the same for every theta0.
    """
    common: dict[str, Any] = {"n_batches": N_BATCHES, "batch_size": BATCH_SIZE}
    common |= {"seed": diagnostics_seed(seed=seed)}
    network = theta0.to_module()
    noise = {"perturbation_scale": perturbation_scale, "n_perturbations": N_PERTURBATIONS}
    degenerate = degenerate_softmax_ratio(network, X, **common | noise)
    dead = dead_neuron_ratio(network, X, **common)
    return {
        "digest": theta0_digest(theta0),
        "degenerate_softmax_percent": _percent(degenerate),
        "dead_neurons_percent": [_percent(layer) for layer in dead.T],
    }


@dataclass(frozen=True)
class Appendix(Bench):
    """Unlabelled images, and theta0 learned from them with other values of some parameters."""

    def measure(self, name: str, cells: Sequence[Cell]) -> dict[str, Any]:
        """What a command writes of the cells in every run; those in its log are not repeated."""
        log, keys, seed = Log(self.options.output / f"{name}.jsonl"), [], int(self.options.seed)
        for run, (head, changes) in product(range(self.options.runs), cells):
            # The paper's own values have one name in files: "auto".
            other = {name: value for name, value in changes.items() if value != PAPER.get(name)}
            initializer: Any = initializer_of(METHOD, self.network, random_state=self.seed_of(run))
            initializer.set_params(**other)
            keys.append(digest_of([fit_key(initializer, self.X_digest), N_BATCHES, seed]))
            if keys[-1] in log.records:
                continue
            self.say(f"run {run}: {head}")
            record = {"key": keys[-1], **head, "run": run}
            if changes == FRESH:
                initializer.fit(self.X[:BATCH_SIZE])
            else:
                # With the paper's values where ``mnist_tasks.py`` keeps and finds it too.
                named = [METHOD, *(f"{key}={value:g}" for key, value in other.items())]
                learned = self.learn(initializer, "_".join(named))
                initializer, record["theta0"] = learned.initializer, learned.record()
            scale = changes.get("perturbation_scale", PERTURBATION_SCALE)
            ratios = measure_ratios(
                initializer.theta0_, self.X, seed=seed, perturbation_scale=scale
            )
            history, share = initializer.history_, KERNELS[self.network.kernels]
            record |= ratios | {"steps": [each["step"] for each in history]}
            record |= {"uniformity": [share * each["uniformity"] for each in history]}
            log.append(record | {"commit": commit()})
        records = [log.records[key] for key in keys]
        settings = {"rows": len(self.X), "passes": self.network.epochs, "n_batches": N_BATCHES}
        settings |= {"batch_size": BATCH_SIZE, "networks_a_ratio": N_PERTURBATIONS}
        return {
            "dataset": self.dataset.about,
            "settings": settings,
            "measured_at_commits": list(dict.fromkeys(record["commit"] for record in records)),
            "records": [
                {k: v for k, v in record.items() if k not in ("key", "commit")}
                for record in records
            ],
        }


def run_appendix(
    file: str, doc: str | None, argv: Sequence[str] | None, cells: Sequence[Cell], K: int
) -> tuple[argparse.ArgumentParser, argparse.Namespace, dict[str, Any]]:
    """Measure the cells in every run of a command, which has K networks a step by default.

    Its parser, its options and what it writes.
    """
    parser = command.command_parser(file, doc)
    add = parser.add_argument
    add("--runs", type=command.positive, default=1, help="each from its own seed; default: 1")
    networks = "perturbed networks a step of the pre-training; default: %(default)s"
    add("--n-perturbations", type=command.at_least(2), default=K, metavar="K", help=networks)
    passes = "epochs of the pre-training; default: as many as make the paper's 9,375 steps"
    add("--epochs", type=command.positive, help=passes)
    command.add_network_options(parser)
    options = parser.parse_args(argv)
    with command.refusing(parser):
        dataset, images = load_scaled(options)
    X = images[: len(dataset.y_train)]  # those to learn from alone
    epochs = options.epochs or round(PAPER_STEPS / (len(X) // BATCH_SIZE))
    network = replace(NetworkSettings.of(options), epochs=epochs)
    appendix = Appendix(dataset, X, network, (), {}, options)
    with command.resumable(parser):
        return parser, options, appendix.measure(Path(file).stem, cells)
