"""theta0 in a safetensors file: the arrays, and the architecture as JSON beside them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn

from .architecture import Architecture
from .module_architecture import ModuleArchitecture
from .module_state import start_module_
from .theta0 import Theta0
from .whole_file import check_folder_of, write_whole

__all__ = ["load_theta0", "save_theta0"]

_SUFFIX = ".safetensors"
# safetensors keeps string metadata only, so the architecture goes in as JSON.
_KEYS: dict[str, type[Architecture] | type[ModuleArchitecture]] = {
    "sklearn_mmdinit.architecture": Architecture,
    "sklearn_mmdinit.module": ModuleArchitecture,
}
_GAIN_KEY = "sklearn_mmdinit.gain"


def _checked_path(path: str | os.PathLike[str]) -> Path:
    checked = Path(path)
    if checked.suffix != _SUFFIX:
        raise ValueError(
            f"a file of theta0 must have a name that ends in {_SUFFIX!r}, got {str(path)!r}"
        )
    if checked.is_dir():
        raise ValueError(f"{str(path)!r} is a folder; name a {_SUFFIX!r} file")
    return checked


def _as_theta0(source: Any) -> Theta0:
    if isinstance(source, Theta0):
        return source
    theta0 = getattr(source, "theta0_", None)
    if isinstance(theta0, Theta0):
        return theta0
    raise TypeError(
        "only a Theta0 or a fitted estimator with theta0_ can be saved, got "
        f"{type(source).__name__}; fit it first if it is an initializer"
    )


def save_theta0(path: str | os.PathLike[str], source: Any) -> None:
    """Write theta0 to a safetensors file.

    The file appears whole or not at all: it is written beside its final place under
    another name, and then renamed. It does not hold the names of columns: rows have to come in
    the order that theta0 was learned in.

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
        If ``source`` is neither a Theta0 nor fitted.
    ValueError
        If ``path`` ends otherwise or is a folder.

    See Also
    --------
    load_theta0 : Read the file back.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from sklearn_mmdinit import Architecture, Theta0, load_theta0, save_theta0
    >>> architecture = Architecture(n_features=3, hidden_layer_sizes=(4,), n_classes=2)
    >>> shapes = architecture.array_shapes()
    >>> theta0 = Theta0(architecture, {name: np.ones(shapes[name]) for name in shapes})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "theta0.safetensors")
    ...     save_theta0(path, theta0)
    ...     load_theta0(path).architecture.hidden_layer_sizes
    (4,)
    """
    target = _checked_path(path)
    check_folder_of(target)
    theta0 = _as_theta0(source)
    # safetensors writes the memory as it lies: a transposed view would be scrambled.
    arrays = {name: np.asarray(array, order="C") for name, array in theta0.arrays.items()}
    (key,) = (key for key, kind in _KEYS.items() if isinstance(theta0.architecture, kind))
    metadata = {key: theta0.architecture.to_json()}
    if theta0.gain:
        metadata[_GAIN_KEY] = json.dumps(theta0.gain)
    write_whole(target, save(arrays, metadata=metadata))


def load_theta0(path: str | os.PathLike[str], module: nn.Module | None = None) -> Theta0:
    """Read theta0 from a safetensors file.

    Parameters
    ----------
    path : str or path-like
        A file that :func:`save_theta0` wrote.
    module : nn.Module, default=None
        A module to start at theta0, in place: of the class and with the arrays that the file
        was written for. None: only read.

    Returns
    -------
    Theta0
        Arrays and the architecture that they belong to.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, holds no architecture, or arrays that do not fit it or the
        module; the module is unchanged then.

    See Also
    --------
    save_theta0 : Write such a file, with an example.
    """
    target = _checked_path(path)
    if not target.exists():
        raise FileNotFoundError(f"no file of theta0 at {str(path)!r}")
    try:
        with safe_open(target, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, TypeError, KeyError, AttributeError) as error:
        # The last three: an element type that NumPy does not have.
        raise ValueError(f"{str(path)!r} is damaged or not a safetensors file: {error}") from error
    key = next((key for key in _KEYS if key in metadata), None)
    if key is None:
        raise ValueError(
            f"{str(path)!r} does not say which network its arrays belong to: the metadata "
            f"has none of {list(_KEYS)} but {sorted(metadata)}; write such files with save_theta0"
        )
    try:
        theta0 = Theta0(
            _KEYS[key].from_json(metadata[key]),
            arrays,
            tuple(float(factor) for factor in json.loads(metadata.get(_GAIN_KEY, "[]"))),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{str(path)!r} is not a file of theta0: {error}") from error
    if module is not None:
        start_module_(module, theta0)
    return theta0
