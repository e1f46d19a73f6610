"""The first page of the report: each claim with its figures, taken from the files that hold them.

Intervals are over runs, each with a theta0 of its own, or over draws of the labels.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from protocol.contenders import ALL_RIVALS, RIVALS, scratch_of
from protocol.methods import FEATURES_THETA0, SPREAD, theta0_of
from reporting.estimates import N, gains, mean_by
from reporting.few_label_tables import EMBEDDING_LINE, by_seed, of_new_sets
from reporting.layout import Table, gain_text, several
from reporting.results import Library
from reporting.task_tables import OURS, rows_of_all_files, wide_of


@dataclass(frozen=True)
class Claim:
    words: str
    page: str  # with the whole tables, from the folder ``report``
    file: str  # or ``ALL_FILES``
    n: int  # labels of each class; of each digit, where the ten digits are two classes
    method: str
    fresh: str = ""  # the same without learned weights, where its name does not say so


SENTENCES, BESIDE_SETFIT = "embeddings.json", "embeddings-setfit.json"
FIRST_LABELS = "first-labels.json"  # of MNIST
ALL_FILES = "all files of the paper's tasks"
MNIST = "mnist.md"
IMAGES = "with HOG features and augmentation"

WORTH = (
    Claim(f"MNIST, 1 label of each digit, {IMAGES}", f"{MNIST}#ten-classes",
          "mnist-ten-way-images.json", 1, SPREAD),
    Claim("the same from pixels alone", f"{MNIST}#ten-classes",
          "mnist-ten-way-rows.json", 1, FEATURES_THETA0),
    Claim(f"MNIST, two classes, 60 labels, {IMAGES}", f"{MNIST}#two-classes",
          "mnist-images.json", 5, FEATURES_THETA0),
    Claim("the same from pixels alone", f"{MNIST}#two-classes",
          "mnist-rows.json", 5, FEATURES_THETA0),
    Claim(f"MNIST, two classes, 480 labels, {IMAGES}", f"{MNIST}#two-classes",
          "mnist-images.json", 40, FEATURES_THETA0),
    Claim("Fashion-MNIST, two classes, 60 labels", f"{MNIST}#fashion-mnist",
          "fashion-augmented.json", 5, FEATURES_THETA0),
    *(
        Claim(f"`{EMBEDDING_LINE}`, sentences of two sets, N = {n} labels of each class",
              "embeddings.md", SENTENCES, n, EMBEDDING_LINE, "logistic, C = 100")
        for n in (1, 5)
    ),
    Claim("features of a small ConvNet, MNIST, two classes, 60 labels", f"{MNIST}#a-small-convnet",
          "mnist-convnet.json", 5, "convnet/features+logistic"),
)  # fmt: skip
LIMITS = (
    Claim("the paper's objective, MNIST, two classes, 60 labels", "paper.md#table-1",
          ALL_FILES, 5, OURS),
    Claim("the same, 480 labels", "paper.md#table-1", ALL_FILES, 40, OURS),
    Claim("`EmbeddingClassifier` of an earlier version, sentences, N = 5, beside SetFit",
          "embeddings.md#setfit", BESIDE_SETFIT, 5, EMBEDDING_LINE, "logistic, C = 100"),
    Claim("Fashion-MNIST, two classes, 480 labels", f"{MNIST}#fashion-mnist",
          "fashion-augmented.json", 40, FEATURES_THETA0),
)  # fmt: skip


def _units(claim: Claim, library: Library) -> tuple[pd.DataFrame, list[str]]:
    """Accuracies by (run or draw) and method, and which methods are rivals measured in all."""
    if claim.file == ALL_FILES:
        accuracies, rivals = mean_by(rows_of_all_files(library), N, "run"), [*RIVALS]
    elif claim.file in (SENTENCES, BESIDE_SETFIT):
        accuracies = of_new_sets(library.results(claim.file))
        rivals = [name for name in accuracies if name != EMBEDDING_LINE]
    elif claim.file == FIRST_LABELS:
        accuracies = by_seed(library.results(claim.file), "mnist")
        rivals = [name for name in accuracies if " of " in name]  # without pre-trained features
    else:
        accuracies = mean_by(wide_of(library.results(claim.file)), N, "run")
        rivals = [*ALL_RIVALS]
    at_n = accuracies.loc[[claim.n]]
    return at_n, [name for name in rivals if name in at_n and at_n[name].notna().all()]


def _rival_and_fresh(claim: Claim, library: Library) -> tuple[pd.DataFrame, str, str]:
    """The accuracies of a claim; the names of the best other method and of fresh weights, or ""."""
    accuracies, rivals = _units(claim, library)
    best = accuracies.mean()[rivals].idxmax() if rivals else ""
    return accuracies, best, claim.fresh or scratch_of(theta0_of(claim.method)) or ""


def figures_of(claim: Claim, library: Library) -> dict[str, float]:
    """Mean accuracies (%): "ours", "rival" and "fresh"."""
    accuracies, best, fresh = _rival_and_fresh(claim, library)
    names = {"ours": claim.method, "rival": best, "fresh": fresh}
    return {key: float(accuracies[name].mean()) for key, name in names.items()}


def _row(claim: Claim, library: Library) -> list[str]:
    accuracies, best, fresh = _rival_and_fresh(claim, library)
    own, means = accuracies[claim.method], accuracies.mean()
    n = several([len(accuracies)], accuracies.index.names[-1])
    row = [f"[{claim.words}](report/{claim.page})", n, f"{means[claim.method]:.1f}"]
    shown = best.removeprefix("rival/").replace(", 20", "")  # without an inverse temperature
    for name, words in ((best, f" ({shown})"), (fresh, "")):
        if not name:
            row += ["-", "-"]
            continue
        gained = gains((own - accuracies[name]).to_frame(0).dropna())
        difference = gain_text(*(part.loc[0, claim.n] for part in gained[:3]))
        row += [f"{means[name]:.1f}{words}", difference]
    own = theta0_of(claim.method)
    learned = library.results(claim.file).get("theta0", []) if claim.file != ALL_FILES else []
    seconds = [one["seconds"] for one in learned if own == one["method"] and one["seconds"]]
    return [*row, f"{np.median(seconds) / 60:.1f}" if seconds else "-"]


def claims_table(claims: tuple[Claim, ...], library: Library) -> Table:
    """A row a claim, beside the best other method of its file, as found afterwards, and scratch."""
    head = ["claim", "n", "ours", "best other method, in hindsight", "difference", "random weights"]
    head += ["difference from them", "minutes"]
    return Table("", pd.DataFrame([_row(claim, library) for claim in claims], columns=head))


def choices_table(claims: tuple[Claim, ...], library: Library) -> Table:
    """What single choices of the labelled examples give: claims, and the best other method."""
    rows = []
    for claim in claims:
        _, best, _ = _rival_and_fresh(claim, library)
        single = wide_of(library.results(claim.file)).xs(claim.n, level=N)
        for name, words in ((claim.method, "ours"), (best, best.removeprefix("rival/"))):
            found = single[name]
            figures = found.mean(), found.std(), found.quantile(0.1), found.min()
            rows.append([claim.words, words, str(len(found)), *map("{:.1f}".format, figures)])
    head = ["claim", "method", "choices", "mean", "std", "worst tenth below", "worst"]
    return Table("", pd.DataFrame(rows, columns=head))
