"""Claim: dask and ray give the figures of loky to the last digit; what they cost is seconds.

The same cells on each engine, with as many workers of this machine for each: networks from
scratch on random binary tasks, as ``mnist_tasks.py`` fine-tunes them. They are short, some fits
of a tenth of a second each, so nothing shows an engine's own work better. A first round, in which
rows reach workers and workers import what they need, is taken apart from the others, and its
figures must be those of loky. The other rounds are in turns, in one run.

Run it (about 12 minutes on two cores), or without a download and in one minute::

    pip install 'sklearn-mmdinit[dask,ray]'
    python benchmarks/backends.py
    python benchmarks/backends.py --dataset digits --tasks 5 --rounds 2 --backends loky dask

It prints a table and writes it as JSON. Seconds are honest only where nothing else runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import joblib

from data.datasets import DatasetUnavailableError
from engines.choice import ENGINES, engine_of
from engines.engine import Engine, EngineLostError, EngineUnavailableError
from protocol.bench import Bench, load_scaled, tasks_of_runs
from protocol.evaluation import evaluate_on
from protocol.methods import METHODS, NetworkSettings, network_contender, select_names
from protocol.options import add_task_options, positive
from protocol.provenance import provenance
from protocol.store import ScoreLog, write_json
from reporting.backends_table import backends_table
from reporting.table import as_text
from timing.agreement import DisagreementError
from timing.clock import in_turns, ratio, timed

__all__ = ["main"]

N_LABELS = (5, 10, 20, 40)
N_TASKS = 20
REFERENCE = "loky"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--backends", nargs="+", choices=ENGINES, default=list(ENGINES), help="default: all")
    add("--rounds", type=positive, default=5, help="after the first one; default: 5")
    add_task_options(parser, n_labels=N_LABELS, tasks=N_TASKS, runs=1, device=False)
    return parser


def _prepare(options: argparse.Namespace) -> Bench:
    dataset, X, data = load_scaled(options)
    tasks = tasks_of_runs(
        data.y_train,
        options.n_labels or N_LABELS,
        n_tasks=options.tasks or N_TASKS,
        n_runs=options.runs or 1,
        seed=options.seed,
    )
    network = NetworkSettings(tuple(options.hidden_layer_sizes))
    return Bench(dataset, X, data, network, tasks, options)


def _figures(bench: Bench, engine: Engine) -> list[dict[str, Any]]:
    """Every cell, computed on an engine whatever was computed before."""
    contenders = [
        network_contender(
            METHODS[name], bench.network, X=bench.X, initializer=None, theta0_digest=None
        )
        for name in select_names(["*/fcn/scratch"], METHODS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        return evaluate_on(
            engine,
            [(contenders, tasks) for tasks in bench.tasks.values()],
            bench.options.n_labels or N_LABELS,
            data=bench.data,
            log=ScoreLog(Path(folder) / "scores.jsonl"),
            seed=bench.options.seed,
            quiet=True,
        )


def _measure(bench: Bench, engines: dict[str, Engine]) -> dict[str, Any]:
    """Seconds of each engine; a DisagreementError if figures differ."""
    found: dict[str, dict[str, Any]] = {}
    figures: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        for name, engine in engines.items():
            start = timed(partial(stack.enter_context, engine))
            began = time.perf_counter()
            figures[name] = _figures(bench, engine)
            first = time.perf_counter() - began
            found[name] = engine.describe() | {"start": start, "first_round": first}
            bench.say(f"{name}: started in {start:.1f} s, first round {first:.1f} s")
            if figures[name] != figures[REFERENCE]:
                raise DisagreementError(f"{name} has other figures than {REFERENCE}")

        def again(engine: Engine) -> Callable[[], float]:
            return lambda: timed(lambda: _figures(bench, engine))

        rounds = {name: again(engine) for name, engine in engines.items()}
        times = in_turns(rounds, bench.options.rounds)
    for name in engines:
        found[name]["rounds"] = times[name]
        found[name]["times_of_loky"] = ratio(times, name, REFERENCE)
    return {"fits": len(figures[REFERENCE]), "engines": found}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the table was printed, 1 if figures differ."""
    parser = _parser()
    options = parser.parse_args(argv)
    # Loky first: all others are compared with it.
    names = [name for name in ENGINES if name in {REFERENCE, *options.backends}]
    try:
        engines = {name: engine_of(name, None, options.jobs) for name in names}
        bench = _prepare(options)
        measured = _measure(bench, engines)
    except (ValueError, DatasetUnavailableError, EngineUnavailableError, EngineLostError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except DisagreementError as error:
        print(f"Nothing is timed: {error}", file=sys.stderr)
        return 1
    results = {
        "claim": (__doc__ or "").splitlines()[0],
        "dataset": {"name": bench.dataset.name, "source": bench.dataset.source},
        "jobs": joblib.effective_n_jobs(options.jobs),
        **provenance(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        **measured,
    }
    print(as_text(backends_table(results)))
    path = options.output / f"{bench.dataset.name}_backends.json"
    write_json(path, results)
    print(f"\n{path} written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
