"""A net that was trained before stays as it was where a further epoch fails."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .randomness import Orders, PrivateRandomness

__all__ = ["as_before_on_failure"]


@contextmanager
def as_before_on_failure(net: Any, randomness: PrivateRandomness) -> Iterator[None]:
    """Put back what training changes in place if it raises, or is interrupted.

    Numbers of the module and of a criterion, those of the optimiser, the history, and where the
    draws of the next epoch begin. What callbacks of the user's keep is theirs.

    Parameters
    ----------
    net : skorch.NeuralNetClassifier
        Initialised.
    randomness : PrivateRandomness
        Of its training.
    """
    tensors = [t for part in (net.module_, net.criterion_) for t in _tensors(part)]
    before = [tensor.detach().clone() for tensor in tensors]
    optimizer = copy.deepcopy(net.optimizer_.state_dict())
    n_epochs = len(net.history_)
    draws: list[Any] = [randomness]
    if isinstance(orders := getattr(net, "iterator_train__orders", None), Orders):
        draws.append(orders)
    states = [dict(vars(drawn)) for drawn in draws]
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for tensor, own in zip(tensors, before, strict=True):
                tensor.copy_(own)
        net.optimizer_.load_state_dict(optimizer)
        del net.history_[n_epochs:]
        for drawn, state in zip(draws, states, strict=True):
            vars(drawn).update(state)
        raise


def _tensors(part: Any) -> list[torch.Tensor]:
    if not isinstance(part, torch.nn.Module):
        return []
    return [*part.parameters(), *part.buffers()]
