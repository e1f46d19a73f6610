"""Claim: most of the accuracy that theta0 brings costs a fraction of the full pre-training.

theta0 is learned under several settings, and looked at along the way: after each number of
passes it is the start of the networks of the binary tasks, the same tasks, rows and seeds for
all, as ``mnist_tasks.py`` has them. The paper's loss of each theta0 is measured too, on the same
rows with the same perturbations. The clock runs for the pre-training alone::

    init = MMDInitializer(n_perturbations=64, random_state=0)
    init.partial_fit(X[first_rows])     # timed; then theta0 is kept and evaluated
    init.partial_fit(X[next_rows])      # timed; and so on

Run it (about three minutes on two cores), then in full (about two hours, most of it the
pre-training; in portions, with Ctrl-C where it must be)::

    python benchmarks/budget.py --quick
    python benchmarks/budget.py
    python benchmarks/budget.py --settings paper k64 'k64_lr*' --passes 0.1 0.25 0.5 1

It draws accuracy and loss against seconds, writes them as JSON with every single score, and
names the cheapest setting and number of passes whose mean accuracy is within 0.3 points of the
paper's setting after all passes. What was done is kept: the same command goes on where it was
stopped, and one with more passes, settings or tasks does only what is new.

Seconds are honest only where nothing else runs. On a busy machine learn first, and when it is at
rest run the same command with ``--time-steps 100``: it measures seconds a step of each setting
and takes those, times the number of steps, for the cost.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from protocol.budget_bench import BudgetBench, Plan, measure, prepare
from protocol.budget_settings import DEFAULT_SETTINGS, METHOD, SETTINGS
from protocol.command import command_parser, run_command
from protocol.methods import select_names
from protocol.options import add_task_options, positive, positive_number
from protocol.provenance import provenance
from protocol.store import digest_of, write_json
from reporting.budget_figure import draw_budget
from reporting.budget_tables import as_records, budget_points, choose, full_table, statement
from reporting.table import as_text
from reporting.task_tables import pack_scores
from timing.step_times import seconds_a_step

__all__ = ["main"]

FULL = Plan(DEFAULT_SETTINGS, (0.1, 0.25, 0.5, 1, 2, 3, 5), (5, 20), 20, 1)
QUICK = Plan(("paper", "k64", "k64_lr5x"), (0.1, 0.25), (5, 20), 5, 1)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="three settings, a quarter of a pass, five tasks")
    add("--settings", nargs="+", help="names or patterns such as 'k64*'; see --list-settings")
    add("--list-settings", action="store_true", help="print the valid names and stop")
    add("--passes", nargs="+", type=positive_number, help="default: 0.1 0.25 0.5 1 2 3 5")
    add(
        "--time-steps",
        type=positive,
        metavar="STEPS",
        help="cost is seconds a step, measured now over so many steps, times the steps",
    )
    add_task_options(parser, n_labels=FULL.n_labels, tasks=FULL.tasks, runs=FULL.runs)
    return parser


def _plan(options: argparse.Namespace) -> Plan:
    """The plan with what the command line changes; ValueError for an unknown setting."""
    chosen = options.settings
    given = {
        "settings": tuple(select_names(chosen, SETTINGS, what="setting")) if chosen else None,
        "passes": tuple(sorted(set(options.passes))) if options.passes else None,
        "n_labels": tuple(sorted(set(options.n_labels))) if options.n_labels else None,
        "tasks": options.tasks,
        "runs": options.runs,
    }
    plan = QUICK if options.quick else FULL
    return replace(plan, **{name: value for name, value in given.items() if value is not None})


def _retimed(bench: BudgetBench, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the seconds of a machine at rest in the place of those counted while learning."""
    times = seconds_a_step(
        {setting: bench.initializer(setting, 0) for setting in bench.plan.settings},
        bench.X_unlabelled,
        bench.options.time_steps,
        bench.say,
    )
    for record in records:
        record["seconds_while_learning"] = record["seconds"]
        record["seconds"] = record["steps"] * times[record["setting"]]["seconds_a_step"]
    return times


def _measure(
    bench: BudgetBench,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any] | None]:
    """Records of all checkpoints, all scores, and seconds a step where they are asked for."""
    records, scores = measure(bench)
    return records, scores, _retimed(bench, records) if bench.options.time_steps else None


def _scratch_accuracy(
    scores: Sequence[dict[str, Any]], n_labels: Sequence[int]
) -> dict[int, float]:
    """Mean over tasks and runs, in percent, by N."""
    own = [score for score in scores if score["method"] == METHOD.scratch]
    return {
        n: 100.0 * float(np.mean([s["accuracy"] for s in own if s["n_labels"] == n]))
        for n in n_labels
    }


def _publish(
    bench: BudgetBench,
    records: list[dict[str, Any]],
    scores: list[dict[str, Any]],
    times: dict[str, Any] | None,
) -> None:
    """Print the table and what follows from it; write JSON and picture."""
    plan, options = bench.plan, bench.options
    # By setting, then passes, then run: points stand in the order of the plan.
    records.sort(key=lambda r: (plan.settings.index(r["setting"]), r["passes"], r["run"]))
    points = budget_points(records, scores)
    scratch = _scratch_accuracy(scores, plan.n_labels)
    print(as_text(full_table(points)), end="\n\n")
    print("From scratch: " + ", ".join(f"N = {n}: {a:.2f}" for n, a in scratch.items()))
    choice = choose(points)
    commits = {commit for record in records for commit in record["commits"]}
    machines = {digest_of(machine) for record in records for machine in record["machines"]}
    if times is None and max(len(commits), len(machines)) > 1:
        print(
            f"Seconds come from {len(commits)} commits of the code and {len(machines)} machines "
            "or numbers of threads; see --time-steps"
        )
    said = "No full setting to compare with; add paper to --settings"
    if choice is not None:
        said = statement(choice)
    print(said, end="\n\n")
    results = {
        "claim": (__doc__ or "").splitlines()[0],
        "dataset": {"name": bench.dataset.name, "source": bench.dataset.source},
        "plan": {
            "settings": {name: SETTINGS[name] for name in plan.settings},
            "passes": plan.passes,
            "n_labels": plan.n_labels,
            "tasks": plan.tasks,
            "runs": plan.runs,
            "seed": options.seed,
            "hidden_layer_sizes": bench.network.hidden_layer_sizes,
            "device": options.device,
        },
        "seconds_from": "while learning" if times is None else "steps x seconds a step",
        "seconds_a_step": times,
        **provenance(),
        "statement": said.splitlines(),
        "points": as_records(points),
        "checkpoints": records,
        "scores": pack_scores(scores),
    }
    path = options.output / f"{bench.dataset.name}_budget.json"
    write_json(path, results)
    n_tasks = plan.tasks * plan.runs
    title = f"{bench.dataset.name}: what pre-training buys, means over {n_tasks} binary tasks"
    print(draw_budget(points, scratch, path.with_suffix(".png"), title=title))
    print(f"{path} written")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the table was printed."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.list_settings:
        print("\n".join(f"{name}: {changed}" for name, changed in SETTINGS.items()))
        return 0
    return run_command(
        parser,
        options,
        lambda options: prepare(options, _plan(options)),
        _measure,
        lambda bench, found: _publish(bench, *found),
    )


if __name__ == "__main__":
    raise SystemExit(main())
