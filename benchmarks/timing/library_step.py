"""The library's step taken apart: the one file of the benchmarks that uses private names.

A loss on given noise, and the time that a part of a step takes, cannot be had through the
public interface, and should not be: they are no use to anyone who is not after the speed of
the step itself. Everything that times or reports a whole step goes through ``MMDInitializer``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from sklearn_mmdinit import MMDInitializer, Theta0
from sklearn_mmdinit._compute import StepRandom
from sklearn_mmdinit._network import module_from_theta0
from sklearn_mmdinit._objective import mmd_objective, uniformity
from sklearn_mmdinit._sampling import choice, gram

__all__ = ["PARTS", "REGIONS", "layers_by_gram", "library_loss", "module_loss", "step_parts"]

# Part of a step -> the functions whose time it is, in the module that calls them. None of
# them calls another one.
REGIONS: dict[str, list[tuple[Any, str]]] = {
    "noise": [(StepRandom, "normal"), (StepRandom, "simplex")],
    "factor": [(gram, "semidefinite_cholesky"), (gram, "inverse_factor")],
    "kernel": [(uniformity, "interval_mmd"), (uniformity, "mmd")],
    "median": [(uniformity, "interval_median_bandwidth"), (uniformity, "median_bandwidth")],
    "detachment": [(mmd_objective, "detachment")],
}
_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
_OPTIMISER = "Optimizer.step#"
# Order of the report. "element-wise": other operations of PyTorch's, forward and backward,
# such as activations, biases and sums; "rest": what no operation of PyTorch's accounts for.
PARTS = (*REGIONS, "products", "optimiser", "element-wise", "rest")


class _GivenDraws(StepRandom):
    """Hands out given draws, in the order in which the sampler "direct" asks for them."""

    def __init__(self, U: torch.Tensor, normals: list[torch.Tensor]) -> None:
        super().__init__(seed=0, dtype=U.dtype)
        self._U, self._normals = U, list(normals)

    def split(self, n_parts: int) -> list[StepRandom]:
        # Of every layer's draws each part has its networks', in the same order.
        parts = zip(*(draws.tensor_split(n_parts) for draws in self._normals), strict=True)
        return [_GivenDraws(self._U, list(part)) for part in parts]

    def normal(self, *shape: int, out: torch.Tensor | None = None) -> torch.Tensor:
        draw = self._normals.pop(0).reshape(shape)
        return draw.clone() if out is None else out.copy_(draw)  # the sampler scales it in place

    def simplex(self, n_samples: int, n_classes: int) -> torch.Tensor:
        assert self._U.shape == (n_samples, n_classes)
        return self._U


def library_loss(
    estimator: MMDInitializer,
    theta0: Theta0,
    X: torch.Tensor,
    draws: tuple[torch.Tensor, list[torch.Tensor]] | None = None,
    seed: int = 0,
) -> tuple[float, list[np.ndarray]]:
    """The library's loss on one mini-batch and its gradient at theta0.

    Parameters
    ----------
    estimator : MMDInitializer
        Holds the objective's parameters; need not be fitted.
    theta0 : Theta0
        The network.
    X : Tensor of shape (B, n_features)
        Mini-batch; its dtype is the one of the computation.
    draws : tuple of Tensor and list of Tensor, optional
        Uniform samples (M, d), and standard normals of each weight and bias in the order of
        the layers, for ``sampler="direct"``; None draws both.
    seed : int, default=0
        Of the draws.

    Returns
    -------
    loss : float
    gradient : list of ndarray
        Weight (n_out, n_in) and bias (n_out,) of each layer in turn.
    """
    module = module_from_theta0(theta0).to(X.dtype).train()
    parameters = [p for linear in module.linear_layers for p in (linear.weight, linear.bias)]
    return _loss(estimator, module, parameters, X, draws, seed)


def module_loss(
    estimator: MMDInitializer,
    X: torch.Tensor,
    draws: tuple[torch.Tensor, list[torch.Tensor]] | None = None,
    seed: int = 0,
) -> tuple[float, list[np.ndarray]]:
    """:func:`library_loss` by the general path, at the weights of an estimator's own module.

    Parameters
    ----------
    estimator : MMDInitializer
        With an instance in ``module``; need not be fitted.
    X, draws, seed
        As for :func:`library_loss`.
    """
    blueprint = estimator._new_blueprint(X.numpy(), 0)
    network = blueprint.network(blueprint.fresh(), "cpu")
    network.module.to(X.dtype)
    return _loss(estimator, network, list(network.parameters()), X, draws, seed)


def _loss(
    estimator: MMDInitializer,
    network: Any,
    parameters: Sequence[torch.Tensor],
    X: torch.Tensor,
    draws: tuple[torch.Tensor, list[torch.Tensor]] | None,
    seed: int,
) -> tuple[float, list[np.ndarray]]:
    random = StepRandom(seed, dtype=X.dtype) if draws is None else _GivenDraws(*draws)
    loss = estimator._objective()(network, X, random)[0]
    torch.autograd.backward(loss)
    return float(loss.detach()), [np.asarray(parameter.grad) for parameter in parameters]


def layers_by_gram(widths: Sequence[int], batch_size: int) -> tuple[bool, ...]:
    """Which layers of a network the library draws by "gram" where the sampler is "auto"."""
    return choice.layers_by_gram(widths, batch_size, "auto")


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with record_function(name):
            return function(*args, **kwargs)

    return wrapper


@contextmanager
def _named_regions() -> Iterator[None]:
    """Let the profiler see the functions of REGIONS by the name of their part."""
    with ExitStack() as stack:
        for part, functions in REGIONS.items():
            for owner, attribute in functions:
                wrapper = _named(getattr(owner, attribute), part)
                stack.enter_context(mock.patch.object(owner, attribute, wrapper))
        yield


def _part_of(event: Any) -> tuple[str, float] | None:
    """Part and microseconds of a profiled event; None where an event around it has them."""
    ancestor = event.cpu_parent
    while ancestor is not None:
        if ancestor.name in REGIONS or ancestor.name.startswith(_OPTIMISER):
            return None
        ancestor = ancestor.cpu_parent
    if event.name in REGIONS:
        return event.name, event.cpu_time_total
    if event.name.startswith(_OPTIMISER):
        return "optimiser", event.cpu_time_total
    if event.name.startswith("aten::"):
        product = event.name.rstrip("_") in _PRODUCTS
        return "products" if product else "element-wise", event.self_cpu_time_total
    return None


def step_parts(run: Callable[[], Any], n_steps: int) -> dict[str, float]:
    """Seconds a step of each part of a step, by PyTorch's profiler.

    Parameters
    ----------
    run : callable
        Takes ``n_steps`` steps on the CPU; anything that a step calls counts as its part.
    n_steps : int
        How many.

    Returns
    -------
    dict
        Seconds for each name of :data:`PARTS`; they add up to the time of a step under the
        profiler, which takes some time itself.
    """
    with (
        _named_regions(),
        profile(activities=[ProfilerActivity.CPU]) as recorded,
        record_function("whole run"),
    ):
        run()
    seconds = dict.fromkeys(PARTS, 0.0)
    for event in recorded.events():
        if event.name == "whole run":
            whole = event.cpu_time_total
        elif found := _part_of(event):
            part, microseconds = found
            seconds[part] += microseconds
    seconds["rest"] = whole - sum(seconds.values())
    return {part: 1e-6 * total / n_steps for part, total in seconds.items()}
