"""The functional sampler: K networks with parameters of their own, for any module.

It is the definition of a perturbed network, and the reference for the gram sampler.
:func:`torch.func.vmap` computes all networks at once. If vmap fails for a module, its networks are
computed one after the other.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.func import functional_call, vmap

from .._base.random_streams import StepRandom
from .noise import NUMBERS_ON_GPU, chunks_of_networks, parameter_stds
from .passes import isolated, plain_attention

# Numbers of a chunk of networks on a CPU. In smaller chunks the overhead of operations dominates;
# larger chunks do not stay in the cache between operations.
_NUMBERS_A_CHUNK = 1 << 24
_ARRAYS_AN_ACTIVATION = 3  # that autograd keeps


def functional_logits(
    module: nn.Module,
    X: torch.Tensor,
    n_copies: int,
    scale: float,
    random: StepRandom,
    *,
    by_vmap: bool = True,
    n_activations: int = 0,
) -> torch.Tensor:
    """Logits (K, B, d) of K networks around a module on X (B, ...).

    They are differentiable as often as the module is. `n_activations`: how many numbers a pass
    computes for one example, which decides the size of a chunk.
    """
    stds = parameter_stds(module, scale)
    parameters = {name: _in_default_layout(p) for name, p in module.named_parameters()}
    X = _in_default_layout(X)
    n_parameters = sum(parameters[name].numel() for name in stds)
    numbers = n_copies * (n_parameters + _ARRAYS_AN_ACTIVATION * len(X) * n_activations)
    most = _NUMBERS_A_CHUNK if X.device.type == "cpu" else NUMBERS_ON_GPU
    first_names = _first_names(module)

    def network(eps: dict[str, torch.Tensor]) -> torch.Tensor:
        perturbed = parameters | {name: parameters[name] + noise for name, noise in eps.items()}
        by_every_name = {name: perturbed[first] for name, first in first_names.items()}
        # Each network gets copies of the buffers, so that it does not change the module's.
        named = module.named_buffers(remove_duplicate=False)
        buffers = {name: buffer.clone() for name, buffer in named}
        return functional_call(module, by_every_name | buffers, (X.clone(),), tie_weights=False)

    def logits(size: int, random: StepRandom) -> torch.Tensor:
        eps = {
            name: _cast(random.normal(size, *parameters[name].shape).mul_(std), parameters[name])
            for name, std in stds.items()
        }
        with plain_attention(), isolated(module):
            if by_vmap:
                return vmap(network, randomness="different")(eps)
            each = ({name: noise[k] for name, noise in eps.items()} for k in range(size))
            return torch.stack([network(noises) for noises in each])

    n_chunks = math.ceil(numbers / most)
    chunks = chunks_of_networks(logits, n_copies, n_chunks, numbers, random)
    return torch.cat([chunk() for chunk in chunks])


def _in_default_layout(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in the default layout: vmap has no rule for some layers in channels_last."""
    default = torch.empty(tensor.shape, device="meta").stride()
    return tensor if tensor.stride() == default else tensor.reshape(-1).view(tensor.shape)


def _cast(noise: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Noise in the parameter's precision, if that is lower."""
    return noise.to(parameter.dtype) if parameter.itemsize < noise.itemsize else noise


def _first_names(module: nn.Module) -> dict[str, str]:
    """A dict from every name of each parameter to its first name.

    A layer, and so its parameters, may have two names. ``functional_call(tie_weights=True)`` would
    not restore such a layer: the perturbed parameters would stay in it.
    """
    first_name = {id(parameter): name for name, parameter in module.named_parameters()}
    return {
        f"{layer_name}.{name}".removeprefix("."): first_name[id(parameter)]
        for layer_name, layer in module.named_modules()
        for name, parameter in layer.named_parameters(recurse=False, remove_duplicate=False)
    }
