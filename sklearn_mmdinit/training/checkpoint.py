"""A training that is written to a file while it goes on, so that it can go on after a kill."""

from __future__ import annotations

import glob
import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..theta0 import TRAINING_KEY, Theta0, read_whole, write_whole
from .loop import State

_ARRAY = "sklearn_mmdinit.array"  # marks the name of an array in JSON
_SECONDS_BETWEEN_WRITES = 60.0  # at least

# Names of fields in files from before they were renamed.
_RENAMED = {"n_passes": "n_epochs", "steps_in_pass": "steps_in_epoch"}


@dataclass
class Checkpointer:
    """Keeps the state at the end of the last window or epoch, in memory and perhaps in a file."""

    path: Path | None
    settings: dict[str, str]  # all that decides the training, in words
    last: State | None = None
    due: float = math.inf  # when to write again

    def begun(self, fresh: State) -> State:
        """The state to begin with: that of the file where there is one, else the fresh one."""
        if self.path is None:
            return fresh
        for part in self.path.parent.glob(f".{glob.escape(self.path.name)}.*.part"):
            part.unlink()  # a killed write left it
        self.last = self._read(self.path, fresh) if self.path.exists() else fresh
        self.write()  # a file that cannot be written raises now, and not in an hour
        return self.last.copied()

    def __call__(self, state: State) -> None:
        """Keep the state, and write it if it is time."""
        self.last = state
        if time.monotonic() >= self.due:
            self.write()

    def write(self) -> None:
        """Replace the file by the last state, whole or not at all."""
        if self.path is None or self.last is None:
            return
        arrays: dict[str, np.ndarray] = {}

        def in_json(value: Any) -> Any:  # JSON has no arrays: they go into the file beside it
            if isinstance(value, Theta0):
                return dict(value.arrays)
            arrays[str(len(arrays))] = value
            return {_ARRAY: str(len(arrays) - 1)}

        text = json.dumps({"settings": self.settings, "state": vars(self.last)}, default=in_json)
        write_whole(self.path, arrays, {TRAINING_KEY: text})
        self.due = time.monotonic() + _SECONDS_BETWEEN_WRITES

    def _read(self, path: Path, fresh: State) -> State:
        remedy = "delete it to begin anew, or give checkpoint another path"
        try:
            arrays, texts = read_whole(path)
        except ValueError as error:
            raise ValueError(f"checkpoint {path} cannot be read: {error}; {remedy}") from error
        if TRAINING_KEY not in texts:
            raise ValueError(f"checkpoint {path} is not a checkpoint file; {remedy}")
        kept = json.loads(
            texts[TRAINING_KEY], object_hook=lambda d: arrays[d[_ARRAY]] if _ARRAY in d else d
        )
        here, there = self.settings, kept["settings"]
        if "random_state" in there:  # in files from before it was renamed
            seed = there.pop("random_state").removeprefix("one that begins with ")
            there["seed of random_state"] = seed
        differing = sorted(n for n in {**here, **there} if here.get(n) != there.get(n))
        if differing:
            differences = (
                f"{n} is {here.get(n)} here and {there.get(n)} in the file" for n in differing
            )
            raise ValueError(
                f"checkpoint {path} is of another training: {'; '.join(differences)}; {remedy}"
            )
        state = {_RENAMED.get(name, name): value for name, value in kept["state"].items()}
        for name in ("current", "best"):
            state[name] = state[name] and replace(fresh.current, arrays=state[name])
        return State(**state)
