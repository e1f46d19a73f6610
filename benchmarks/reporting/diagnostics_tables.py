"""The table of what ``diagnostics.py`` measured, for the terminal and for the README."""

from __future__ import annotations

from typing import Any

from reporting.paper import DEAD_NEURONS, DEGENERATE_SOFTMAX, FINAL_LOSS, compares_with_paper
from reporting.table import Table, mean_and_std

__all__ = ["diagnostics_table", "ratio_cells", "ratio_heads"]


def ratio_cells(record: dict[str, Any]) -> list[str]:
    """Degenerate softmax, then the dead neurons of each hidden layer."""
    figures = [record["degenerate_softmax_percent"], *record["dead_neurons_percent"]]
    return [mean_and_std(**figure) for figure in figures]


def ratio_heads(settings: dict[str, Any]) -> list[str]:
    """What stands above ``ratio_cells``."""
    layers = [f"dead, hidden {i + 1}" for i in range(len(settings["hidden_layer_sizes"]))]
    return ["degenerate softmax", *layers]


def _paper_row() -> list[str]:
    figures = [DEGENERATE_SOFTMAX[FINAL_LOSS], *DEAD_NEURONS[FINAL_LOSS]]
    return ["the paper, after five passes", *(mean_and_std(*figure) for figure in figures)]


def diagnostics_table(results: dict[str, Any]) -> Table:
    """One row for each theta0 in the order of the records, then the paper's.

    The paper's row stands there only for its own data and network.

    Parameters
    ----------
    results : dict
        What ``diagnostics.py`` writes.
    """
    settings = results["settings"]
    rows = [[record["name"], *ratio_cells(record)] for record in results["theta0"]]
    if compares_with_paper(results):
        rows.append(_paper_row())
    title = (
        f"Degenerate softmax (% of {settings['n_perturbations']} perturbed networks) and fully "
        f"dead neurons of each hidden layer (%): mean ± std over {settings['n_batches']} "
        f"mini-batches of {settings['batch_size']} training images"
    )
    return Table(title, ["theta0", *ratio_heads(settings)], rows)
