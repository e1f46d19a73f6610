"""Theta0, the initial parameters of a network: its named arrays, its architecture, its files.

Arrays are NumPy's, not tensors: equal arrays have an equal ``joblib.hash``, pickles are small, and
joblib gives arrays to worker processes as memory maps.
"""

from __future__ import annotations

import ast
import glob
import hashlib
import json
import math
import os
import platform
import stat
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn

from ._base.environment import own_generators
from ._base.mlp import MLP, checked_structure, mlp_without_weights
from ._base.module_factory import uncompiled
from ._base.validation import POSITIVE, check_argument, shortened

__all__ = ["Architecture", "Theta0", "load_theta0", "save_theta0"]

_SUFFIX = ".safetensors"
# Keys of the metadata of a safetensors file, which are texts.
_KEY = "sklearn_mmdinit.module"  # the architecture, as JSON
# Files of an MLP from before _KEY existed have this key. Development versions wrote them.
_OLD_KEY = "sklearn_mmdinit.architecture"
_GAIN_KEY = "sklearn_mmdinit.gain"
_ROW_KEYS = {name: f"sklearn_mmdinit.{name}" for name in ("row_mean", "row_spread")}  # of arrays
_DIGEST_KEY = "sklearn_mmdinit.digest"
TRAINING_KEY = "sklearn_mmdinit.training"  # only in checkpoints

# Errors that damaged JSON, or a damaged literal in it, may raise.
PARSE_ERRORS = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, SyntaxError,
    RecursionError, MemoryError,
)  # fmt: skip

_COUNTER = "num_batches_tracked"  # a buffer of batch normalization: not learned, may be missing
_MLP_NAME = f"{MLP.__module__}.{MLP.__qualname__}"


def qualified_name(value: object) -> str:
    """The name of a value's class, with its module."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def digest_of(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """A hash of names and shapes of arrays: 16 hexadecimal digits."""
    listed = sorted((name, list(shape)) for name, shape in shapes.items())
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Architecture:
    """The description of the network that a theta0 belongs to.

    Parameters
    ----------
    module : str
        Qualified name of the module's class.
    parameters : tuple of (str, str)
        Name and ``repr`` of each argument of the class, without addresses in memory; empty for an
        instance of another class than :class:`MLP`.
    input_shape : tuple of int
        Shape of one example.
    n_classes : int
        Number of logits, the paper's d.
    digest : str
        A hash of the names and shapes of the module's arrays.
    last_layer : str, default=""
        Name of the linear layer that returns the logits; empty if there is none.
    chain : tuple of str, default=()
        Names of the layers in their order, if scaling the output of one scales the input of the
        next, so that a gain does not change the function; empty if that is not known.

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
        """
        keywords = checked_structure(
            n_features, hidden_layer_sizes, n_classes, activation, batch_norm
        )
        module = mlp_without_weights(keywords)
        layers = tuple(f"linears.{layer}" for layer in range(len(module.linears)))
        has_gain = activation == "relu" and not batch_norm and len(layers) > 1
        return cls(
            _MLP_NAME,
            tuple((name, repr(value)) for name, value in keywords.items()),
            (keywords["n_features"],),
            keywords["n_classes"],
            digest_of({name: tuple(array.shape) for name, array in module.state_dict().items()}),
            layers[-1],
            layers if has_gain else (),
        )

    @property
    def n_features(self) -> int:
        """The number of values of an example."""
        return math.prod(self.input_shape)

    @property
    def is_perceptron(self) -> bool:
        """Whether the module is this package's :class:`MLP`."""
        return self.module == _MLP_NAME

    @property
    def keywords(self) -> dict[str, Any]:
        """The arguments of an :class:`MLP`; an AttributeError for any other module."""
        if not self.is_perceptron:
            raise AttributeError(f"only a multi-layer perceptron has keywords, not {self.module}")
        keywords = {name: ast.literal_eval(value) for name, value in self.parameters}
        keywords.pop("init", None)  # the weights are in the arrays
        return {"activation": "relu", "batch_norm": False} | keywords

    def to_json(self) -> str:
        """The description as a JSON object, the inverse of :meth:`from_json`."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Architecture:
        """The architecture that a JSON object describes; a ValueError if it describes none."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if "module" not in fields:  # the arguments of an MLP, under _OLD_KEY
                return cls.of_perceptron(**fields)
            parameters = tuple((str(name), str(value)) for name, value in fields.pop("parameters"))
            shape = tuple(int(n) for n in fields.pop("input_shape"))
            chain = tuple(str(name) for name in fields.pop("chain"))
            read = cls(parameters=parameters, input_shape=shape, chain=chain, **fields)
            if read.is_perceptron and read.digest != cls.of_perceptron(**read.keywords).digest:
                raise ValueError(f"arrays of digest {read.digest} do not fit {read.keywords}")
        except PARSE_ERRORS as error:
            why = f"{shortened(text)!r} ({shortened(str(error))})"
            raise ValueError(f"not the description of a module: {why}") from error
        return read


@dataclass(frozen=True, eq=False)
class Theta0:
    """Initial parameters and the architecture they belong to.

    Parameters
    ----------
    architecture : Architecture
        The network.
    arrays : dict of str to ndarray
        The module's ``state_dict``: floats as float32, other types unchanged; read-only.
    gain : tuple of float, default=()
        Factor of each hidden layer's weights after pre-training, which leaves the function
        unchanged; empty if there is none.
    row_mean, row_spread : ndarray of shape ``input_shape``, default=None
        Mean and standard deviation of each value of an example, over the rows that theta0 was
        learned from, in float32. A classifier warns if its rows are on another scale. None if they
        are unknown, as in older files, or if rows hold indices for an embedding layer.

    Raises
    ------
    ValueError
        If the arrays, the gain or the rows' scale do not fit the architecture, or an array holds
        NaN (or infinity, in an :class:`MLP`).

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
    row_mean: np.ndarray | None = None
    row_spread: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, kind in (("architecture", Architecture), ("arrays", Mapping), ("gain", tuple)):
            check_argument(name, getattr(self, name), kind)
        is_mlp = self.architecture.is_perceptron
        arrays = {
            str(name): _read_only(name, array, is_mlp and not str(name).endswith(_COUNTER))
            for name, array in self.arrays.items()
        }
        object.__setattr__(self, "arrays", arrays)
        shapes = {name: array.shape for name, array in arrays.items()}
        if digest_of(shapes) != self.architecture.digest:
            valid = f"the names and shapes of the arrays of {self.architecture.module}"
            got = shortened(str(sorted(shapes.items())))
            raise ValueError(f"arrays must have {valid}, got {got}")
        if self.gain:
            self._check_gain(self.gain)
        for name, array in arrays.items():
            if np.isnan(array).any():
                raise ValueError(f"array {name!r} holds NaN")
            if is_mlp and np.isinf(array).any():  # another module may have a mask of -inf
                raise ValueError(f"array {name!r} holds infinity")
        if self.row_mean is not None or self.row_spread is not None:
            self._check_rows()

    def _check_rows(self) -> None:
        shape = self.architecture.input_shape
        for name, least in (("row_mean", -np.inf), ("row_spread", 0.0)):
            array = _read_only(name, getattr(self, name), as_float32=True)
            object.__setattr__(self, name, array)
            if array.shape != shape or not (np.isfinite(array) & (array >= least)).all():
                valid = f"finite numbers{' >= 0' if least == 0 else ''} of shape {shape}"
                raise ValueError(f"{name} must be {valid}, got {array!r} of shape {array.shape}")

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle calls Theta0 again, because its arrays would otherwise become writeable.
        of_rows = self.row_mean, self.row_spread
        return Theta0, (self.architecture, dict(self.arrays), self.gain, *of_rows)

    def __repr__(self) -> str:
        described, n = self.architecture, sum(array.size for array in self.arrays.values())
        shape = f"input_shape={described.input_shape}, n_classes={described.n_classes}"
        return f"Theta0(of {described.module}, {shape}, {n:,} numbers)"

    def _check_gain(self, gain: Sequence[float]) -> None:
        n_hidden = max(len(self.architecture.chain) - 1, 0)
        if len(gain) != n_hidden or not all(POSITIVE.is_satisfied_by(factor) for factor in gain):
            valid = "finite numbers > 0, one for each hidden layer"
            raise ValueError(f"gain must be {n_hidden} {valid}; got {gain!r}")

    @property
    def coefs(self) -> list[np.ndarray]:
        """Weights of each layer of an :class:`MLP`, as copies (n_in, n_out) like scikit-learn's."""
        return [np.copy(weight.T) for weight in self._of_layers("weight")]

    @property
    def intercepts(self) -> list[np.ndarray]:
        """Biases of each layer of an :class:`MLP`, as copies (n_out,)."""
        return [np.copy(bias) for bias in self._of_layers("bias")]

    def _of_layers(self, name: str) -> list[np.ndarray]:
        n_layers = len(self.architecture.keywords["hidden_layer_sizes"]) + 1
        return [self.arrays[f"linears.{layer}.{name}"] for layer in range(n_layers)]

    def to_module(self) -> nn.Module:
        """A new :class:`MLP` with these parameters; a ValueError for any other module."""
        if not self.architecture.is_perceptron:
            name = self.architecture.module
            raise ValueError(
                f"theta0 has only the arrays of the module {name}, not its class: use to_module() "
                "of the initializer"
            )
        with own_generators():
            module = MLP(**self.architecture.keywords)
        set_theta0_(module, self)
        return module

    def with_gain(self, factors: Sequence[float]) -> Theta0:
        """Multiply each hidden layer's weights by its factor, the last by 1 / their product.

        Factors are positive. Biases are scaled so that the network computes the same function.
        ``gain`` of the result holds the factors times the earlier ones.
        """
        if all(factor == 1.0 for factor in factors):
            return self
        self._check_gain(tuple(factors))
        scales, total = {}, 1.0
        *hidden, last = self.architecture.chain
        for layer, factor in zip(hidden, factors, strict=True):
            total *= factor
            scales[f"{layer}.weight"] = factor
            scales[f"{layer}.bias"] = total
        scales[f"{last}.weight"] = 1.0 / total
        with np.errstate(over="ignore"):  # the error below reports it
            scaled = {
                name: (array * scales[name]).astype(array.dtype) if name in scales else array
                for name, array in self.arrays.items()
            }
        if wrong := [name for name in scales if not np.isfinite(scaled.get(name, 0.0)).all()]:
            raise ValueError(f"gain={tuple(factors)} makes {wrong[0]!r} too large for float32")
        old_gain = self.gain or (1.0,) * len(factors)
        gain = tuple(float(old * new) for old, new in zip(old_gain, factors, strict=True))
        return replace(self, arrays=scaled, gain=gain)

    def without_gain(self) -> Theta0:
        """Remove the gain, because the size of perturbations assumes unscaled weights."""
        if not self.gain:
            return self
        unscaled = self.with_gain([1.0 / factor for factor in self.gain])
        return replace(unscaled, gain=())


def _read_only(name: str, array: Any, as_float32: bool) -> np.ndarray:
    """A read-only array in C order: floats in float32, other numbers too if `as_float32`."""
    numbers = np.asarray(array)
    if numbers.dtype.kind not in ("biuf" if as_float32 else "biufc"):
        raise ValueError(f"array {name!r} must hold numbers, got dtype {numbers.dtype}")
    if numbers.dtype.kind == "f" or as_float32:
        with np.errstate(over="ignore"):  # an error reports infinity
            numbers = numbers.astype(np.float32, copy=False)
    # Not np.ascontiguousarray, which would give an array of shape () an axis.
    view = np.asarray(numbers, order="C").view()
    view.flags.writeable = False
    return view


def theta0_in(source: Any) -> Theta0 | None:
    """A Theta0 itself, or the ``theta0_`` of an estimator; None for anything else."""
    theta0 = source if isinstance(source, Theta0) else getattr(source, "theta0_", None)
    return theta0 if isinstance(theta0, Theta0) else None


def arrays_of(module: nn.Module) -> dict[str, np.ndarray]:
    """Copies of the arrays in a module's ``state_dict``, on the CPU, floats in float32."""
    arrays = {}
    for name, value in module.state_dict().items():
        if isinstance(value, torch.Tensor):  # a module may add values of other types
            value = value.detach().cpu()
            value = value.float() if value.is_floating_point() else value
            arrays[name] = np.array(value.numpy(), order="C")
    return arrays


def set_theta0_(module: nn.Module, theta0: Theta0) -> None:
    """Copy theta0 into a module of its class, in place."""
    module = uncompiled(module)
    name, expected = qualified_name(module), theta0.architecture.module
    if name != expected:
        raise ValueError(f"theta0 is for the module {expected}, but the module here is {name}")
    if isinstance(module, MLP):  # arrays do not show the activation
        name, expected = module.keywords["activation"], theta0.architecture.keywords["activation"]
        if name != expected:
            raise ValueError(f"theta0 is for an MLP with activation={expected!r}, not {name!r}")
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
        if np.shape(array) != shapes.get(key):
            there = f"has shape {shapes[key]}" if key in shapes else "is not there"
            shape = f"theta0's {key!r} has shape {np.shape(array)}"
            raise ValueError(f"{shape}; in the module {name} it {there}")
    # tensor() copies: in a worker process the arrays may be read-only memory maps.
    new = {key: torch.tensor(array, device="cpu") for key, array in arrays.items()}
    for key, value in new.items():
        if (old := state[key]).dtype == torch.float64:
            # A float64 value of the module stays as it is if theta0 holds it rounded to float32.
            new[key] = torch.where(value.to(old) == old.float(), old, value.to(old))
    module.load_state_dict(new, strict=False)


def write_whole(path: Path, arrays: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> None:
    """Write a safetensors file whole or not at all: first under another name, then renamed."""
    data = save(dict(arrays), metadata={**texts, _DIGEST_KEY: _digest(arrays, texts)})
    target = Path(os.path.realpath(path))  # if path is a link, its target is replaced
    # Not by tempfile: only the owner could read such a file, even after it is renamed.
    partial = target.with_name(f"{_unfinished_prefix(target)}{os.getpid()}.{uuid.uuid4().hex}.part")
    try:
        with open(partial, "xb") as file:
            if target.exists():
                _keep_mode(target, partial)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError as error:
        raise OSError(error.errno, f"{path} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def _unfinished_prefix(target: Path) -> str:
    """Start of the name of an unfinished file on this machine; the process id follows."""
    return f".{target.name}.{platform.node()}."


def _keep_mode(before: Path, after: Path) -> None:
    """Give the file `after` the permissions of `before`."""
    # Only if they differ: file systems without chmod give all files the same permissions.
    mode = stat.S_IMODE(before.stat().st_mode)
    if mode != stat.S_IMODE(after.stat().st_mode):
        after.chmod(mode)


def remove_unfinished_files(path: Path) -> None:
    """Delete unfinished files for this path, if the process that wrote them has ended."""
    target = Path(os.path.realpath(path))
    prefix = _unfinished_prefix(target)
    for part in target.parent.glob(f"{glob.escape(prefix)}*.part"):
        pid = part.name.removeprefix(prefix).partition(".")[0]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            part.unlink(missing_ok=True)


def read_whole(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and texts of a safetensors file; a ValueError if it is damaged."""
    # Opens the file first, for the right OSError: safe_open reports any file that it cannot open as
    # missing.
    with open(path, "rb"):
        pass
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            texts = file.metadata() or {}
    except (SafetensorError, TypeError, KeyError, AttributeError) as error:
        # The last three come from an element type that NumPy does not have.
        reason = f"{str(path)!r} is damaged or not a safetensors file"
        raise ValueError(f"{reason}: write it anew ({shortened(str(error))})") from error
    # Files from before _DIGEST_KEY existed have no digest.
    if texts.pop(_DIGEST_KEY, None) not in (None, _digest(arrays, texts)):
        raise ValueError(f"{str(path)!r} is damaged: its contents have changed; write it anew")
    return arrays, texts


def _digest(arrays: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> str:
    """A hash of a file's arrays and texts."""
    digest = hashlib.sha256(json.dumps(sorted(texts.items())).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def checked_path(path: str | os.PathLike[str], name: str = "path") -> Path:
    """The path of a file to read or write; an error if it cannot be a safetensors file."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name} must be a str or path-like that ends in {_SUFFIX!r}, got {path!r}")
    checked = Path(path)
    if checked.suffix != _SUFFIX or checked.is_dir():
        raise ValueError(f"{name} must name a file that ends in {_SUFFIX!r}, got {str(path)!r}")
    return checked


def save_theta0(path: str | os.PathLike[str], source: Any) -> None:
    """Write theta0 to a safetensors file.

    The file is written whole or not at all. It holds no names of columns, so that later rows must
    have their columns in the same order.

    Parameters
    ----------
    path : str or path-like
        Name of the file, which ends in ``.safetensors``. An existing file is replaced.
    source : Theta0 or fitted estimator
        Theta0, or an estimator whose ``theta0_`` is saved.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from sklearn_mmdinit import MMDInitializer, load_theta0, save_theta0
    >>> X = np.random.default_rng(0).normal(size=(64, 4))
    >>> init = MMDInitializer((8,), n_perturbations=8, max_iter=1, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_theta0(f"{folder}/theta0.safetensors", init)
    ...     load_theta0(f"{folder}/theta0.safetensors")
    Theta0(of sklearn_mmdinit.MLP, input_shape=(4,), n_classes=2, 58 numbers)
    """
    target = checked_path(path)
    theta0 = theta0_in(source)
    if theta0 is None:
        kind = type(source).__name__
        hint = ""
        if isinstance(source, nn.Module):
            hint = (
                "; torch.save(module.state_dict(), path) keeps its weights. For a theta0 pass "
                "MMDInitializer(module=module, max_iter=0).fit(X), which begins at them"
            )
        raise TypeError(f"source must be a Theta0 or a fitted estimator, got {kind}{hint}")
    metadata = {_KEY: theta0.architecture.to_json()}
    if theta0.gain:
        metadata[_GAIN_KEY] = json.dumps(theta0.gain)
    of_rows = {key: getattr(theta0, name) for name, key in _ROW_KEYS.items()}
    of_rows = {key: array for key, array in of_rows.items() if array is not None}
    write_whole(target, {**theta0.arrays, **of_rows}, metadata)


def load_theta0(path: str | os.PathLike[str], module: nn.Module | None = None) -> Theta0:
    """Read theta0 from a safetensors file.

    Parameters
    ----------
    path : str or path-like
        A file that :func:`save_theta0` has written.
    module : nn.Module, default=None
        A module of theta0's class. Its parameters are set to theta0, in place.

    Returns
    -------
    Theta0

    Raises
    ------
    ValueError
        If the file is damaged or holds no theta0, or if theta0 does not fit the module.

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
        hint = "call fit with this file as checkpoint, then save_theta0 with the fitted initializer"
        raise ValueError(f"{str(path)!r} is a checkpoint of a training, not a theta0: {hint}")
    try:
        text = metadata.get(_KEY, metadata.get(_OLD_KEY))
        if text is None:
            raise ValueError(f"the metadata lacks {_KEY!r}; it has {sorted(metadata)}")
        architecture = Architecture.from_json(text)
        if _KEY not in metadata:  # files with _OLD_KEY have no counters
            n_norms = len(mlp_without_weights(architecture.keywords).norms)
            for layer in range(n_norms):
                arrays.setdefault(f"norms.{layer}.{_COUNTER}", np.zeros((), np.int64))
        gain = tuple(float(factor) for factor in json.loads(metadata.get(_GAIN_KEY, "[]")))
        of_rows = {name: arrays.pop(key, None) for name, key in _ROW_KEYS.items()}
        theta0 = Theta0(architecture, arrays, gain, **of_rows)
    except PARSE_ERRORS as error:
        reason = f"{str(path)!r} is damaged, or holds no theta0"
        why = shortened(str(error))
        raise ValueError(f"{reason}: write it anew with save_theta0 ({why})") from error
    if module is not None:
        set_theta0_(module, theta0)
    return theta0
