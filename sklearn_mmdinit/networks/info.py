"""Inspects a module once, and builds networks from a theta0."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import joblib
import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils import gen_batches
from torch import nn
from torch.overrides import TorchFunctionMode

from .._base.environment import array_of, kept_generators, with_gradients
from .._base.mlp import MLP
from .._base.module_factory import ModuleFactory
from .._base.random_streams import StepRandom
from .._base.validation import add_error_context, warn_user
from ..theta0 import (
    Architecture,
    Theta0,
    arrays_of,
    digest_of,
    put_arrays_,
    qualified_name,
)
from . import EMBEDDINGS, paper_std, parameter_stds
from .functional import functional_logits
from .gram import gram_layers, gram_logits, has_hooks
from .passes import (
    TAPPED,
    explained_single_row,
    hidden_activations,
    hooked,
    isolated,
    pretraining_mode_,
)

SAMPLERS = ("auto", "gram", "functional")

# Number of examples of an inspection. A second pass has one example fewer: the axis of an output
# that is then shorter counts examples. Batch normalisation needs at least two.
_N_EXAMPLES = 4

# Rows whose hidden activations are computed at a time, to bound the memory.
_ROWS_AT_A_TIME = 1024

# Layers whose outputs are proportional to their weights and biases.
_SCALING = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Factors so extreme that any non-linearity or bound shows. Multiplication by a power of two is
# exact.
_FACTORS = (2.0**12, 2.0**-12)


@dataclass(frozen=True)
class ModuleInfo:
    """What the passes of a module need to know about it."""

    n_classes: int  # logits of an example
    sampler: str  # "gram" or "functional"
    n_biases: int | None  # outputs of last_layer; None if it has no bias that is learned
    why_functional: str = ""  # why the sampler is not "gram"
    by_vmap: bool = True  # False: one network after the other
    n_activations: int = 0  # values that a pass computes for one example
    # For calls of layers in TAPPED, except the one that returns the logits. A key is a call's
    # number, its value the axis of the output that counts examples.
    taps: Mapping[int, int] = field(default_factory=dict)
    calls: tuple[str, ...] = ()  # names of the layers of TAPPED, in the order of all calls
    last_layer: str = ""  # the linear layer that returns the logits, or hidden_layer; "": none
    draws: bool = False  # whether a pass draws random numbers
    stateful: bool = False  # whether a pass changes the module's state, or runs a user's hooks


def perturbed_logits(
    module: nn.Module,
    info: ModuleInfo,
    X: torch.Tensor,
    n_copies: int,
    scale: float,
    random: StepRandom,
) -> torch.Tensor:
    """Logits (K, B, d) of K networks around a module on X (B, ...), by its sampler."""
    if info.sampler == "gram":
        return gram_logits(gram_layers(module), X, n_copies, scale, random, draws=info.draws)
    return functional_logits(
        module,
        X,
        n_copies,
        scale,
        random,
        by_vmap=info.by_vmap,
        n_activations=info.n_activations,
        draws=info.draws,
    )


@with_gradients()
def inspect_module(
    module: nn.Module,
    X: torch.Tensor,
    sampler: str = "auto",
    hidden_layer: str | None = None,
) -> ModuleInfo:
    """Inspect a module by forward passes, in its mode, on some of the examples X (n, ...).

    The module and PyTorch's generators are unchanged afterwards. If no sampler can perturb the
    module, an error says why.
    """
    X = X.detach()[torch.arange(_N_EXAMPLES, device=X.device) % len(X)]
    name = type(module).__name__
    if not parameter_stds(module, 1.0):
        raise ValueError(f"the module {name} has no parameters to perturb that require a gradient")
    seen = _observe(module, X)
    calls = seen.calls
    last = _last_call(calls, hidden_layer, module)
    last_layer = hidden_layer or ""
    if hidden_layer is not None:
        with torch.no_grad(), isolated_pass(module):
            # Raises unless there is one row of activations for each example.
            hidden_activations(module, X, hidden_layer)
    elif calls and calls[last].gives_logits:
        is_linear = isinstance(module.get_submodule(calls[last].layer), nn.Linear)
        last_layer = calls[last].layer if is_linear else ""
    info = ModuleInfo(
        n_classes=seen.n_classes,
        sampler="gram",
        n_activations=seen.n_activations,
        taps={i: call.axis for i, call in enumerate(calls) if i != last and call.axis >= 0},
        calls=tuple(call.layer for call in calls),
        last_layer=last_layer,
        n_biases=_n_biases(module.get_submodule(last_layer)) if last_layer else None,
        draws=seen.draws,
        stateful=seen.stateful or has_hooks(module),
    )
    if sampler != "functional" and gram_layers(module) and X.is_floating_point():
        return info
    why = "sampler='functional' was given" if sampler == "functional" else _why_not_gram(module)
    if sampler == "gram":
        raise ValueError(
            f"sampler='gram' cannot perturb the module {name}: {why}; use sampler='functional' or "
            "'auto'"
        )
    by_vmap = _passes_by_vmap(module, X)
    if seen.idle:
        warn_user(
            f"no forward pass of the module {name} uses its layers {seen.idle}: their weights are "
            "not learned"
        )
    return replace(info, sampler="functional", why_functional=why, by_vmap=by_vmap)


def _n_biases(layer: Any) -> int | None:
    learned = layer.bias is not None and layer.bias.requires_grad
    return layer.out_features if learned else None


def _why_not_gram(module: nn.Module) -> str:
    if has_hooks(module):
        return "it has hooks, which the gram sampler would not call"
    return (
        "gram serves an MLP, or an nn.Sequential of nn.Linear, elementwise layers, nn.BatchNorm1d "
        "and a first nn.Flatten, if its last layer is nn.Linear, each layer is used once and X "
        "holds floats"
    )


# Inspection


@dataclass(frozen=True)
class _Call:
    """One call of a layer of TAPPED."""

    layer: str
    axis: int  # the axis of its output that counts examples; -1: none does
    gives_logits: bool


class _Reads(TorchFunctionMode):
    """Records whether a pass converts tensor values to Python ones, for example in an ``if``."""

    _READERS = frozenset(
        getattr(torch.Tensor, name)
        for name in ("__bool__", "__float__", "__index__", "__int__", "item", "tolist")
    )
    has_read = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.has_read |= func in self._READERS
        return func(*args, **(kwargs or {}))


class _Observed(NamedTuple):
    """Results of the passes of an inspection."""

    calls: list[_Call]
    n_classes: int
    n_activations: int  # values that the pass computes for one example
    draws: bool  # whether it draws random numbers
    stateful: bool  # whether it changes the module's state
    idle: list[str]  # layers that it does not call and whose parameters do not affect the logits


def _observe(module: nn.Module, X: torch.Tensor) -> _Observed:
    """Run a pass on X, and one with a row fewer."""
    names = {layer: name for name, layer in module.named_modules()}
    outputs: list[tuple[str, torch.Tensor]] = []
    fewer: list[torch.Size] = []
    called: set[nn.Module] = set()
    n_numbers = 0

    def note(layer: nn.Module, args: Any, output: Any) -> None:
        nonlocal n_numbers
        called.add(layer)
        if isinstance(output, torch.Tensor):
            n_numbers += output.numel()
            if isinstance(layer, TAPPED):
                outputs.append((names[layer], output))

    def note_shape(layer: nn.Module, args: Any, output: Any) -> None:
        fewer.append(output.shape)

    with isolated_pass(module):
        state = _state_hash(module)
        generators = _generators_hash()
        with hooked(list(names), note), _Reads() as reads, _context_of_pass(module, X):
            logits = module(X.clone())
        draws = _generators_hash() != generators
        check_logits(module, logits, X)
        tapped = [layer for layer in names if isinstance(layer, TAPPED)]
        with torch.no_grad(), hooked(tapped, note_shape):
            module(X[1:].clone())
        stateful = state == "unknown" or state != _state_hash(module)
    if not logits.requires_grad:
        raise ValueError(
            f"the logits of {type(module).__name__} depend on no parameter that requires a gradient"
        )
    _warn_if_hidden(module, logits)
    calls = [
        _Call(name, _axis(output.shape, less, len(X)), _is_same(output, logits))
        for (name, output), less in zip(outputs, fewer, strict=False)
    ]
    # If the pass reads values, other rows may call other layers.
    idle = [] if reads.has_read else _idle_layers(module, logits, {names[part] for part in called})
    return _Observed(calls, logits.shape[1], -(-n_numbers // len(X)), draws, stateful, idle)


@contextmanager
def isolated_pass(module: nn.Module) -> Iterator[None]:
    """Restore the module's buffers and all random generators after this block."""
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with kept_generators(gpus), isolated(module):
        state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
        buffers_of = [(part, dict(part._buffers)) for part in module.modules()]
        values = [(buffer, buffer._version, buffer.clone()) for buffer in module.buffers()]
        try:
            yield
        finally:
            random.setstate(state)
            np.random.set_state(numpy_state)  # noqa: NPY002
            for part, buffers in buffers_of:
                part._buffers.update(buffers)
            for buffer, version, value in values:
                if buffer._version != version:
                    buffer.data.copy_(value)


@contextmanager
def _context_of_pass(module: nn.Module, X: torch.Tensor) -> Iterator[None]:
    shape, name = tuple(X.shape[1:]), qualified_name(module)
    context = f"the module {name} was given examples of shape {shape} and type {X.dtype}"
    with add_error_context(context), explained_single_row():
        yield


def check_logits(module: nn.Module, logits: Any, X: torch.Tensor) -> None:
    """Raise a ValueError unless a module returned floats (n, d) with d >= 2, on X's device."""
    name, got = type(module).__name__, type(logits).__name__
    if isinstance(logits, torch.Tensor):
        got = f"{logits.dtype} of shape {tuple(logits.shape)}, {logits.layout}, {logits.device}"
        dense = logits.layout == torch.strided and logits.device == X.device
        right = logits.ndim == 2 and len(logits) == len(X) and logits.shape[1] >= 2
        if right and dense and logits.is_floating_point():
            _warn_if_probabilities(name, logits.detach().float())
            return
    valid = f"logits, floats of shape ({len(X)}, n_classes >= 2)"
    raise ValueError(f"the module {name} must return {valid}; it returned {got}")


def _warn_if_probabilities(name: str, logits: torch.Tensor) -> None:
    sums = logits.sum(dim=1)
    sums_to_1 = torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
    # Logits that are the same for all rows may be any numbers, such as 0 and 1.
    if sums_to_1 and bool((logits >= 0).all() and (logits != logits[:1]).any()):
        warn_user(f"the module {name} returns probabilities; remove its softmax to return logits")


def _warn_if_hidden(module: nn.Module, logits: torch.Tensor) -> None:
    """Warn if logits depend on tensors that require a gradient but are not in ``parameters()``."""
    registered = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    hidden, nodes, seen = [], [logits.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [before for before, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in registered:
            hidden.append(tuple(leaf.shape))
    if hidden:
        warn_user(
            f"the logits of {type(module).__name__} depend on tensors of shapes {sorted(hidden)} "
            "that the module does not register: they are neither learned nor part of theta0; keep "
            "layers in an nn.ModuleList or nn.ModuleDict, and tensors in an nn.Parameter or "
            "nn.ParameterList"
        )


def _warn_if_drawn(factory: ModuleFactory, module: nn.Module) -> None:
    """Warn if each module of a class draws other tensors, and these are not in theta0."""
    kept = {} if isinstance(factory.module, nn.Module) else _not_in_theta0(module)
    if not kept:
        return
    others = _not_in_theta0(replace(factory, seed=factory.seed + 1).build())
    drawn = [n for n, value in kept.items() if n in others and not torch.equal(value, others[n])]
    if drawn:
        warn_user(
            f"the module {type(module).__name__} draws tensors {drawn} that its state_dict lacks: "
            "they are not part of theta0, and each new module has others; keep them by "
            "register_buffer"
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


def _idle_layers(module: nn.Module, logits: torch.Tensor, called: set[str]) -> list[str]:
    """Layers that were not called and whose parameters do not affect the logits."""
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    slopes = torch.autograd.grad(logits.sum(), list(parameters.values()), allow_unused=True)
    idle = [name for name, slope in zip(parameters, slopes, strict=True) if slope is None]
    return sorted({name.rpartition(".")[0] for name in idle} - called)


def _generators_hash() -> str:
    """A hash of the states of the global generators of PyTorch, Python and NumPy."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    arrays = [state.numpy() for state in states]
    return str(joblib.hash((arrays, random.getstate(), np.random.get_state())))  # noqa: NPY002


def _state_hash(module: nn.Module) -> str:
    """A hash of a module's attributes and its buffers' versions; "unknown" if pickling fails."""
    common = vars(nn.Module()).keys() | {"forward"}
    attributes = [
        {name: value for name, value in vars(part).items() if name not in common}
        for part in module.modules()
    ]
    versions = [(id(buffer), buffer._version) for buffer in module.buffers()]
    try:
        return str(joblib.hash((attributes, versions)))
    except Exception:  # something cannot be pickled
        return "unknown"


def _is_same(output: torch.Tensor, logits: torch.Tensor) -> bool:
    """Whether logits are the unchanged output of a layer, or a view of all of it."""
    same = output.data_ptr() == logits.data_ptr() and output.numel() == logits.numel()
    return same and output._version == 0


def _axis(shape: torch.Size, fewer: torch.Size, n_rows: int) -> int:
    """The first axis whose size is proportional to the number of examples; -1 if there is none."""
    for axis, (size, size_of_fewer) in enumerate(zip(shape, fewer, strict=False)):
        if size != size_of_fewer and size * (n_rows - 1) == size_of_fewer * n_rows:
            return axis
    return -1


def _last_call(calls: Sequence[_Call], hidden_layer: str | None, module: nn.Module) -> int:
    """Index of the call that returns the logits; else of the last call of `hidden_layer` or any."""
    if hidden_layer is not None:
        candidates = [i for i, call in enumerate(calls) if call.layer == hidden_layer]
        linear = _linear_layers(module, [call.layer for call in calls])
        if hidden_layer not in linear:
            raise ValueError(
                f"hidden_layer must be a linear layer of {qualified_name(module)}, one of "
                f"{linear}, got {hidden_layer!r}"
            )
    else:
        candidates = [len(calls) - 1]
    giving_logits = [i for i, call in enumerate(calls) if call.gives_logits]
    return (giving_logits or candidates)[-1]


def _linear_layers(module: nn.Module, calls: Sequence[str]) -> list[str]:
    """Names of linear layers among the calls; a ValueError where none has hidden activations."""
    linear = sorted({name for name in calls if isinstance(module.get_submodule(name), nn.Linear)})
    if linear in ([], [""]):
        what = "is a single linear layer" if linear else "calls no nn.Linear"
        raise ValueError(
            f"the module {qualified_name(module)} {what}, so that it has no hidden activations, "
            "which are the inputs of the last linear layer: let it end with a hidden layer, an "
            "nn.Flatten if that is a convolution, and an nn.Linear; or leave out hidden_layer, "
            "coherence and output='hidden'"
        )
    return linear


def _passes_by_vmap(module: nn.Module, X: torch.Tensor) -> bool:
    """Whether vmap can compute networks; raises if they cannot be computed one by one either."""
    name, failures = type(module).__name__, []
    for by_vmap in (True, False):
        # torch.utils.checkpoint would compute a layer again in the backward pass, when the
        # perturbed parameters are no longer in the module.
        no_recomputation = torch.autograd.graph.disable_saved_tensors_hooks(
            "switch off activation checkpointing (torch.utils.checkpoint) in the module"
        )
        try:
            with isolated_pass(module), no_recomputation:
                logits = functional_logits(
                    module, X, 2, 1.0, StepRandom(0, X.device), by_vmap=by_vmap
                )
                learned = [p for p in module.parameters() if p.requires_grad]
                torch.autograd.grad(logits.sum(), learned, allow_unused=True)
        except Exception as error:
            failures.append(error)
            continue
        if not by_vmap:
            warn_user(
                f"networks around the module {name} are computed one after the other, which is "
                f"slow: torch.func.vmap fails with {_first_line(failures[0])}"
            )
        return by_vmap
    with add_error_context(
        f"no sampler can perturb the module {name}: torch.func.vmap fails with "
        f"{_first_line(failures[0])}, and without vmap the error above is raised"
    ):
        raise failures[1]


def _first_line(error: Exception) -> str:
    message = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {message}"


# Networks and theta0


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
        rows = X[np.arange(_N_EXAMPLES) % len(X)]
        factory = _with_casts(factory, rows)
        module = factory.build_to_train().cpu()
        fresh, integers = fresh_theta0(factory, module, X.shape[1:]), takes_integers(module)
        known = _architecture_of_perceptron(factory, X)
        if known is not None and sampler != "functional" and hidden_layer is None:
            # Passes would only show what the arguments say.
            n, chain = known.n_classes, known.chain
            taps = dict.fromkeys(range(len(known.keywords["hidden_layer_sizes"])), 0)
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
            raise ValueError(
                "hidden activations of X are not finite: values of X are too large; scale X as "
                "in fit"
            )
        return H.astype(np.float32, copy=False)

    def known_last_layer(self) -> str:
        """Name of the linear layer that returns the logits; a ValueError if none does."""
        if self.info.last_layer:
            return self.info.last_layer
        linear = _linear_layers(self.factory.build(), self.info.calls)
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
    """The factory, with `casts` set if its module takes rows X (n, ...), but not in float32."""

    def passes(module: nn.Module) -> bool:
        module.cpu().eval()
        examples = as_examples(X.toarray() if issparse(X) else X, takes_integers(module))
        try:
            with torch.no_grad(), isolated_pass(module):
                module(examples)
        except Exception:  # the pass that describes the module reports it
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
    """The architecture of an MLP for rows X (n, ...), which needs no pass; None for a module."""
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
        parameters=tuple((name, repr(value)) for name, value in keywords.items()),
        input_shape=input_shape,
        n_classes=0,
        digest=digest_of({name: array.shape for name, array in arrays.items()}),
    )
    return Theta0(architecture, arrays)


def module_to_train(factory: ModuleFactory, X: Any) -> tuple[ModuleFactory, nn.Module, Theta0]:
    """The factory for rows X (n, ...), a module of it that is only fine-tuned, and its weights."""
    rows = X[:_N_EXAMPLES]
    factory = _with_casts(factory, rows)
    module = factory.build_to_train()
    if (known := _architecture_of_perceptron(factory, X)) is not None:
        return factory, module, Theta0(known, arrays_of(module))
    rows = rows.toarray() if issparse(rows) else rows
    fresh = fresh_theta0(factory, module, rows.shape[1:])
    module.cpu().eval()
    examples = as_examples(rows, takes_integers(module))
    names = {layer: name for name, layer in module.named_modules()}
    outputs: list[tuple[str, torch.Tensor]] = []

    def note(layer: nn.Module, args: Any, output: Any) -> None:
        outputs.append((names[layer], output))

    watched = hooked([layer for layer in names if isinstance(layer, nn.Linear)], note)
    with with_gradients(), isolated_pass(module), _context_of_pass(module, examples), watched:
        logits = module(examples)
    check_logits(module, logits, examples)
    _warn_if_hidden(module, logits)
    _warn_if_drawn(factory, module)
    last = [name for name, output in outputs if output.ndim == 2 and _is_same(output, logits)]
    architecture = replace(
        fresh.architecture, n_classes=logits.shape[1], last_layer=last[-1] if last else ""
    )
    return factory, module, replace(fresh, architecture=architecture)


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
    generator = torch.Generator().manual_seed(0)
    for p in learned:
        noise = torch.randn(p.shape, dtype=p.dtype, generator=generator)
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
