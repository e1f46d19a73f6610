"""What a denoising autoencoder must undo (Vincent et al., 2010): kinds of noise, by name."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["CORRUPTIONS", "gaussian", "masking"]


def masking(X: torch.Tensor, level: float, generator: torch.Generator) -> torch.Tensor:
    """Each entry of X (n, n_features) is 0, the mean of scaled rows, with probability ``level``."""
    return X * (torch.rand(X.shape, generator=generator) >= level)


def gaussian(X: torch.Tensor, level: float, generator: torch.Generator) -> torch.Tensor:
    """X (n, n_features) plus independent Gaussian noise of standard deviation ``level``."""
    return X + level * torch.randn(X.shape, generator=generator)


CORRUPTIONS: dict[str, Callable[[torch.Tensor, float, torch.Generator], torch.Tensor]] = {
    "masking": masking,
    "gaussian": gaussian,
}
