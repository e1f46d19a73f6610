"""Claim: coherence buys more accuracy for few labels than the paper's objective, in less time.

Two sections. ``time``: the plain network of ``mnist_tasks.py``, fine-tuned on the same binary tasks
from a theta0 of the paper's objective (with 64 perturbed networks), of coherence alone and of both,
each pre-trained for several numbers of passes; a learning rate falls along the whole of a run,
so every point is a pre-training of its own, its seconds with the graph of neighbours.
``ablation``: the recommended setting with a fixed number of passes, and one change at a time::

    MMDInitializer(coherence="auto", random_state=0)
    MMDInitializer(coherence=Coherence(separation=4.0), random_state=0)

Run it (about 5 minutes on two cores), then in full (about two hours a run, in portions with Ctrl-C
where it must be)::

    python benchmarks/coherence.py --quick
    python benchmarks/coherence.py
    python benchmarks/coherence.py --sections ablation --settings default 'separation=*'

It chooses settings, so it looks at run 4 and those after it, with draws of their own from the
60,000 images of which ``mnist_tasks.py`` reports others. Seconds are honest only where nothing else
runs and nothing was stopped: of several runs the tables have the fastest one's.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator

from protocol import command, methods
from protocol.evaluation import Bench, prepare_bench
from reporting.pictures import draw_coherence
from reporting.results import pack_scores
from reporting.tables import text_of
from sklearn_mmdinit import Coherence, MMDInitializer

NO_PAPER_TERMS: dict[str, Any] = {
    "uniformity_weight": 0.0,
    "degeneracy_weight": 0.0,
    "detachment_weight": 0.0,
}

# The paper's objective with K = 64 in place of 256, a choice of budget: see budget.py.
OBJECTIVES: dict[str, dict[str, Any]] = {
    "paper": {"n_perturbations": 64},
    "coherence": {"coherence": "auto", **NO_PAPER_TERMS},
    "both": {"coherence": "auto"},
}

# Values of each parameter, one at a time; the default itself is left out where it is among them.
VALUES: dict[str, tuple[Any, ...]] = {
    "coherence__separation": (1.0, 2.0, 4.0, 8.0),
    "coherence__walk_length": (3.0, 10.0, 20.0, 40.0),
    "coherence__n_neighbors": (5, 10, 20),
    "coherence__shared_neighbor_power": (0.0, 1.0, 2.0, 4.0),
    "coherence__weight": (4.0, 16.0, 64.0),
    "gain": (1.0, 3.0, 10.0, "auto"),
    "uniformity_weight": (0.0, 1.0 / 9.0),
    "degeneracy_weight": (0.0,),
    "detachment_weight": (0.0,),
}


def _ablation() -> dict[str, dict[str, Any]]:
    """Changes of the default by the name of the setting."""
    default = MMDInitializer(coherence=Coherence()).get_params()
    changes: dict[str, dict[str, Any]] = {"default": {}}
    for parameter, values in VALUES.items():
        for value in values:
            if value != default[parameter]:
                text = value if isinstance(value, str) else f"{value:g}"
                changes[f"{parameter.removeprefix('coherence__')}={text}"] = {parameter: value}
    return changes | {"coherence_alone": NO_PAPER_TERMS}


ABLATION = _ablation()


@dataclass(frozen=True)
class Setting:
    """A pre-training of its own: its section, name and passes, and parameters that it sets."""

    section: str
    name: str
    passes: int
    changes: dict[str, Any]

    @property
    def method(self) -> str:
        """Name under which its scores are kept."""
        return f"{self.section}/{self.name}@{self.passes}"


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    settings: tuple[Setting, ...]
    n_labels: tuple[int, ...]
    tasks: int
    runs: int
    first_run: int


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
    parser = command.command_parser(__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="time alone, one and two passes, five tasks")
    add("--sections", nargs="+", choices=FULL.sections, help="default: time ablation")
    add("--settings", nargs="+", help="names or patterns such as 'gain=*'; see --list-settings")
    add("--list-settings", action="store_true", help="print the valid names and stop")
    add(
        "--passes",
        nargs="+",
        type=command.positive,
        help="against time, of the objectives with coherence, whose passes have an eighth of the "
        "steps; default: 1 2 4 8 16",
    )
    add(
        "--paper-passes",
        nargs="+",
        type=command.positive,
        help="against time, of the paper's objective; default: 1 2 4",
    )
    add("--budget", type=command.positive, help="passes of the ablation; default: 6")
    command.add_task_options(
        parser, n_labels=N_LABELS, tasks=FULL.tasks, runs=1, first_run=FIRST_RUN
    )
    return parser


def _plan(options: argparse.Namespace) -> Plan:
    """The preset with what the command line changes; ValueError for an unknown setting."""
    preset = QUICK if options.quick else FULL
    sections = options.sections or preset.sections
    valid = {"time": OBJECTIVES, "ablation": ABLATION}
    # A pattern may belong to one section alone.
    every = [name for section in sections for name in valid[section]]
    chosen = methods.select_names(options.settings or ["*"], every, what="setting")
    passes, paper = options.passes or preset.passes, options.paper_passes or preset.paper_passes
    settings = []
    if "time" in sections:
        settings += [
            Setting("time", name, number, changes)
            for name, changes in OBJECTIVES.items()
            if name in chosen
            for number in sorted(set(paper if name == "paper" else passes))
        ]
    if "ablation" in sections:
        budget = options.budget or preset.budget
        settings += [
            Setting("ablation", name, budget, changes)
            for name, changes in ABLATION.items()
            if name in chosen
        ]
    return Plan(
        tuple(settings),
        n_labels=tuple(sorted(set(options.n_labels or N_LABELS))),
        tasks=options.tasks or preset.tasks,
        runs=options.runs or 1,
        first_run=options.first_run,
    )


def initializer_for(
    setting: Setting, network: methods.NetworkSettings, *, random_state: int, graphs: Path
) -> BaseEstimator:
    """The unfitted initializer of a setting; where time counts each fit makes its own graph."""
    return MMDInitializer(
        network.hidden_layer_sizes,
        coherence=Coherence(memory=str(graphs)) if setting.section == "ablation" else None,
        max_iter=setting.passes,
        device=network.device,
        random_state=random_state,
    ).set_params(**setting.changes)


Job = tuple[Plan, Bench]
Found = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def _prepare(options: argparse.Namespace) -> Job:
    plan = _plan(options)
    return plan, prepare_bench(
        options,
        methods.NetworkSettings(tuple(options.hidden_layer_sizes), device=options.device),
        plan.n_labels,
        n_tasks=plan.tasks,
        n_runs=plan.runs,
        first_run=plan.first_run,
    )


def _measure(job: Job) -> Found:
    """Records of every theta0, and all scores; each setting is finished before the next."""
    plan, bench = job
    records, scores = [], []
    for run in bench.tasks:
        scratch = methods.network_contender(methods.SCRATCH, bench.network, bench.X)
        scores += bench.evaluate({run: [scratch]}, title=f"run {run}: evaluating scratch")
        for setting in plan.settings:
            bench.say(f"run {run}: learning theta0 of {setting.method}")
            graphs = bench.options.output / "graphs"
            initializer = initializer_for(
                setting, bench.network, random_state=bench.seed_of(run), graphs=graphs
            )
            learned = bench.learn(initializer, setting.method)
            records.append(asdict(setting) | {"run": run} | learned.record())
            theta0 = learned.initializer.theta0_
            contender = methods.network_contender(
                methods.FEATURES_THETA0, bench.network, bench.X, theta0
            )
            contender = replace(contender, name=setting.method)
            scores += bench.evaluate({run: [contender]}, title=f"run {run}: {setting.method}")
    return records, scores


def _results(job: Job, found: Found) -> tuple[Path, dict[str, Any]]:
    plan, bench = job
    records, scores = found
    settings = asdict(plan) | {
        "seed": bench.options.seed,
        "hidden_layer_sizes": bench.network.hidden_layer_sizes,
        "device": bench.options.device,
    }
    return bench.options.output / f"{bench.dataset.name}_coherence.json", {
        **command.results_head(__doc__, bench.dataset, settings, "plan"),
        "theta0": records,
        "scores": pack_scores(scores),
    }


_text = partial(text_of, kinds=("coherence_time", "coherence_ablation"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the tables were printed."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.list_settings:
        for section, settings in (("time", OBJECTIVES), ("ablation", ABLATION)):
            print("\n".join(f"{section}/{name}: {changed}" for name, changed in settings.items()))
        return 0
    return command.run_command(parser, options, _prepare, _measure, _results, _text, draw_coherence)


if __name__ == "__main__":
    raise SystemExit(main())
