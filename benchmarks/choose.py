"""Claim: what coherence is set to stands when asked again on training images held out.

MNIST's training images: 50,000 to learn from, 10,000 in place of the test images. The network of
``mnist_tasks.py`` is fine-tuned on binary tasks from the theta0 of each answer to a question; what
that is worth is its difference from the base, on the same tasks and labelled images. Bases are the
recommended line, the same for images, and a logistic regression on the first one's features::

    MMDInitializer(coherence="auto", random_state=0)
    MMDInitializer(coherence=Coherence(augmentation=RandomAffine(), embedding=OrientedGradients()))
    make_pipeline(FrozenEstimator(init), Normalizer(), LogisticRegression(C=100))

To each question the best answer is chosen whose 95% interval, over tasks and averaged over N, is
above 0, and the base where there is none. Run it (85 minutes a run on two cores), or a part; what
was stopped goes on::

    python benchmarks/choose.py
    python benchmarks/choose.py --questions separation images 'images, *'

Run 4 was asked, on which these settings had been found, with the test images.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator

from protocol import command, methods
from protocol.evaluation import Bench, prepare_bench
from reporting.results import pack_scores
from reporting.tables import text_of
from reporting.task_tables import chosen_answers
from sklearn_mmdinit import Coherence, MMDInitializer, OrientedGradients, RandomAffine

DEFAULT, IMAGES, FEATURES = "default", "images", "features"

AUGMENTATION, EMBEDDING = "coherence__augmentation", "coherence__embedding"
BOTH: dict[str, Any] = {AUGMENTATION: RandomAffine(), EMBEDDING: OrientedGradients()}
# A quarter of the rows in the paper's terms, which take most of a step; and fewer passes.
SOON = {"batch_size": 8, "max_iter": 7}
SOON_IN_WORDS = ", ".join(f"{name}={value}" for name, value in SOON.items())
SHIFTS = RandomAffine(degrees=0.0, scale=0.0, shear=0.0)


@dataclass(frozen=True)
class Nowhere:
    """A graph of one edge, since there has to be one: walks from all other rows stay there."""

    def fit_transform(self, X: np.ndarray, y: Any = None) -> csr_array:
        return csr_array(([1.0], ([0], [1])), shape=(len(X), len(X)))


# Both ends of a walk are the same image then, each changed in its own way.
CONTRASTIVE = methods.NO_PAPER_TERMS | {
    AUGMENTATION: RandomAffine(),
    "coherence__graph": Nowhere(),
    "coherence__shared_neighbor_power": 0.0,
}


@dataclass(frozen=True)
class Answer:
    """What a question may be answered with: changes of the recommended line, and their base."""

    question: str
    name: str
    base: str
    changes: dict[str, Any]
    rounds: int = 1
    C: float = 100.0  # of the logistic regression, where the base is one

    def initializer(
        self, hidden_layer_sizes: Sequence[int], graphs: Path, **params: Any
    ) -> BaseEstimator:
        coherence = Coherence(memory=str(graphs))
        learned = MMDInitializer(hidden_layer_sizes, coherence=coherence, **params)
        learned.set_params(**self.changes)
        return methods.in_rounds(learned, learned.coherence, self.rounds)


def _values(parameter: str, *values: float, images: bool = False) -> list[Answer]:
    """Values of a parameter, one at a time."""
    base, first = (IMAGES, BOTH) if images else (DEFAULT, {})
    question = f"{'images, ' if images else ''}{parameter.removeprefix('coherence__')}"
    return [Answer(question, f"{question}={v:g}", base, first | {parameter: v}) for v in values]


ANSWERS = (
    Answer(DEFAULT, DEFAULT, DEFAULT, {}),
    *_values("coherence__separation", 1.0, 4.0),
    *_values("coherence__walk_length", 10.0, 20.0),
    *_values("gain", 1.0),
    Answer("augmentation", "augmentation: shifts", DEFAULT, {AUGMENTATION: SHIFTS}),
    Answer("augmentation", "augmentation: affine", DEFAULT, {AUGMENTATION: RandomAffine()}),
    Answer("neighbors", "neighbors: gradients", DEFAULT, {EMBEDDING: OrientedGradients()}),
    Answer(IMAGES, IMAGES, DEFAULT, BOTH),
    *_values("coherence__separation", 4.0, images=True),
    *(
        Answer("images, cells", f"images, cells of {size}", IMAGES,
               BOTH | {EMBEDDING: OrientedGradients(size)})
        for size in (5, 7)
    ),
    *_values("max_iter", 5, images=True),
    *_values("max_iter", 5, 8),
    *_values("batch_size", 8),
    *(
        Answer(f"{name}in less time", f"{name}{SOON_IN_WORDS}", base, changes | SOON)
        for name, base, changes in (("", DEFAULT, {}), ("images, ", IMAGES, BOTH))
    ),
    Answer("rounds", "two rounds with augmentation", "augmentation: affine",
           {AUGMENTATION: RandomAffine()}, rounds=2),
    Answer(FEATURES, FEATURES, DEFAULT, {}),
    Answer("features, terms", "features, coherence alone", FEATURES,
           methods.NO_PAPER_TERMS),
    Answer("features, terms", "features, contrastive by augmentation alone", FEATURES, CONTRASTIVE),
    Answer("features, images", "features, images", FEATURES, BOTH),
    *(Answer("features, C", f"features, C={C:g}", FEATURES, {}, C=C) for C in (1.0, 10.0, 1000.0)),
)  # fmt: skip
"""All of them; a base stands before what is compared with it."""

QUESTIONS = tuple(dict.fromkeys(answer.question for answer in ANSWERS))


Job = tuple[list[Answer], Bench]
"""The answers to measure, bases of others among them, and on what."""


def _prepare(options: argparse.Namespace) -> Job:
    asked = methods.select_names(options.questions, QUESTIONS, what="question")
    wanted: dict[str, None] = {}
    for answer in reversed(ANSWERS):
        if answer.question in asked or answer.name in wanted:
            wanted |= {answer.name: None, answer.base: None}
    return [answer for answer in ANSWERS if answer.name in wanted], prepare_bench(options)


def _measure(job: Job) -> dict[str, Any]:
    """Records of every theta0, and all scores; each answer is finished before the next."""
    answers, bench = job
    options, records, scores = bench.options, [], []
    for run, answer in product(bench.tasks, answers):
        bench.say(f"run {run}: {answer.name}")
        initializer = answer.initializer(
            bench.network.hidden_layer_sizes,
            options.output / "graphs",
            device=options.device,
            random_state=bench.seed_of(run),
        )
        learned = bench.learn(initializer, "choose")
        what = {"question": answer.question, "answer": answer.name, "base": answer.base}
        records.append(what | {"run": run} | learned.record())
        if FEATURES in (answer.question, answer.base):
            own = methods.features_contender(answer.name, bench.X, learned, answer.C)
        else:
            own = bench.fine_tuned(answer.name, learned)
        scores += bench.evaluate({run: [own]}, title=answer.name)
    found: dict[str, Any] = {"theta0": records, "scores": pack_scores(scores)}
    return {"dataset": bench.dataset.about, **found, "chosen": chosen_answers(found)}


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.command_parser(__file__, __doc__)
    names = f"names or patterns of {'; '.join(QUESTIONS)}"
    parser.add_argument("--questions", nargs="+", default=["*"], help=names)
    command.add_task_options(parser, n_labels=(5, 20), tasks=20, runs=1, first_run=4)
    parser.set_defaults(dataset="mnist-held-out")
    return command.run_command(parser, argv, _prepare, _measure, text_of("choices"))


if __name__ == "__main__":
    raise SystemExit(main())
