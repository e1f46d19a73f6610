"""The paper's own figures (Lee and Cho, 2023, arXiv:2302.04369), typed from its tables.

``ACCURACY`` is its Table 1: the mean test accuracy (%) over 20 random binary tasks, then
(mean, std) over four runs. ``TASK_STD`` is its Table 2: the std over the tasks (%), then
(mean, std) over the runs. Each entry belongs to the N of the same place in ``N_LABELS``.

``DEGENERATE_SOFTMAX`` and ``DEAD_NEURONS`` are its appendix's tables of these (%), for each
(lambda, xi): (mean, std) over 128 mini-batches, and of the dead neurons for each hidden layer.
``SCALE_AND_WEIGHT`` is the table by which it chooses s and lambda, for each (s^2, lambda): the
degenerate softmax and the dead neurons of the worst layer (%), (mean, std) over four runs.
"""

from __future__ import annotations

from typing import Any

from protocol.methods import NetworkSettings

__all__ = [
    "ACCURACY",
    "DEAD_NEURONS",
    "DEGENERATE_SOFTMAX",
    "FINAL_LOSS",
    "N_LABELS",
    "SCALE_AND_WEIGHT",
    "TASK_STD",
    "compares_with_paper",
    "kernels_of",
    "paper_difference",
    "paper_figure",
    "tasks_compare_with_paper",
]

Row = tuple[tuple[float, float], ...]

N_LABELS = (5, 10, 20, 40)

ACCURACY: dict[str, Row] = {
    "xavier/fcn/ours": ((82.42, 0.72), (85.98, 0.65), (90.07, 0.17), (92.48, 0.57)),
    "xavier/fcn/scratch": ((79.63, 0.78), (83.70, 0.59), (87.54, 0.67), (90.91, 0.53)),
    "xavier/fcn/rlabel": ((76.81, 2.13), (83.34, 0.79), (87.53, 0.91), (90.88, 0.52)),
    "xavier/fcn+bn/scratch": ((77.09, 1.22), (83.50, 0.44), (88.00, 0.60), (91.48, 0.53)),
    "xavier/fcn+bn/rlabel": ((78.87, 1.75), (84.38, 0.97), (88.71, 0.53), (91.57, 0.59)),
    "he/fcn/ours": ((82.27, 0.78), (86.46, 0.37), (89.69, 0.28), (92.61, 0.51)),
    "he/fcn/scratch": ((79.17, 1.21), (83.41, 0.92), (87.96, 0.64), (91.34, 0.37)),
    "he/fcn/rlabel": ((77.41, 2.09), (83.52, 0.77), (87.31, 0.68), (90.66, 0.41)),
    "he/fcn+bn/scratch": ((76.89, 1.48), (83.01, 0.98), (88.01, 0.66), (91.55, 0.57)),
    "he/fcn+bn/rlabel": ((78.82, 0.78), (85.33, 0.62), (89.15, 0.68), (92.14, 0.67)),
}

TASK_STD: dict[str, Row] = {
    "xavier/fcn/ours": ((4.76, 0.88), (4.54, 0.52), (3.01, 0.71), (2.26, 0.40)),
    "xavier/fcn/scratch": ((6.62, 1.29), (5.55, 0.62), (3.54, 0.27), (2.65, 0.53)),
    "xavier/fcn/rlabel": ((6.08, 0.92), (5.02, 1.16), (3.82, 0.23), (2.78, 0.49)),
    "xavier/fcn+bn/scratch": ((7.47, 1.70), (5.53, 0.69), (3.72, 0.78), (2.72, 0.32)),
    "xavier/fcn+bn/rlabel": ((6.62, 1.50), (5.44, 0.33), (3.20, 0.41), (2.40, 0.37)),
    "he/fcn/ours": ((5.26, 0.87), (4.04, 0.80), (3.25, 0.42), (2.16, 0.40)),
    "he/fcn/scratch": ((5.74, 0.81), (5.32, 0.45), (3.31, 0.48), (2.47, 0.31)),
    "he/fcn/rlabel": ((6.37, 1.10), (4.84, 1.02), (3.98, 0.44), (3.03, 0.85)),
    "he/fcn+bn/scratch": ((7.52, 0.76), (6.50, 1.76), (3.59, 0.80), (2.74, 0.41)),
    "he/fcn+bn/rlabel": ((7.33, 1.10), (4.95, 1.08), (3.18, 0.55), (2.30, 0.28)),
}

# The (lambda, xi) of the loss that the paper settles on.
FINAL_LOSS = (0.4, 1.0)

DEGENERATE_SOFTMAX: dict[tuple[float, float], tuple[float, float]] = {
    (0.0, 0.0): (89.32, 0.94),
    (0.4, 0.0): (0.41, 0.38),
    (0.0, 1.0): (80.83, 1.03),
    (0.4, 1.0): (1.39, 0.62),
}

DEAD_NEURONS: dict[tuple[float, float], Row] = {
    (0.0, 0.0): ((52.11, 3.07), (63.88, 1.30), (80.08, 0.61)),
    (0.4, 0.0): ((1.96, 0.42), (21.81, 1.40), (8.21, 2.16)),
    (0.4, 1.0): ((3.75, 0.77), (5.12, 1.20), (0.02, 0.06)),
}

SCALE_AND_WEIGHT: dict[tuple[float, float], Row] = {
    (0.2, 0.2): ((1.32, 0.73), (28.87, 5.05)),
    (0.2, 0.4): ((0.54, 0.42), (30.25, 3.56)),
    (0.2, 1.0): ((0.84, 0.53), (16.52, 3.27)),
    (0.5, 0.2): ((1.33, 0.64), (17.80, 3.83)),
    (0.5, 0.4): ((1.58, 0.72), (5.48, 1.56)),
    (0.5, 1.0): ((1.41, 0.72), (34.15, 28.81)),
    (1.0, 0.2): ((6.39, 1.19), (6.91, 1.19)),
    (1.0, 0.4): ((4.30, 1.23), (13.06, 3.23)),
    (1.0, 1.0): ((3.96, 1.26), (16.13, 3.57)),
    (2.0, 0.2): ((44.20, 4.75), (56.44, 5.00)),
    (2.0, 0.4): ((35.57, 5.63), (47.62, 5.48)),
    (2.0, 1.0): ((16.93, 7.63), (34.12, 9.02)),
}


def compares_with_paper(results: dict[str, Any]) -> bool:
    """Whether figures of a theta0 are of the paper's data and network, and may stand beside it."""
    # A convolutional network has no widths.
    widths = tuple(results["settings"].get("hidden_layer_sizes", ()))
    return results["dataset"]["name"] == "mnist" and widths == NetworkSettings().hidden_layer_sizes


def kernels_of(results: dict[str, Any]) -> str:
    """The reading of L_uni that theta0 was learned by, a key of ``protocol.kernels.KERNELS``."""
    kernels: str = results["settings"].get("kernels", "sum")
    return kernels


def tasks_compare_with_paper(results: dict[str, Any]) -> bool:
    """Whether figures of tasks may: the tasks are then binary ones of the same data and network."""
    return results["settings"].get("classes", 2) == 2 and compares_with_paper(results)


def paper_figure(table: dict[str, Row], method: str, n_labels: int) -> tuple[float, float] | None:
    """The paper's (mean, std over runs) of a cell, or None where it has no such cell."""
    if method not in table or n_labels not in N_LABELS:
        return None
    return table[method][N_LABELS.index(n_labels)]


def paper_difference(method: str, other: str, n_labels: int) -> str:
    """How many points one is above another in Table 1; nothing where it lacks either."""
    one, two = (paper_figure(ACCURACY, name, n_labels) for name in (method, other))
    return "" if one is None or two is None else f"{one[0] - two[0]:+.2f}"
