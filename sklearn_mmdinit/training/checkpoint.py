"""Writes the state of a training to a file, so that the training can go on after a kill."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._base.validation import shortened, warn_user
from ..theta0 import (
    PARSE_ERRORS,
    TRAINING_KEY,
    Theta0,
    read_whole,
    remove_unfinished_files,
    write_whole,
)
from .state import State

_VERSION_KEY = "sklearn_mmdinit.version"  # of the package that wrote the file
_ARRAY = "sklearn_mmdinit.array"  # marks the name of an array in JSON
_SECONDS_BETWEEN_WRITES = 60.0  # at least

# Fields of a state that are floats.
_FLOATS = ("first_loss", "best_loss", "steps_an_epoch")


@dataclass
class Checkpointer:
    """Keeps the state at the end of the last window or epoch, in memory and perhaps in a file."""

    path: Path | None
    settings: dict[str, str]  # a text for everything that affects the training
    term_names: tuple[str, ...]  # of the loss
    last: State | None = None
    due: float = math.inf  # time of the next write

    def first_state(self, fresh: State) -> State:
        """The state in the file, if it exists; else the fresh state."""
        if self.path is None:
            return fresh
        remove_unfinished_files(self.path)
        self.last = self._read(self.path, fresh) if self.path.exists() else fresh
        self.write()  # a file that cannot be written raises now, and not in an hour
        return self.last.copied()

    def __call__(self, state: State) -> None:
        """Keep the state; write it if the last write is a minute ago."""
        self.last = state
        if time.monotonic() >= self.due:
            self.write()

    def write_at_end(self) -> None:
        """Write when training has ended; an error becomes a warning, so that theta0 is kept."""
        try:
            self.write()
        except OSError as error:
            lost = "the steps since its last write are not saved in it"
            warn_user(f"checkpoint {error.strerror}; {lost}")

    def write(self) -> None:
        """Replace the file by the last state, whole or not at all."""
        if self.path is None or self.last is None:
            return
        arrays: dict[str, np.ndarray] = {}

        # JSON cannot hold NumPy arrays: the file holds them beside the JSON.
        def in_json(value: Any) -> Any:
            if isinstance(value, Theta0):
                return dict(value.arrays)
            arrays[str(len(arrays))] = value
            return {_ARRAY: str(len(arrays) - 1)}

        text = json.dumps({"settings": self.settings, "state": vars(self.last)}, default=in_json)
        write_whole(self.path, arrays, {TRAINING_KEY: text, _VERSION_KEY: _version()})
        self.due = time.monotonic() + _SECONDS_BETWEEN_WRITES

    def _read(self, path: Path, fresh: State) -> State:
        remedy = "delete the file to begin anew, or give checkpoint another path"
        try:
            arrays, texts = read_whole(path)
        except ValueError as error:
            raise ValueError(f"checkpoint {path} cannot be read: {error}; {remedy}") from error
        if TRAINING_KEY not in texts:
            raise ValueError(f"checkpoint {path} is not a checkpoint file; {remedy}")
        version, state = shortened(texts[_VERSION_KEY]), None
        try:
            kept = json.loads(
                texts[TRAINING_KEY], object_hook=lambda d: arrays[d[_ARRAY]] if _ARRAY in d else d
            )
            differences = self._differences(dict(kept["settings"]))
            if not differences:
                state = _state_of(kept["state"], fresh, self.term_names)
        except PARSE_ERRORS as error:
            raise ValueError(
                f"checkpoint {path} cannot be continued by version {_version()} of "
                f"sklearn_mmdinit: version {version} wrote it ({shortened(str(error))}); install "
                f"that version, or {remedy}"
            ) from error
        if state is None:
            by = "" if version == _version() else f", by version {version}"
            other = f"of another training{by}: {shortened(differences, 2000)}"
            if differences.startswith("initial weights is") and ";" not in differences:
                remedy = f"if you made the module, call torch.manual_seed before; else {remedy}"
            raise ValueError(f"checkpoint {path} is {other}; {remedy}")
        return state

    def _differences(self, there: dict[str, str]) -> str:
        """How the settings in a file differ from those here; "" where they do not."""
        here = self.settings
        names = sorted(n for n in {**here, **there} if here.get(n) != there.get(n))
        texts = ((n, shortened(str(here.get(n))), shortened(str(there.get(n)))) for n in names)
        return "; ".join(f"{shortened(n)} is {a} here and {b} in the file" for n, a, b in texts)


def _version() -> str:
    """The version of this package; importing it here would be a circular import."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)


def _state_of(kept: Mapping[str, Any], fresh: State, term_names: tuple[str, ...]) -> State:
    """The state in a file; raises one of PARSE_ERRORS if it does not fit this training."""
    fields, arrays = dict(kept), fresh.current.arrays
    for name in ("current", "best"):
        if fields[name] is not None or name == "current":
            fields[name] = replace(fresh.current, arrays=fields[name])
    state = State(**fields)
    shapes = {name: [np.shape(m) for m in moments] for name, moments in state.moments.items()}
    right = {
        name: type(getattr(state, name)) is type(value) and getattr(state, name) >= 0
        for name, value in vars(fresh).items()
        if type(value) is int
    }
    right |= {name: type(getattr(state, name)) is float for name in _FLOATS}
    right["seed"] = state.seed == fresh.seed
    right["moments"] = all(shapes[name] == 2 * [arrays[name].shape] for name in shapes)
    right["history"] = all(
        record.keys() == {"step", *term_names} and np.isfinite([*record.values()]).all()
        for record in state.history
    )
    if wrong := [name for name, is_right in right.items() if not is_right]:
        raise ValueError(f"{wrong[0]!r} is {getattr(state, wrong[0])!r}")
    return state
