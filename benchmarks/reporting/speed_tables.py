"""Tables of the figures of speed, for the terminal and for the README."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reporting.table import Table

__all__ = ["SPEED_TABLES", "build_speed_table", "machine_line"]

_MIB = 2**20

# Row -> what it is, in the order of the table of steps.
_FORMS = {
    "direct": "textbook: a copy of every weight for each network",
    "vmap": "textbook: `torch.func.vmap` of `functional_call`",
    "library": "`MMDInitializer`",
    "products": "its dense products alone, back to back",
    "floor": "its dense products at the measured sgemm rate",
}


_MODULE_FORMS = {
    "perceptron": "the perceptron's own path",
    "sequential": "the same as an `nn.Sequential` in `module=`",
    "convnet": "a ConvNet in `module=`",
}


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _mib(n_bytes: float) -> str:
    return f"{n_bytes / _MIB:.0f} MiB" if n_bytes >= _MIB else f"{n_bytes / 1024:.0f} KiB"


def _thousands(n: int) -> str:
    return f"{n:,}"


def _step(results: dict[str, Any]) -> Table:
    seconds = results["step"]["seconds"]
    floor = seconds["floor"]["median"]
    rows = [
        [
            text,
            _seconds(seconds[form]["median"]),
            _seconds(seconds[form]["minimum"]),
            f"{seconds[form]['median'] / floor:.2f}",
        ]
        for form, text in _FORMS.items()
    ]
    rate = results["step"]["sgemm_gflops"]["median"]
    size = results["size"]
    title = (
        f"Seconds a pre-training step (K = {size['n_perturbations']}, B = {size['batch_size']}, "
        f"{size['network']}; {results['threads']} threads; sgemm at {rate:.0f} GFLOP/s)"
    )
    return Table(title, ["form", "median", "fastest", "times the floor"], rows)


def _breakdown(results: dict[str, Any]) -> Table:
    parts = results["breakdown"]
    whole = sum(parts.values())
    rows = [
        [part, _seconds(seconds), f"{100 * seconds / whole:.0f} %"]
        for part, seconds in sorted(parts.items(), key=lambda item: -item[1])
    ]
    return Table("Where a step of the library goes", ["part", "a step", "share"], rows)


def _memory(results: dict[str, Any]) -> Table:
    rows = [[_FORMS[r["form"]], _mib(r["peak"])] for r in results["memory"]]
    return Table("Peak memory of pre-training, above what the process held", ["form", "peak"], rows)


def _scaling(results: dict[str, Any]) -> Table:
    rows = [
        [f"{r['axis']} = {r['value']}", _seconds(r["seconds"]), _mib(r["peak"])]
        for r in results["scaling"]
    ]
    return Table("A step of the library, one number changed", ["size", "a step", "peak"], rows)


def _rows(results: dict[str, Any]) -> Table:
    rows = [
        [
            _thousands(r["rows"]),
            _mib(r["bytes"]),
            _seconds(r["seconds"]),
            _mib(r["anonymous"]) if "anonymous" in r else "-",
            _mib(r["peak"]),
        ]
        for r in results["rows"]
    ]
    return Table(
        "Twenty steps of `fit` on rows on disk",
        ["rows", "on disk", "time", "memory", "memory with the file's own pages"],
        rows,
    )


def _fine_tuning(results: dict[str, Any]) -> Table:
    rows = [
        [
            str(r["rows"]),
            str(r["threads"]),
            _seconds(r["seconds"]["ours"]["median"]),
            _seconds(r["seconds"]["scikit-learn"]["median"]),
            f"{r['ours / scikit-learn']['median']:.2f}",
        ]
        for r in results["fine_tuning"]
    ]
    return Table(
        "`MLPClassifier.fit`, ten epochs on 784-392-392-392-2",
        ["rows", "threads", "ours", "scikit-learn", "ratio"],
        rows,
    )


def _cross_validation(results: dict[str, Any]) -> Table:
    found = results["cross_validation"]
    one, two = (found["seconds"][n]["median"] for n in ("1", "2"))
    speedup = found["one job / two jobs"]["median"]
    rows = [["1", _seconds(one), "1.00"], ["2", _seconds(two), f"{speedup:.2f}"]]
    title = f"`cross_val_score`, {found['folds']} folds of {found['rows']} rows"
    return Table(title, ["n_jobs", "time", "times as fast"], rows)


def _modules(results: dict[str, Any]) -> Table:
    found, size = results["modules"], results["size"]
    forms = {form: _MODULE_FORMS[form] for form in ("perceptron", "sequential")}
    below = {"sequential": "perceptron"}
    for convnet in found["convnets"]:
        name, width = f"convnet {convnet['width']}", convnet["width"]
        forms[name] = f"a ConvNet of {width} and {2 * width} channels in `module=`"
        forms[f"{name} floor"] = _FORMS["floor"]
        below[name] = f"{name} floor"
    rows = []
    for form, text in forms.items():
        own, pair = found["seconds"][form], f"{form} / {below.get(form)}"
        times = f"{found['ratios'][pair]['median']:.2f}" if form in below else "1.00"
        rows.append([text, _seconds(own["median"]), _seconds(own["minimum"]), times])
    convnet = found["convnets"][0]
    title = (
        f"Seconds a pre-training step of a module: the paper's perceptron (K = "
        f"{size['n_perturbations']}, B = {size['batch_size']}, {size['network']}), and ConvNets "
        f"(K = {convnet['n_perturbations']}, B = {convnet['batch_size']}, {convnet['side']} x "
        f"{convnet['side']} pixels); {results['threads']} threads"
    )
    return Table(title, ["form", "median", "fastest", "times what it is compared with"], rows)


def _module_memory(results: dict[str, Any]) -> Table:
    records = results["module_memory"]
    numbers = sorted({r["K"] for r in records})
    peaks = {(r["form"], r["K"]): _mib(r["peak"]) for r in records}
    rows = [
        [_MODULE_FORMS[form], *(peaks[form, K] for K in numbers)]
        for form in dict.fromkeys(r["form"] for r in records)
    ]
    title = "Peak memory of pre-training a module, above what the process held"
    return Table(title, ["form", *(f"K = {K}" for K in numbers)], rows)


# Name of a table, which is the key of its figures in the results -> how it is made.
SPEED_TABLES: dict[str, Callable[[dict[str, Any]], Table]] = {
    "step": _step,
    "breakdown": _breakdown,
    "memory": _memory,
    "scaling": _scaling,
    "rows": _rows,
    "fine_tuning": _fine_tuning,
    "cross_validation": _cross_validation,
    "modules": _modules,
    "module_memory": _module_memory,
}


def build_speed_table(kind: str, results: dict[str, Any]) -> Table:
    """One of the tables of ``SPEED_TABLES``.

    Raises
    ------
    ValueError
        If there is no such table, or the results lack its figures.
    """
    if kind not in SPEED_TABLES:
        raise ValueError(f"unknown table {kind!r}; valid names are {sorted(SPEED_TABLES)}")
    if kind not in results:
        held = sorted(results.keys() & SPEED_TABLES.keys())
        raise ValueError(f"these results hold no {kind!r}; they hold {held}")
    return SPEED_TABLES[kind](results)


def machine_line(results: dict[str, Any]) -> str:
    """The machine and the versions, in a line."""
    hardware, versions = results["hardware"], results["versions"]
    gpu = f", {hardware['gpu']}" if hardware["gpu"] else ""
    return (
        f"{hardware['cpu']}, {hardware['cores']} cores{gpu}; torch {versions['torch']}, "
        f"scikit-learn {versions['scikit-learn']}, Python {versions['python']}"
    )
