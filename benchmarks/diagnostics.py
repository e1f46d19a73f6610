"""Claim: pre-training, once it is long, removes most degenerate softmax but not dead neurons.

Each theta0 given, and before them the fresh weights they began from, is looked at as
``degeneracies.py`` does, on the same mini-batches under the same perturbations; about 20 seconds a
theta0 on two cores::

    python benchmarks/diagnostics.py --theta0 'five passes=theta0/xavier-fcn-ours-0123.joblib'
    python benchmarks/diagnostics.py --theta0 0.1=a.safetensors 0.5=b.safetensors 1=c.safetensors

It takes what ``save_theta0`` writes (``budget.py`` keeps such files along the way, in the folder
``budget``) and what ``mnist_tasks.py`` keeps in the folder ``theta0`` (``.joblib``, which is a
pickle: name none that another wrote). The former do not say from which fresh weights they were
learned: ``--seed``, ``--run`` and ``--init`` do. The latter are refused where they disagree.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from data.datasets import Dataset
from protocol import command, studies
from protocol.evaluation import load_scaled, say
from protocol.tasks import pretraining_seed
from protocol.theta0s import read_kept, theta0_digest
from reporting.tables import text_of
from sklearn_mmdinit import MMDInitializer, Theta0, load_theta0

FRESH = "fresh"


@dataclass(frozen=True)
class Given:
    """A theta0 of the command line; its fitted initializer where the file has it."""

    name: str
    path: Path
    theta0: Theta0
    initializer: Any


@dataclass(frozen=True)
class Job:
    """The images, every theta0 that is given, and the fresh one with its network's parameters."""

    dataset: Dataset
    X: np.ndarray
    givens: list[Given]
    fresh: Theta0
    network: dict[str, Any]
    options: argparse.Namespace


def _name_and_path(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not (name and path):
        raise argparse.ArgumentTypeError(f"must be NAME=PATH, got {text!r}")
    return name, Path(path)


def _parser() -> argparse.ArgumentParser:
    parser = command.command_parser(__doc__)
    add = parser.add_argument
    add(
        "--theta0",
        nargs="+",
        type=_name_and_path,
        required=True,
        metavar="NAME=PATH",
        help="the name of a row, and a file .safetensors or .joblib",
    )
    add(
        "--n-batches",
        type=command.positive,
        default=studies.N_BATCHES,
        help="mini-batches; default: 128",
    )
    add("--init", choices=("xavier", "he"), default="xavier", help="of the fresh weights")
    add("--run", type=command.not_negative, default=0, help="which learned them; default: 0")
    command.add_data_options(parser)
    return parser


def _read(name: str, path: Path) -> Given:
    if not path.is_file():
        raise ValueError(f"{name}: no file {str(path)!r}")
    if path.suffix != ".joblib":
        return Given(name, path, load_theta0(path), None)
    kept = read_kept(path)
    initializer = kept.get("initializer") if isinstance(kept, dict) else None
    theta0 = getattr(initializer, "theta0_", None)
    if theta0 is None:
        raise ValueError(f"{name}: {str(path)!r} holds no fitted initializer")
    return Given(name, path, theta0, initializer)


def _network_of(theta0: Theta0) -> dict[str, Any]:
    """What the initializer of a perceptron of the same shape is called with."""
    try:
        keywords = theta0.architecture.keywords
    except AttributeError as error:  # another module
        raise ValueError(str(error)) from error
    return {name: value for name, value in keywords.items() if name != "n_features"}


def _check_begins_from(fresh: Theta0, given: Given, X: np.ndarray) -> None:
    """ValueError if the network is another, or was certainly learned from other weights."""
    if given.theta0.architecture != fresh.architecture:
        raise ValueError(
            f"{given.name}: {str(given.path)!r} has {given.theta0.architecture}, and the network "
            f"that the first file and the images make is {fresh.architecture}"
        )
    if given.initializer is None:
        return
    own = clone(given.initializer).set_params(max_iter=0, device="cpu", verbose=0).fit(X[:2])
    if theta0_digest(own.theta0_) != theta0_digest(fresh):
        raise ValueError(
            f"{given.name}: {str(given.path)!r} was learned from other fresh weights "
            f"(init={own.init!r}, random_state={own.random_state}); see --seed, --run and --init"
        )


def _prepare(options: argparse.Namespace) -> Job:
    """The images and every theta0; ValueError now rather than between two measurements."""
    names = [FRESH, *(name for name, _ in options.theta0)]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the name {name!r} is taken; every row needs its own")
    givens = [_read(name, path) for name, path in options.theta0]
    dataset, images = load_scaled(options)
    X, network = images[: len(dataset.y_train)], _network_of(givens[0].theta0)
    seed = pretraining_seed(options.run, seed=options.seed)
    initializer = MMDInitializer(
        **network, init=options.init, max_iter=0, device="cpu", random_state=seed
    )
    fresh = initializer.fit(X[:2]).theta0_
    for given in givens:
        _check_begins_from(fresh, given, X)
    if network["activation"] != "relu":
        raise ValueError(f"only ReLU units die, these are {network['activation']!r}")
    return Job(dataset, X, givens, fresh, network, options)


def _measure(job: Job) -> list[dict[str, Any]]:
    """What is found at each theta0, the fresh one first."""
    options, records = job.options, []
    theta0s = [(given.name, given.path.name, given.theta0) for given in job.givens]
    for name, file, theta0 in [(FRESH, None, job.fresh), *theta0s]:
        say(options, f"measuring {name}")
        found = studies.measure_ratios(
            theta0, job.X, seed=options.seed, n_batches=options.n_batches
        )
        records.append({"name": name, "file": file, **found})
    return records


def _results(job: Job, records: list[dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
    options = job.options
    settings = {
        "n_batches": options.n_batches,
        "batch_size": min(studies.BATCH_SIZE, len(job.X)),
        "n_perturbations": studies.N_PERTURBATIONS,
        "perturbation_scale": studies.PERTURBATION_SCALE,
        "hidden_layer_sizes": job.network["hidden_layer_sizes"],
        "init": options.init,
        "run": options.run,
        "seed": options.seed,
    }
    path = options.output / f"{job.dataset.name}_diagnostics.json"
    return path, command.results_head(__doc__, job.dataset, settings) | {"theta0": records}


_text = partial(text_of, kinds=("diagnostics",))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the table was printed."""
    parser = _parser()
    return command.run_command(parser, parser.parse_args(argv), _prepare, _measure, _results, _text)


if __name__ == "__main__":
    raise SystemExit(main())
