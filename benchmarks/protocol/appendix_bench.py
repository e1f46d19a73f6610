"""What the commands of the paper's appendix share: images, network, and theta0 of any settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from data.datasets import Dataset
from protocol.bench import load_scaled
from protocol.kernels import add_kernels_option, with_kernels
from protocol.methods import METHODS, NetworkSettings, initializer_of
from protocol.options import add_data_options, add_network_options, positive, two_or_more
from protocol.pretrained import Pretrained, data_digest, fit_key, learn
from protocol.tasks import pretraining_seed
from protocol.theta0_measures import BATCH_SIZE, N_BATCHES
from sklearn_mmdinit import MMDInitializer, Theta0

__all__ = ["AppendixBench", "Preset", "add_appendix_options", "prepare_appendix", "theta0_name"]

METHOD = METHODS["xavier/fcn/ours"]

# What L_iod's Jacobians are with respect to: the paper's text, and what its figure suggests.
READINGS = ("pre_activation", "activation")

# Five passes over 60,000 images in mini-batches of 32.
PAPER_STEPS = 9375


@dataclass(frozen=True)
class Preset:
    """Defaults of the options; ``rows`` is None for all images there are."""

    n_perturbations: int
    steps: int = PAPER_STEPS
    rows: int | None = None
    n_batches: int = N_BATCHES
    window: int = 100


@dataclass(frozen=True)
class AppendixBench:
    """The unlabelled images, and what is learned from them.

    Parameters
    ----------
    dataset : Dataset
        What the images are from.
    X : ndarray of shape (n, n_features)
        Those that are used, scaled.
    X_digest : str
        Stands for X.
    network : NetworkSettings
        With the passes and perturbed networks of the pre-training.
    preset : Preset
        With the number of mini-batches of a ratio, and the window of a mean loss.
    options : Namespace
        With ``output``, ``seed`` and ``quiet``.
    """

    dataset: Dataset
    X: np.ndarray
    X_digest: str
    network: NetworkSettings
    preset: Preset
    options: argparse.Namespace

    def initializer(self, changes: Mapping[str, Any], run: int = 0) -> Any:
        """The unfitted initializer of the paper's objective with other values of parameters."""
        initializer = initializer_of(
            METHOD,
            self.network,
            random_state=pretraining_seed(run, seed=self.options.seed),
            verbose=0 if self.options.quiet else 1,
        )
        assert initializer is not None  # METHOD is one that pre-trains
        initializer.set_params(window=self.preset.window, jacobian_at=self.options.jacobian_at)
        return initializer.set_params(**changes)

    def fit_key(self, changes: Mapping[str, Any], run: int = 0) -> str:
        """What stands for a theta0 before it is learned."""
        return fit_key(self.initializer(changes, run), self.X_digest)

    def learn(self, changes: Mapping[str, Any], run: int = 0) -> Pretrained:
        """Theta0, where ``mnist_tasks.py`` keeps and finds it too."""
        return learn(
            self.initializer(changes, run),
            self.X,
            name=theta0_name(changes),
            folder=self.options.output / "theta0",
            X_digest=self.X_digest,
        )

    def fresh(self, run: int = 0) -> Theta0:
        """The weights that pre-training begins from."""
        initializer = self.initializer({"max_iter": 0, "verbose": 0}, run)
        return initializer.fit(self.X[:BATCH_SIZE]).theta0_

    def settings(self) -> dict[str, Any]:
        """What a file of results says of all theta0."""
        return {
            "rows": len(self.X),
            "passes": self.network.epochs,
            "n_perturbations": self.network.n_perturbations,
            "n_batches": self.preset.n_batches,
            "batch_size": BATCH_SIZE,
            "hidden_layer_sizes": self.network.hidden_layer_sizes,
            "seed": self.options.seed,
            "device": self.network.device,
            "precision": self.network.precision,
            "jacobian_at": self.options.jacobian_at,
            "kernels": self.network.kernels,
        }

    def stem(self, name: str) -> str:
        """Name of the results: one reading of the paper must not overwrite another."""
        at = self.options.jacobian_at
        name = name if at == READINGS[0] else f"{name}_at_{at}"
        return with_kernels(name, self.network.kernels)


def theta0_name(changes: Mapping[str, Any]) -> str:
    """Beginning of a file's name; with the paper's own values that of ``mnist_tasks.py``."""
    paper = MMDInitializer().get_params()
    other = [f"{name}={value:g}" for name, value in changes.items() if value != paper[name]]
    return "_".join([METHOD.name, *other])


def add_appendix_options(
    parser: argparse.ArgumentParser, *, n_perturbations: int | None = None
) -> None:
    """Add what the commands of the appendix can be asked for; values not given are None.

    Parameters
    ----------
    parser : ArgumentParser
        Takes the options, after those it has.
    n_perturbations : int, optional
        Default of ``--n-perturbations``; without it there is neither that option nor
        ``--kernels``, for a command without L_uni.
    """
    add = parser.add_argument
    add("--quick", action="store_true", help="few images, few steps: about a minute on one core")
    add(
        "--epochs",
        type=positive,
        help="passes of the pre-training; default: as many as make the paper's 9,375 steps, "
        "which are five over MNIST",
    )
    if n_perturbations is not None:
        add(
            "--n-perturbations",
            type=two_or_more,
            metavar="K",
            help=f"perturbed networks a step of the pre-training; default: {n_perturbations}",
        )
        add_kernels_option(parser)
    add(
        "--jacobian-at",
        choices=READINGS,
        default=READINGS[0],
        help="what of a hidden layer the Jacobians of L_iod are with respect to; "
        f"default: {READINGS[0]}, the paper's text",
    )
    add("--rows", type=positive, help="the first so many images; default: all, with --quick some")
    add_network_options(parser)
    add_data_options(parser)


def prepare_appendix(options: argparse.Namespace, full: Preset, quick: Preset) -> AppendixBench:
    """Load the images; ValueError now rather than after the pre-training."""
    preset = quick if options.quick else full
    dataset, images, data = load_scaled(options)
    n = len(data.y_train)
    rows = options.rows or min(preset.rows or n, n)
    if not BATCH_SIZE <= rows <= n:
        raise ValueError(f"--rows must be from {BATCH_SIZE} to {n}, which there are, got {rows}")
    network = NetworkSettings(
        tuple(options.hidden_layer_sizes),
        epochs=options.epochs or max(1, round(preset.steps / (rows // BATCH_SIZE))),
        n_perturbations=getattr(options, "n_perturbations", None) or preset.n_perturbations,
        device=options.device,
        precision=options.precision,
        kernels=getattr(options, "kernels", NetworkSettings.kernels),
    )
    X = images[:rows]
    return AppendixBench(dataset, X, data_digest(X), network, preset, options)
