"""The README's table and picture: a few rows of all files, by names that a reader knows."""

from pathlib import Path
from typing import Any

import pandas as pd

from protocol.methods import FEATURES_THETA0, SCRATCH
from protocol.store import digest_of
from reporting.estimates import mean_by
from reporting.layout import Table, mean_and_std, named_rows, texts
from reporting.pictures import draw
from reporting.results import Library
from reporting.task_tables import OURS, rows_of_all_files

PICTURE = "in-words.png"
LABELS_OF_N = 12  # for training and to choose the epoch by; ten digits are two classes of a task
IN_WORDS = {
    f"{FEATURES_THETA0}, augmented, by gradients": "this package, told that rows are images",
    "rival/gradients-shared-label-spreading": "label spreading, told that rows are images",
    FEATURES_THETA0: "this package, with coherence",
    "rival/shared-label-spreading": "label spreading on coherence's graph",
    "rival/rbf-svm": "support vector machine",
    OURS: "this package, the paper's objective",
    SCRATCH: "fresh random weights",
}
"""Row of the ranking -> what it is called where nobody has read of methods yet."""

APART = 1.1  # points of accuracy between words beside the lines, or they overlap


def headline_figures(library: Library) -> pd.DataFrame:
    """Mean accuracy (%) in words by the number of labels."""
    means = mean_by(rows_of_all_files(library)[[*IN_WORDS]], "n_labels").dropna()
    return means.rename(index=lambda n: LABELS_OF_N * n).T


def headline_table(library: Library) -> Table:
    """What the picture shows, as numbers."""
    figures = headline_figures(library)
    title = "MNIST, two classes made of the ten digits: test accuracy (%) by the number of labels"
    frame = texts(mean_and_std, figures).rename(index=IN_WORDS, columns="{} labels".format)
    return named_rows(title, frame, "start or method")


def headline_digest(library: Library) -> str:
    """A digest of the figures, which a picture of them carries."""
    return digest_of(headline_figures(library).round(6).to_json())


def draw_headline(library: Library, path: Path) -> str:
    """A line for each row, named at its end; the digest of the figures is in the file."""
    figures = headline_figures(library)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        ends = figures[figures.columns[-1]].sort_values(ascending=False)
        place = float("inf")
        for row in ends.index:
            line, words = figures.loc[row], IN_WORDS[row]
            place = min(ends[row], place - APART)
            ours = words.startswith("this package")
            style = {"color": "#1f6fb4" if ours else "#6b6b6b", "linewidth": 2.2 if ours else 1.4}
            style["linestyle"] = "--" if row == OURS else "-"
            axes.plot(line.index, line, marker="o", markersize=4, **style)
            axes.text(
                line.index[-1] * 1.06, place, words, color=style["color"], va="center", fontsize=9.5
            )
        axes.set_xscale("log")
        axes.set_xticks(figures.columns, figures.columns)
        axes.minorticks_off()
        axes.set(xlabel="labels", ylabel="test accuracy (%)")
        axes.set_title("MNIST: one network, several starts, and methods without one", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(right=figures.columns[-1] * 3.6)
        axes.spines["bottom"].set_bounds(figures.columns[0], figures.columns[-1])

    return draw(path, (8.0, 4.6), paint, note=headline_digest(library))
