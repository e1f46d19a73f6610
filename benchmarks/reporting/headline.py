"""The README's table and picture: this package beside the best rival, on several kinds of data."""

from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from protocol.methods import FEATURES_THETA0, SPREAD
from protocol.store import digest_of, write_atomically
from reporting.claims import FIRST_LABELS, SENTENCES, Claim, figures_of
from reporting.few_label_tables import EMBEDDING_LINE, FIRST_CHOICE, RANDOM
from reporting.layout import Table, named_rows
from reporting.results import Library

PICTURE = "headline.png"
COLUMNS = {"fresh": "baseline", "rival": "best other method", "ours": "this package"}
COLOURS = {"fresh": "#b0b0b0", "rival": "#6b6b6b", "ours": "#1f6fb4"}
_claim = partial(Claim, "", "")
WHICH = "MNIST, ten images chosen to be labelled"
CHOSEN_BY = [" (random ten)", " (k-means of pixels)", " (k-means of our features)"]
KINDS = {
    "MNIST, one label of each digit":
        _claim("mnist-ten-way-images.json", 1, SPREAD),
    WHICH: _claim(FIRST_LABELS, 10, FIRST_CHOICE, RANDOM),
    "MNIST, two groups of digits, 60 labels": _claim("mnist-images.json", 5, FEATURES_THETA0),
    "Fashion-MNIST, two groups of classes, 60 labels":
        _claim("fashion-augmented.json", 5, FEATURES_THETA0),
    "sentences, one label of each class":
        _claim(SENTENCES, 1, EMBEDDING_LINE, "logistic, C = 100"),
}  # fmt: skip


def headline_figures(library: Library) -> pd.DataFrame:
    """Mean accuracy (%): a row a kind of data."""
    rows = {kind: figures_of(claim, library) for kind, claim in KINDS.items()}
    return pd.DataFrame.from_dict(rows, orient="index")[[*COLUMNS]]


def headline_table(library: Library) -> Table:
    """What the picture shows, as numbers."""
    title = (
        "Test accuracy (%). Baseline: a network from random weights; for sentences, a logistic "
        "regression. The second row compares choices of ten images, classified by our features"
    )
    frame = headline_figures(library).map("{:.1f}".format).rename(columns=COLUMNS)
    frame.loc[WHICH] += CHOSEN_BY
    return named_rows(title, frame, "data")


def headline_digest(library: Library) -> str:
    """A digest of the figures, which a picture of them carries."""
    return digest_of(headline_figures(library).round(6).to_json())


def draw_headline(library: Library, path: Path) -> str:
    """A line a kind of data with three points; the digest of the figures is in the file."""
    figures = headline_figures(library).iloc[::-1]
    figure = Figure(figsize=(8.0, 0.9 + 0.55 * len(figures)), layout="constrained")
    axes = figure.subplots()
    places = range(len(figures))
    axes.hlines(places, figures.min(axis=1), figures.max(axis=1), color="0.85", zorder=0)
    for name, words in COLUMNS.items():
        axes.scatter(figures[name], places, s=70, color=COLOURS[name], label=words, zorder=2)
    axes.set_yticks(places, figures.index)
    axes.set(xlabel="test accuracy (%)", ylim=(-0.6, len(figures) - 0.4), xlim=(None, 101))
    axes.grid(axis="x", color="0.92")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(loc="outside upper left", ncols=len(COLUMNS), frameon=False)
    metadata = {"Description": headline_digest(library)}
    write_atomically(path, lambda part: figure.savefig(part, dpi=150, metadata=metadata))
    return f"{path} written"
