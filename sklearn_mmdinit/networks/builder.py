"""Builds networks of one module that start at a theta0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from .._base.validation import not_finite, repr_without_address, warn_user
from ..theta0 import Architecture, Theta0, arrays_of, digest_of, put_arrays_, qualified_name
from . import EMBEDDINGS, Tap, paper_std
from .info import (
    N_EXAMPLES,
    ModuleInfo,
    inspect_logits,
    inspect_module,
    isolated_pass,
    linear_layers,
)
from .passes import explained_single_row, hidden_activations, pretraining_mode_

# Rows whose hidden activations are computed at a time, to bound the memory.
_ROWS_AT_A_TIME = 1024

# Layers whose outputs are proportional to their weights and biases.
_SCALING = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# The factors are extreme. Outputs equal those before scaling only if each non-linearity f has
# f(c x) = c f(x) for all c > 0. ReLU has this, ReLU6 has not. Powers of two multiply exactly.
_FACTORS = (2.0**12, 2.0**-12)


@dataclass(frozen=True)
class NetworkBuilder:
    """Builds networks of one module that start at a theta0, and reads theta0 from them."""

    factory: ModuleFactory
    architecture: Architecture
    info: ModuleInfo
    takes_integers: bool = False  # whether the module needs integers, not floats

    @classmethod
    def of(
        cls,
        factory: ModuleFactory,
        X: np.ndarray,
        sampler: str = "auto",
        hidden_layer: str | None = None,
    ) -> tuple[NetworkBuilder, Theta0]:
        """Inspect a fresh module on rows of X (n, ...); the builder, and the module's weights."""
        rows = X[np.arange(N_EXAMPLES) % len(X)]
        factory = _with_casts(factory, rows)
        module = factory.build_to_train().cpu()
        fresh, integers = fresh_theta0(factory, module, X.shape[1:]), takes_integers(module)
        known = _architecture_of_perceptron(factory, X)
        if known is not None and sampler != "functional" and hidden_layer is None:
            # The arguments of an MLP say all that a pass would show.
            n, chain = known.n_classes, known.chain
            n_hidden = len(known.keywords["hidden_layer_sizes"])
            layers = "norms" if known.keywords["batch_norm"] else "linears"
            taps = tuple(Tap(f"{layers}.{i}") for i in range(n_hidden))
            info = ModuleInfo(n, "gram", taps=taps, last_layer=known.last_layer, n_biases=n)
        else:
            _warn_if_drawn(factory, module)
            pretraining_mode_(module)
            examples = as_examples(rows, integers)
            info = inspect_module(module, examples, sampler, hidden_layer)
            if info.draws:
                raise ValueError(
                    f"the module {qualified_name(module)} draws random numbers in evaluation mode, "
                    "and random_state does not seed them; draw them only if self.training"
                )
            chain = scale_chain(module, info, examples)
        architecture = replace(
            fresh.architecture, n_classes=info.n_classes, last_layer=info.last_layer, chain=chain
        )
        builder = cls(factory, architecture, info, integers)
        return builder, replace(fresh, architecture=architecture)

    def module_at(self, theta0: Theta0) -> nn.Module:
        """A new module at theta0, on the CPU, in the mode in which the factory builds it."""
        module = self.factory.build().cpu()
        put_arrays_(module, theta0.arrays)
        return module

    def network_at(self, theta0: Theta0, device: str | torch.device) -> nn.Module:
        """A module at theta0 in the precision and the mode of pre-training."""
        module = self.factory.build_to_train()  # in float32 first: float16 would round theta0
        put_arrays_(module, theta0.arrays)
        pretraining_mode_(module)
        return module.to(device)

    def theta0_of(self, network: nn.Module) -> Theta0:
        """The parameters of a network."""
        return Theta0(self.architecture, arrays_of(network))

    def as_examples(self, X: np.ndarray) -> torch.Tensor:
        """A copy of rows as a tensor on the CPU, in the type that the module takes."""
        return as_examples(X, self.takes_integers)

    def hidden(self, theta0: Theta0, X: np.ndarray, device: str | torch.device) -> np.ndarray:
        """Inputs (n, n_units) of the last linear layer at theta0."""
        network, last_layer = self.network_at(theta0, device).eval(), self.known_last_layer()
        parts = []
        with explained_single_row(), torch.no_grad():
            # At least two rows: a batch norm without running statistics cannot pass one.
            for rows in gen_batches(len(X), _ROWS_AT_A_TIME, min_batch_size=2):
                examples = self.as_examples(X[rows]).to(device)
                parts.append(array_of(hidden_activations(network, examples, last_layer)))
        H = np.concatenate(parts)
        if not np.isfinite(H).all():
            raise not_finite("hidden activations of X are")
        return H.astype(np.float32, copy=False)

    def known_last_layer(self) -> str:
        """Name of the linear layer that returns the logits; a ValueError if none does."""
        if self.info.last_layer:
            return self.info.last_layer
        linear = linear_layers(self.factory.build(), self.info.calls)
        raise ValueError(
            f"no linear layer of {self.architecture.module} returns the logits as they are; remove "
            f"a softmax at the end, or name the last linear layer in hidden_layer, one of {linear}"
        )


def takes_integers(module: nn.Module) -> bool:
    """Whether a module has an embedding layer, which needs integers and not floats."""
    return any(isinstance(part, EMBEDDINGS) for part in module.modules())


def as_examples(X: np.ndarray, integers: bool) -> torch.Tensor:
    """A copy of rows as a CPU tensor: int64 if `integers` and X has integers, else float32."""
    stay_integers = integers and np.asarray(X).dtype.kind in "iu"
    # A copy: rows may be read-only memory maps.
    return torch.from_numpy(np.array(X, dtype=np.int64 if stay_integers else np.float32))


def _with_casts(factory: ModuleFactory, X: Any) -> ModuleFactory:
    """The factory; with `casts` if the module fails on X in float32 and not in its own dtypes."""

    def passes(module: nn.Module) -> bool:
        module.cpu().eval()
        examples = as_examples(X.toarray() if issparse(X) else X, takes_integers(module))
        try:
            with torch.no_grad(), isolated_pass(module):
                module(examples)
        except Exception:  # a later pass raises this error again
            return False
        return True

    if factory.module is MLP:
        return factory
    module = factory.build()
    arrays = (*module.parameters(), *module.buffers())
    if all(array.dtype == torch.float32 for array in arrays if array.is_floating_point()):
        return factory
    casts = passes(module) and not passes(factory.build().float())
    return replace(factory, casts=casts)


def _architecture_of_perceptron(factory: ModuleFactory, X: Any) -> Architecture | None:
    """The architecture of an MLP, without a pass; None for other modules, or if X does not fit."""
    keywords = {name: value for name, value in factory.keywords.items() if name != "init"}
    if factory.module is not MLP or X.shape[1:] != (keywords.get("n_features"),):
        return None
    return Architecture.of_perceptron(**keywords)


def fresh_theta0(factory: ModuleFactory, module: nn.Module, input_shape: tuple[int, ...]) -> Theta0:
    """The weights of a new module; its architecture lacks what only a pass can show."""
    keywords = module.keywords if isinstance(module, MLP) else factory.keywords
    arrays = arrays_of(module)
    architecture = Architecture(
        module=qualified_name(module),
        parameters=tuple((name, repr_without_address(value)) for name, value in keywords.items()),
        input_shape=input_shape,
        n_classes=0,
        digest=digest_of({name: array.shape for name, array in arrays.items()}),
    )
    return Theta0(architecture, arrays)


def module_to_train(factory: ModuleFactory, X: Any) -> tuple[ModuleFactory, nn.Module, Theta0]:
    """For fine-tuning on rows X (n, ...): the factory, a new module of it, and its weights."""
    rows = X[:N_EXAMPLES]
    factory = _with_casts(factory, rows)
    module = factory.build_to_train()
    if (known := _architecture_of_perceptron(factory, X)) is not None:
        return factory, module, Theta0(known, arrays_of(module))
    rows = rows.toarray() if issparse(rows) else rows
    fresh = fresh_theta0(factory, module, rows.shape[1:])
    examples = as_examples(rows, takes_integers(module))
    n_classes, last_layer = inspect_logits(module.cpu().eval(), examples)
    _warn_if_drawn(factory, module)
    architecture = replace(fresh.architecture, n_classes=n_classes, last_layer=last_layer)
    return factory, module, replace(fresh, architecture=architecture)


def _warn_if_drawn(factory: ModuleFactory, module: nn.Module) -> None:
    """Warn if each new module of a class draws different tensors that theta0 does not hold."""
    kept = {} if isinstance(factory.module, nn.Module) else _not_in_theta0(module)
    if not kept:
        return
    others = _not_in_theta0(replace(factory, seed=factory.seed + 1).build())
    drawn = [n for n, value in kept.items() if n in others and not torch.equal(value, others[n])]
    if drawn:
        warn_user(
            f"the module {type(module).__name__} draws tensors {drawn} that its state_dict lacks: "
            "they are not part of theta0, and each new module draws different ones; store them "
            "with register_buffer"
        )


def _not_in_theta0(module: nn.Module) -> dict[str, torch.Tensor]:
    """Tensors among a module's attributes that its ``state_dict`` lacks, on the CPU."""
    lacking = {}
    for path, part in module.named_modules():
        unsaved = {name: part._buffers.get(name) for name in part._non_persistent_buffers_set}
        for name, value in {**vars(part), **unsaved}.items():
            if isinstance(value, torch.Tensor) and not value.requires_grad:
                lacking[f"{path}.{name}".removeprefix(".")] = value.cpu()
    return lacking


# Scale chains


def scale_chain(module: nn.Module, info: ModuleInfo, X: torch.Tensor) -> tuple[str, ...]:
    """Names of the layers, if scaling the output of each scales the input of the next; else ().

    In such a chain the function does not change if hidden weights are multiplied by a gain and the
    last weights are divided by the product.
    """
    names = info.calls
    layers = [module.get_submodule(name) for name in names]
    in_order = len(names) >= 2 and names[-1] == info.last_layer and len(set(names)) == len(names)
    if not in_order or info.stateful or any(type(layer) not in _SCALING for layer in layers):
        return ()
    parameters = [p for layer in layers for p in layer.parameters(recurse=False)]
    complete = len(set(map(id, parameters))) == len(parameters) == len(list(module.parameters()))
    if not complete or not all(p.requires_grad for p in parameters):
        return ()
    with torch.no_grad(), isolated_pass(module), _jittered(module):
        before = module(X.clone())
        for number in range(len(layers) - 1):
            for factor in _FACTORS:
                _scale_(layers[number:], factor)
                same = torch.equal(module(X.clone()), before)
                _scale_(layers[number:], 1.0 / factor)
                if not same:
                    return ()
    return names


@contextmanager
def _jittered(module: nn.Module) -> Iterator[None]:
    """Add noise to parameters in this block: a last layer of zeros would hide the others."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    before = [parameter.detach().clone() for parameter in learned]
    # Named, because PyTorch's default device may be another one.
    generator = torch.Generator("cpu").manual_seed(0)
    for p in learned:
        noise = torch.randn(p.shape, dtype=p.dtype, device=p.device, generator=generator)
        p.data.add_(noise, alpha=paper_std(p, 1.0))
    try:
        yield
    finally:
        for parameter, value in zip(learned, before, strict=True):
            parameter.data.copy_(value)


def _scale_(layers: Sequence[Any], factor: float) -> None:
    """Scale the outputs of all layers but the last, whose weights are divided by the factor."""
    layers[0].weight.mul_(factor)
    for layer in layers[:-1]:
        if layer.bias is not None:
            layer.bias.mul_(factor)
    layers[-1].weight.div_(factor)
