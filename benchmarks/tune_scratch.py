"""Claim: a network from scratch gains little when its fine-tuning is chosen for few labels.

The network from scratch of ``mnist_tasks.py`` on the same kind of tasks, under every learning
rate, number of epochs and weight decay of a small grid, the paper's own among them. The one with
the highest mean accuracy over all tasks and both N is what ``rival/tuned-scratch`` uses::

    MLPClassifier(learning_rate_init=1e-3, max_iter=30).set_params(optimizer__weight_decay=0.0)

It chooses settings, so it looks at runs 4 and 5, which have draws of their own: of tasks, labelled
images and fresh weights. They draw from the same 60,000 images as what ``mnist_tasks.py`` reports,
so that a task or a labelled image may occur in both, and both are tested on the same 10,000 images.
Run it (about 40 minutes on one core)::

    python benchmarks/tune_scratch.py --jobs 1

It prints a table, best first, and writes it as JSON. What was done is kept: the same command goes
on where it was stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import joblib

from protocol.bench import Bench, load_scaled, tasks_of_runs
from protocol.command import command_parser, results_head, run_command
from protocol.evaluation import evaluate
from protocol.methods import NetworkSettings
from protocol.options import add_task_options
from protocol.scratch import scratch_contender
from protocol.store import ScoreLog, write_json
from protocol.tuned_scratch import GRID, PAPER, fine_tuning_contender
from reporting.table import as_text
from reporting.tuning_table import as_records, tried_settings, tuning_table

__all__ = ["main"]

N_LABELS = (5, 20)
TASKS = 20
RUNS = 2
FIRST_RUN = 4


def _prepare(options: argparse.Namespace) -> Bench:
    dataset, X, data = load_scaled(options)
    tasks = tasks_of_runs(
        data.y_train,
        sorted(set(options.n_labels)),
        n_tasks=options.tasks,
        n_runs=options.runs,
        seed=options.seed,
        first_run=options.first_run,
    )
    network = NetworkSettings(tuple(options.hidden_layer_sizes))
    return Bench(dataset, X, data, network, tasks, options)


def _measure(bench: Bench) -> list[dict[str, Any]]:
    """Scores of every setting on every task."""
    options = bench.options
    scratch = scratch_contender(bench.X, bench.network)
    return evaluate(
        [fine_tuning_contender(scratch, setting.name, setting) for setting in GRID],
        [task for run in bench.tasks.values() for task in run],
        sorted(set(options.n_labels)),
        data=bench.data,
        log=ScoreLog(options.output / "scores.jsonl"),
        seed=options.seed,
        n_jobs=joblib.effective_n_jobs(options.jobs),
        title="tuning scratch",
        quiet=options.quiet,
    )


def _publish(bench: Bench, scores: list[dict[str, Any]]) -> None:
    """Print the table; write it as JSON, with what is chosen."""
    options = bench.options
    tried = tried_settings(scores, reference=PAPER.name)
    print(as_text(tuning_table(tried)), end="\n\n")
    (chosen,) = [setting for setting in GRID if setting.name == tried[0].setting]
    names = ("tasks", "runs", "first_run", "seed")
    settings = {name: getattr(options, name) for name in names}
    settings["n_labels"] = sorted(set(options.n_labels))
    settings["hidden_layer_sizes"] = bench.network.hidden_layer_sizes
    results = results_head(__doc__, bench.dataset, settings)
    results |= {"chosen": asdict(chosen), "tried": as_records(tried)}
    path = options.output / f"{bench.dataset.name}_tuned_scratch.json"
    write_json(path, results)
    print(f"{path} written")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the table was printed."""
    parser = command_parser(__doc__)
    add_task_options(
        parser, n_labels=N_LABELS, tasks=TASKS, runs=RUNS, first_run=FIRST_RUN, device=False
    )
    parser.set_defaults(n_labels=N_LABELS, tasks=TASKS, runs=RUNS)
    return run_command(parser, parser.parse_args(argv), _prepare, _measure, _publish)


if __name__ == "__main__":
    raise SystemExit(main())
