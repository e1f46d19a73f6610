"""Tables of seconds and memory: what a second of pre-training buys, and speed.

A point of ``coherence.py`` is a setting after so many epochs. Its seconds are the fastest run's:
all do the same work, and whatever else the machine does only adds to it.
"""

from collections.abc import Callable
from functools import partial

import pandas as pd

from protocol.methods import SCRATCH
from reporting.estimates import complete, gains, mean_by
from reporting.layout import Table, gain_text, mean_and_std, several, template_environment, texts
from reporting.results import Results
from reporting.task_tables import wide_of

# The setting that others of an ablation are compared with.
DEFAULT = "default"


def sizes_of(points: pd.DataFrame) -> list[int]:
    """The N whose accuracies are columns of points."""
    return [column for column in points if isinstance(column, int)]


# coherence.py

COHERENCE_TITLES = {
    "time": "Test accuracy (%) after so many seconds of pre-training, and the difference from "
    "scratch on the same tasks (points) with its 95% interval",
    "ablation": "One change at a time, {passes} passes: test accuracy (%), and the difference from "
    "the default on the same tasks (points) with its 95% interval",
}


def coherence_points(results: Results) -> pd.DataFrame:
    """The points of a file that ``coherence.py`` wrote, in the order of their theta0.

    Columns: section, name, passes, runs, seconds, an accuracy (%) for each N and, as text, its
    difference ("difference N") from scratch where time is asked for, from the default in an
    ablation.
    """
    theta0 = pd.DataFrame(results["theta0"])
    section, name, passes = (theta0[k].astype(str) for k in ("section", "name", "passes"))
    grouped = theta0.groupby(section + "/" + name + "@" + passes, sort=False)
    columns = {"section": "first", "name": "first", "passes": "first"}
    points = grouped.agg(columns | {"run": "nunique", "seconds": "min"})
    points = points.rename(columns={"run": "runs"})
    wide = wide_of(results)
    ablation = points["section"] == "ablation"
    default = f"ablation/{DEFAULT}@" + points["passes"].astype(str)
    bases = default.where(ablation, SCRATCH)
    pairs = {name: other for name, other in bases.items() if name != other and other in wide}
    differences = {name: complete(wide[name], wide[other]) for name, other in pairs.items()}
    over = gains(pd.DataFrame(differences, index=wide.index))
    difference = texts(gain_text, *over[:3]).reindex(points.index).fillna("-")
    difference[ablation & (points["name"] == DEFAULT)] = "reference"
    accuracy = mean_by(wide[points.index], "n_labels").T
    return points.join(accuracy).join(difference.rename(columns="difference {}".format))


def _coherence(section: str, results: Results) -> Table:
    points = coherence_points(results)
    points = points[points["section"] == section]
    title = COHERENCE_TITLES[section].format(passes="/".join(map(str, points["passes"].unique())))
    title = f"{title}; {several([*points['runs']] or [0], 'run')}"
    over = "over scratch" if section == "time" else "difference"
    columns = [points["name"].rename("objective" if section == "time" else "change")]
    # An ablation has no seconds: every row takes as many steps, and they say more of the machine.
    if section == "time":
        seconds = points["seconds"].map("{:.3g}".format, na_action="ignore").fillna("cut off")
        columns += [points["passes"].astype(str), seconds]
    for n in sizes_of(points):
        columns.append(points[n].map(mean_and_std).rename(f"N = {n}"))
        columns.append(points[f"difference {n}"].rename(over))
    return Table(title, pd.concat(columns, axis=1))


# speed.py

FORMS = {
    "direct": "textbook: a copy of every weight for each network",
    "vmap": "textbook: `torch.func.vmap` of `functional_call`",
    "library": "`MMDInitializer`",
    "products": "its dense products alone, back to back",
    "floor": "its dense products at the measured sgemm rate",
    "perceptron": "the perceptron",
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


SPEED_KINDS = ("step", "memory", "fine_tuning", "coherent_fits", "modules", "module_memory")
"""Those of ``speed.py``, each made of the results' entry of its name."""

TIME_TABLES: dict[str, Callable[..., Table]] = {
    **{kind: partial(_written, kind) for kind in SPEED_KINDS},
    **{f"coherence_{section}": partial(_coherence, section) for section in COHERENCE_TITLES},
}
"""From the results of a command to a table of them, by kind."""
