"""Builds networks of one module that start at a theta0."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils import gen_batches
from torch import nn

from .._base.environment import array_of
from .._base.mlp import MLP
from .._base.module_factory import ModuleFactory
from .._base.validation import cast_to_float32, not_finite
from ..theta0 import Architecture, Theta0, arrays_of, digest_of, put_arrays_, qualified_name
from .info import N_EXAMPLES, ModuleInfo, inspect_logits, inspect_module
from .noise import EMBEDDINGS
from .passes import hidden_activations, pretraining_mode_

# Rows whose hidden activations are computed at a time, to bound the memory.
_ROWS_AT_A_TIME = 1024


@dataclass(frozen=True)
class NetworkBuilder:
    """Builds networks of one module that start at a theta0, and reads theta0 from them."""

    factory: ModuleFactory
    architecture: Architecture
    info: ModuleInfo
    takes_integers: bool = False  # whether the module needs integers, not floats

    @classmethod
    def of(cls, factory: ModuleFactory, X: np.ndarray) -> tuple[NetworkBuilder, nn.Module, Theta0]:
        """Build a module and inspect a copy on four rows of X; also returns its initial weights."""
        module = factory.build().float().cpu()
        fresh, integers = fresh_theta0(factory, module, X.shape[1:]), needs_integers(module)
        pretraining_mode_(module)
        info = inspect_module(module, to_tensor(X[:N_EXAMPLES], integers))
        architecture = replace(
            fresh.architecture, n_classes=info.n_classes, last_layer=info.last_layer
        )
        builder = cls(factory, architecture, info, integers)
        return builder, module, replace(fresh, architecture=architecture)

    def module_at(self, theta0: Theta0) -> nn.Module:
        """A new module at theta0, on the CPU, in the mode in which the factory builds it."""
        module = self.factory.build().cpu()
        put_arrays_(module, theta0.arrays)
        return module

    def network_at(self, theta0: Theta0, device: str | torch.device) -> nn.Module:
        """A module at theta0 in the precision and the mode of pre-training."""
        module = self.factory.build().float()  # in float32 first: float16 would round theta0
        put_arrays_(module, theta0.arrays)
        pretraining_mode_(module)
        return module.to(device)

    def with_head_of_zeros(self, theta0: Theta0) -> Theta0:
        """Theta0 with a last layer of zeros, unless its parameters are frozen or shared.

        Coherence alone does not train the last layer. From zeros, fine-tuning is better than from
        random weights, whose outputs it would first have to unlearn.
        """
        zeros = {name: np.zeros_like(theta0.arrays[name]) for name in self.info.head}
        return replace(theta0, arrays={**theta0.arrays, **zeros})

    def theta0_of(self, network: nn.Module) -> Theta0:
        """The parameters of a network."""
        return Theta0(self.architecture, arrays_of(network))

    def as_examples(self, X: np.ndarray) -> torch.Tensor:
        """A copy of rows as a tensor on the CPU, in the type that the module takes."""
        return to_tensor(X, self.takes_integers)

    def hidden(self, network: nn.Module, X: np.ndarray) -> np.ndarray:
        """Inputs (n, n_units) of the last linear layer of a network, in evaluation mode."""
        H = hidden_of(network.eval(), self.known_last_layer(), X)
        if not np.isfinite(H).all():
            raise not_finite("hidden activations of X are")
        return H

    def known_last_layer(self) -> str:
        """Name of the linear layer that returns the logits; a ValueError if none does."""
        if not self.info.last_layer:
            raise ValueError(
                f"the module {self.architecture.module} must end in an nn.Linear that returns the "
                "logits and whose inputs are the features; put one after a hidden layer"
            )
        return self.info.last_layer


def hidden_of(network: nn.Module, layer: str, X: np.ndarray) -> np.ndarray:
    """Inputs (n, n_units) of a linear layer of a network for rows X (n, ...), in float32."""
    parts = []
    with torch.no_grad():
        # At least two rows: a batch norm without running statistics cannot pass one.
        for rows in gen_batches(len(X), _ROWS_AT_A_TIME, min_batch_size=2):
            H = hidden_activations(network, examples_for(network, X[rows]), layer)
            parts.append(array_of(H.float()))
    return np.concatenate(parts)


def examples_for(network: nn.Module, X: np.ndarray) -> torch.Tensor:
    """A copy of rows in the type, the precision and on the device that a network takes."""
    examples, like = to_tensor(X, needs_integers(network)), next(network.parameters(), None)
    if like is None:
        return examples
    return examples.to(like if examples.is_floating_point() else like.device)


def needs_integers(module: nn.Module) -> bool:
    """Whether a module has an embedding layer, which needs integers and not floats."""
    return any(isinstance(part, EMBEDDINGS) for part in module.modules())


@cast_to_float32()
def to_tensor(X: np.ndarray, integers: bool) -> torch.Tensor:
    """A copy of rows as a CPU tensor: int64 if `integers` and X has integers, else float32."""
    stay_integers = integers and np.asarray(X).dtype.kind in "iu"
    # A copy: rows may be read-only memory maps.
    return torch.from_numpy(np.array(X, dtype=np.int64 if stay_integers else np.float32))


def fresh_theta0(factory: ModuleFactory, module: nn.Module, input_shape: tuple[int, ...]) -> Theta0:
    """The weights of a new module; its architecture lacks what only a pass can show."""
    keywords = module.keywords if isinstance(module, MLP) else factory.keywords
    arrays = arrays_of(module)
    architecture = Architecture(
        module=qualified_name(module),
        keywords=dict(keywords),
        input_shape=input_shape,
        n_classes=0,
        digest=digest_of({name: array.shape for name, array in arrays.items()}),
    )
    return Theta0(architecture, arrays)


def module_to_train(factory: ModuleFactory, X: Any) -> tuple[nn.Module, Theta0]:
    """For fine-tuning on rows X (n, ...): a new module of the factory, and its weights."""
    module = factory.build().float()
    rows = X[:N_EXAMPLES].toarray() if issparse(X) else X[:N_EXAMPLES]
    fresh = fresh_theta0(factory, module, rows.shape[1:])
    examples = to_tensor(rows, needs_integers(module))
    n_classes, last_layer = inspect_logits(module.cpu().eval(), examples)
    architecture = replace(fresh.architecture, n_classes=n_classes, last_layer=last_layer)
    return module, replace(fresh, architecture=architecture)
