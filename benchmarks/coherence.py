"""Claim: coherence buys more accuracy for few labels than the paper's objective, in less time.

Two sections. ``time``: the plain network of ``mnist_tasks.py``, fine-tuned on the same binary tasks
from a theta0 of the paper's objective (with 64 perturbed networks), of coherence alone and of both,
each pre-trained for several numbers of passes; a learning rate falls along the whole of a run,
so every point is a pre-training of its own, its seconds with the graph of neighbours.
``ablation``: the recommended setting with a fixed number of passes, and one change at a time::

    MMDInitializer(coherence="auto", random_state=0)
    MMDInitializer(coherence=Coherence(separation=4.0), random_state=0)
    MMDInitializer(coherence=Coherence(), degeneracy_weight=0.0, random_state=0)

Run it (about 5 minutes on two cores), then in full (about two hours a run, in portions with Ctrl-C
where it must be)::

    python benchmarks/coherence.py --quick
    python benchmarks/coherence.py
    python benchmarks/coherence.py --sections ablation --settings default 'separation=*'

It chooses settings, so it looks at run 4 and those after it, with draws of their own: of tasks,
labelled images and fresh weights. They draw from the same 60,000 images as what ``mnist_tasks.py``
reports, so that a task or a labelled image may occur in both, and both are tested on the same
10,000 images. It prints two tables, writes them as JSON
with every single score, and draws accuracy against seconds. What was done is kept: the same
command goes on where it was stopped, and another one does only what is new. Seconds are honest only
where nothing else runs and nothing was stopped (a pass that is taken up again makes its graph
again): of several runs the tables have the fastest one's; ``cpu_seconds``, of all threads together,
stand beside them in the JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from protocol.coherence_bench import CoherenceBench, Plan, measure, prepare
from protocol.coherence_settings import (
    ABLATION,
    OBJECTIVES,
    ablation_settings,
    time_settings,
)
from protocol.command import command_parser, run_command
from protocol.methods import select_names
from protocol.options import add_task_options, positive
from protocol.provenance import provenance
from protocol.store import write_json
from reporting.coherence_figure import draw_results
from reporting.coherence_tables import (
    COHERENCE_TABLES,
    as_records,
    coherence_points,
    scratch_accuracy,
)
from reporting.table import as_text
from reporting.task_tables import pack_scores

__all__ = ["main"]


@dataclass(frozen=True)
class Preset:
    """Defaults of the options."""

    sections: tuple[str, ...]
    passes: tuple[int, ...]
    paper_passes: tuple[int, ...]
    budget: int
    tasks: int


FULL = Preset(("time", "ablation"), (1, 2, 4, 8, 16), (1, 2, 4), 6, 20)
QUICK = Preset(("time",), (1, 2), (1,), 1, 5)
N_LABELS = (5, 20)
FIRST_RUN = 4


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="time alone, one and two passes, five tasks")
    add("--sections", nargs="+", choices=FULL.sections, help="default: time ablation")
    add("--settings", nargs="+", help="names or patterns such as 'gain=*'; see --list-settings")
    add("--list-settings", action="store_true", help="print the valid names and stop")
    add(
        "--passes",
        nargs="+",
        type=positive,
        help="against time, of the objectives with coherence; default: 1 2 4 8 16",
    )
    add(
        "--paper-passes",
        nargs="+",
        type=positive,
        help="against time, of the paper's objective; default: 1 2 4",
    )
    add("--budget", type=positive, help="passes of the ablation; default: 6")
    add_task_options(parser, n_labels=N_LABELS, tasks=FULL.tasks, runs=1, first_run=FIRST_RUN)
    return parser


def _plan(options: argparse.Namespace) -> Plan:
    """The preset with what the command line changes; ValueError for an unknown setting."""
    preset = QUICK if options.quick else FULL
    sections = options.sections or preset.sections
    valid = {"time": list(OBJECTIVES), "ablation": list(ABLATION)}
    # A pattern may belong to one section alone.
    every = [name for section in sections for name in valid[section]]
    chosen = select_names(options.settings or ["*"], every, what="setting")
    settings = []
    if "time" in sections:
        names = [name for name in OBJECTIVES if name in chosen]
        passes = options.passes or preset.passes
        settings += time_settings(names, passes, options.paper_passes or preset.paper_passes)
    if "ablation" in sections:
        names = [name for name in ABLATION if name in chosen]
        settings += ablation_settings(names, options.budget or preset.budget)
    return Plan(
        tuple(settings),
        n_labels=tuple(sorted(set(options.n_labels or N_LABELS))),
        tasks=options.tasks or preset.tasks,
        runs=options.runs or 1,
        first_run=options.first_run,
    )


def _publish(
    bench: CoherenceBench, records: list[dict[str, Any]], scores: list[dict[str, Any]]
) -> None:
    """Print the tables; write JSON and picture."""
    plan, options = bench.plan, bench.options
    points = coherence_points(records, scores)
    scratch = scratch_accuracy(scores)
    for build in COHERENCE_TABLES.values():
        table = build(points)
        if table.rows:
            print(as_text(table), end="\n\n")
    print("From scratch: " + ", ".join(f"N = {n}: {a:.2f}" for n, a in scratch.items()))
    results = {
        "claim": (__doc__ or "").splitlines()[0],
        "dataset": {"name": bench.dataset.name, "source": bench.dataset.source},
        "plan": asdict(plan)
        | {
            "seed": options.seed,
            "hidden_layer_sizes": bench.network.hidden_layer_sizes,
            "device": options.device,
        },
        **provenance(),
        "points": as_records(points),
        "theta0": records,
        "scores": pack_scores(scores),
    }
    path = options.output / f"{bench.dataset.name}_coherence.json"
    write_json(path, results)
    print(draw_results(results, path.with_suffix(".png")))
    print(f"{path} written")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the tables were printed."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.list_settings:
        for section, settings in (("time", OBJECTIVES), ("ablation", ABLATION)):
            print("\n".join(f"{section}/{name}: {changed}" for name, changed in settings.items()))
        return 0
    return run_command(
        parser,
        options,
        lambda options: prepare(options, _plan(options)),
        measure,
        lambda bench, found: _publish(bench, *found),
    )


if __name__ == "__main__":
    raise SystemExit(main())
