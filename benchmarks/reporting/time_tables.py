"""Tables of seconds and memory: what a second of pre-training buys, speed, engines, and a search.

A point is a setting after so many passes. Differences are paired on (run, task): of ``budget.py``
and ``tune_scratch.py`` averaged over N first, so that a task counts once in the 95% t interval; of
``coherence.py`` at each N. Seconds of ``budget.py`` are means over the runs, those of
``coherence.py`` the fastest run's: all do the same work, and whatever else the machine does only
adds to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from reporting.layout import Table, gain_text, mean_and_std, template_environment, texts
from reporting.results import Results
from reporting.statistics import complete, gains, gains_over_n, mean_by
from reporting.task_tables import SCRATCH, wide_of

MARGIN = 0.3
# Sums of accuracies are not exact: a difference of -0.3 points is within 0.3 points.
ROUNDING = 1e-9

# The setting of budget.py that others are compared with, and that of an ablation.
REFERENCE, DEFAULT = "paper", "default"


def scratch_line(results: Results) -> str:
    """Accuracy (%) of the network from scratch, by N."""
    wide = wide_of(results)
    means = mean_by(wide[[SCRATCH]], "n_labels")[SCRATCH] if SCRATCH in wide else {}
    return "From scratch: " + ", ".join(f"N = {n}: {mean:.2f}" for n, mean in means.items())


# budget.py


def budget_points(results: Results) -> pd.DataFrame:
    """A row a setting and number of passes, in the order in which they come.

    Columns: setting, passes, steps, seconds, loss, an accuracy (%) for each N, then the difference
    from the full setting (mean, low, high; missing where it lacks a task) and whether it is that.
    """
    checkpoints = pd.DataFrame(results["checkpoints"])
    grouped = checkpoints.groupby(["setting", "passes"], sort=False)
    points = grouped.agg({"steps": "first", "seconds": "mean", "loss": "mean"}).reset_index()
    wide = wide_of(results)
    curves = [f"{s}@{p:g}" for s, p in zip(points["setting"], points["passes"], strict=True)]
    accuracy = mean_by(wide[curves], "n_labels").T.reset_index(drop=True)
    passes = points.loc[points["setting"] == REFERENCE, "passes"]
    full = passes.idxmax() if len(passes) else None
    points = pd.concat([points, accuracy], axis=1)
    points["reference"] = points.index == full
    if full is None:
        return points.assign(mean=np.nan, low=np.nan, high=np.nan)
    base = wide[curves[full]]
    same = [curve for curve in curves if (wide[curve].notna() == base.notna()).all()]
    found = gains_over_n(wide[same].sub(base, axis=0)).reindex(curves)
    return points.assign(**{name: found[name].to_numpy() for name in ("mean", "low", "high")})


def _cheapest(points: pd.DataFrame) -> pd.Series:
    return points.sort_values(["seconds", "steps"], kind="stable").iloc[0]


def _name(point: pd.Series) -> str:
    return f"{point['setting']}, {point['passes']:g} {'pass' if point['passes'] == 1 else 'passes'}"


def budget_statement(results: Results) -> list[str]:
    """Which point is the cheapest within the margin of the full setting, and how sure that is.

    Better than the full setting is within the margin too. Nothing is said without that setting.
    """
    points = budget_points(results)
    if not points["reference"].any():
        return []
    full = points[points["reference"]].iloc[0]
    pairs = len(wide_of(results).dropna(how="all").groupby(["run", "task"]))

    def said(ends: str) -> str:
        within = points["reference"] | (points[ends] >= -MARGIN - ROUNDING)
        point = _cheapest(points[within])
        if point["reference"]:
            return "none but itself"
        gain = gain_text(*point[["mean", "low", "high"]])
        return (
            f"{_name(point)}: {point['seconds']:.3g} s, "
            f"{100 * point['seconds'] / full['seconds']:.3g} % of the full cost, "
            f"{gain} points over {pairs} (run, task) pairs"
        )

    return [
        f"Full setting: {_name(full)}, {full['seconds']:.3g} s.",
        f"Cheapest whose mean accuracy is within {MARGIN:g} points of it: {said('mean')}.",
        f"Cheapest whose whole 95% interval is within {MARGIN:g} points: {said('low')}.",
        "Pairs of one run share a theta0. The cheapest of many is also the luckiest of "
        "them: its mean difference is a little flattered, its interval a little narrow.",
    ]


def _budget_table(title: str, points: pd.DataFrame) -> Table:
    sizes = [column for column in points if isinstance(column, int)]
    full = points.loc[points["reference"], "seconds"]
    cost = 100 * points["seconds"] / full.item() if len(full) else None
    difference = points[["mean", "low", "high"]].apply(lambda row: gain_text(*row), axis=1)
    frame = {
        "setting": points["setting"],
        "passes": points["passes"].map("{:g}".format),
        "seconds": points["seconds"].map("{:.3g}".format),
        "cost": "-" if cost is None else cost.map("{:.1f} %".format),
        "loss": points["loss"].map("{:.4f}".format),
        **{f"N = {n}": points[n].map(mean_and_std) for n in sizes},
        "difference": difference.mask(points["reference"], "reference"),
    }
    return Table(title, pd.DataFrame(frame))


def _every_point(results: Results) -> Table:
    title = (
        "Seconds of pre-training, cost against the full setting, loss (the paper's, at theta0), "
        "test accuracy (%), difference from the full setting (points) and its 95% interval"
    )
    return _budget_table(title, budget_points(results))


def _budget(results: Results) -> Table:
    """The full setting, then each setting where it is first within the margin, cheapest first.

    A setting that never is stands there with its last point.
    """
    points = budget_points(results)
    points["within"] = points["mean"] >= -MARGIN - ROUNDING
    rows = []
    for _, own in points.groupby("setting", sort=False):
        within = own[own["within"]]
        rows.append(_cheapest(within) if len(within) else own.loc[own["passes"].idxmax()])
    chosen = pd.DataFrame(rows)
    chosen = chosen.iloc[np.lexsort([chosen["seconds"], ~chosen["within"].astype(bool)])]
    full = points[points["reference"]]
    chosen = pd.concat([full, chosen[~chosen["reference"].astype(bool)]])
    title = (
        "The full setting, and the fewest passes with which each setting's mean accuracy is "
        f"within {MARGIN:g} points of it (all its passes where none are)"
    )
    return _budget_table(title, chosen)


# coherence.py


class CoherencePoints(NamedTuple):
    """Settings, a row each (section, name, passes, runs, seconds); their accuracies (%) by N.

    And their differences from their base, as text: from scratch where time is asked for, and from
    the default in an ablation.
    """

    settings: pd.DataFrame
    accuracy: pd.DataFrame
    difference: pd.DataFrame


def coherence_points(results: Results) -> CoherencePoints:
    """The points of a file that ``coherence.py`` wrote, in the order of their theta0."""
    theta0 = pd.DataFrame(results["theta0"])
    section, name, passes = (theta0[k].astype(str) for k in ("section", "name", "passes"))
    grouped = theta0.groupby(section + "/" + name + "@" + passes, sort=False)
    columns = {"section": "first", "name": "first", "passes": "first"}
    settings = grouped.agg(columns | {"run": "nunique", "seconds": "min"})
    settings = settings.rename(columns={"run": "runs"})
    wide = wide_of(results)
    base = pd.Series(SCRATCH, index=settings.index)
    ablation = settings["section"] == "ablation"
    base[ablation] = f"ablation/{DEFAULT}@" + settings["passes"].astype(str)
    pairs = {own: other for own, other in base.items() if own != other and other in wide}
    found = {own: complete(wide[own], wide[other]) for own, other in pairs.items()}
    points = gains(pd.DataFrame(found, index=wide.index))
    difference = texts(gain_text, *points[:3]).reindex(settings.index)
    is_default = ablation & (settings["name"] == DEFAULT)
    difference[is_default] = "reference"
    accuracy = mean_by(wide[settings.index], "n_labels").T
    return CoherencePoints(settings, accuracy, difference.fillna("-"))


def _coherence_table(results: Results, section: str, title: str, what: str) -> Table:
    settings, accuracy, difference = coherence_points(results)
    own = settings[settings["section"] == section]
    counts = sorted(own["runs"].unique()) or [0]
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    passes = "/".join(map(str, own["passes"].unique()))
    title = f"{title.format(passes=passes)}; {number} run{'' if counts == [1] else 's'}"
    columns = [own["name"].rename("objective" if section == "time" else "change")]
    # An ablation has no seconds: every row takes as many steps, and they say more of the machine.
    if section == "time":
        columns += [own["passes"].astype(str), own["seconds"].map("{:.3g}".format)]
    for n in accuracy:
        columns.append(accuracy.loc[own.index, n].map(mean_and_std).rename(f"N = {n}"))
        columns.append(difference.loc[own.index, n].rename(what))
    return Table(title, pd.concat(columns, axis=1))


def _coherence_time(results: Results) -> Table:
    title = (
        "Test accuracy (%) after so many seconds of pre-training, and the difference from scratch "
        "on the same tasks (points) with its 95% interval"
    )
    return _coherence_table(results, "time", title, "over scratch")


def _coherence_ablation(results: Results) -> Table:
    title = (
        "One change at a time, {passes} passes: test accuracy (%), and the difference from the "
        "default on the same tasks (points) with its 95% interval"
    )
    return _coherence_table(results, "ablation", title, "difference")


def time_sentences(results: Results) -> list[str]:
    """The least time in which both objectives together overtake the best of the paper's alone."""
    settings, accuracy, _ = coherence_points(results)
    timed = settings[settings["section"] == "time"]
    paper, both = (timed[timed["name"] == name] for name in ("paper", "both"))
    if paper.empty or both.empty:
        return []
    said = []
    for n in accuracy:
        best = accuracy.loc[paper.index, n].idxmax()
        above = both[accuracy.loc[both.index, n] > accuracy.loc[best, n]]
        text = (
            f"N = {n}: the paper's objective with 64 perturbed networks a step (the paper has "
            f"256) reaches {accuracy.loc[best, n]:.2f} in {paper.loc[best, 'seconds']:.3g} s"
        )
        if len(above):
            first = above["seconds"].idxmin()
            found = accuracy.loc[first, n], above.loc[first, "seconds"]
            text += ", with coherence {:.2f} in {:.3g} s.".format(*found)
        else:
            text += ", and with coherence no point is above that."
        said.append(text)
    return said


# tune_scratch.py


def _tuning(results: Results, first: int | None = None) -> Table:
    """One row for each setting, best first; or for so many of the best, and the reference."""
    tried = results["tried"]
    shown = [t for place, t in enumerate(tried) if first is None or place < first]
    shown += [t for t in tried if t["difference"] is None and t not in shown]
    rows = [
        {"setting": t["setting"]}
        | {f"N = {n}": f"{value:.2f}" for n, value in t["accuracy"].items()}
        | {"mean": f"{t['mean']:.2f}"}
        | {
            "difference": "reference"
            if t["difference"] is None
            else gain_text(*(t["difference"][end] for end in ("mean", "low", "high")))
        }
        for t in shown
    ]
    what = f"the best {first} of {len(tried)} settings" if first else "every setting, best first"
    title = (
        f"Fine-tuning of the network from scratch, {what}: test accuracy (%), and the difference "
        "from the paper's own on the same tasks (points) with its 95% interval"
    )
    return Table(title, pd.DataFrame(rows))


# speed.py and backends.py

FORMS = {
    "direct": "textbook: a copy of every weight for each network",
    "vmap": "textbook: `torch.func.vmap` of `functional_call`",
    "library": "`MMDInitializer`",
    "products": "its dense products alone, back to back",
    "floor": "its dense products at the measured sgemm rate",
    "perceptron": "the perceptron's own path",
    "sequential": "the same as an `nn.Sequential` in `module=`",
    "convnet": "a ConvNet in `module=`",
}


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _mib(n_bytes: float) -> str:
    return f"{n_bytes / 2**20:.0f} MiB" if n_bytes >= 2**20 else f"{n_bytes / 1024:.0f} KiB"


def _written(kind: str, results: Results) -> Table:
    """What ``tables.j2`` has of a kind."""
    environment = template_environment()
    environment.filters |= {"seconds": _seconds, "mib": _mib}
    template = environment.get_template("tables.j2")
    text = template.render({**results, "kind": kind, "FORMS": FORMS})
    title, *lines = filter(None, text.splitlines())
    head, *rows = (line.split(" | ") for line in lines)
    return Table(title, pd.DataFrame(rows, columns=head))


SPEED_KINDS = (
    "step",
    "breakdown",
    "memory",
    "scaling",
    "rows",
    "fine_tuning",
    "cross_validation",
    "modules",
    "module_memory",
)
"""Those of ``speed.py``, each made of the results' entry of its name."""

TIME_TABLES: dict[str, Callable[..., Table]] = {
    **{kind: partial(_written, kind) for kind in (*SPEED_KINDS, "backends")},
    "budget": _budget,
    "budget_points": _every_point,
    "coherence_time": _coherence_time,
    "coherence_ablation": _coherence_ablation,
    "tuning": _tuning,
}
"""From the results of a command to a table of them, by kind."""
