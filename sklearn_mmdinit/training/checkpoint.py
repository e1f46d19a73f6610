"""A training written to a file while it goes on, to go on from there after it was cut off."""

from __future__ import annotations

import glob
import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._base.validation import add_error_context
from ..theta0 import TRAINING_KEY, Theta0, read_whole, write_whole
from .loop import State

_ARRAY = "sklearn_mmdinit.array"  # stands for one in JSON, with its name
_SECONDS_BETWEEN_WRITES = 60.0  # at least


@dataclass
class Checkpointer:
    """What was learned up to the end of a window or pass: in memory and, if asked, in a file."""

    path: Path | None
    settings: dict[str, str]  # what the training is of, in words
    n_passes: int  # after which it has ended
    last: State | None = None
    due: float = math.inf  # when to write again

    def begun(self, fresh: State) -> State:
        """The state to begin with: that in the file where there is one, or a fresh one."""
        if self.path is None:
            return fresh
        for part in self.path.parent.glob(f".{glob.escape(self.path.name)}.*.part"):
            part.unlink()  # of a write that was killed
        self.last = self._read(self.path, fresh) if self.path.exists() else fresh
        self.write()  # what cannot be written is told now, and not in an hour
        return replace(self.last, history=list(self.last.history))

    def __call__(self, state: State) -> None:
        """Keep the state, and write it where it is time."""
        self.last = state
        ended = state.n_passes == self.n_passes and state.steps_in_pass == 0
        if ended or time.monotonic() >= self.due:
            self.write()

    def write(self) -> None:
        """Replace the file, where there is one, by the last state, whole or not at all."""
        if self.path is None or self.last is None:
            return
        arrays: dict[str, np.ndarray] = {}

        def stow(value: Any) -> Any:  # what JSON has no words for: arrays, which go beside it
            if isinstance(value, Theta0):
                return dict(value.arrays)
            arrays[str(len(arrays))] = value
            return {_ARRAY: str(len(arrays) - 1)}

        text = json.dumps({"settings": self.settings, "state": vars(self.last)}, default=stow)
        write_whole(self.path, arrays, {TRAINING_KEY: text})
        self.due = time.monotonic() + _SECONDS_BETWEEN_WRITES

    def _read(self, path: Path, fresh: State) -> State:
        with add_error_context(f"checkpoint {path}, which may be deleted to begin anew"):
            arrays, texts = read_whole(path)
            if TRAINING_KEY not in texts:
                raise ValueError("it is none")
        text = texts[TRAINING_KEY]
        kept = json.loads(text, object_hook=lambda d: arrays[d[_ARRAY]] if _ARRAY in d else d)
        own, state = self.settings, kept["state"]
        pairs = {n: (own.get(n), kept["settings"].get(n)) for n in {**own, **kept["settings"]}}
        if differ := [f"{n} is {a}, there {b}" for n, (a, b) in sorted(pairs.items()) if a != b]:
            raise ValueError(f"checkpoint {path} is of another training: {'; '.join(differ)}")
        for name in ("current", "best"):
            state[name] = state[name] and replace(fresh.current, arrays=state[name])
        return State(**state)
