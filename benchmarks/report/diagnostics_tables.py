"""The table of what ``diagnostics.py`` measured, for the terminal and for the README."""

from __future__ import annotations

from typing import Any

from protocol.methods import NetworkSettings
from report.paper import DEAD_NEURONS, DEGENERATE_SOFTMAX, FINAL_LOSS
from report.table import Table

__all__ = ["diagnostics_table"]


def _cell(mean: float, std: float | None) -> str:
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def _row(record: dict[str, Any]) -> list[str]:
    figures = [record["degenerate_softmax_percent"], *record["dead_neurons_percent"]]
    return [record["name"], *(_cell(figure["mean"], figure["std"]) for figure in figures)]


def _paper_row() -> list[str]:
    figures = [DEGENERATE_SOFTMAX[FINAL_LOSS], *DEAD_NEURONS[FINAL_LOSS]]
    return ["the paper, after five passes", *(_cell(*figure) for figure in figures)]


def diagnostics_table(results: dict[str, Any]) -> Table:
    """One row for each theta0 in the order of the records, then the paper's.

    The paper's row stands there only for its own data and network.

    Parameters
    ----------
    results : dict
        What ``diagnostics.py`` writes.
    """
    settings = results["settings"]
    widths = tuple(settings["hidden_layer_sizes"])
    rows = [_row(record) for record in results["theta0"]]
    if results["dataset"]["name"] == "mnist" and widths == NetworkSettings().hidden_layer_sizes:
        rows.append(_paper_row())
    title = (
        f"Degenerate softmax (% of {settings['n_perturbations']} perturbed networks) and fully "
        f"dead neurons of each hidden layer (%): mean ± std over {settings['n_batches']} "
        f"mini-batches of {settings['batch_size']} training images"
    )
    layers = [f"dead, hidden {i + 1}" for i in range(len(widths))]
    return Table(title, ["theta0", "degenerate softmax", *layers], rows)
