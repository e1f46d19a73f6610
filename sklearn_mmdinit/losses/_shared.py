"""Helpers of all terms: checks of predictions, the kernel, gradients computed with the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import torch

from .._base.environment import in_single_precision
from .._base.threads import refuse_second_derivative, run_on_threads

# The bandwidths are these factors times the median distance, the paper's 2^i for i = -4..4. There
# may be any number of factors, if each is twice the one before.
BANDWIDTH_FACTORS = tuple(2.0**i for i in range(-4, 5))

# Identical predictions and samples have the median distance 0.
MIN_BANDWIDTH = 1e-6

# Pairs of points that one operation computes. Inputs with few points share an operation. On a CPU
# the distances stay in the cache. A GPU takes longer to launch an operation than to compute 2^17
# pairs, and 2^23 take 64 MiB in float64.
_PAIRS_AT_ONCE, _PAIRS_ON_GPU = 1 << 17, 1 << 23

# The 4th power of a smaller number would be denormal in float32: arithmetic on it takes many times
# as long.
_SMALLEST_BASE = 1e-9

# Values of some points, and the gradient of the sum of all values with respect to these points.
Piece = tuple[torch.Tensor, torch.Tensor]

# The sum of an example's probabilities may differ from 1 by this, in float32 and half precision.
_ROUNDING, _HALF_ROUNDING = 1e-3, 2e-2


def checked_predictions(predictions: torch.Tensor) -> torch.Tensor:
    """Predictions P (K, B, d), in float32 if they are in half precision.

    Raises a ValueError if they have another shape, are empty, or are not probabilities.
    """
    shape = tuple(predictions.shape)
    if len(shape) != 3 or 0 in shape or shape[-1] < 2 or not predictions.is_floating_point():
        raise ValueError(
            "P must be floats of shape (n_networks, n_inputs, n_classes), with at least two "
            f"classes, got {predictions.dtype} of shape {shape}"
        )
    check_probabilities("P", predictions)
    return in_single_precision(predictions)


def check_probabilities(name: str, values: torch.Tensor) -> None:
    """Raise a ValueError if rows are no probabilities.

    On a GPU nothing is checked, because reading values would wait for it.
    """
    if values.device.type != "cpu" or torch.compiler.is_compiling():
        return
    values = values.detach()
    sums = values.sum(dim=-1)
    rounding = _HALF_ROUNDING if values.itemsize < 4 else _ROUNDING
    # NaN passes: it makes the loss NaN, which training reports.
    if bool(((sums - 1.0).abs() > rounding).any() or (values < -rounding).any()):
        sum_found = float(sums.flatten()[(sums - 1.0).abs().argmax()])
        raise ValueError(
            f"{name} must hold probabilities, got a smallest value of {float(values.min()):.3g} "
            f"and a sum over classes of {sum_found:.3g}; pass logits.softmax(-1)"
        )


def groups(start: int, stop: int, n_pairs: int, device: torch.device) -> Iterator[slice]:
    """Slices of the inputs from start to stop, each for one operation; an input has `n_pairs`."""
    at_once = _PAIRS_AT_ONCE if device.type == "cpu" else _PAIRS_ON_GPU
    size = max(at_once // n_pairs, 1)
    return (slice(i, min(i + size, stop)) for i in range(start, stop, size))


def with_gradient(
    points: torch.Tensor, pieces_of: Callable[[int, int], Sequence[Piece]], n_numbers: int
) -> torch.Tensor:
    """Values (n,) of n points; their gradient is computed together with them, on threads.

    So the matrices of all pairs need not be kept for the backward pass. The gradient is that of the
    sum of all values, so the caller may use only this sum, unless each value depends on its own
    point alone. ``pieces_of(start, stop)`` computes values and gradients of some of the points.
    `n_numbers` is how many numbers are computed in all; if it is small, one thread computes them.
    """
    values: torch.Tensor = _WithGradient.apply(points, pieces_of, n_numbers)
    return values


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, points: torch.Tensor, pieces_of: Any, n_numbers: int) -> torch.Tensor:
        pieces = chain(*run_on_threads(len(points), pieces_of, n_numbers))
        values, gradients = zip(*pieces, strict=True)
        ctx.save_for_backward(torch.cat(gradients))
        return torch.cat(values)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        (gradient,), (slopes,) = ctx.saved_tensors, grad_outputs
        return gradient * slopes.view(-1, *[1] * (gradient.ndim - 1)), None, None


def kernel_and_slope(
    squared: torch.Tensor, gamma: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernel, a sum of nine Gaussians, and its derivative by the squared distance.

    An exponential with its 4th and 16th power gives three Gaussians, so three exponentials give all
    nine. In float32 the error is 5e-6. With powers of a single exponential it would be 7e-3.
    """
    shape = torch.broadcast_shapes(squared.shape, gamma.shape)
    total, slope = squared.new_zeros(shape), squared.new_zeros(shape)
    rate = -0.5 / gamma.square()
    for widest in range((len(BANDWIDTH_FACTORS) - 1) % 3, len(BANDWIDTH_FACTORS), 3):
        gaussian = (squared * (rate / BANDWIDTH_FACTORS[widest] ** 2)).exp_()
        for narrower in range(min(3, widest + 1)):
            if narrower:
                gaussian.clamp_(min=_SMALLEST_BASE).square_().square_()
            total += gaussian
            slope.add_(gaussian, alpha=BANDWIDTH_FACTORS[widest - narrower] ** -2)
    return total, slope.mul_(rate)


def combine_means(
    within_p: torch.Tensor, between: torch.Tensor, within_u: torch.Tensor, n_p: int, n_u: int | None
) -> torch.Tensor:
    """MMD from the kernel's means over all pairs.

    `n_u` is None if within_u has no pairs of a point with itself.
    """
    if n_u is not None:
        within_u = _without_self_pairs(within_u, n_u)
    return _without_self_pairs(within_p, n_p) - 2.0 * between + within_u


def _without_self_pairs(mean: torch.Tensor, n: int) -> torch.Tensor:
    """The mean over n^2 pairs without the n pairs of a point with itself, whose Gaussians are 1."""
    return (n * mean - len(BANDWIDTH_FACTORS)) / (n - 1)
