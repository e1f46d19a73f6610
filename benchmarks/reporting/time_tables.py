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


def sizes_of(points: pd.DataFrame) -> list[int]:
    """The N whose accuracies are columns of points."""
    return [column for column in points if isinstance(column, int)]


# coherence.py


def coherence_points(results: Results) -> pd.DataFrame:
    """The points of a file that ``coherence.py`` wrote, in the order of their theta0.

    Columns: name, passes, runs, seconds, an accuracy (%) for each N and, as text, its difference
    ("difference N") from scratch.
    """
    theta0 = pd.DataFrame(results["theta0"])
    grouped = theta0.groupby(theta0["name"] + "@" + theta0["passes"].astype(str), sort=False)
    columns = {"name": "first", "passes": "first", "run": "nunique", "seconds": "min"}
    points, wide = grouped.agg(columns).rename(columns={"run": "runs"}), wide_of(results)
    over = gains(pd.DataFrame({name: complete(wide[name], wide[SCRATCH]) for name in points.index}))
    difference = texts(gain_text, *over[:3]).rename(columns="difference {}".format)
    return points.join(mean_by(wide[points.index], "n_labels").T).join(difference)


def _coherence(results: Results) -> Table:
    points = coherence_points(results)
    title = (
        "Test accuracy (%) after so many seconds of pre-training, and the difference from scratch "
        f"on the same tasks (points) with its 95% interval; {several([*points['runs']], 'run')}"
    )
    seconds = points["seconds"].map("{:.3g}".format, na_action="ignore").fillna("cut off")
    columns = [points["name"].rename("objective"), points["passes"].astype(str), seconds]
    for n in sizes_of(points):
        columns.append(points[n].map(mean_and_std).rename(f"N = {n}"))
        columns.append(points[f"difference {n}"].rename("over scratch"))
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


def _fits_against(results: Results) -> Table:
    """Whole fits by two checkouts, in turns."""
    rows = []
    for fit in results["fits"]:
        seconds = (_seconds(fit["seconds"][side]["median"]) for side in ("old", "new"))
        rows.append([fit["name"], *seconds, f"{fit['new / old']['median']:.2f}"])
    title = f"A whole fit with coherence, {results['threads']} threads"
    head = ["rows", "with the paper's terms", "by coherence alone", "ratio"]
    return Table(title, pd.DataFrame(rows, columns=head))


SPEED_KINDS = ("step", "memory", "fine_tuning", "coherent_fits", "modules", "module_memory")
"""Those of ``speed.py``, each made of the results' entry of its name."""

TIME_TABLES: dict[str, Callable[..., Table]] = {
    **{kind: partial(_written, kind) for kind in SPEED_KINDS},
    "coherence_time": _coherence,
    "fits_against": _fits_against,
}
"""From the results of a command to a table of them, by kind."""
