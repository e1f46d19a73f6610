"""Tables of ``embeddings.py``: methods on embedded texts, with few labels."""

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd

from protocol.embedded import METHODS, UMAP
from reporting.estimates import N, gains
from reporting.layout import Table, named_rows
from reporting.results import Results, unpack_draws

FIGURES = {"accuracy": 4, "seconds": 2}
"""What a cell is scored by, and to how many digits that is kept."""


def _scores(results: Results) -> pd.DataFrame:
    return unpack_draws(results["scores"], FIGURES)


def _in_order(cells: pd.DataFrame) -> pd.DataFrame:
    return cells.loc[[name for name in (*METHODS, SETFIT) if name in cells.index]]


CHOSEN = "banking77", "20-newsgroups", "clinc150"
"""The sets on which EmbeddingClassifier was chosen; the others were measured once, after that."""

OURS = "EmbeddingClassifier"
SHORT = (OURS, "logistic, C = 100", "prototypes", "self-training",
         "label spreading, 0.99, equal masses", "soft k-means, 20")  # fmt: skip
SETFIT = "SetFit"  # measured before its code was removed


def _group_of(name: str) -> str:
    return "chosen on" if name in CHOSEN else "new sets"


def by_draw(results: Results) -> pd.DataFrame:
    """Mean accuracy (%) over the sets that were measured once: (N, draw) by method."""
    scores = _scores(results)
    new = scores[~scores["set"].isin(CHOSEN)]
    wide = new.pivot(index=[N, "draw", "set"], columns="method", values="accuracy")
    return wide.groupby([N, "draw"]).agg(lambda column: column.mean(skipna=False))


def _by_set(results: Results, methods: Sequence[str] = ()) -> Table:
    """A row a method, of all or of these; of each N the sets."""
    means = _scores(results).groupby(["method", N, "set"])["accuracy"].mean()
    wide = _in_order(means.unstack([N, "set"]))
    wide = wide.loc[[m for m in methods if m in wide.index]] if methods else wide
    names = [entry["set"] for entry in results["sets"]]
    columns = {
        f"{name}, N = {n}": wide[n][name]
        for n in wide.columns.get_level_values(N).unique().sort_values()
        for name in names
        if name in wide[n]
    }
    cells = pd.DataFrame(columns).map(lambda value: "-" if pd.isna(value) else f"{value:.1f}")
    title = "Accuracy (%) on the test examples, N labels of each class: means over draws"
    return named_rows(title, cells, "method")


def _means(results: Results) -> Table:
    """A row a method; means over the sets of a group, by N."""
    scores = _scores(results)
    scores["group"] = scores["set"].map(_group_of)
    n_sets = scores.groupby("group")["set"].nunique()
    of_set = scores.groupby(["method", "group", N, "set"])["accuracy"].mean()
    grouped = of_set.groupby(["method", "group", N])
    # A method that lacks a set has no mean.
    complete = grouped.count() == grouped.mean().index.get_level_values("group").map(n_sets)
    wide = _in_order(grouped.mean().where(complete).unstack(["group", N]).sort_index(axis=1))
    wide.columns = [f"{group}, N = {n}" for group, n in wide.columns]
    cells = wide.map(lambda value: "-" if pd.isna(value) else f"{value:.1f}")
    sets = ", ".join(f"{n} {group}" for group, n in n_sets.items())
    title = f"Accuracy (%), means over sets ({sets}) and draws, N labels of each class"
    return named_rows(title, cells, "method")


def _gains(results: Results) -> Table:
    """What EmbeddingClassifier gains over each other method, by N, with intervals over draws."""
    scores = _scores(results)
    wide = scores.pivot(index=[N, "set", "draw"], columns="method", values="accuracy")
    others = [name for name in METHODS if name in wide and name != OURS]
    differences = wide[others].rsub(wide[OURS], axis=0)
    groups = differences.index.get_level_values("set").map(_group_of)
    of_draw = differences.groupby([groups, N, "draw"]).agg(lambda column: column.mean(skipna=False))
    gained = gains(of_draw.rename_axis(["group", N, "draw"]), "group", N)
    columns = {
        f"{group}, N = {n}": [
            "-" if pd.isna(mean) else f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
            for mean, low, high in zip(*(part[group, n] for part in gained[:3]), strict=True)
        ]
        for group, n in gained.mean
    }
    cells = pd.DataFrame(columns, index=gained.mean.index)
    title = (
        "EmbeddingClassifier minus other methods, in points: mean over the sets, 95% interval over "
        "draws of the labels"
    )
    return named_rows(title, cells, "method")


def _seconds(results: Results) -> Table:
    """Medians over all N and draws, and what is made once a set."""
    seconds = _scores(results).groupby(["method", "set"])["seconds"].median().unstack("set")
    cells = _in_order(seconds).map(lambda value: "-" if pd.isna(value) else f"{value:.3g}")
    once = pd.DataFrame(results["once"], columns=["once", "set", "seconds"])
    made = once.groupby(["once", "set"])["seconds"].median()
    for name in cells.index:
        for rows, set_name in made.index:
            if rows == "umap" and name == UMAP:
                cells.loc[name, set_name] += f" + {made[rows, set_name]:.3g}"
    title = (
        "Median seconds of a method on one thread: of a cell (one set, N and draw), plus what is "
        "made once a set, of its rows without labels; the first label spreading has the search for "
        "neighbours, which the others share"
    )
    return named_rows(title, cells, "method")


EMBEDDING_TABLES: dict[str, Callable[[Results], Table]] = {
    "embeddings": _means,
    "embeddings_gains": _gains,
    "embeddings_by_set": _by_set,
    "embeddings_short": partial(_by_set, methods=SHORT),
    "embeddings_seconds": _seconds,
}
"""From the results of the command to a table of them, by kind."""
