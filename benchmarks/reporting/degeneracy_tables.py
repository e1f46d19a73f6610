"""Tables of what ``degeneracies.py`` measured: the appendix's "effect_loss_sd", "effect_loss_iod".

The paper's figures stand there only for its own data and network.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from reporting.paper import DEAD_NEURONS, DEGENERATE_SOFTMAX, compares_with_paper
from reporting.table import Table, as_text, mean_and_std

__all__ = [
    "DEGENERACY_TABLES",
    "NOT_RUN",
    "dead_neurons_table",
    "degeneracies_text",
    "degenerate_softmax_table",
    "densities_table",
    "pretraining_words",
    "setting_of",
]

NOT_RUN = "not yet run"


def setting_of(record: dict[str, Any]) -> tuple[float, float] | None:
    """The (lambda, xi) of a record; None for the fresh weights."""
    values = record["degeneracy_weight"], record["detachment_weight"]
    return None if values[0] is None else values


def pretraining_words(settings: dict[str, Any]) -> str:
    """How theta0 was learned: how long, with how many networks, and by which reading."""
    passes = settings["passes"]
    averaged = ", the kernels averaged" if settings.get("kernels") == "mean" else ""
    return (
        f"theta0 after {passes} pass{'' if passes == 1 else 'es'} over {settings['rows']:,} images "
        f"with K = {settings['n_perturbations']}{averaged}"
    )


def _by_setting(
    results: dict[str, Any],
) -> dict[tuple[float, float] | None, dict[str, Any] | None]:
    """Records by setting, the fresh weights first; None for one that was not run yet."""
    found = {setting_of(record): record for record in results["records"]}
    shown = [None, *(tuple(setting) for setting in results["settings"]["shown"])]
    return {setting: found.get(setting) for setting in shown}


def _head_cells(setting: tuple[float, float] | None) -> list[str]:
    return ["fresh weights", "-"] if setting is None else [f"{value:g}" for value in setting]


def degenerate_softmax_table(results: dict[str, Any]) -> Table:
    """The share of perturbed networks that use fewer than all classes, a row for each setting."""
    settings, paper = results["settings"], compares_with_paper(results)
    rows = []
    for setting, record in _by_setting(results).items():
        own = NOT_RUN if record is None else mean_and_std(**record["degenerate_softmax_percent"])
        row = [*_head_cells(setting), own]
        if paper:
            figure = DEGENERATE_SOFTMAX.get(setting) if setting else None
            row.append(mean_and_std(*figure) if figure else "-")
        rows.append(row)
    title = (
        f"Degenerate softmax (% of {settings['networks_a_ratio']} perturbed networks): mean ± std "
        f"over {settings['n_batches']} mini-batches of {settings['batch_size']}; "
        f"{pretraining_words(settings)}"
    )
    return Table(title, ["lambda", "xi", "ours", *(["the paper"] if paper else [])], rows)


def dead_neurons_table(results: dict[str, Any]) -> Table:
    """The share of fully dead neurons of each hidden layer, a row for each setting."""
    settings, paper = results["settings"], compares_with_paper(results)
    n_layers = len(settings["hidden_layer_sizes"])
    rows = []
    for setting, record in _by_setting(results).items():
        if record is None:
            cells = [NOT_RUN] * n_layers
        else:
            cells = [mean_and_std(**layer) for layer in record["dead_neurons_percent"]]
        if paper and setting in DEAD_NEURONS:
            figures = DEAD_NEURONS[setting]
            cells = [f"{c} ({mean_and_std(*f)})" for c, f in zip(cells, figures, strict=True)]
        rows.append([*_head_cells(setting), *cells])
    note = " (the paper's figure in brackets)" if paper else ""
    title = (
        f"Fully dead neurons (%): mean ± std over {settings['n_batches']} mini-batches of "
        f"{settings['batch_size']}; {pretraining_words(settings)}{note}"
    )
    layers = [f"hidden {i + 1}" for i in range(n_layers)]
    return Table(title, ["lambda", "xi", *layers], rows)


def densities_table(results: dict[str, Any]) -> Table:
    """The densities in two numbers: how far from uniform at an image, how wide over images."""
    rows = []
    for setting, record in _by_setting(results).items():
        if record is None or "densities" not in record:
            continue
        at_images, of_networks = (
            np.asarray(record["densities"][over]) for over in ("over_perturbations", "over_inputs")
        )
        distances = [stats.kstest(values, "uniform").statistic for values in at_images]
        widths = of_networks.std(axis=1, ddof=1)
        texts = [f"{np.mean(distances):.3f}", f"{widths.mean():.3f}"]
        rows.append([*_head_cells(setting), *texts])
    title = (
        "Probability of class 0: distance from uniform over perturbations (Kolmogorov-Smirnov, "
        "mean of the images) and std over images (mean of the networks; uniform has 0.289)"
    )
    return Table(title, ["lambda", "xi", "distance at an image", "std of a network"], rows)


def degeneracies_text(results: dict[str, Any]) -> str:
    """All that is printed."""
    tables = [build(results) for build in (*DEGENERACY_TABLES.values(), densities_table)]
    return "\n\n".join(as_text(table) for table in tables if table.rows)


DEGENERACY_TABLES = {
    "degenerate_softmax": degenerate_softmax_table,
    "dead_neurons": dead_neurons_table,
}
"""From the results to a table, by kind."""
