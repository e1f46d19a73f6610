"""A training written to a file while it goes on, to go on from there after it was cut off."""

from __future__ import annotations

import glob
import json
import math
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..theta0 import SUFFIX, TRAINING_KEY, Theta0, checked_path, read_whole, write_whole
from .estimators import check_finite, check_kind, told
from .train import State

_ARRAY = "sklearn_mmdinit.array"  # stands for one in JSON, with its name


@dataclass(frozen=True)
class Checkpoint:
    """A file that `fit` writes its training to, so that the same call can go on from there.

    It is written whole or not at all. After a kill or an interrupt the same call goes on from it,
    on a CPU bit for bit as if it had not been cut off, and after the end only reads it. For other
    rows or parameters it is refused: each ``fit`` of a search needs one of its own.
    ``partial_fit`` does not use it.

    Parameters
    ----------
    path : str or path-like
        Ends in ``.safetensors``; one file for each training.
    seconds : float, default=60.0
        At least so many between two writes; with 0 every window is written when it has ended.

    See Also
    --------
    MMDInitializer : Its parameter `checkpoint`.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from sklearn_mmdinit import Checkpoint, MMDInitializer
    >>> X = np.random.default_rng(0).normal(size=(64, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = Checkpoint(os.path.join(folder, "training.safetensors"), seconds=10)
    ...     init = MMDInitializer((8,), n_perturbations=8, random_state=0, checkpoint=kept)
    ...     first, again = init.fit(X).best_loss_, init.fit(X).best_loss_  # read, not learned
    >>> first == again
    True
    """

    path: str | os.PathLike[str]
    seconds: float = 60.0


def checkpoint_of(value: Any) -> Checkpoint | None:
    """What the parameter ``checkpoint`` stands for; an error where it is not valid."""
    found = Checkpoint(value) if isinstance(value, str | os.PathLike) else value
    if found is not None:
        check_kind("checkpoint, where it is neither None nor a path,", found, Checkpoint)
        checked_path(found.path, SUFFIX)
        check_finite(found, "seconds")
    return found


@dataclass
class Keeper:
    """What was learned up to the end of a window or pass: in memory and, if asked, in a file."""

    checkpoint: Checkpoint | None
    settings: dict[str, str]  # what the training is of, in words
    n_passes: int  # after which it has ended
    last: State | None = None
    due: float = math.inf  # when to write again

    def begun(self, fresh: State) -> State:
        """The state to begin with: that in the file where there is one, or a fresh one."""
        if self.checkpoint is None:
            return fresh
        path = Path(self.checkpoint.path)
        for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
            part.unlink()  # of a write that was killed
        self.last = self._read(path, fresh) if path.exists() else fresh
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
        if self.checkpoint is None or self.last is None:
            return
        arrays: dict[str, np.ndarray] = {}

        def stow(value: Any) -> Any:  # what JSON has no words for: arrays, which go beside it
            if isinstance(value, Theta0):
                return dict(value.arrays)
            arrays[str(len(arrays))] = value
            return {_ARRAY: str(len(arrays) - 1)}

        text = json.dumps({"settings": self.settings, "state": vars(self.last)}, default=stow)
        write_whole(Path(self.checkpoint.path), arrays, {TRAINING_KEY: text})
        self.due = time.monotonic() + self.checkpoint.seconds

    def _read(self, path: Path, fresh: State) -> State:
        with told(f"checkpoint {path}, which may be deleted to begin anew"):
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
