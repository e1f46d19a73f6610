"""Tables of N labels a class, drawn several times: embeddings, signals, photographs, first labels.

Accuracies are in percent. Intervals are over draws of the labels, and of signals over the sets.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from reporting.estimates import N, gains
from reporting.layout import OF_N, Table, gain_text, mean_and_std, named_rows, numbers, texts
from reporting.results import Results, unpack_draws

_one_digit = partial(gain_text, digits=1)


def _wide(results: Results, index: Sequence[str]) -> pd.DataFrame:
    """Accuracies by these, the means of what else there is; the methods in their order."""
    grouped = unpack_draws(results).groupby([*index, "method"])
    wide = grouped["accuracy"].mean().unstack("method")
    return wide[[name for name in results["settings"]["methods"] if name in wide]]


_by_draw = partial(_wide, index=(N, "set", "draw"))
_by_set = partial(_wide, index=(N, "set"))


def _whole_means(grouped: Any) -> pd.DataFrame:
    """Means of groups; where one of a group is missing there is none."""
    return grouped.agg(lambda column: column.mean(skipna=False))


# Embeddings

CHOSEN = "banking77", "20-newsgroups", "clinc150"
"""The sets on which EmbeddingClassifier was chosen; the others were measured once, after that."""
EMBEDDING_LINE = "EmbeddingClassifier"
SHORT = (EMBEDDING_LINE, "logistic, C = 100", "prototypes", "self-training",
         "label spreading, 0.99, equal masses", "soft k-means, 20")  # fmt: skip


def _groups(frame: pd.DataFrame) -> pd.Index:
    """Of each row the group that its set is in."""
    sets = frame.index.get_level_values("set")
    return sets.map(lambda name: "chosen on" if name in CHOSEN else "new sets").rename("group")


def of_new_sets(results: Results) -> pd.DataFrame:
    """Means over the sets that were measured once: (N, draw) by method."""
    wide = _by_draw(results).drop([*CHOSEN], level="set", errors="ignore")
    return _whole_means(wide.groupby([N, "draw"]))


def _embeddings(results: Results) -> Table:
    """A row a method; means over the sets of a group, by N."""
    of_set = _by_set(results)
    means = _whole_means(of_set.groupby([_groups(of_set), N])).T
    cells = numbers(means).set_axis([f"{group}, {OF_N(n)}" for group, n in means], axis=1)
    counts = pd.Series(_groups(of_set.groupby("set").first())).value_counts().sort_index()
    sets = ", ".join(f"{n} {group}" for group, n in counts.items())
    title = f"Accuracy (%), means over sets ({sets}) and draws, N labels of each class"
    return named_rows(title, cells, "method")


def _embeddings_by_set(results: Results, methods: Sequence[str] = ()) -> Table:
    """A row a method, of all or of these; of each N the sets."""
    of_set = _by_set(results)
    names = [entry["set"] for entry in results["sets"]]
    order = [(n, name) for n in of_set.index.unique(N) for name in names]
    wide = of_set.loc[[each for each in order if each in of_set.index]].T
    wide = wide.loc[[name for name in methods or wide.index if name in wide.index]]
    cells = numbers(wide).set_axis([f"{name}, {OF_N(n)}" for n, name in wide], axis=1)
    title = "Accuracy (%) on the test examples, N labels of each class: means over draws"
    return named_rows(title, cells, "method")


def _embedding_gains(results: Results) -> Table:
    """What EmbeddingClassifier gains over each other method, by N, with intervals over draws."""
    wide = _by_draw(results).drop(columns="SetFit", errors="ignore")
    differences = wide.drop(columns=EMBEDDING_LINE).rsub(wide[EMBEDDING_LINE], axis=0)
    of_draw = _whole_means(differences.groupby([_groups(differences), N, "draw"]))
    cells = texts(_one_digit, *gains(of_draw, "group", N)[:3])
    cells.columns = [f"{group}, {OF_N(n)}" for group, n in cells]
    title = (
        "EmbeddingClassifier minus other methods, in points: mean over the sets, 95% interval over "
        "draws of the labels"
    )
    return named_rows(title, cells, "method")


def _embedding_seconds(results: Results) -> Table:
    """Medians over all N and draws, and what UMAP, which is made once a set, takes."""
    seconds = unpack_draws(results).groupby(["method", "set"])["seconds"].median().unstack("set")
    methods = [name for name in results["settings"]["methods"] if name in seconds.index]
    cells = numbers(seconds.loc[methods], "{:.3g}")
    for made in results.get("once", []):
        cells.loc["umap+logistic", made["set"]] += f" + {made['seconds']:.3g}"
    title = (
        "Median seconds of a method on one thread: of a cell (one set, N and draw), plus what is "
        "made once a set, of its rows without labels; the first label spreading has the search for "
        "neighbours, which the others share"
    )
    return named_rows(title, cells, "method")


# Which examples to label first

FIRST_CHOICE, RANDOM = "k-means", "random"


def by_seed(results: Results, name: str) -> pd.DataFrame:
    """Accuracies on a set: (labels, draw) by choice."""
    scores = unpack_draws(results)
    own = scores[scores["set"] == name]
    return own.pivot(index=[N, "draw"], columns="method", values="accuracy")


def _first_labels(results: Results) -> Table:
    """A row a set and budget, a column a choice."""
    scores = unpack_draws(results).astype({N: str})
    means = scores.groupby(["set", N, "method"], sort=False)[["accuracy", "found"]].mean()
    cells = means.apply(lambda row: f"{row.accuracy:.1f} ({row.found:.0f})", axis=1)
    wide = cells.unstack("method", sort=False)[scores["method"].unique()].fillna("-")
    budgets = wide[(wide.drop(columns=RANDOM) != "-").any(axis=1)]
    title = "Accuracy (%), and in brackets how many classes (%) have a label: means over the seeds"
    return named_rows(title, budgets, "data set", "labels")


def labels_at_random(curve: pd.Series, accuracy: float) -> str:
    """How many labels random choice needs for an accuracy, by its means (at each budget)."""
    best = curve.cummax()
    if accuracy > best.iloc[-1]:
        return f"> {best.index[-1]}"
    return f"{np.exp(np.interp(accuracy, best, np.log(best.index))):.0f}"


def _first_label_gains(results: Results) -> Table:
    """What our choice gains over random choice, and over the best of all others."""
    scores, rows = unpack_draws(results), []
    of_ours = scores.loc[scores["method"] == FIRST_CHOICE, ["set", N]].drop_duplicates()
    for name, n in of_ours.to_numpy():
        of_set = by_seed(results, name)
        curve, own = of_set[RANDOM].groupby(N).mean(), of_set.loc[[n]].dropna(axis=1)
        text = texts(_one_digit, *gains(own.rsub(own[FIRST_CHOICE], axis=0))[:3])[n]
        means = own.mean()
        best = means.drop([FIRST_CHOICE, RANDOM]).idxmax() if len(means) > 2 else RANDOM
        accuracies = [f"{means[RANDOM]:.1f}", f"{means[FIRST_CHOICE]:.1f}", text[RANDOM]]
        needed = labels_at_random(curve, means[FIRST_CHOICE])
        rows.append([name, str(n), *accuracies, needed, f"{text[best]} ({best})"])
    head = ["data set", "labels", RANDOM, FIRST_CHOICE, "difference"]
    head += [
        "labels that random choice needs",
        "k-means minus the best other rule",
    ]
    title = (
        f"Accuracy (%) of `{FIRST_CHOICE}` and random choice, and differences in points with 95% "
        "intervals over the seeds"
    )
    return Table(title, pd.DataFrame(rows, columns=head))


# Photographs


def _photographs(results: Results) -> Table:
    """A row a method and a column each N."""
    grouped = _by_draw(results).groupby(N)
    cells = texts(partial(mean_and_std, digits=1), grouped.mean().T, grouped.std().T)
    title = (
        "Accuracy (%) on the test images, N labels of each class: mean and standard deviation over "
        "draws, those of one draw without the latter"
    )
    return named_rows(title, cells.rename(columns=OF_N), "method")


def _photograph_starts(results: Results) -> Table:
    """What a start took, and how its neighbours share classes."""
    once = pd.DataFrame(results["once"]).set_index("once")[["seconds", "nearest", "agreement"]]
    cells = numbers(once).set_axis(
        ["seconds", "nearest neighbours, all labels", "neighbours of the same class"], axis=1
    )
    title = (
        "What is learned without labels: seconds, accuracy (%) of 20 nearest neighbours with all "
        "training labels, and how many (%) of 10 neighbours of a training image share its class"
    )
    return named_rows(title, cells, "start")


# Signals

SIGNAL_LINE = "EmbeddingClassifier + ridge"
LINEAR = "MiniRocket + ridge", "MiniRocket + logistic regression"
BETTER = "the better of the two"


def _signals(results: Results) -> Table:
    """A row a method; what lacks a set has no mean."""
    of_set = _by_set(results)
    cells = numbers(_whole_means(of_set.groupby(N)).T)
    cells.columns = [f"{OF_N(n)} ({of} sets)" for n, of in of_set.groupby(N).size().items()]
    title = "Accuracy (%) on the signals without labels, N labels of each class: means over sets"
    return named_rows(title, cells, "method")


def _signal_gains(results: Results) -> Table:
    """Ours minus each other method on the sets that have both."""
    draws, linear = _by_draw(results), _by_set(results)[[*LINEAR]]
    best = linear.groupby(N).mean().idxmax(axis=1)
    in_the_mean = pd.concat([draws.loc[[n], best[n]] for n in best.index])
    on_each = draws[LINEAR[0]].where(
        (linear[LINEAR[0]] >= linear[LINEAR[1]]).reindex(draws.index.droplevel("draw")).to_numpy(),
        draws[LINEAR[1]],
    )
    others = {f"{BETTER} in the mean of all sets": in_the_mean, f"{BETTER} on each set": on_each}
    others |= {name: draws[name] for name in draws if name != SIGNAL_LINE}
    of_set = pd.DataFrame({name: draws[SIGNAL_LINE] - other for name, other in others.items()})
    *gained, n = gains(of_set.groupby([N, "set"]).mean())
    fewer = n.map(", {:.0f} sets".format).where(n < n.max(), "")
    cells = texts(_one_digit, *gained) + fewer
    title = f"{SIGNAL_LINE} minus it, in points: mean and 95% interval over the sets that have both"
    return named_rows(title, cells.rename(columns=OF_N), "method")


def _of_each_n(values: pd.DataFrame, form: str) -> pd.DataFrame:
    """A row a set; a cell has a figure for each N, a dash where there is none."""
    of_set = numbers(values, form).unstack(N, fill_value="-").T.groupby(level=0, sort=False)
    return of_set.agg(" / ".join).T


def _signals_by_set(results: Results) -> Table:
    """Ours, the linear models and the difference to the better one."""
    wide, about = _by_set(results), {entry["set"]: entry for entry in results["sets"]}
    cells = _of_each_n(wide[[SIGNAL_LINE, *LINEAR]], "{:.1f}")
    difference = wide[SIGNAL_LINE] - wide[[*LINEAR]].max(axis=1)
    cells[f"minus {BETTER}"] = _of_each_n(difference.to_frame(), "{:+.1f}").iloc[:, 0]
    cells.index = [
        (name, *(str(about[name][part]) for part in ("of", "length", "classes")))
        for name in cells.index
    ]
    ns = " / ".join(map(str, wide.index.unique(N)))
    title = f"Accuracy (%) with N = {ns} labels of each class: means over choices of the labels"
    return named_rows(title, cells, "set", "signals", "length", "classes")


def _other_signal_methods(results: Results) -> Table:
    cells = _of_each_n(_by_set(results).drop(columns=[SIGNAL_LINE, *LINEAR]), "{:.1f}")
    return named_rows("Accuracy (%) of the other methods, in the same form", cells, "set")


FEW_LABEL_TABLES: dict[str, Callable[[Results], Table]] = {
    "embeddings": _embeddings,
    "embeddings_gains": _embedding_gains,
    "embeddings_by_set": _embeddings_by_set,
    "embeddings_short": partial(_embeddings_by_set, methods=SHORT),
    "embeddings_seconds": _embedding_seconds,
    "first_labels": _first_labels,
    "first_labels_gains": _first_label_gains,
    "photographs": _photographs,
    "photographs_starts": _photograph_starts,
    "signals": _signals,
    "signals_gains": _signal_gains,
    "signals_by_set": _signals_by_set,
    "signals_others": _other_signal_methods,
}
