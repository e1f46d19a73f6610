"""Tables of scores: the paper's, ours against scratch and rivals, and one way against another.

A difference is that of two methods on the same labelled images: the mean over all (run, task), its
95% t interval, and where there are several runs that of their means too. The best rival has the
highest mean at that N on these very tasks in the same file; it is chosen after the fact.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pandas as pd

from protocol.contenders import ALL_RIVALS, scratch_of
from protocol.methods import SCRATCH, theta0_of
from reporting.estimates import (
    Estimates,
    accuracy_over_runs,
    by_task,
    complete,
    gains,
    mean_by,
    task_std_over_runs,
)
from reporting.layout import OF_N, Table, gain_text, in_brackets, mean_and_std, named_rows, texts
from reporting.paper import (
    beside_paper,
    compares_with_paper,
    comparison_note,
    learned_longer,
    paper_table,
)
from reporting.results import Library, Results, unpack_scores

OURS = "xavier/fcn/ours"
MEASURED_THERE = "best rival measured there"
SPREADING = "rival/label-spreading"

FIGURES = {"accuracy": accuracy_over_runs, "task_std": task_std_over_runs}

TITLES = {
    "accuracy": "Test accuracy (%): mean ± standard deviation over runs",
    "task_std": "Std over tasks (%): mean over runs, ± std over runs",
}


def wide_of(results: Results) -> pd.DataFrame:
    """The scores of a file by task and method."""
    return by_task(unpack_scores(results["scores"]))


def task_estimates(kind: str, wide: pd.DataFrame) -> Estimates:
    """One of ``FIGURES``, its columns named as the paper's."""
    return Estimates(*(part.rename(columns=OF_N) for part in FIGURES[kind](wide)))


def task_table(kind: str, results: Results) -> Table:
    """One of ``TITLES``, beside the paper's figures where these are of the same tasks."""
    estimates, title = task_estimates(kind, wide_of(results)), TITLES[kind]
    if not compares_with_paper(results):
        return named_rows(title, texts(mean_and_std, estimates.mean, estimates.std), "method")
    return named_rows(
        title + comparison_note(kind, estimates, results), beside_paper(estimates, kind), "method"
    )


# Differences


INTERVALS = "mean and its 95% interval over tasks (and over runs, if there are several)"


def _gain_texts(columns: dict[Any, pd.Series]) -> pd.DataFrame:
    """Means of differences with their intervals: names by N."""
    differences = pd.DataFrame(columns).dropna(axis=1, how="all")
    if differences.empty:
        return pd.DataFrame()
    cells = texts(gain_text, *gains(differences)[:3])
    runs = gains(mean_by(differences, "n_labels", "run"))
    cells += texts(
        lambda low, high: "" if pd.isna(low) else f", runs [{low:+.2f}, {high:+.2f}]", *runs[1:3]
    )
    return cells.rename(columns=OF_N)


def gain_table(results: Results) -> Table:
    """Each network minus itself from fresh weights, the paper's beside where it has the tasks."""
    same = "the same network from random weights on the same tasks"
    title = f"Gain over {same}, in points: {INTERVALS}"
    wide = wide_of(results)
    bases = {row: base for row in wide if (base := scratch_of(row)) in wide and base != row}
    cells = _gain_texts({row: complete(wide[row], wide[base]) for row, base in bases.items()})
    if bases and compares_with_paper(results):
        means = paper_table("accuracy").mean
        paper = {r: means.loc[r] - means.loc[b] for r, b in bases.items() if r in means.index}
        cells = in_brackets(cells, pd.DataFrame(paper).T.map(gain_text))
        title += f"; in round brackets the paper's gain{learned_longer(results)}"
    return named_rows(title, cells, "method")


def best_rival(wide: pd.DataFrame, method: str) -> dict[int, str]:
    """By N the rival with the highest mean on the tasks of ``own``, among those that have all."""
    best = {}
    for n, tasks in wide[wide[method].notna()].groupby("n_labels"):
        means = tasks[[r for r in ALL_RIVALS if r in wide]].dropna(axis=1).mean()
        if len(means):
            best[n] = means.idxmax()
    return best


def against_table(results: Results) -> Table:
    """Rows with coherence minus scratch and rivals; the best rival is named at each N."""
    title = f"Difference on the same tasks and labelled images (points): {INTERVALS}"
    wide = wide_of(results)
    differences, named = {}, {}
    for row in [name for name in wide if theta0_of(name).endswith("/ours+coherence")]:
        for other in (scratch_of(theta0_of(row)), SPREADING):
            if other in wide:
                differences[row, other] = complete(wide[row], wide[other])
        if best := best_rival(wide, row):
            rival = pd.concat([wide.loc[[n], name] for n, name in best.items()])
            differences[row, MEASURED_THERE] = wide[row] - rival
            named[row, MEASURED_THERE] = {
                OF_N(n): f" ({name.removeprefix('rival/')})" for n, name in best.items()
            }
    cells = _gain_texts(differences)
    cells += pd.DataFrame(named).T.reindex_like(cells).astype(object).fillna("")
    return named_rows(title, cells, "method", "against")


def differences_table(words: str, results: Results, beside: Results) -> Table:
    """Each row that another file has otherwise minus itself there, task by task.

    The same run, task and N have the same labelled images in both files.
    """
    wide, others = wide_of(results), wide_of(beside)
    differences = {
        row: difference
        for row in wide
        if row in others
        and not row.startswith("rival/")
        # From fresh weights both files have the same.
        and (difference := wide[row] - others[row].reindex(wide.index)).any()
    }
    title = f"{words}, on the same tasks and labelled images (points): {INTERVALS}"
    return named_rows(title, _gain_texts(differences), "method")


# Self-supervised baselines


def self_supervised_table(results: Results) -> Table:
    """A row a method; single choices of labels of all runs are pooled."""
    wide = wide_of(results)
    estimates, grouped = accuracy_over_runs(wide), wide.groupby("n_labels")
    single = texts("; {:.2f}; {:.1f}".format, grouped.std().T, grouped.quantile(0.1).T)
    cells = texts(mean_and_std, estimates.mean, estimates.std) + single.loc[wide.columns]
    cells = cells.where(estimates.mean.notna(), "-").rename(columns=OF_N)
    seconds = pd.DataFrame(results["theta0"]).groupby("method")["cpu_seconds"].mean()
    cells["seconds"] = seconds.reindex(cells.index).map("{:.0f}".format).replace("nan", "-")
    runs = wide.index.get_level_values("run").nunique()
    title = (
        f"Test accuracy (%): mean{' ± standard deviation over runs' if runs > 1 else ' of a run'}; "
        "standard deviation over single choices of labels; their worst decile. Seconds of "
        "a core for a pre-training"
    )
    return named_rows(title, cells, "method")


def above_rivals_table(results: Results) -> Table:
    """Ours, which is the first, minus each rival on the choices that both have."""
    wide = wide_of(results)
    ours, *others = wide
    title = (
        "Ours minus it on the same labelled images (points): mean, its 95% interval over choices "
        "of labels (and over runs, if there are several)"
    )
    differences = {name: wide[ours] - wide[name] for name in others}
    return named_rows(title, _gain_texts(differences), "method")


TASK_TABLES: dict[str, Callable[[Results], Table]] = {
    **{kind: partial(task_table, kind) for kind in TITLES},
    "gain": gain_table,
    "against": against_table,
    "self_supervised": self_supervised_table,
    "above_rivals": above_rivals_table,
}


# Every row there is, whichever file it is in

# Tasks, labelled images and seeds are the same in all of them; a later file has the last word.
FILES = "mnist-full.json", "mnist-rivals.json", "mnist-more-rivals.json", "mnist-image-rivals.json"


@cache
def rows_of_all_files(library: Library) -> pd.DataFrame:
    """What the files hold of the paper's tasks, of scratch, ours and rivals."""
    scores = pd.concat([unpack_scores(library.results(file)["scores"]) for file in FILES])
    scores = scores[scores["method"].isin([SCRATCH, OURS, *ALL_RIVALS])]
    keys = ["method", "n_labels", "run", "task"]
    return by_task(scores.drop_duplicates(keys, keep="last"))
