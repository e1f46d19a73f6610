r"""What perturbations add to a layer's outputs, drawn without drawing the perturbations.

As :mod:`sklearn_mmdinit._sampling.gram` has it, for the rows H (R, n_in) of a copy, which are
tokens or patches of its mini-batch as well as examples: the noise is L Z with
:math:`L L^T = \sigma_W^2 H H^T + \sigma_b^2 1 1^T`, and its gradient the conditional expectation
:math:`\sigma_W^2 G Z^T L^{-1} H`.
"""

from __future__ import annotations

from typing import Any

import torch

from .._compute import StepRandom
from .._sampling import inverse_factor, noise_factor

__all__ = ["gram_noise"]


def gram_noise(
    rows: torch.Tensor,
    n_copies: int,
    n_out: int,
    weight_std: float,
    bias_std: float,
    random: StepRandom,
) -> torch.Tensor:
    """The noise of K copies of a layer.

    Parameters
    ----------
    rows : Tensor of shape (n, B, P, groups, n_in)
        What the weights are multiplied by in n = K copies, or in all where n = 1: then no
        gradient flows to it.
    n_copies : int
        K.
    n_out : int
        Units of all groups.
    weight_std, bias_std : float
        Standard deviations of the perturbations; 0 where there is none.
    random : StepRandom
        Source of the draws.

    Returns
    -------
    Tensor of shape (K * B, P, n_out)
    """
    n, B, P, groups, n_in = rows.shape
    H = rows.permute(0, 3, 1, 2, 4).reshape(n * groups, B * P, n_in)
    units = n_out // groups
    stds = weight_std, bias_std
    if n == n_copies:
        noise = _GramNoise.apply(H, units, stds, random)
    else:
        L, _ = noise_factor(H, *stds)
        Z = random.normal(n_copies, groups, B * P, units)
        noise = L @ Z
    noise = noise.view(n_copies, groups, B, P, units).permute(0, 2, 3, 1, 4)
    return noise.reshape(n_copies * B, P, n_out)


class _GramNoise(torch.autograd.Function):
    """L Z of each matrix H, (n, R, units)."""

    @staticmethod
    def forward(
        ctx: Any, H: torch.Tensor, units: int, stds: tuple[float, float], random: StepRandom
    ) -> torch.Tensor:
        L, independent = noise_factor(H, *stds)
        Z = random.normal(*H.shape[:2], units)
        inverse = inverse_factor(L, independent) if ctx.needs_input_grad[0] else None
        ctx.save_for_backward(H, Z, inverse)
        ctx.weight_std = stds[0]
        return torch.bmm(L, Z)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        H, Z, inverse = ctx.saved_tensors
        if inverse is None:
            return None, None, None, None
        # G E with E^T = weight_std^2 H^T L^{-T} Z.
        inner = torch.bmm(torch.bmm(grad_outputs[0], Z.mT), inverse)
        return torch.bmm(inner, H).mul_(ctx.weight_std**2), None, None, None
