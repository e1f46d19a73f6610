"""Claim: what coherence is set to stands when asked again on training images held out.

MNIST's training images: 50,000 to learn from, 10,000 in place of the test images. The network of
``mnist_tasks.py`` is fine-tuned on binary tasks from the theta0 of each answer to a question; what
that is worth is its difference from the base, on the same tasks and labelled images. Bases are the
recommended estimator, the same for images, and a logistic regression on the first one's features::

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

from collections.abc import Sequence
from typing import Any

from protocol import command, methods
from protocol.evaluation import prepare_bench
from protocol.pretrainings import Variant, measure_variants
from reporting.results import pack_scores
from reporting.tables import publish
from reporting.task_tables import chosen_answers
from sklearn_mmdinit import OrientedGradients, RandomAffine

DEFAULT, IMAGES, FEATURES = "default", "images", "features"

AUGMENTATION, EMBEDDING = "coherence__augmentation", "coherence__embedding"
BOTH: dict[str, Any] = {AUGMENTATION: RandomAffine(), EMBEDDING: OrientedGradients()}
SHIFTS = RandomAffine(degrees=0.0, scale=0.0, shear=0.0)
# Both rows of a positive pair are the same image then, each augmented in its own way.
CONTRASTIVE = {AUGMENTATION: RandomAffine(), "coherence__n_neighbors": 0}


def _answer(question: str, name: str, base: str, changes: dict[str, Any], **more: Any) -> Variant:
    """An answer to a question: changes of the recommended estimator, and its base."""
    return Variant(name, {"question": question, "answer": name, "base": base}, changes, **more)


def _values(parameter: str, *values: float, images: bool = False) -> list[Variant]:
    """Values of a parameter, one at a time."""
    base, first = (IMAGES, BOTH) if images else (DEFAULT, {})
    short = parameter.removeprefix("coherence__").replace("batch_size", "pairs")
    question = f"{'images, ' if images else ''}{short}"
    return [_answer(question, f"{question}={v:g}", base, first | {parameter: v}) for v in values]


def _features(
    question: str, name: str, changes: dict[str, Any], base: str = FEATURES, C: float = 100.0
) -> Variant:
    """An answer of a logistic regression on the features."""
    return _answer(question, name, base, changes, C=C)


ANSWERS = (
    _answer(DEFAULT, DEFAULT, DEFAULT, {}),
    *_values("coherence__separation", 1.0, 4.0),
    *_values("coherence__walk_length", 10.0, 20.0),
    *_values("coherence__batch_size", 128, 512),
    *_values("learning_rate_init", 0.002, 0.008),
    *_values("max_iter", 8, 17, 30),
    _answer("terms", "with the paper's terms", DEFAULT, methods.PAPER_TERMS),
    _answer("fine-tuning", "fine-tuning as the paper's", DEFAULT, {}, as_paper=True),
    _answer("augmentation", "augmentation: shifts", DEFAULT, {AUGMENTATION: SHIFTS}),
    _answer("augmentation", "augmentation: affine", DEFAULT, {AUGMENTATION: RandomAffine()}),
    _answer("neighbors", "neighbors: gradients", DEFAULT, {EMBEDDING: OrientedGradients()}),
    _answer(IMAGES, IMAGES, DEFAULT, BOTH),
    *_values("coherence__separation", 4.0, images=True),
    *_values("coherence__batch_size", 128, 512, images=True),
    *_values("max_iter", 8, 17, 30, images=True),
    *(
        _answer("images, cells", f"images, cells of {size}", IMAGES,
                BOTH | {EMBEDDING: OrientedGradients(size)})
        for size in (5, 7)
    ),
    _answer("images, terms", "images, with the paper's terms", IMAGES, BOTH | methods.PAPER_TERMS),
    _features(FEATURES, FEATURES, {}, base=DEFAULT),
    _features("features, terms", "features, with the paper's terms", methods.PAPER_TERMS),
    _features("features, pairs", "features, contrastive by augmentation alone", CONTRASTIVE),
    _features("features, images", "features, images", BOTH),
    *(_features("features, C", f"features, C={C:g}", {}, C=C) for C in (1.0, 10.0, 1000.0)),
)  # fmt: skip
"""All of them; a base stands before what is compared with it."""

QUESTIONS = tuple(dict.fromkeys(answer.description["question"] for answer in ANSWERS))


def answers_to(patterns: Sequence[str]) -> list[Variant]:
    """The answers to the questions that match, and the bases that these are compared with."""
    questions = methods.select_names(patterns, QUESTIONS, what="question")
    wanted: set[str] = set()
    for answer in reversed(ANSWERS):
        if answer.description["question"] in questions or answer.name in wanted:
            wanted |= {answer.name, answer.description["base"]}
    return [answer for answer in ANSWERS if answer.name in wanted]


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    names = f"names or patterns of {'; '.join(QUESTIONS)}"
    parser.add_argument("--questions", nargs="+", default=["*"], help=names)
    command.add_task_options(parser, n_labels=(5, 20), tasks=20, runs=1, first_run=4)
    parser.set_defaults(dataset="mnist-held-out")
    options = parser.parse_args(argv)
    with command.refusing(parser):
        answers = answers_to(options.questions)
        bench = prepare_bench(options)
    with command.resumable(parser):
        measured = measure_variants(answers, bench)
    results: dict[str, Any] = {"dataset": bench.dataset.about, "theta0": measured["theta0"]}
    results["scores"] = pack_scores(measured["scores"])
    publish(parser, options, results | {"chosen": chosen_answers(results)}, ["choices"])


if __name__ == "__main__":
    main()
