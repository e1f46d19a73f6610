"""Seconds of a pre-training step: the textbook's two forms, the library, and the floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sklearn_mmdinit import MMDInitializer
from timing.agreement import random_rows, random_theta0
from timing.clock import in_turns, ratio, timed
from timing.floor import products_of_step, products_runner, sgemm_runner, total_flops
from timing.library_step import layers_by_gram
from timing.textbook import FORMS, Setting, TextbookStep, network_from_arrays

__all__ = [
    "Size",
    "estimator_measure",
    "initializer",
    "library_measure",
    "measure_steps",
    "textbook_measure",
]


@dataclass(frozen=True)
class Size:
    """What a step works on; the paper's values are the defaults."""

    n_features: int = 784
    hidden_layer_sizes: tuple[int, ...] = (392, 392, 392)
    n_classes: int = 2
    n_perturbations: int = 256
    batch_size: int = 32

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.n_features, *self.hidden_layer_sizes, self.n_classes)


def initializer(size: Size, device: str = "cpu", **parameters: Any) -> MMDInitializer:
    """The library at a given size, with the paper's other values."""
    return MMDInitializer(
        size.hidden_layer_sizes,
        n_classes=size.n_classes,
        n_perturbations=size.n_perturbations,
        batch_size=size.batch_size,
        device=device,
        random_state=0,
        **parameters,
    )


def library_measure(size: Size, n_steps: int, device: str = "cpu") -> Callable[[], float]:
    """A measure of the seconds of one of the library's steps, through its public interface."""
    rows = random_rows((n_steps + 1) * size.batch_size, size.n_features)
    return estimator_measure(initializer(size, device), rows, n_steps, device)


def estimator_measure(
    estimator: Any, rows: np.ndarray, n_steps: int, device: str = "cpu"
) -> Callable[[], float]:
    """A measure of the seconds of one step of an initializer on (n + 1) B rows.

    One pass over (n + 1) B rows less one pass over B rows is n steps: what a call of
    ``partial_fit`` costs before and after its steps cancels.
    """
    first = rows[: len(rows) // (n_steps + 1)]

    def measure() -> float:
        # A window may be captured as a whole on a GPU: it must not be met for the first time.
        short = timed(lambda: estimator.partial_fit(first), device)
        return (timed(lambda: estimator.partial_fit(rows), device) - short) / n_steps

    measure()
    return measure


def textbook_measure(
    size: Size, form: str, device: str = "cpu", warm_up: bool = True
) -> Callable[[], float]:
    """A measure of the seconds of one step of a textbook form."""
    theta0 = random_theta0(initializer(size), size.n_features)
    setting = Setting(n_perturbations=size.n_perturbations, n_uniform_samples=size.n_perturbations)
    network = network_from_arrays(theta0.coefs, theta0.intercepts, device)
    step = TextbookStep(network, setting, form)
    X = torch.from_numpy(random_rows(size.batch_size, size.n_features)).to(device)
    if warm_up:
        step(X)
    return lambda: timed(lambda: step(X), device)


def measure_steps(size: Size, n_steps: int, rounds: int, device: str = "cpu") -> dict[str, Any]:
    """Time all forms of a step in turns, and the floor in the same rounds.

    Parameters
    ----------
    size : Size
        Of the step.
    n_steps : int
        Steps of the library in one measure.
    rounds : int
        Measures of each form.
    device : str, default="cpu"
        Where to compute.

    Returns
    -------
    dict
        "seconds" of each form, "floor" and its parts, and "ratios".
    """
    gram = layers_by_gram(size.widths, size.batch_size)
    products = products_of_step(size.widths, size.batch_size, size.n_perturbations, gram)
    rows = size.batch_size * size.n_perturbations
    width = max(size.hidden_layer_sizes)
    sgemm = sgemm_runner(rows, width, device)
    flops, sgemm_flops = total_flops(products), 2 * rows * width * width
    measures = {
        # In seconds of the whole step's operations at the rate of this round.
        "floor": lambda: sgemm() * flops / sgemm_flops,
        "products": products_runner(products, device),
        "library": library_measure(size, n_steps, device),
        **{form: textbook_measure(size, form, device) for form in FORMS},
    }
    times = in_turns(measures, rounds)
    floors = np.asarray(times["floor"]["seconds"])
    return {
        "seconds": times,
        "flops": flops,
        "sgemm_gflops": {
            "median": float(flops / np.median(floors) / 1e9),
            "best": float(flops / floors.min() / 1e9),
        },
        "sgemm_shape": [rows, width, width],
        "ratios": {
            "library / floor": ratio(times, "library", "floor"),
            "library / products": ratio(times, "library", "products"),
            **{f"{form} / library": ratio(times, form, "library") for form in FORMS},
        },
    }
