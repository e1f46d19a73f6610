"""Tables of ``real_data.py``: methods on sets of several kinds, with few labels.

A set counts once: figures are means over draws first, of the draws at which all methods were
measured. Ranks are of these means of accuracy. Rivals are the methods without anything of this
package: neither a start of its own, nor the network that is weighed with them.
"""

from collections.abc import Callable

import pandas as pd

from protocol.sets import METHODS, NETWORKS_WITHIN
from reporting.estimates import N, gains, mean_by, ranks_of
from reporting.layout import Table, gain_text, named_rows, several, texts
from reporting.results import Results, unpack_draws

LINE, FRESH = "stacked", "scratch"
WITHIN = ("stacked, fresh", "stacked, labelled", "stacked, labelled, fresh", "stacked networks")
OURS = (
    LINE, *WITHIN, *NETWORKS_WITHIN, "coherence", "corruption", "head first", "row+features",
    "features+logistic", "paper",
)  # fmt: skip
# The N of the tables that go set by set, and how many points less than scratch are a loss.
SOME_N = (5, 20)
LOSS = 1.0


def draws_of(results: Results, figure: str = "accuracy") -> pd.DataFrame:
    """A figure by (N, set, draw) and method, the methods in their order; missing where it is."""
    frame = unpack_draws(results["scores"])
    wide = frame.pivot(index=[N, "set", "draw"], columns="method", values=figure)
    return wide[[name for name in METHODS if name in wide]]


def means_of(results: Results, figure: str = "accuracy") -> pd.DataFrame:
    """Means over draws by (N, set) and method, of the draws at which all were measured."""
    return mean_by(draws_of(results, figure).dropna(), N, "set")


def mean_ranks(accuracies: pd.DataFrame) -> pd.DataFrame:
    """The mean over sets of the ranks: N by method, the best over all N first."""
    ranks = mean_by(ranks_of(accuracies), N)
    return ranks[ranks.mean().sort_values(kind="stable").index]


def kinds_of(results: Results) -> dict[str, str]:
    """What kind of data each set is."""
    return {entry["set"]: entry["kind"] for entry in results["sets"]}


def rivals_of(accuracies: pd.DataFrame) -> pd.DataFrame:
    """The columns that are no method of this package's."""
    return accuracies[[name for name in accuracies if name not in OURS]]


def best_by_rank(accuracies: pd.DataFrame) -> str:
    """The single rival with the least mean rank among all methods on these (N, set)."""
    return str(rivals_of(ranks_of(accuracies)).mean().idxmin())


def _heads(results: Results) -> dict[int, str]:
    """N with the number of sets, and of draws of each."""
    counts = draws_of(results).dropna().groupby([N, "set"]).size()
    return {
        n: f"N = {n}, {several([len(draws)], 'set')}, {several(draws, 'draw')}"
        for n, draws in counts.groupby(N)
    }


# By method


def _few_labels(results: Results) -> Table:
    """A row a method, the best first; a cell has what is to be read together."""
    accuracies = means_of(results)
    ranks = mean_ranks(accuracies).T
    figures = ("accuracy", "log_loss", "calibration_error")
    means = (mean_by(means_of(results, figure), N).T for figure in figures)
    cells = texts(
        "{:.1f} / {:.2f} / {:.1f} / {:.1f}".format,
        *(mean.loc[ranks.index] for mean in means),
        ranks,
    ).rename(columns=_heads(results))
    cells["mean rank"] = ranks.mean(axis=1).map("{:.2f}".format)
    title = (
        "Accuracy (%) / log loss / calibration error (%, over ten bins of confidence) / rank of "
        f"the accuracy among {len(ranks)} methods: means over sets, N labels of each class; the "
        "best mean rank over all N first"
    )
    return named_rows(title, cells, "method")


def _gains(results: Results) -> Table:
    """A row for each other method, in the same order."""
    accuracies = means_of(results)
    title = (
        f"How many points `{LINE}` is above each method. On each set differences are averaged over "
        "the draws of the labels. The table has the mean over the sets and its 95% t interval"
    )
    if LINE not in accuracies:
        return Table(title, pd.DataFrame())
    others = mean_ranks(accuracies).columns.drop(LINE)
    gained = gains(-accuracies[others].sub(accuracies[LINE], axis=0))
    cells = texts(gain_text, gained.mean, gained.low, gained.high)
    return named_rows(title, cells.rename(columns=_heads(results)), "method")


# By kind


def _by_kind(results: Results) -> Table:
    accuracies, kinds = means_of(results), kinds_of(results)
    title = (
        f"By kind of data: mean accuracy (%) / mean rank among {len(accuracies.columns)} methods; "
        "the rival is the one with the best mean rank there, which is known only afterwards"
    )
    rows = []
    if {LINE, FRESH} <= {*accuracies}:
        of_kind = accuracies.index.get_level_values("set").map(kinds)
        for kind in dict.fromkeys(kinds.values()):
            for n, group in accuracies[of_kind == kind].groupby(N):
                means, ranks = group.mean(), ranks_of(group).mean()
                cells = {m: f"{means[m]:.1f} / {ranks[m]:.1f}" for m in group}
                row = {"kind": kind, "N": str(n), "sets": str(len(group))}
                row |= {name: cells[name] for name in (LINE, FRESH)}
                best = "" if rivals_of(group).empty else best_by_rank(group)
                rows.append(row | {"best rival": f"{cells[best]} ({best})" if best else "-"})
    return Table(title, pd.DataFrame(rows))


def _on_tables(results: Results) -> Table:
    """A row for each other method than fresh weights, over sets that are tables."""
    title = (
        f"On the tables alone, each method minus `{FRESH}` (points): mean over sets of the paired "
        "differences and its 95% t interval over sets"
    )
    accuracies, kinds = means_of(results), kinds_of(results)
    accuracies = accuracies[accuracies.index.get_level_values("set").map(kinds) == "table"]
    if FRESH not in accuracies or accuracies.empty:
        return Table(title, pd.DataFrame())
    gained = gains(accuracies.drop(columns=FRESH).sub(accuracies[FRESH], axis=0))
    cells = texts(gain_text, gained.mean, gained.low, gained.high)
    heads = {n: f"N = {n}, {several([k], 'set')}" for n, k in accuracies.groupby(N).size().items()}
    return named_rows(title, cells.rename(columns=heads), "method")


# By set


def _over_scratch(results: Results) -> pd.DataFrame:
    """``stacked`` minus ``scratch`` by (N, set): mean, low and high over draws, as gains say."""
    draws = draws_of(results)
    if not {LINE, FRESH} <= {*draws}:
        return pd.DataFrame(columns=["mean", "low", "high"])
    gained = gains((draws[LINE] - draws[FRESH]).dropna().to_frame(), N, "set")
    return pd.concat(gained[:3]).set_axis(["mean", "low", "high"]).T


def _of_each(results: Results) -> Table:
    """Every method on every set: of few sets."""
    cells = draws_of(results).dropna().groupby(["set", N])
    shown = texts("{:.1f} ± {:.1f}".format, cells.mean().T, cells.std().T)
    shown.columns = [f"{name}, N = {n}" for name, n in shown.columns]
    return named_rows("Accuracy (%): mean ± std over draws", shown, "method")


def _gains_on_each(results: Results) -> Table:
    """The same as differences."""
    title = (
        f"`{LINE}` minus each method, in points: mean over draws of the labels with its 95% t "
        "interval over draws"
    )
    draws = draws_of(results).dropna()
    if LINE not in draws:
        return Table(title, pd.DataFrame())
    gained = gains(-draws.drop(columns=LINE).sub(draws[LINE], axis=0), "set", N)
    cells = texts(gain_text, gained.mean, gained.low, gained.high)
    cells.columns = [f"{name}, N = {n}" for name, n in cells.columns]
    return named_rows(title, cells, "method")


def _by_set(results: Results) -> Table:
    title = (
        f"Set by set, means over draws: accuracies (%), `{LINE}` minus `{FRESH}` (points) with "
        "its paired 95% interval over draws, and the most accurate rival of the set, which is "
        "known only afterwards"
    )
    gained, draws, rows = _over_scratch(results), draws_of(results), []
    for entry in results["sets"]:
        for n in SOME_N:
            key = (n, entry["set"])
            if key in gained.index:
                measured = draws.loc[key].dropna(subset=[LINE, FRESH]).dropna(axis=1)
                row = {"set": entry["set"], "N": str(n), "rows": f"{entry['rows']:,}"}
                row |= {name: str(entry[name]) for name in ("features", "classes")}
                row |= {name: f"{measured[name].mean():.1f}" for name in (FRESH, LINE)}
                row["difference"] = gain_text(*gained.loc[key])
                rivals = rivals_of(measured).mean()
                best = "-" if rivals.empty else f"{rivals.max():.1f} ({rivals.idxmax()})"
                rows.append(row | {"best rival": best})
    return Table(title, pd.DataFrame(rows))


def _worst(results: Results) -> Table:
    title = (
        f"Where `{LINE}` is behind `{FRESH}`: sets where it is more than {LOSS:g} point below in "
        "the mean over draws, those where its whole paired 95% interval over draws is, and the "
        "worst set; and sets where it is ahead by a whole interval"
    )
    gained, rows = _over_scratch(results), []
    for n, group in gained.groupby(level=0):
        worst = group["mean"].idxmin()
        row = {"N": str(n), "sets": str(len(group))}
        row[f"more than {LOSS:g} below"] = str((group["mean"] < -LOSS).sum())
        row["by the whole interval"] = str((group["high"] < -LOSS).sum())
        row |= {"worst set": worst[1], "difference": gain_text(*group.loc[worst])}
        rows.append(row | {"ahead by the whole interval": str((group["low"] > 0).sum())})
    return Table(title, pd.DataFrame(rows))


# Seconds


def _seconds(results: Results) -> Table:
    frame = unpack_draws(results["scores"])
    title = (
        "Median seconds by method on one thread: of a cell (one set, N and draw), and what is "
        "made once a set, of its rows without labels (both starts together)"
    )
    if "parts" in results:
        title += "; `stacked` and the networks within it are in part of another call: no comparison"
    cells = frame.groupby([N, "method"])["seconds"].median().unstack(N)
    cells = cells.loc[[name for name in METHODS if name in cells.index]]
    shown = cells.map("{:.3g}".format).rename(columns="N = {}".format)
    once = pd.DataFrame(results["once"], columns=["once", "seconds"])
    medians = once.groupby("once")["seconds"].median().map("{:.3g}".format)
    # From fresh weights it is trained beside the others and needs nothing of what they share.
    needed = {name: METHODS[name].once for name in shown.index if name != FRESH}
    shown["once a set"] = [medians.get(needed.get(name, ""), "-") for name in shown.index]
    return named_rows(title, shown, "method")


# agreement.py


def agreement_table(results: Results) -> Table:
    """How often the better predictor of held-out labels foretells a gain of coherence."""
    frame = pd.DataFrame(results["records"]).set_index([N, "set"])
    by_neighbors, gain = frame["neighbors"] > frame["linear"], frame["gain"]
    answers = {"gain if neighbours": by_neighbors, "gain if the model": ~by_neighbors}
    gained = gains(pd.DataFrame({name: gain.where(where) for name, where in answers.items()}))
    right = (by_neighbors == (gain > 0)).groupby(N)
    shares = (100.0 * right.mean()).map("{:.0f} %".format)
    cells = {"N": shares.index.map(str), "sets": right.size().map(str), "told right": shares}
    texts_of = texts(gain_text, gained.mean, gained.low, gained.high)
    sizes = texts("({:.0f} sets)".format, gained.n_pairs)
    cells |= {name: texts_of.loc[name] + " " + sizes.loc[name] for name in answers}
    title = (
        "Whether neighbours or a linear model tell more of the held-out labels, and what coherence "
        "then gains over fresh weights (points, mean over sets and its 95% t interval)"
    )
    return Table(title, pd.DataFrame(cells))


DATA_TABLES: dict[str, Callable[[Results], Table]] = {
    "few_labels": _few_labels,
    "few_labels_gains": _gains,
    "few_labels_kinds": _by_kind,
    "few_labels_on_tables": _on_tables,
    "few_labels_sets": _by_set,
    "few_labels_each": _of_each,
    "few_labels_each_gains": _gains_on_each,
    "few_labels_worst": _worst,
    "few_labels_seconds": _seconds,
}
"""From the results of the command to a table of them, by kind."""
