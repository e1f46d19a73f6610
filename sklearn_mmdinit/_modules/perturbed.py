"""Predictions of all perturbed copies of a module, a few copies at a time."""

from __future__ import annotations

import math
from itertools import pairwise

import torch

from .._compute import StepRandom, Workspace, recomputed
from .._sampling import Perturbation, perturbed_logits
from .copies import copied_logits, draws_by_gram, perturbed_layers
from .embedding_indices import embeddings_named
from .functional import functional_logits
from .network import ModuleNetwork
from .registry import parameter_stds

__all__ = ["perturbed_module_logits", "samplers_of"]

# Numbers, activations and perturbations, of a part: with smaller ones there are too many small
# operations, with larger ones each goes through memory afresh.
_NUMBERS_A_PART = 1 << 24

# Numbers of all parts that are kept for their gradient. Noise is counted and not kept, so that this
# is 400 to 750 MiB in float32 of image networks; their steps are up to an eighth shorter so than
# with half of it.
_NUMBERS_KEPT = 1 << 28

# An output, its noise and their sum.
_TIMES_EACH_NUMBER = 3


@perturbed_logits.register(ModuleNetwork)
def perturbed_module_logits(
    network: ModuleNetwork,
    X: torch.Tensor,
    perturbation: Perturbation,
    random: StepRandom,
    workspace: Workspace | None = None,
) -> torch.Tensor:
    """Logits of K networks around theta0 on one mini-batch, for any module.

    Memory does not grow with K beyond some size but for the logits themselves: copies go through
    in parts, and where gradients are asked for, those too many to be kept are computed again.

    Parameters
    ----------
    network : ModuleNetwork
        The module at theta0; gradients flow to its parameters.
    X : Tensor of shape (B, ...)
        Mini-batch.
    perturbation : Perturbation
        How many networks, how far from theta0, and how they are drawn.
    random : StepRandom
        Source of the perturbations.
    workspace : Workspace, default=None
        Not used: a module asks for its memory itself.

    Returns
    -------
    Tensor of shape (K, B, n_classes)
        Logits, one network a slice.
    """
    K, scale, sampler = perturbation.n_networks, perturbation.scale, perturbation.sampler
    functional = _is_functional(network, sampler)
    numbers = _numbers_a_copy(network, len(X), sampler)
    n_parts = min(math.ceil(K * numbers / _NUMBERS_A_PART), K)
    n_kept = min(int(_NUMBERS_KEPT * n_parts / (K * numbers)), n_parts)
    bounds = [K * i // n_parts for i in range(n_parts + 1)]
    sizes = [stop - start for start, stop in pairwise(bounds)]
    randoms = random.split(n_parts)
    states = [own.generator.get_state() for own in randoms]

    def part(number: int) -> torch.Tensor:
        own = randoms[number]
        own.generator.set_state(states[number])  # the second time it draws the same
        if functional:
            return functional_logits(network, X, sizes[number], scale, own)
        return copied_logits(network, X, sizes[number], scale, sampler, own)

    with embeddings_named(network.module):
        return recomputed(part, n_parts, list(network.parameters()), n_kept)


def samplers_of(network: ModuleNetwork, sampler: str, n_rows: int) -> dict[str, str]:
    """How each layer is drawn for so many examples, by the layer's name.

    Under the functional sampler the names are those of parameters.
    """
    if _is_functional(network, sampler):
        return dict.fromkeys(parameter_stds(network.module, 1.0), "functional")
    layers = {p.name: (layer, p) for layer, p in perturbed_layers(network.module, 1.0).items()}
    found = {}
    for call in network.trace.calls:
        if call.layer in layers:
            layer, perturbed = layers[call.layer]
            gram = draws_by_gram(
                layer,
                perturbed,
                sampler,
                n_rows * call.n_positions,
                reused=call.layer in network.trace.reused,
                first=call.first,
            )
            found[call.layer] = "gram" if gram else "direct"
    return found


def _is_functional(network: ModuleNetwork, sampler: str) -> bool:
    return bool(network.why_functional) or sampler == "functional"


def _numbers_a_copy(network: ModuleNetwork, n_rows: int, sampler: str) -> int:
    """Numbers that one copy takes: activations, and perturbations or factors by gram."""
    module, own = network.module, 0
    if _is_functional(network, sampler):
        parameters = dict(module.named_parameters())
        own = sum(parameters[name].numel() for name in parameter_stds(module, 1.0))
    else:
        positions = {call.layer: call.n_positions for call in network.trace.calls}
        for name, chosen in samplers_of(network, sampler, n_rows).items():
            layer = module.get_submodule(name)
            direct = sum(p.numel() for p in layer.parameters(recurse=False))
            own += (n_rows * positions[name]) ** 2 if chosen == "gram" else direct
    return own + _TIMES_EACH_NUMBER * n_rows * network.trace.n_numbers
