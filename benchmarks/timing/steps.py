"""Seconds of a pre-training step: the library, the textbook's two forms, and the floor.

The floor is the arithmetic of the step's dense products, forward and backward, at the rate of this
machine's own sgemm. Left out are the factorisations and all that is no product, so that no step can
reach it. What is compared is measured in turns, in one run.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from sklearn_mmdinit import MMDInitializer
from timing.textbook import FORMS, TextbookStep


def timed(action: Callable[[], Any], device: str | torch.device = "cpu") -> float:
    """Seconds that an action takes, a GPU's outstanding work included."""
    is_cuda = torch.device(device).type == "cuda"
    wait: Callable[[], Any] = torch.cuda.synchronize if is_cuda else lambda: None
    wait()
    start = time.perf_counter()
    action()
    wait()
    return time.perf_counter() - start


def in_turns(measures: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, Any]:
    """Median, minimum and all seconds: a slow minute of the machine meets every measure."""
    seconds: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(repetitions):
        for name, measure in measures.items():
            seconds[name].append(measure())
    return {
        name: {"median": float(np.median(taken)), "minimum": min(taken), "seconds": taken}
        for name, taken in seconds.items()
    }


@dataclass(frozen=True)
class Step:
    """What a step of a perceptron works on; defaults are the paper's values."""

    n_features: int = 784
    hidden_layer_sizes: tuple[int, ...] = (392, 392, 392)
    n_classes: int = 2
    n_perturbations: int = 256
    batch_size: int = 32
    device: str = "cpu"

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.n_features, *self.hidden_layer_sizes, self.n_classes)

    def rows(self, n_rows: int, seed: int = 0) -> np.ndarray:
        """Correlated rows, as pixels are: 16 directions carry most of their variance."""
        n, rng = self.n_features, np.random.default_rng(seed)
        latent = rng.normal(size=(n_rows, 16)) @ rng.normal(size=(16, n)) / 4
        return (0.9 * latent + 0.4 * rng.normal(size=(n_rows, n))).astype(np.float32)

    def initializer(self, **parameters: Any) -> MMDInitializer:
        """The library at this size, with the paper's other values."""
        sizes = ("hidden_layer_sizes", "n_classes", "n_perturbations", "batch_size", "device")
        params = {name: getattr(self, name) for name in sizes}
        return MMDInitializer(**params | {"random_state": 0, "verbose": 0} | parameters)

    def start(self, X: np.ndarray, **parameters: Any) -> MMDInitializer:
        """Fitted for no epoch: its weights are fresh."""
        return self.initializer(**parameters, max_iter=0).fit(X)

    def library(self) -> Callable[[], float]:
        """A measure of the seconds of the library's step: what more epochs add to ``fit``."""
        steps_a_pass = 4
        X = self.rows(steps_a_pass * self.batch_size)
        # On a GPU what a fit does beside its steps outweighs twenty, and both fits are recorded.
        begun, n_steps = (1, 20) if self.device == "cpu" else (8, 400)
        more = -(-n_steps // steps_a_pass)

        def seconds(max_iter: int) -> float:
            initializer = self.initializer(max_iter=max_iter)
            return timed(lambda: initializer.fit(X), self.device)

        seconds(begun)  # warm up
        return lambda: (seconds(begun + more) - seconds(begun)) / (more * steps_a_pass)

    def textbook(self, form: str) -> Callable[[], float]:
        """A measure of the seconds of one step of a textbook form, not warmed up."""
        X = self.rows(self.batch_size)
        weights = self.start(X).to_module().parameters()
        step = TextbookStep(weights, self.n_perturbations, form, device=self.device)
        batch = torch.from_numpy(X).to(self.device)
        return lambda: timed(lambda: step(batch), self.device)


class Product(NamedTuple):
    """``batch`` products of (rows, inner) by (inner, columns)."""

    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each term."""
        return 2 * self.batch * self.rows * self.inner * self.columns


def products_of_step(step: Step) -> list[Product]:
    """The dense products of a perceptron's step, layer by layer, as the library's sampler has them.

    H is a layer's input, W its weight, L the factor of its noise's covariance, Z its normals and G
    the gradient at its output. The first layer's input is shared and needs no gradient.
    """
    sampler = step.start(step.rows(step.batch_size)).sampler_
    K = step.n_perturbations
    products: list[Product] = []
    for n_in, n_out in pairwise(step.widths):
        B, shared = step.batch_size, not products
        rows, batch = (B, 1) if shared else (K * B, K)
        products.append(Product(1, n_out, rows, n_in))  # G' H
        if sampler != "gram":
            products += [Product(K, B, n_in, n_out)]  # H (W + E)'
            products += [] if shared else [Product(K, B, n_out, n_in)]  # G (W + E)
            continue
        # H W', H H' and L Z; then G W, G Z', (G Z') L^-1 and (G Z' L^-1) H
        products += [
            Product(1, rows, n_in, n_out), Product(batch, B, n_in, B), Product(K, B, B, n_out),
        ]  # fmt: skip
        products += [] if shared else [
            Product(1, rows, n_out, n_in), Product(K, B, n_out, B),
            Product(K, B, B, B), Product(K, B, B, n_in),
        ]  # fmt: skip
    return products


def _sgemm(step: Step) -> tuple[Product, Callable[[int], float]]:
    """A product as large as a step's, and seconds of so many operations at its rate."""
    width = max(step.hidden_layer_sizes)
    product = Product(1, step.batch_size * step.n_perturbations, width, width)
    left = torch.randn(product.rows, width, device=step.device)
    right, out = torch.randn(width, width, device=step.device), torch.empty_like(left)

    def run() -> None:
        for _ in range(10):
            torch.mm(left, right, out=out)

    run()
    return product, lambda flops: timed(run, step.device) * flops / (10 * product.flops)


def measure_steps(step: Step, rounds: int) -> dict[str, Any]:
    """Seconds of all forms of a step in turns, and of the floor in the same rounds."""
    shape, seconds_of = _sgemm(step)
    flops = sum(product.flops for product in products_of_step(step))
    measures: dict[str, Callable[[], float]] = {
        "floor": partial(seconds_of, flops),
        "library": step.library(),
    }
    for form in FORMS:
        measures[form] = step.textbook(form)
        measures[form]()
    times = in_turns(measures, rounds)
    floor = times["floor"]
    rates = {"median": flops / floor["median"] / 1e9, "best": flops / floor["minimum"] / 1e9}
    of_floor = {"flops": flops, "sgemm_gflops": rates, "sgemm_shape": list(shape[1:])}
    return {"seconds": times} | of_floor
