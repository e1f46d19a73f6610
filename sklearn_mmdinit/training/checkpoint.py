"""Writes the state of a training to a file, so that the training can go on after a kill."""

from __future__ import annotations

import inspect
import json
import math
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from joblib.hashing import NumpyHasher

from .._base.environment import array_of
from .._base.validation import add_error_context, warn_user
from ..theta0 import TRAINING_KEY, Theta0, read_whole, remove_unfinished_files, write_whole
from .state import State

_ARRAY = "sklearn_mmdinit.array"  # marks the name of an array in JSON
_SECONDS_BETWEEN_WRITES = 60.0  # at least


@dataclass
class Checkpointer:
    """Keeps the state at the end of the last window, in memory and in a file."""

    path: Path
    digest: str  # of everything that affects the training
    last: State | None = None
    due: float = math.inf  # time of the next write

    def first_state(self, fresh: State) -> State:
        """The state in the file, if it exists; else the fresh state."""
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
            warn_user(
                f"The last steps were not saved: {error}. If fit has ended, its weights "
                "are kept; after an interrupt, the same call repeats these steps"
            )

    def write(self) -> None:
        """Replace the file by the last state, whole or not at all."""
        if self.last is None:
            return
        arrays: dict[str, np.ndarray] = {}

        # JSON cannot hold NumPy arrays: the file holds them beside the JSON.
        def in_json(value: Any) -> Any:
            if isinstance(value, Theta0):
                return dict(value.arrays)
            arrays[str(len(arrays))] = value
            return {_ARRAY: str(len(arrays) - 1)}

        text = json.dumps({"digest": self.digest, "state": vars(self.last)}, default=in_json)
        write_whole(self.path, arrays, {TRAINING_KEY: text})
        self.due = time.monotonic() + _SECONDS_BETWEEN_WRITES

    def _read(self, path: Path, fresh: State) -> State:
        with add_error_context(f"{path} is not a checkpoint of fit; pass another path"):
            arrays, texts = read_whole(path)
            text = texts[TRAINING_KEY]
        kept = json.loads(text, object_hook=lambda d: arrays[d[_ARRAY]] if _ARRAY in d else d)
        if kept["digest"] != self.digest:
            raise ValueError(
                f"checkpoint {path} is of another training: its data, a parameter, the initial "
                "weights or the version of sklearn_mmdinit differ. Repeat the original call (for a "
                "module, call torch.manual_seed before building it), or pass another path"
            )
        weights = {name: kept["state"][name] for name in ("current", "best")}
        theta0s = {n: replace(fresh.current, arrays=w) if w else None for n, w in weights.items()}
        return State(**kept["state"] | theta0s)


def resumed(
    path: Any, fresh: State, X: np.ndarray, *settings: Any
) -> tuple[State, Checkpointer | None]:
    """The state to train from, and the checkpointer that keeps it; None without a path.

    This is the state in the file, if it exists, else the fresh one. An error is raised if the file
    is of a training from other weights, on other rows X (n, ...), or with other settings.
    """
    if path is None:
        return fresh, None
    # The same rows have the same hash in any layout. Rows in C order are not copied.
    rows = np.ascontiguousarray(X, X.dtype.newbyteorder("="))
    weights = fresh.current.architecture.to_json(), dict(fresh.current.arrays)
    checkpointer = Checkpointer(Path(path), digest_of(fresh.seed, weights, rows, settings))
    return checkpointer.first_state(fresh), checkpointer


class _Hasher(NumpyHasher):
    """Hashes tensors, whose pickles differ between processes, by their values.

    Functions are hashed by their source and by what they hold: a pickle has only their names.
    """

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.from_numpy, (array_of(value),)
        if isinstance(value, FunctionType):
            source = value.__qualname__
            with suppress(OSError):  # a function of a console has none
                source = inspect.getsource(value)
            closure = inspect.getclosurevars(value).nonlocals
            held = {name: other for name, other in closure.items() if other is not value}
            return list, ([source, value.__defaults__, value.__kwdefaults__, held],)
        return NotImplemented


def digest_of(*values: Any) -> str:
    """A hash of values and of the package's version, the same in every process."""
    version = sys.modules[__name__.partition(".")[0]].__version__
    remedy = "a checkpoint hashes parameters: define their classes in an importable file"
    with add_error_context(remedy):
        return str(_Hasher("md5", coerce_mmap=True).hash((version, values)))
