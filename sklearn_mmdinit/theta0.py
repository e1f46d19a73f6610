"""Theta0, the initial parameters of a network: its named arrays, its architecture, its files.

Arrays are NumPy's, not tensors: equal arrays have an equal ``joblib.hash``, pickles are small, and
joblib gives arrays to worker processes as memory maps.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import platform
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn

from ._base.environment import own_generators
from ._base.mlp import MLP
from ._base.module_factory import uncompiled
from ._base.validation import add_error_context, check_argument, repr_without_address, shortened

__all__ = ["Theta0"]

_SUFFIX = ".safetensors"
# Keys of the metadata of a safetensors file, which are texts.
_KEY = "sklearn_mmdinit.module"  # the architecture, as JSON
_DIGEST_KEY = "sklearn_mmdinit.digest"
_ROW_KEYS = {name: f"sklearn_mmdinit.{name}" for name in ("row_mean", "row_spread")}
TRAINING_KEY = "sklearn_mmdinit.training"  # only in checkpoints

# Errors that JSON of another version may raise.
PARSE_ERRORS = (ValueError, TypeError, LookupError, AttributeError)

_MLP_NAME = f"{MLP.__module__}.{MLP.__qualname__}"


def qualified_name(value: object) -> str:
    """The name of a value's class, with its module."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def digest_of(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """A hash of names and shapes of arrays: 16 hexadecimal digits."""
    listed = sorted((name, list(shape)) for name, shape in shapes.items())
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]


def _described(value: Any) -> Any:
    """A number, a text or a tuple of them, as JSON can hold it; else the repr."""
    plain = str | int | float | None
    if isinstance(value, list | tuple) and all(isinstance(part, plain) for part in value):
        return tuple(value)
    return value if isinstance(value, plain) else repr_without_address(value)


@dataclass(frozen=True)
class Architecture:
    """The description of the network that a theta0 belongs to.

    Parameters
    ----------
    module : str
        Qualified name of the module's class.
    keywords : dict of str to object
        Arguments of the class: numbers, texts and tuples of them as they are, of other values the
        ``repr``; empty for an instance of another class than :class:`MLP`.
    input_shape : tuple of int
        Shape of one example.
    n_classes : int
        Number of logits, the paper's d.
    digest : str
        A hash of the names and shapes of the module's arrays.
    last_layer : str, default=""
        Name of the linear layer that returns the logits; empty if there is none.
    """

    module: str
    keywords: dict[str, Any]
    input_shape: tuple[int, ...]
    n_classes: int
    digest: str
    last_layer: str = ""

    def __post_init__(self) -> None:
        keywords = {name: _described(value) for name, value in self.keywords.items()}
        object.__setattr__(self, "keywords", keywords)
        object.__setattr__(self, "input_shape", tuple(self.input_shape))

    @property
    def is_perceptron(self) -> bool:
        """Whether the module is this package's :class:`MLP`."""
        return self.module == _MLP_NAME

    def to_json(self) -> str:
        """The description as a JSON object."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True, eq=False)
class Theta0:
    """Weights before fine-tuning, random or pre-trained, and the architecture they belong to.

    Parameters
    ----------
    architecture : Architecture
        The network.
    arrays : dict of str to ndarray
        The module's ``state_dict``: floats as float32, other types unchanged; read-only.
    row_mean, row_spread : ndarray of shape ``input_shape``, default=None
        Mean and standard deviation of each value of an example, over the rows that theta0 was
        learned from, in float32. A classifier warns if its rows are on another scale. None if they
        are unknown, as for rows that hold indices for an embedding layer.

    Raises
    ------
    ValueError
        If the arrays do not fit the architecture.

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
    row_mean: np.ndarray | None = None
    row_spread: np.ndarray | None = None

    def __post_init__(self) -> None:
        check_argument("architecture", self.architecture, Architecture)
        check_argument("arrays", self.arrays, Mapping)
        arrays = {str(name): _read_only(array) for name, array in self.arrays.items()}
        object.__setattr__(self, "arrays", arrays)
        shapes = {name: array.shape for name, array in arrays.items()}
        if digest_of(shapes) != self.architecture.digest:
            valid = f"the names and shapes of the arrays of {self.architecture.module}"
            got = shortened(str(sorted(shapes.items())))
            raise ValueError(f"arrays must have {valid}, got {got}")
        for name in _ROW_KEYS:
            if (of_rows := getattr(self, name)) is not None:
                object.__setattr__(self, name, _read_only(of_rows))

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle calls Theta0 again, because its arrays would otherwise become writeable.
        return Theta0, (self.architecture, dict(self.arrays), self.row_mean, self.row_spread)

    def __repr__(self) -> str:
        described, n = self.architecture, sum(array.size for array in self.arrays.values())
        shape = f"input_shape={described.input_shape}, n_classes={described.n_classes}"
        return f"Theta0(of {described.module}, {shape}, {n:,} numbers)"

    @property
    def coefs(self) -> list[np.ndarray]:
        """Weights of each layer of an :class:`MLP`, as copies (n_in, n_out) like scikit-learn's."""
        return [np.copy(weight.T) for weight in self._of_layers("weight")]

    @property
    def intercepts(self) -> list[np.ndarray]:
        """Biases of each layer of an :class:`MLP`, as copies (n_out,)."""
        return [np.copy(bias) for bias in self._of_layers("bias")]

    def _of_layers(self, name: str) -> list[np.ndarray]:
        n_layers = len(self._keywords_of_mlp()["hidden_layer_sizes"]) + 1
        return [self.arrays[f"linears.{layer}.{name}"] for layer in range(n_layers)]

    def _keywords_of_mlp(self) -> dict[str, Any]:
        if not self.architecture.is_perceptron:
            name, hint = self.architecture.module, "load its arrays into a module of this class"
            raise AttributeError(f"theta0 is not of an MLP but of the module {name}: {hint}")
        return self.architecture.keywords

    def to_module(self) -> nn.Module:
        """A new :class:`MLP` with these parameters; an AttributeError for any other module."""
        with own_generators():
            module = MLP(**self._keywords_of_mlp())
        put_arrays_(module, self.arrays)
        return module

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write theta0 to a safetensors file, whole or not at all.

        ``module.load_state_dict(safetensors.torch.load_file(path))`` reads it too. The file holds
        no names of columns, so that later rows must have their columns in the same order.

        Parameters
        ----------
        path : str or path-like
            Name of the file, which ends in ``.safetensors``. An existing file is replaced.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from sklearn_mmdinit import MMDInitializer, Theta0
        >>> X = np.random.default_rng(0).normal(size=(64, 4))
        >>> init = MMDInitializer((8,), n_perturbations=8, max_iter=1, random_state=0).fit(X)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     init.theta0_.save(f"{folder}/theta0.safetensors")
        ...     Theta0.load(f"{folder}/theta0.safetensors")
        Theta0(of sklearn_mmdinit.MLP, input_shape=(4,), n_classes=2, 58 numbers)
        """
        texts = {_KEY: self.architecture.to_json()}
        for name, key in _ROW_KEYS.items():
            if (of_rows := getattr(self, name)) is not None:
                texts[key] = b64encode(of_rows.tobytes()).decode()
        write_whole(checked_path(path), self.arrays, texts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Theta0:
        """Read theta0 from a safetensors file.

        Parameters
        ----------
        path : str or path-like
            A file that :meth:`save` has written.

        Returns
        -------
        Theta0

        Raises
        ------
        ValueError
            If the file is damaged or holds no theta0.
        """
        arrays, texts = read_whole(checked_path(path))
        try:
            architecture, of_rows = Architecture(**json.loads(texts[_KEY])), {}
            for name, key in _ROW_KEYS.items():
                if key in texts:
                    numbers = np.frombuffer(b64decode(texts[key]), np.float32)
                    of_rows[name] = numbers.reshape(architecture.input_shape)
            return cls(architecture, arrays, **of_rows)
        except PARSE_ERRORS as error:
            why = "it is a checkpoint" if TRAINING_KEY in texts else shortened(str(error))
            raise ValueError(f"{str(path)!r} holds no theta0: {why}") from error


def _read_only(array: Any) -> np.ndarray:
    """A read-only view of an array in C order; floats are converted to float32."""
    numbers = np.asarray(array, order="C")
    if numbers.dtype.kind == "f":
        numbers = numbers.astype(np.float32, copy=False)
    view = numbers.view()
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
    if isinstance(module, MLP):  # arrays do not show the activation
        for key in ("hidden_layer_sizes", "activation"):
            name += f", {key}={module.keywords[key]!r}"
            expected += f", {key}={theta0.architecture.keywords.get(key)!r}"
    if name != expected:
        raise ValueError(f"theta0 is for the module {expected}, but the module here is {name}")
    with add_error_context("theta0 is of another network: use the one that was pre-trained"):
        put_arrays_(module, theta0.arrays)


def put_arrays_(module: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Copy arrays into a module, in place; PyTorch's RuntimeError names those that do not fit."""
    state = module.state_dict()  # a module may add values of other types
    # tensor() copies: in a worker process the arrays may be read-only memory maps.
    new = {key: torch.tensor(array, device="cpu") for key, array in arrays.items()}
    for key, value in new.items():
        old = state.get(key, value)
        if old.dtype == torch.float64 and old.shape == value.shape:
            # A float64 value of the module stays as it is if theta0 holds it rounded to float32.
            new[key] = torch.where(value.to(old) == old.float(), old, value.to(old))
    others = {key: value for key, value in state.items() if not isinstance(value, torch.Tensor)}
    module.load_state_dict(others | new)


def write_whole(path: Path, arrays: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> None:
    """Write a safetensors file whole or not at all: first under another name, then renamed."""
    data = save(dict(arrays), metadata={**texts, _DIGEST_KEY: _digest(arrays, texts)})
    partial = path.with_name(f"{_unfinished_prefix(path)}{os.getpid()}.part")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    finally:  # after an interrupt too
        partial.unlink(missing_ok=True)


def _unfinished_prefix(path: Path) -> str:
    """Start of the name of an unfinished file on this machine; the process id follows."""
    return f".{path.name}.{platform.node()}."


def remove_unfinished_files(path: Path) -> None:
    """Delete unfinished files for this path, if the process that wrote them has ended."""
    prefix = _unfinished_prefix(path)
    for part in path.parent.glob(f"{glob.escape(prefix)}*.part"):
        # A longer name of another machine may begin with this one: then no number follows.
        if (pid := part.stem.removeprefix(prefix)).isdigit() and not psutil.pid_exists(int(pid)):
            part.unlink(missing_ok=True)


def read_whole(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and texts of a file of `write_whole`; a ValueError if it is damaged."""
    with open(path, "rb"):  # safe_open would report every OSError as a missing file
        pass
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            texts = file.metadata() or {}
        if texts.pop(_DIGEST_KEY, None) != _digest(arrays, texts):
            raise ValueError("its contents do not match the stored checksum")
    except (SafetensorError, *PARSE_ERRORS) as error:
        # Also raised for element types that NumPy lacks, such as bfloat16.
        why = shortened(str(error))
        raise ValueError(
            f"{str(path)!r} is damaged, or not a file of this package ({why})"
        ) from error
    return arrays, texts


def _digest(arrays: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> str:
    """A hash of a file's arrays and texts."""
    digest = hashlib.sha256(json.dumps(sorted(texts.items())).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def checked_path(path: str | os.PathLike[str], name: str = "path") -> Path:
    """The path of a file to read or write; an error if it cannot be a safetensors file."""
    checked = Path(path) if isinstance(path, str | os.PathLike) else None
    if checked is None or checked.suffix != _SUFFIX or checked.is_dir():
        raise ValueError(f"{name} must be the path of a {_SUFFIX!r} file, got {path!r}")
    return checked
