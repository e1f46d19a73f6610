"""Theta0: the initial parameters of a network, as named arrays and a description; and its files.

What was learned is kept in NumPy arrays and never in tensors: equal arrays have equal
``joblib.hash``, pickle small, and reach worker processes as memory maps.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn

from ._base.mlp import MLP, perceptron
from ._base.module_factory import ModuleFactory, uncompiled
from ._base.validation import add_error_context, check_integer, check_kind

__all__ = ["Architecture", "Theta0", "load_theta0", "save_theta0"]

_SUFFIX = ".safetensors"
# safetensors keeps text beside the arrays: the architecture goes in as JSON.
_KEY = "sklearn_mmdinit.module"
_GAIN_KEY = "sklearn_mmdinit.gain"
TRAINING_KEY = "sklearn_mmdinit.training"  # of a checkpoint
_DIGEST_KEY = "sklearn_mmdinit.digest"
# What files of multi-layer perceptrons had before these were modules like any other.
_PERCEPTRON_KEY = "sklearn_mmdinit.architecture"

_COUNTER = "num_batches_tracked"  # of batch normalisation: not learned, and may be missing


def qualified_name(value: object) -> str:
    """The name of a value's class, with where it is from."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def digest_of(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """What stands for names and shapes of arrays: 16 hexadecimal digits."""
    listed = sorted((name, list(shape)) for name, shape in shapes.items())
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Architecture:
    """What a theta0 says of the network that it belongs to.

    Parameters
    ----------
    module : str
        Qualified name of the module's class.
    parameters : tuple of (str, str)
        Name and ``repr`` of what the class was called with; empty where an instance was given.
    input_shape : tuple of int
        Shape of one example.
    n_classes : int
        Number of logits, the paper's d.
    digest : str
        Of the names and shapes of the module's arrays.
    last_layer : str, default=""
        Name of the linear layer that gives the logits; empty where there is none.
    chain : tuple of str, default=()
        Names of the layers, the first one first, where each hands a scale of its output on to the
        next, so that a gain does not change the function; empty where that is not known.

    Examples
    --------
    >>> from sklearn_mmdinit import Architecture
    >>> Architecture.of_perceptron(4, (8, 8), 3).chain
    ('linears.0', 'linears.1', 'linears.2')
    """

    module: str
    parameters: tuple[tuple[str, str], ...]
    input_shape: tuple[int, ...]
    n_classes: int
    digest: str
    last_layer: str = ""
    chain: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in type(self).__annotations__.items():
            check_kind(name, getattr(self, name), {"str": str, "int": Integral}.get(kind, tuple))
        for word, value in (*self.parameters, *enumerate(self.chain)):
            check_kind(f"{word} of parameters or chain", value, str)
        for number in self.input_shape:
            check_integer("an entry of input_shape", number)
        check_integer("n_classes", self.n_classes, least=0)  # 0: not known yet

    @classmethod
    def of_perceptron(
        cls,
        n_features: int,
        hidden_layer_sizes: Sequence[int],
        n_classes: int,
        activation: str = "relu",
        batch_norm: bool = False,
    ) -> Architecture:
        """The description of an :class:`MLP`.

        Parameters
        ----------
        n_features, hidden_layer_sizes, n_classes, activation, batch_norm
            As :class:`MLP` takes them.

        Returns
        -------
        Architecture
        """
        keywords = perceptron(n_features, hidden_layer_sizes, n_classes, activation, batch_norm)
        sizes = keywords["hidden_layer_sizes"]
        layers = tuple(f"linears.{layer}" for layer in range(len(sizes) + 1))
        scales = activation == "relu" and not batch_norm and len(layers) > 1
        shapes = _perceptron_shapes(n_features, sizes, n_classes, batch_norm)
        return cls(
            _PERCEPTRON,
            tuple((name, repr(value)) for name, value in keywords.items()),
            (n_features,),
            n_classes,
            digest_of(shapes),
            layers[-1],
            layers if scales else (),
        )

    @property
    def n_features(self) -> int:
        """Numbers of one example."""
        return math.prod(self.input_shape)

    @property
    def is_perceptron(self) -> bool:
        """Whether the module is this package's :class:`MLP`."""
        return self.module == _PERCEPTRON

    @property
    def keywords(self) -> dict[str, Any]:
        """What an :class:`MLP` was called with; an AttributeError for any other module."""
        if not self.is_perceptron:
            raise AttributeError(f"only a multi-layer perceptron has them, not {self.module}")
        known = {name: ast.literal_eval(value) for name, value in self.parameters}
        known.pop("init", None)  # the weights are in the arrays
        return {"activation": "relu", "batch_norm": False} | known

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise a ValueError unless arrays have the names and shapes of the module's."""
        if digest_of(shapes) != self.digest:
            known = f"the names and shapes of {self.module}'s arrays, of digest {self.digest}"
            raise ValueError(f"these are not {known}: {sorted(shapes.items())}")

    def to_json(self) -> str:
        """The description as a JSON object, the inverse of :meth:`from_json`."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Architecture:
        """The architecture that a JSON object describes; a ValueError where it does not."""
        with add_error_context(f"not the description of a module: {text!r}"):
            fields: dict[str, Any] = json.loads(text)
            if "module" not in fields:  # from before perceptrons were modules like any other
                return cls.of_perceptron(**fields)
            parameters = tuple((str(name), str(value)) for name, value in fields.pop("parameters"))
            shape = tuple(int(n) for n in fields.pop("input_shape"))
            chain = tuple(str(name) for name in fields.pop("chain"))
            found = cls(parameters=parameters, input_shape=shape, chain=chain, **fields)
            if found.is_perceptron and found.digest != cls.of_perceptron(**found.keywords).digest:
                raise ValueError(f"{found.keywords} have other shapes")
        return found


_PERCEPTRON = f"{MLP.__module__}.{MLP.__qualname__}"


def _perceptron_shapes(
    n_features: int, sizes: Sequence[int], n_classes: int, batch_norm: bool
) -> dict[str, tuple[int, ...]]:
    """Name and shape of every array of an MLP."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (n_in, n_out) in enumerate(pairwise((n_features, *sizes, n_classes))):
        shapes |= {f"linears.{layer}.weight": (n_out, n_in), f"linears.{layer}.bias": (n_out,)}
    for layer, width in enumerate(sizes if batch_norm else ()):
        for name in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"norms.{layer}.{name}"] = (width,)
        shapes[f"norms.{layer}.{_COUNTER}"] = ()
    return shapes


@dataclass(frozen=True, eq=False)
class Theta0:
    """Initial parameters and the architecture they belong to.

    Parameters
    ----------
    architecture : Architecture
        The network.
    arrays : dict of str to ndarray
        What the module's ``state_dict`` holds: floats as float32, buffers of other types as they
        are; kept as read-only views.
    gain : tuple of float, default=()
        By what each hidden layer's weights were multiplied after pre-training, the function
        being the same; empty: by nothing.

    Raises
    ------
    ValueError
        If a name is missing or unknown, an array has another shape or holds NaN (of an
        :class:`MLP`, infinity neither), or the gain has another length than there are hidden
        layers, or a factor that is not finite and above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit import MMDInitializer
    >>> X = np.random.default_rng(0).normal(size=(64, 4))
    >>> init = MMDInitializer((8,), n_perturbations=8, max_iter=1, random_state=0).fit(X)
    >>> sorted(init.theta0_.arrays)
    ['linears.0.bias', 'linears.0.weight', 'linears.1.bias', 'linears.1.weight']
    """

    architecture: Architecture
    arrays: Mapping[str, np.ndarray]
    gain: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("architecture", Architecture), ("arrays", Mapping), ("gain", tuple)):
            check_kind(name, getattr(self, name), kind)
        perceptron = self.architecture.is_perceptron
        kept = {
            str(name): _kept(name, array, perceptron and not str(name).endswith(_COUNTER))
            for name, array in self.arrays.items()
        }
        object.__setattr__(self, "arrays", kept)
        self.architecture.check({name: array.shape for name, array in kept.items()})
        if self.gain:
            self._check_gain(self.gain)
        for name, array in kept.items():
            # Another module may keep a mask of -inf among its arrays.
            if not np.isfinite(array).all() if perceptron else np.isnan(array).any():
                raise ValueError(f"array {name!r} holds NaN{' or infinity' if perceptron else ''}")

    def __repr__(self) -> str:
        own, numbers = self.architecture, sum(array.size for array in self.arrays.values())
        shape = f"input_shape={own.input_shape}, n_classes={own.n_classes}"
        return f"Theta0(of {own.module}, {shape}, {numbers:,} numbers)"

    def _check_gain(self, gain: Sequence[float]) -> None:
        n_hidden = max(len(self.architecture.chain) - 1, 0)
        right = [f for f in gain if isinstance(f, Real) and 0.0 < f < math.inf]
        if not len(right) == len(gain) == n_hidden:
            valid = "finite numbers > 0, one for each hidden layer"
            raise ValueError(f"{gain=} must be {n_hidden} {valid}")

    @property
    def coefs(self) -> list[np.ndarray]:
        """Weights of an :class:`MLP`, a copy of shape (n_in, n_out) a layer, as scikit-learn's."""
        return [np.copy(weight.T) for weight in self._of_layers("weight")]

    @property
    def intercepts(self) -> list[np.ndarray]:
        """Biases of an :class:`MLP`, a copy of shape (n_out,) a layer."""
        return [np.copy(bias) for bias in self._of_layers("bias")]

    def _of_layers(self, name: str) -> list[np.ndarray]:
        n_layers = len(self.architecture.keywords["hidden_layer_sizes"]) + 1
        return [self.arrays[f"linears.{layer}.{name}"] for layer in range(n_layers)]

    def to_module(self) -> nn.Module:
        """A fresh :class:`MLP` that starts here; a ValueError for any other module."""
        if not self.architecture.is_perceptron:
            name = self.architecture.module
            raise ValueError(f"theta0 does not hold {name}: use to_module() of its initializer")
        module = ModuleFactory(MLP, self.architecture.keywords).build()
        start_(module, self)
        return module

    def with_gain(self, factors: Sequence[float]) -> Theta0:
        """The weights of each hidden layer multiplied, the last one's divided: the same function.

        Parameters
        ----------
        factors : sequence of float
            One for each hidden layer of ``architecture.chain``, positive.

        Returns
        -------
        Theta0
            With the factors in its ``gain``.
        """
        if all(factor == 1.0 for factor in factors):
            return self
        self._check_gain(tuple(factors))
        before = self.gain or (1.0,) * len(factors)
        gain = tuple(float(old * new) for old, new in zip(before, factors, strict=True))
        return Theta0(self.architecture, self._scaled(factors), gain)

    def without_gain(self) -> Theta0:
        """As pre-training left it: perturbations of a fixed size mean something else later."""
        if not self.gain:
            return self
        return Theta0(self.architecture, self._scaled([1.0 / factor for factor in self.gain]))

    def _scaled(self, factors: Sequence[float]) -> dict[str, np.ndarray]:
        scales, total = {}, 1.0
        *hidden, last = self.architecture.chain
        for layer, factor in zip(hidden, factors, strict=True):
            total *= factor
            scales[f"{layer}.weight"] = factor
            scales[f"{layer}.bias"] = total
        scales[f"{last}.weight"] = 1.0 / total
        with np.errstate(over="ignore"):  # told below
            scaled = {
                name: (array * scales[name]).astype(array.dtype) if name in scales else array
                for name, array in self.arrays.items()
            }
        if wrong := [name for name in scales if not np.isfinite(scaled.get(name, 0.0)).all()]:
            raise ValueError(f"gain={tuple(factors)} makes {wrong[0]!r} too large for float32")
        return scaled


def _kept(name: str, array: Any, real: bool) -> np.ndarray:
    """Floats, and whatever is `real`, in float32; other numbers as they are; in C order."""
    kept = np.asarray(array)
    if kept.dtype.kind not in ("biuf" if real else "biufc"):
        raise ValueError(f"array {name!r} must hold numbers, got dtype {kept.dtype}")
    if kept.dtype.kind == "f" or real:
        with np.errstate(over="ignore"):  # told as infinity
            kept = kept.astype(np.float32, copy=False)
    # asarray and not ascontiguousarray, which has no arrays without axes.
    view = np.asarray(kept, order="C").view()
    view.flags.writeable = False
    return view


def theta0_in(source: Any) -> Theta0 | None:
    """A Theta0 itself, or what an estimator has as its ``theta0_``; None for anything else."""
    theta0 = source if isinstance(source, Theta0) else getattr(source, "theta0_", None)
    return theta0 if isinstance(theta0, Theta0) else None


def arrays_of(module: nn.Module) -> dict[str, np.ndarray]:
    """What a module's ``state_dict`` holds, floats as float32; copies, on the CPU."""
    arrays = {}
    for name, value in module.state_dict().items():
        if isinstance(value, torch.Tensor):  # a module may add what it likes
            value = value.detach().cpu()
            value = value.float() if value.is_floating_point() else value
            arrays[name] = np.array(value.numpy(), order="C")
    return arrays


def start_(module: nn.Module, theta0: Theta0) -> None:
    """Let a module start at a theta0 of its class, in place."""
    module = uncompiled(module)
    own, theirs = qualified_name(module), theta0.architecture.module
    if own != theirs:
        raise ValueError(f"theta0 is of the module {theirs}, not of {own}")
    if isinstance(module, MLP):
        given, found = (k["activation"] for k in (theta0.architecture.keywords, module.keywords))
        if given != found:  # which arrays do not show
            raise ValueError(f"theta0 is of an MLP with activation={given!r}, not {found!r}")
    put_arrays_(module, theta0.arrays)


def put_arrays_(module: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Copy arrays into a module, in place; a ValueError names the first that does not fit."""
    state = module.state_dict()
    shapes = {n: tuple(value.shape) for n, value in state.items() if hasattr(value, "shape")}
    name = qualified_name(module)
    if meta := [n for n, value in state.items() if getattr(value, "is_meta", False)]:
        raise ValueError(f"{meta[0]!r} of the module {name} is on the meta device; use to_empty()")
    missing = [n for n in sorted(shapes.keys() - arrays.keys()) if not n.endswith(_COUNTER)]
    if missing:
        raise ValueError(f"theta0 has no array {missing[0]!r}, which the module {name} has")
    for key, array in arrays.items():
        if (found := np.shape(array)) != shapes.get(key):
            own = f"has shape {shapes[key]}" if key in shapes else "is not there"
            raise ValueError(f"theta0's {key!r} has shape {found}; in the module {name} it {own}")
    # copy: the arrays may be read-only memory maps in a worker process.
    new = {key: torch.tensor(array) for key, array in arrays.items()}
    for key, value in new.items():
        if (own := state[key]).dtype == torch.float64:
            # A module's own numbers where these are the same in float32.
            new[key] = torch.where(value.to(own) == own.float(), own, value.to(own))
    module.load_state_dict(new, strict=False)


def write_whole(target: Path, arrays: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> None:
    """Write a safetensors file whole or not at all: beside its final place, and then renamed."""
    data = save(dict(arrays), metadata={**texts, _DIGEST_KEY: _digest(arrays, texts)})
    # Not tempfile: its files can be read by their owner alone, and a rename keeps that.
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with open(partial, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError as error:
        raise OSError(error.errno, f"{target} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def read_whole(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and texts of a safetensors file; a ValueError where it is damaged or another's."""
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            texts = file.metadata() or {}
    except (SafetensorError, TypeError, KeyError, AttributeError) as error:
        # The last three: an element type that NumPy does not have.
        raise ValueError(f"{str(path)!r} is damaged or not a safetensors file: {error}") from error
    # Files from before there was a digest have none.
    if texts.pop(_DIGEST_KEY, None) not in (None, _digest(arrays, texts)):
        raise ValueError(f"{str(path)!r} is damaged: its contents have changed")
    return arrays, texts


def _digest(arrays: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> str:
    """What no change of a file's arrays and texts leaves as it is."""
    found = hashlib.sha256(json.dumps(sorted(texts.items())).encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def checked_path(path: str | os.PathLike[str], name: str = "path") -> Path:
    """The path of a file to write or read; an error where it cannot be one of these."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name} must be a str or path-like that ends in {_SUFFIX!r}, got {path!r}")
    checked = Path(path)
    if checked.suffix != _SUFFIX or checked.is_dir():
        raise ValueError(f"{name} must be of a file that ends in {_SUFFIX!r}, got {str(path)!r}")
    return checked


def save_theta0(path: str | os.PathLike[str], source: Any) -> None:
    """Write theta0 to a safetensors file.

    The file appears whole or not at all. It does not hold the names of columns: they have to come
    in the order that theta0 was learned in.

    Parameters
    ----------
    path : str or path-like
        Where to write; must end in ``.safetensors``. An existing file is replaced.
    source : Theta0 or fitted estimator
        Parameters to save; of an estimator, its ``theta0_``.

    Raises
    ------
    FileNotFoundError
        If there is no folder to write to.
    TypeError
        If ``path`` is no path, or ``source`` neither a Theta0 nor fitted.
    ValueError
        If ``path`` ends otherwise or is a folder.

    See Also
    --------
    load_theta0 : Read the file back.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from sklearn_mmdinit import MMDInitializer, load_theta0, save_theta0
    >>> X = np.random.default_rng(0).normal(size=(64, 4))
    >>> init = MMDInitializer((8,), n_perturbations=8, max_iter=1, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "theta0.safetensors")
    ...     save_theta0(path, init)
    ...     load_theta0(path).architecture.n_classes
    2
    """
    target = checked_path(path)
    theta0 = theta0_in(source)
    if theta0 is None:
        kind = type(source).__name__
        raise TypeError(f"source must be a Theta0 or a fitted estimator, got {kind}")
    metadata = {_KEY: theta0.architecture.to_json()}
    if theta0.gain:
        metadata[_GAIN_KEY] = json.dumps(theta0.gain)
    write_whole(target, theta0.arrays, metadata)


def load_theta0(path: str | os.PathLike[str], module: nn.Module | None = None) -> Theta0:
    """Read theta0 from a safetensors file.

    Parameters
    ----------
    path : str or path-like
        A file that :func:`save_theta0` has written.
    module : nn.Module, default=None
        A module of the class that theta0 is of, to start there, in place.

    Returns
    -------
    Theta0

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TypeError
        If ``path`` is no path.
    ValueError
        If it is damaged or not a file of theta0, or theta0 is of another module.

    See Also
    --------
    save_theta0 : Write the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from torch import nn
    >>> from sklearn_mmdinit import MMDInitializer, load_theta0, save_theta0
    >>> X = np.random.default_rng(0).normal(size=(64, 4))
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> init = MMDInitializer(module=net, n_perturbations=8, max_iter=1, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "theta0.safetensors")
    ...     save_theta0(path, init)
    ...     theta0 = load_theta0(path, net)  # net starts there now
    >>> theta0
    Theta0(of torch.nn.modules.container.Sequential, input_shape=(4,), n_classes=3, 67 numbers)
    >>> bool((net[0].weight.detach().numpy() == theta0.arrays["0.weight"]).all())
    True
    """
    arrays, metadata = read_whole(checked_path(path))
    if TRAINING_KEY in metadata:
        hint = "fit with the same checkpoint= reads it, and save_theta0 writes what it has learned"
        raise ValueError(f"{str(path)!r} is a checkpoint of a training, not a theta0: {hint}")
    with add_error_context(f"{str(path)!r} is damaged or no file of theta0"):
        text = metadata.get(_KEY, metadata.get(_PERCEPTRON_KEY))
        if text is None:
            raise ValueError(f"the metadata has no {_KEY!r} but {sorted(metadata)}")
        architecture = Architecture.from_json(text)
        if _KEY not in metadata:
            own = architecture.keywords
            for layer in range(len(own["hidden_layer_sizes"]) if own["batch_norm"] else 0):
                arrays.setdefault(f"norms.{layer}.{_COUNTER}", np.zeros((), np.int64))
        gain = tuple(float(factor) for factor in json.loads(metadata.get(_GAIN_KEY, "[]")))
        theta0 = Theta0(architecture, arrays, gain)
    if module is not None:
        start_(module, theta0)
    return theta0
