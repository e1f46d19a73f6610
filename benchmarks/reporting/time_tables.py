"""Tables of ``speed.py``: seconds and memory."""

from collections.abc import Callable
from functools import partial

import pandas as pd

from reporting.layout import Table, template_environment
from reporting.results import Results

FORMS = {
    "direct": "textbook: a copy of every weight for each network",
    "vmap": "textbook: `torch.func.vmap` of `functional_call`",
    "library": "`MMDInitializer`",
    "products": "its dense products alone, back to back",
    "floor": "its dense products at the measured sgemm rate",
}


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _written(kind: str, results: Results) -> Table:
    """What ``tables.j2`` has of a kind."""
    environment = template_environment()
    environment.filters |= {"seconds": _seconds, "mib": lambda n: f"{n / 2**20:.0f} MiB"}
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
        accuracies = (f"{fit['accuracy'][side]:.1f}" for side in ("old", "new"))
        rows.append([fit["name"], *seconds, f"{fit['new / old']['median']:.2f}", *accuracies])
    title = (
        f"Fits with coherence, {results['threads']} threads; accuracy (%) with five labels a class"
    )
    head = ["rows", "with the paper's terms", "coherence alone", "ratio", "accuracy before", "now"]
    return Table(title, pd.DataFrame(rows, columns=head))


SPEED_KINDS = ("step", "memory", "coherent_fits")  # each of the results' entry of its name

TIME_TABLES: dict[str, Callable[..., Table]] = {
    **{kind: partial(_written, kind) for kind in SPEED_KINDS},
    "fits_against": _fits_against,
}
