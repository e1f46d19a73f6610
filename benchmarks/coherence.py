"""Claim: coherence buys more accuracy for few labels than the paper's objective, in less time.

The plain network of ``mnist_tasks.py``, fine-tuned on the same binary tasks from a theta0 of the
paper's objective (with 64 perturbed networks), of coherence alone and of both, each pre-trained for
several numbers of epochs; a learning rate falls along the whole of a run, so every point is a
pre-training of its own, its seconds with the graph of neighbours::

    MMDInitializer(coherence="auto", max_iter=13, random_state=0)

Run it (half an hour a run on two cores, in portions with Ctrl-C where it must be), or a part::

    python benchmarks/coherence.py
    python benchmarks/coherence.py --objectives coherence

It chooses settings, so it looks at run 4 and those after it, with draws of their own from the
60,000 images of which ``mnist_tasks.py`` reports others. Seconds are honest only where nothing else
runs and nothing was stopped: of several runs the tables have the fastest one's.
"""

from collections.abc import Sequence
from typing import Any

from protocol import command, methods
from protocol.evaluation import prepare_bench
from protocol.pretrainings import Variant, measure_variants
from reporting.pictures import draw_coherence
from reporting.results import pack_scores
from reporting.tables import publish

# The paper's objective has K = 64 in place of 256: a quarter of the time.
OBJECTIVES: dict[str, dict[str, Any]] = {
    "paper": {"n_perturbations": 64},
    "coherence": {"coherence": "auto"},
    "both": {"coherence": "auto", **methods.PAPER_TERMS},
}

PASSES = {"paper": (1, 2), "coherence": (1, 4, 13), "both": (1, 4, 13)}
"""Epochs of each; the paper's objective takes longer."""


def variants_of(patterns: Sequence[str]) -> list[Variant]:
    """What is to be measured; ValueError for an unknown objective."""
    return [
        Variant(
            f"{name}@{passes}",
            {"name": name, "passes": passes},
            {"coherence": None, "max_iter": passes, **OBJECTIVES[name]},
            as_paper=name == "paper",
        )
        for name in methods.select_names(patterns, OBJECTIVES, what="objective")
        for passes in PASSES[name]
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    names = f"names or patterns of {', '.join(OBJECTIVES)}"
    parser.add_argument("--objectives", nargs="+", default=["*"], help=names)
    command.add_task_options(parser, n_labels=(5, 20), tasks=20, runs=1, first_run=4)
    options = parser.parse_args(argv)
    with command.refusing(parser):
        variants = variants_of(options.objectives)
        bench = prepare_bench(options)
    scratch = methods.network_contender(methods.SCRATCH, bench.network, bench.X)
    with command.resumable(parser):
        scores = bench.evaluate({run: [scratch] for run in bench.tasks}, title="evaluating scratch")
        measured = measure_variants(variants, bench)
    results = {"dataset": bench.dataset.about, "theta0": measured["theta0"]}
    results["scores"] = pack_scores(scores + measured["scores"])
    publish(parser, options, results, ["coherence_time"], draw_coherence)


if __name__ == "__main__":
    main()
