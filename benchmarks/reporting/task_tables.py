"""Tables of scores: the paper's, ours against scratch and rivals, and one way against another.

On each (run, task) the accuracy of a method minus that of another on the same labelled images; a
cell has the mean over all pairs and its 95% t interval. The best rival is the one with the highest
mean at that N on these very tasks, among those that the same scores hold: another file may have
better ones. It is chosen after the fact, to its own advantage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from protocol.methods import FEATURES, FEATURES_CV, FEATURES_THETA0
from protocol.rivals import ALL_RIVALS, RIVALS, scratch_of
from reporting.layout import Table, by_n, gain_text, in_brackets, mean_and_std, texts
from reporting.paper import N_LABELS, paper_difference, paper_table, tasks_compare_with_paper
from reporting.results import Library, Results, unpack_scores
from reporting.statistics import (
    accuracy_over_runs,
    by_task,
    complete,
    gains,
    mean_by,
    std_over_runs,
    task_std_over_runs,
)
from runs import CONVNET

OURS, SCRATCH = "xavier/fcn/ours", "xavier/fcn/scratch"
BEST_RIVAL = "best rival"
MEASURED_THERE = f"{BEST_RIVAL} measured there"
SPREADING = "rival/label-spreading"

THETA0_OF = {
    FEATURES: FEATURES_THETA0,
    FEATURES_CV: FEATURES_THETA0,
    "convnet/features+logistic": "convnet/ours+coherence",
}
"""Rows that fine-tune nothing, and the networks whose theta0 they are of."""

COHERENT = {*THETA0_OF, *THETA0_OF.values(), "he/fcn/ours+coherence"}

PERCEPTRONS = {
    "convnet/ours+coherence": FEATURES_THETA0,
    "convnet/features+logistic": FEATURES,
    "convnet/scratch": SCRATCH,
}
"""Row of the convolutional network -> the perceptron's that has all else in common with it."""

FIGURES = {"accuracy": accuracy_over_runs, "task_std": task_std_over_runs}

TITLES = {
    "accuracy": "Test accuracy (%): mean over tasks, ± std over runs",
    "task_std": "Std over tasks (%): mean over runs, ± std over runs",
    "gain": "Gain over the same network from scratch (points): mean of the paired differences and "
    "its 95% interval",
}
NUMBERS = {"accuracy": "Table 1. ", "task_std": "Table 2. ", "gain": ""}
"""The paper's numbers of its tables, for ours that are of the same."""


def wide_of(results: Results | None) -> pd.DataFrame:
    """The scores of a file by task and method; none of none."""
    return by_task(unpack_scores(results["scores"] if results else []))


def paper_tasks(results: Results | None) -> pd.DataFrame:
    """The same of a file that may stand beside the paper's tables; none of any other."""
    return wide_of(results if results and tasks_compare_with_paper(results) else None)


# One file


def task_table(kind: str, results: Results) -> Table:
    """One of ``TITLES``, the paper's figure in round brackets where it has the same tasks."""
    wide = wide_of(results)
    if kind == "gain":
        base = {row: scratch_of(row) for row in wide}
        pairs = {row: b for row, b in base.items() if b not in (None, row) and b in wide}
        found = {row: complete(wide[row], wide[b]) for row, b in pairs.items()}
        own = _gain_texts(pd.DataFrame(found, index=wide.index))
        paper = pd.DataFrame(
            {row: paper_difference(row, b).map(gain_text) for row, b in pairs.items()}
        ).T
    else:
        estimates, table = FIGURES[kind](wide), paper_table(kind)
        own = texts(mean_and_std, estimates.mean, estimates.std)
        paper = texts(mean_and_std, table.mean, table.std).set_axis(list(N_LABELS), axis=1)
    title = TITLES[kind]
    if tasks_compare_with_paper(results):
        own = in_brackets(own, paper)
        title = f"{NUMBERS[kind]}{title} (the paper's figure in brackets)"
    return Table(title, by_n(own, "method"))


def accuracy_table(wide: pd.DataFrame) -> Table:
    """Accuracy of each row, whatever the paper has."""
    found = accuracy_over_runs(wide)
    return Table(TITLES["accuracy"], by_n(texts(mean_and_std, found.mean, found.std), "method"))


def _gain_texts(differences: pd.DataFrame) -> pd.DataFrame:
    found = gains(differences)
    return texts(gain_text, found.mean, found.low, found.high)


# Against scratch and rivals


def best_rival(wide: pd.DataFrame, own: str, rivals: Sequence[str] = ALL_RIVALS) -> dict[int, str]:
    """By N the rival with the highest mean on the tasks of ``own``, among those that have all."""
    found = {}
    for n, tasks in wide[wide[own].notna()].groupby("n_labels"):
        means = tasks[[r for r in rivals if r in wide]].dropna(axis=1).mean()
        if len(means):
            found[n] = means.idxmax()
    return found


def against(wide: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, dict[int, str]]]:
    """Rows with coherence minus scratch and rivals, and by row the best rival at each N.

    The differences have a column a (row, what it is compared with).
    """
    found, best = {}, {}
    for row in [name for name in wide if name in COHERENT]:
        for other in (scratch_of(THETA0_OF.get(row, row)), SPREADING):
            if other in wide:
                found[row, other] = complete(wide[row], wide[other])
        best[row] = best_rival(wide, row)
        if best[row]:
            rival = pd.concat([wide.loc[[n], name] for n, name in best[row].items()])
            found[row, MEASURED_THERE] = wide[row] - rival
    columns = pd.MultiIndex.from_tuples(found, names=["method", "against"]) if found else None
    differences = pd.DataFrame(found, index=wide.index, columns=columns)
    return differences.dropna(axis=1, how="all"), best


def against_table(wide: pd.DataFrame) -> Table:
    """One row for each row of ours and what it is compared with; the best rival is named."""
    title = (
        "Difference on the same tasks and labelled images (points): mean, its 95% interval, "
        "± std over runs where there are several"
    )
    differences, best = against(wide)
    if differences.empty:
        return Table(title, pd.DataFrame(columns=["method", "against"]))
    found = _gain_texts(differences)
    spread = std_over_runs(differences)
    found += texts(lambda std: "" if pd.isna(std) else f" ± {std:.2f}", spread)
    for row, other in found.index:
        if other == MEASURED_THERE:
            for n, name in best[row].items():
                found.loc[(row, other), n] += f" ({name.removeprefix('rival/')})"
    return Table(title, by_n(found, "method", "against"))


def _verdict(mean: float, low: float, high: float) -> str:
    if not low * high > 0.0:
        return "within the noise of"
    return "above" if mean > 0.0 else "below"


def standing_sentences(wide: pd.DataFrame) -> list[str]:
    """Where each row of ours stands against scratch and the best rival of the same scores, by N."""
    differences, best = against(wide)
    if differences.empty:
        return []
    found = gains(differences)
    verdicts = texts(_verdict, *found[:3]).where(found.mean.notna())
    said = []
    for row in dict.fromkeys(verdicts.index.get_level_values("method")):
        parts = []
        for other, own in verdicts.loc[row].iterrows():
            if other == SPREADING:
                continue
            sizes: dict[str, list[str]] = {}
            for n, verdict in own.dropna().items():
                name = "scratch"
                if other == MEASURED_THERE:
                    name = f"the {MEASURED_THERE} ({best[row][n].removeprefix('rival/')})"
                sizes.setdefault(f"{verdict} {name}", []).append(str(n))
            parts.append(", ".join(f"{k} at N = {', '.join(ns)}" for k, ns in sizes.items()))
        said.append(f"{row} is {'; '.join(parts)}.")
    return said


# One file beside another


def differences_table(words: str, wide: pd.DataFrame, beside: pd.DataFrame) -> Table:
    """Each row with coherence minus itself learned in another way, task by task.

    The same run, task and N have the same labelled images in both files.
    """
    rows = [row for row in wide if row in COHERENT and row in beside]
    found = wide[rows] - beside[rows].reindex(wide.index)
    title = f"{words}, on the same tasks and labelled images (points): mean and its 95% interval"
    return Table(title, by_n(_gain_texts(found), "method"))


def with_perceptron(wide: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """The convolutional network's scores, the perceptron's on the same tasks, and its rivals'."""
    rows = [row for row in others if row in {*PERCEPTRONS.values(), *RIVALS} and row not in wide]
    both = wide.join(others[rows]).dropna(axis=1, how="all")
    order = (*CONVNET, *PERCEPTRONS.values(), *RIVALS)
    return both[[row for row in order if row in both]]


def perceptron_differences(wide: pd.DataFrame) -> Table:
    """Each row of the convolutional network minus the perceptron's."""
    pairs = {own: b for own, b in PERCEPTRONS.items() if own in wide and b in wide}
    found = {(own, other): wide[own] - wide[other] for own, other in pairs.items()}
    title = (
        "The convolutional network minus the perceptron on the same tasks and labelled images "
        "(points): mean and its 95% interval"
    )
    if not found:
        return Table(title, pd.DataFrame(columns=["method", "against"]))
    return Table(title, by_n(_gain_texts(pd.DataFrame(found)), "method", "against"))


def kernels_table(readings: Mapping[str, pd.DataFrame], how: str) -> Table:
    """Points over the network from scratch on the runs of both readings, and between the two.

    Parameters
    ----------
    readings : dict
        Scores by reading of L_uni, "sum" and "mean".
    how : str
        How theta0 was learned.
    """
    runs = [set(wide[OURS].dropna().index.unique("run")) for wide in readings.values()]
    both = set.intersection(*runs)
    shared = {
        kernels: wide[wide.index.get_level_values("run").isin(both)]
        for kernels, wide in readings.items()
    }
    found = {f"{k} of the kernels": wide[OURS] - wide[SCRATCH] for k, wide in shared.items()}
    found["mean minus sum"] = shared["mean"][OURS] - shared["sum"][OURS]
    own = _gain_texts(pd.DataFrame(found)).reindex(columns=list(N_LABELS))
    paper = paper_difference(OURS, SCRATCH).map(gain_text)
    cells = pd.concat([paper.to_frame("the paper's mean of four runs").T, own]).fillna("-")
    title = (
        f"{OURS} over {SCRATCH} on the same tasks and labelled images (points; "
        f"{len(both)} run{'' if len(both) == 1 else 's'}), theta0 after {how}: mean and its 95% "
        "interval"
    )
    return Table(title, by_n(cells, ""))


def claims_table(wide: pd.DataFrame, init: str) -> Table:
    """Ours against each other network, task by task, and whether the paper's claim holds."""
    ours = f"{init}/fcn/ours"
    others = [n for n in paper_table("accuracy").mean.index if n.startswith(f"{init}/")]
    others = [name for name in others if name != ours and name in wide and ours in wide]
    title = (
        f"Whether {ours} is above each other network at each N, as in the paper: mean of the "
        "paired differences (points) and its 95% interval, the paper's difference in brackets; "
        "unclear where the interval holds 0"
    )
    if not others:
        return Table(title, pd.DataFrame(columns=["against"]))

    def claim(mean: float, low: float, high: float, paper: float) -> str:
        if pd.isna(mean):
            return "-"
        clear = "" if low * high > 0.0 else ", unclear"
        holds = "holds" if mean > 0.0 else "does not hold"
        return f"{holds}{clear}: {gain_text(mean, low, high)} ({paper:+.2f})"

    found = gains(pd.DataFrame({name: wide[ours] - wide[name] for name in others}))
    paper = pd.DataFrame({name: paper_difference(ours, name) for name in others}).T
    frames = (frame.reindex(columns=list(N_LABELS)) for frame in found[:3])
    return Table(title, by_n(texts(claim, *frames, paper), "against"))


# Every row there is, whichever file it is in

# Tasks, labelled images and seeds are the same in all of them; a later file has the last word.
# A row whose theta0 was learned in another way is a row of its own.
WAYS = {
    "mnist-full.json": "",
    "mnist-coherence.json": "",
    "mnist-rivals.json": "",
    "mnist-augmented.json": "augmented",
    "mnist-two-rounds.json": "augmented, two rounds",
    "mnist-gradients.json": "augmented, by gradients",
}
ROWS = (
    SCRATCH,
    OURS,
    *(f"{row}, {way}" if way else row for way in ["", *filter(None, WAYS.values())]
      for row in (FEATURES_THETA0, FEATURES)),
    *ALL_RIVALS,
)  # fmt: skip
NETWORK_RIVALS = tuple(name for name in RIVALS if scratch_of(name))

KINDS = {
    "The best of all rows": ROWS,
    "The best rival": ALL_RIVALS,
    "The best rival that is a network, without changed copies": NETWORK_RIVALS,
}


def rows_of_all_files(library: Library) -> pd.DataFrame:
    """What the files hold of ``ROWS`` on the paper's tasks."""
    scores = library.scores(*WAYS)
    if scores.empty:
        return by_task(scores)
    of_paper = (scores["dataset"] == "mnist") & (scores["classes"] == 2)
    scores = scores[of_paper & (scores["network"] == "392-392-392")]
    ways = scores["file"].map(WAYS)
    learned = scores["method"].isin([FEATURES_THETA0, FEATURES]) & (ways != "")
    scores = scores.assign(
        method=scores["method"].where(~learned, scores["method"] + ", " + ways)
    ).drop_duplicates(["method", "n_labels", "run", "task"], keep="last")
    wide = by_task(scores)
    return wide[[row for row in ROWS if row in wide]]


def _runs(wide: pd.DataFrame) -> pd.Series:
    """In how many runs each row was measured, as text."""
    return wide.notna().groupby("run").any().sum().astype(int).astype(str)


def rivals_table(wide: pd.DataFrame, not_run: str) -> Table:
    """Accuracy of each row, and its difference from scratch; those not run yet in the last line."""
    means = texts(mean_and_std, mean_by(wide, "n_labels").T)
    if SCRATCH in wide:
        over = wide.drop(columns=SCRATCH).sub(wide[SCRATCH], axis=0)
        gain = ", " + _gain_texts(over)
        means += gain.replace(", -", "").reindex_like(means).fillna("")
    frame = by_n(means, "method")
    frame.insert(1, "runs", _runs(wide).reindex(frame["method"]).to_numpy())
    missing = [r for r in (SCRATCH, OURS, FEATURES_THETA0, FEATURES, *RIVALS) if r not in wide]
    if missing:
        last = [", ".join(missing), "0", not_run, *[""] * (len(frame.columns) - 3)]
        head = [*frame.columns, *[""] * (len(last) - len(frame.columns))]
        frame = pd.DataFrame([*frame.to_numpy().tolist(), last], columns=head)
    title = (
        "Test accuracy (%), and the difference from the network from scratch on the same tasks and "
        "labelled images (points) with its 95% interval"
    )
    return Table(title, frame)


def ranking_table(wide: pd.DataFrame) -> Table:
    """Accuracy of each row, the best one first, and what it adds to scratch at the fewest labels.

    The difference is paired, so that rows of unequal numbers of runs can be compared.
    """
    title = "Test accuracy (%), mean over 20 tasks a run, and the paired difference from scratch"
    means = mean_by(wide, "n_labels").T.dropna()
    ranked = means.loc[means.mean(axis=1).sort_values(ascending=False, kind="stable").index]
    if ranked.empty:
        return Table(title, pd.DataFrame())
    fewest = means.columns[0]
    over = wide.sub(wide.get(SCRATCH, np.nan), axis=0).drop(columns=SCRATCH, errors="ignore")
    frame = by_n(texts(mean_and_std, ranked), "method")
    frame.insert(1, "runs", _runs(wide).reindex(ranked.index).to_numpy())
    gain = _gain_texts(over)[fewest].reindex(ranked.index).fillna("-")
    frame[f"over scratch, N = {fewest}"] = gain.to_numpy()
    frame["method"] = frame["method"].str.removeprefix("rival/")
    return Table(title, frame)


def rivals_sentences(wide: pd.DataFrame) -> list[str]:
    """Which row is the best at each N, of all and of the rivals."""
    means, said = mean_by(wide, "n_labels").T, []
    for words, rows in KINDS.items():
        own = means.loc[[row for row in rows if row in means.index]]
        named = [
            f"N = {n}: {found.idxmax().removeprefix('rival/')} ({found.max():.2f})"
            for n, found in own.items()
            if found.notna().any()
        ]
        if named:
            said.append(f"{words}, by mean accuracy: {', '.join(named)}.")
    return said
