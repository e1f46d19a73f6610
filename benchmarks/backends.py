"""Claim: dask and ray give the figures of loky to the last digit; what they cost is seconds.

The same cells on each engine, with as many workers of this machine for each: networks from
scratch on random binary tasks, as ``mnist_tasks.py`` fine-tunes them. They are short, some fits
of a tenth of a second each, so nothing shows an engine's own work better. A first round, in which
rows reach workers and workers import what they need, is taken apart from the others, and its
figures must be those of loky, or the exit status is 1. The other rounds are in turns.

Run it (about 12 minutes on two cores), or without a download and in one minute::

    python benchmarks/backends.py
    python benchmarks/backends.py --dataset digits --tasks 5 --rounds 2 --backends loky dask
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import joblib

from engines.engine import ENGINES, Engine, engine_of
from protocol import command
from protocol.evaluation import Bench, prepare_bench
from protocol.methods import METHODS, network_contender, select_names
from protocol.store import Log
from reporting.tables import text_of
from timing.agreement import DisagreementError
from timing.clock import in_turns, ratio

REFERENCE = "loky"

Job = tuple[Bench, dict[str, Engine]]


def _prepare(options: argparse.Namespace) -> Job:
    # Loky first: all others are compared with it.
    names = [name for name in ENGINES if name in {REFERENCE, *options.backends}]
    engines = {name: engine_of(name, None, options.jobs) for name in names}
    return prepare_bench(options), engines


def _round(bench: Bench, engine: Engine) -> tuple[float, list[dict[str, Any]]]:
    """Seconds of every cell, computed on an engine whatever was computed before, and figures."""
    names = select_names(["*/fcn/scratch"], METHODS)
    contenders = [network_contender(name, bench.network, bench.X) for name in names]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        log, runs = Log(Path(folder) / "scores.jsonl"), dict.fromkeys(bench.tasks, contenders)
        scores = bench.evaluate(runs, engine=engine, log=log, quiet=True)
    return time.perf_counter() - started, scores


def _measure(job: Job) -> dict[str, Any]:
    """Seconds of each engine; a DisagreementError if figures differ."""
    bench, engines = job
    options = bench.options
    found: dict[str, dict[str, Any]] = {}
    reference: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for name, engine in engines.items():
            started = time.perf_counter()
            stack.enter_context(engine)
            start = time.perf_counter() - started
            first, figures = _round(bench, engine)
            reference = reference or figures
            found[name] = engine.describe() | {"start": start, "first_round": first}
            bench.say(f"{name}: started in {start:.1f} s, first round {first:.1f} s")
            if figures != reference:
                raise DisagreementError(f"{name} has other figures than {REFERENCE}")
        rounds = {name: partial(lambda e: _round(bench, e)[0], e) for name, e in engines.items()}
        times = in_turns(rounds, options.rounds)
    for name in engines:
        found[name] |= {"rounds": times[name], "times_of_loky": ratio(times, name, REFERENCE)}
    about: dict[str, Any] = {
        "jobs": joblib.effective_n_jobs(options.jobs),
        "load_average": os.getloadavg()[0],
    }
    about |= {"fits": len(reference), "dataset": bench.dataset.about}
    return about | {"engines": found}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the table was printed, 1 if figures differ."""
    parser = command.command_parser(__file__, __doc__)
    add = parser.add_argument
    add("--backends", nargs="+", choices=ENGINES, default=list(ENGINES), help="default: all")
    add("--rounds", type=command.positive, default=5, help="after the first one; default: 5")
    command.add_task_options(parser, n_labels=(5, 10, 20, 40), tasks=20, runs=1)
    try:
        text = partial(text_of, kinds=("backends",))
        return command.run_command(parser, argv, _prepare, _measure, text)
    except DisagreementError as error:
        print(f"Nothing is timed: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
