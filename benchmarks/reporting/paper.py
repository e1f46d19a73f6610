"""The paper's own figures (Lee and Cho, 2023, arXiv:2302.04369), and whether ours agree with them.

``paper.json`` has them. "accuracy" is its Table 1 and "task_std" its Table 2, both over four runs;
"degenerate_softmax" and "dead_neurons" (%) are its appendix's, over 128 mini-batches of one theta0,
and "scale_and_weight" the one by which it chooses s and lambda, over four runs.

Over runs ours agrees where the difference of the means lies in its own 95% interval, over
mini-batches where it is less than two of the paper's standard deviations.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from reporting.estimates import Estimates, width_over_batches, width_over_runs
from reporting.layout import in_brackets, mean_and_std, texts
from reporting.results import Results

HIDDEN_LAYER_SIZES = [392, 392, 392]


@cache
def paper_table(name: str) -> Estimates:
    """One of its tables: means, stds and what they are over, rows by columns."""
    table = json.loads(Path(__file__).with_name("paper.json").read_text(encoding="utf-8"))[name]
    figures = np.array(list(table["rows"].values()))
    shape = {"index": list(table["rows"]), "columns": table["columns"]}
    return Estimates(
        pd.DataFrame(figures[..., 0], **shape),
        pd.DataFrame(figures[..., 1], **shape),
        pd.DataFrame(table["over"], **shape),
    )


def compares_with_paper(results: Results) -> bool:
    """Whether figures are of the paper's data, network and tasks, and may stand beside it."""
    settings = results["settings"]
    if settings.get("network", "mlp") != "mlp" or settings.get("classes", 2) != 2:
        return False
    # Before they are JSON widths are a tuple.
    widths = [*settings["hidden_layer_sizes"]]
    return results["dataset"]["name"] == "mnist" and widths == HIDDEN_LAYER_SIZES


# Ours beside them


def _is_over_runs(name: str) -> bool:
    """Whether the spreads of the paper's table are over runs, and not over mini-batches."""
    return bool((paper_table(name).n > 1).all(axis=None))


def learned_longer(results: Results) -> str:
    """How the paper's theta0 was learned, where ours was not: for a title."""
    settings = results["settings"]
    passes = settings.get("passes", settings.get("epochs"))
    same = (passes, settings["n_perturbations"]) == (5, 256)
    return "" if same else ", after five epochs with 256 perturbed networks"


def comparison_note(name: str, ours: Estimates, results: Results) -> str:
    """What brackets and stars beside a table's figures say, to end a title."""
    differ = "not within two of its standard deviations over mini-batches"
    if _is_over_runs(name):
        several = bool((ours.n > 1).any(axis=None))
        fifth = "outside the 95 % interval for a fifth run of the paper's"
        differ = "different from it at 95 % (Welch)" if several else fifth
    return f" (the paper's figure in brackets{learned_longer(results)}, * {differ})"


def _agreement(estimates: Estimates, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of each figure of the paper's table how far ours is from it, and how far it may be."""
    paper = paper_table(name)
    ours = Estimates(*(part.reindex_like(paper.mean) for part in estimates))
    width = width_over_runs if _is_over_runs(name) else width_over_batches
    distance = (ours.mean - paper.mean).abs()
    return distance, distance * 0.0 + width(ours, paper)


def beside_paper(ours: Estimates, *names: str) -> pd.DataFrame:
    """Our figures, the paper's of the named tables in brackets, a star where they do not agree."""
    cells = texts(mean_and_std, ours.mean, ours.std)
    for name in names:
        distance, width = _agreement(ours, name)
        stars = (distance > width).reindex_like(cells).fillna(False).astype(bool)
        cells = in_brackets(cells, texts(mean_and_std, *paper_table(name)[:2]))
        cells += np.where(stars, " *", "")
    return cells


def figures_that_agree(ours: Estimates, name: str) -> tuple[str, str]:
    """How many figures of ours agree with the paper's table, and how far apart they may be."""
    distance, width = (part.to_numpy().ravel() for part in _agreement(ours, name))
    there = ~np.isnan(distance)
    agree, median = (distance <= width)[there].sum(), np.median(width[there])
    return f"{agree} of {there.sum()}", f"{median:.1f}"
