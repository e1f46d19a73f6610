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
from functools import partial
from pathlib import Path
from typing import Any

from data.datasets import Dataset, standardize
from protocol import command, studies
from protocol.evaluation import load_scaled, say
from protocol.tasks import pretraining_seed
from protocol.theta0s import read_kept
from reporting.tables import text_of
from sklearn_mmdinit import MMDInitializer, Theta0, load_theta0

FRESH = "fresh"


def _name_and_path(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not (name and path):
        raise argparse.ArgumentTypeError(f"must be NAME=PATH, got {text!r}")
    return name, Path(path)


def _parser() -> argparse.ArgumentParser:
    parser = command.command_parser(__doc__)
    add = parser.add_argument
    row = "the name of a row, and a file .safetensors or .joblib"
    pair: dict[str, Any] = {"type": _name_and_path, "metavar": "NAME=PATH"}
    add("--theta0", nargs="+", required=True, help=row, **pair)
    add("--init", choices=("xavier", "he"), default="xavier", help="of the fresh weights")
    add("--run", type=command.not_negative, default=0, help="which learned them; default: 0")
    command.add_data_options(parser)
    return parser


def _read(name: str, path: Path, init: str, seed: int) -> Theta0:
    """ValueError where there is none, or one that says it was learned from other weights."""
    if not path.is_file():
        raise ValueError(f"{name}: no file {str(path)!r}")
    if path.suffix != ".joblib":
        return load_theta0(path)
    initializer = read_kept(path)["initializer"]
    if (initializer.init, initializer.random_state) != (init, seed):
        raise ValueError(
            f"{name}: {str(path)!r} was learned from other fresh weights (init="
            f"{initializer.init!r}, random_state={initializer.random_state}); see --seed, --run "
            "and --init"
        )
    theta0: Theta0 = initializer.theta0_
    return theta0


def _prepare(options: argparse.Namespace) -> tuple[argparse.Namespace, Dataset, Any]:
    """The images and every theta0 by its name, the fresh one first."""
    names = [FRESH, *(name for name, _ in options.theta0)]
    if len(set(names)) < len(names):
        raise ValueError(f"every row needs a name of its own, got {', '.join(names)}")
    dataset = load_scaled(options)[0]
    X, seed = standardize(dataset)[0], pretraining_seed(options.run, seed=options.seed)
    given = {name: _read(name, path, options.init, seed) for name, path in options.theta0}
    try:
        network = dict(next(iter(given.values())).architecture.keywords)
    except AttributeError as error:  # another module
        raise ValueError(str(error)) from error
    if network["activation"] != "relu":
        raise ValueError(f"only ReLU units die, these are {network['activation']!r}")
    network.pop("n_features")
    initializer = MMDInitializer(
        **network, init=options.init, max_iter=0, device="cpu", random_state=seed
    )
    theta0s = {FRESH: initializer.fit(X[:2]).theta0_, **given}
    for name, theta0 in given.items():
        if theta0.architecture != theta0s[FRESH].architecture:
            raise ValueError(f"{name} has {theta0.architecture}, and the first another one")
    return options, dataset, theta0s


def _measure(job: tuple[argparse.Namespace, Dataset, Any]) -> command.Written:
    options, dataset, theta0s = job
    X = standardize(dataset)[0]
    files = {name: path.name for name, path in options.theta0}
    records = []
    for name, theta0 in theta0s.items():
        say(options, f"measuring {name}")
        found = studies.measure_ratios(theta0, X, seed=options.seed)
        records.append({"name": name, "file": files.get(name), **found})
    settings = {
        "n_batches": studies.N_BATCHES,
        "batch_size": min(studies.BATCH_SIZE, len(X)),
        "n_perturbations": studies.N_PERTURBATIONS,
        "perturbation_scale": studies.PERTURBATION_SCALE,
        "hidden_layer_sizes": theta0s[FRESH].architecture.keywords["hidden_layer_sizes"],
        **{name: getattr(options, name) for name in ("init", "run", "seed")},
    }
    path = options.output / f"{dataset.name}_diagnostics.json"
    return path, command.results_head(__doc__, dataset, settings) | {"theta0": records}


_text = partial(text_of, kinds=("diagnostics",))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the table was printed."""
    return command.run_command(_parser(), argv, _prepare, _measure, _text)


if __name__ == "__main__":
    raise SystemExit(main())
