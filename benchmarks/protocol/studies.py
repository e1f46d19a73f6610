"""What the commands of the appendix measure of a theta0, and the theta0s they learn."""

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from protocol import command
from protocol.diagnostics import dead_neuron_ratio, degenerate_softmax_ratio, prediction_samples
from protocol.evaluation import Bench, load_scaled
from protocol.methods import KERNELS, PAPER_TERMS, NetworkSettings, initializer_of
from protocol.store import Log, digest_of
from protocol.tasks import diagnostics_seed, shuffled_rows
from protocol.theta0s import Pretrained, fit_key, theta0_digest
from sklearn_mmdinit import Theta0

# What the appendix measures of a theta0

N_BATCHES = 128
BATCH_SIZE = 32
N_PERTURBATIONS = 256
PERTURBATION_SCALE = math.sqrt(0.5)

# Draws of a density, and how many densities there are of each kind.
N_DRAWS = 1024
N_DENSITIES = 4


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


def measure_densities(theta0: Theta0, X: np.ndarray, *, seed: int) -> dict[str, Any]:
    """Samples of the probability of class 0 around theta0, for the paper's "degenerate_ex".

    ``over_perturbations``: 1,024 values for each of four inputs; ``over_inputs``: a value for each
    of 1,024 inputs, or as many as there are, for each of four perturbed networks.
    """
    rows = shuffled_rows(len(X), "diagnostics", 1, seed=seed)[:N_DRAWS]

    def probabilities(inputs: np.ndarray, n_networks: int) -> np.ndarray:
        samples = prediction_samples(
            theta0.to_module(),
            inputs,
            n_networks,
            seed=diagnostics_seed(seed=seed),
            perturbation_scale=PERTURBATION_SCALE,
        )
        # Far below what a histogram can show, and a third of the file.
        return samples[:, :, 0].astype(float).round(4)

    return {
        "over_perturbations": probabilities(X[rows[:N_DENSITIES]], N_DRAWS).T.tolist(),
        "over_inputs": probabilities(X[rows], N_DENSITIES).tolist(),
    }


# The theta0 of the appendix's commands

# Five epochs over 60,000 images in mini-batches of 32.
PAPER_STEPS = 9375


def _other_than_paper(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes without the paper's own values, which have one name in files: "auto"."""
    paper = {"perturbation_scale": PERTURBATION_SCALE, **PAPER_TERMS}
    return {name: value for name, value in changes.items() if value != paper.get(name)}


@dataclass(frozen=True)
class Appendix(Bench):
    """Unlabelled images, and theta0 learned from them with other values of some parameters."""

    @property
    def seed(self) -> int:
        return int(self.options.seed)

    @property
    def method(self) -> str:
        return f"{self.options.init}/fcn/ours"

    def initializer(self, changes: Mapping[str, Any], run: int = 0) -> Any:
        initializer: Any = initializer_of(self.method, self.network, random_state=self.seed_of(run))
        return initializer.set_params(**_other_than_paper(changes))

    def key(self, changes: Mapping[str, Any], run: int = 0) -> str:
        """What stands for a theta0 and its ratios before it is learned."""
        key = fit_key(self.initializer(changes, run), self.X_digest)
        return digest_of([key, N_BATCHES, self.seed])

    def learned(self, changes: Mapping[str, Any], run: int = 0) -> Pretrained:
        """Theta0; with the paper's own values where ``mnist_tasks.py`` keeps and finds it too."""
        other = [f"{name}={value:g}" for name, value in _other_than_paper(changes).items()]
        return self.learn(self.initializer(changes, run), "_".join([self.method, *other]))

    def fresh(self, changes: Mapping[str, Any] | None = None, run: int = 0) -> Theta0:
        """The weights that pre-training begins from."""
        initializer = self.initializer({**(changes or {}), "max_iter": 0}, run)
        return initializer.fit(self.X[:BATCH_SIZE]).theta0_

    def log(self, name: str) -> Log:
        """The kept cells of a command of this name."""
        return Log(self.options.output / f"{name}.jsonl")

    def results(self, log: Log, keys: Sequence[str], **settings: Any) -> dict[str, Any]:
        """What a command writes of the cells of these keys."""
        records = [log.records[key] for key in keys]
        settings |= {"rows": len(self.X), "passes": self.network.epochs}
        settings |= {"n_batches": N_BATCHES, "batch_size": BATCH_SIZE}
        return {
            "dataset": self.dataset.about,
            "settings": settings,
            "measured_at_commits": list(dict.fromkeys(record["commit"] for record in records)),
            "records": [
                {k: v for k, v in record.items() if k not in ("key", "commit")}
                for record in records
            ],
        }


def add_kernels_option(parser: argparse.ArgumentParser) -> None:
    kernels = "whether the nine kernels of L_uni, without coherence, are summed; default: sum"
    parser.add_argument("--kernels", choices=list(KERNELS), default="sum", help=kernels)


def add_objective_options(parser: argparse.ArgumentParser, n_perturbations: int) -> None:
    """Add what the commands that learn by the paper's whole objective can be asked for."""
    add = parser.add_argument
    add("--runs", type=command.positive, default=1, help="each from its own seed; default: 1")
    networks = "perturbed networks a step of the pre-training; default: %(default)s"
    two, K = command.at_least(2), n_perturbations
    add("--n-perturbations", type=two, default=K, metavar="K", help=networks)
    add_kernels_option(parser)
    add_appendix_options(parser)


def add_appendix_options(parser: argparse.ArgumentParser) -> None:
    """Add what every command of the appendix can be asked for."""
    add = parser.add_argument
    passes = "epochs of the pre-training; default: as many as make the paper's 9,375 steps"
    add("--epochs", type=command.positive, help=passes)
    add("--init", choices=("xavier", "he"), default="xavier", help="fresh weights; default: xavier")
    command.add_network_options(parser)


def prepare_appendix(options: argparse.Namespace) -> Appendix:
    """Load the images, those to learn from alone."""
    dataset, images = load_scaled(options)
    X = images[: len(dataset.y_train)]
    epochs = options.epochs or round(PAPER_STEPS / (len(X) // BATCH_SIZE))
    network = replace(NetworkSettings.of(options), epochs=epochs)
    return Appendix(dataset, X, network, (), {}, options)
