"""Detachment, L_iod: predictions depend on the input."""

from __future__ import annotations

import torch


def detachment(norms: torch.Tensor) -> torch.Tensor:
    r"""L_iod: how far Jacobian rows are from unit norm at the worst layer.

    :math:`E_x [\frac 1 d \sum_i \max_l (1 - \|J_i^{(l:L)}(x_l)\|)^2]`.

    Parameters
    ----------
    norms : Tensor of shape (B, d, L)
        Norms of the rows of the Jacobians of the logits at theta0, with respect to the input and
        to each hidden layer's pre-activation.

    Returns
    -------
    Tensor, scalar
        Eq. (iod_loss) of the paper; 0 where all norms are 1.

    Raises
    ------
    ValueError
        If `norms` has another number of axes, or is empty.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit.losses import detachment
    >>> float(detachment(torch.tensor([[[1.0, 3.0], [1.0, 1.0]]])))
    2.0
    """
    if norms.ndim != 3 or not norms.numel():
        shape = tuple(norms.shape)
        raise ValueError(f"norms must be of shape (n_inputs, n_classes, n_layers), got {shape}")
    return (1.0 - norms).square().amax(dim=-1).mean()
