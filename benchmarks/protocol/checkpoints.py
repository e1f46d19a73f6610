"""A pre-training with theta0 kept along the way, and what each of them cost.

A pass is ``len(X) // batch_size`` steps. Its rows, in an order drawn for that pass, are cut
where a checkpoint falls, and ``partial_fit`` gets one slice after the other; a checkpoint holds
``theta0_`` as a user would get it who stops there. Only ``partial_fit`` is timed.

Every checkpoint has three files: theta0, a record of its cost, and the initializer to go on
from, which is deleted once the next one is there. Their names stand for all that came before,
so that longer runs go on where shorter ones ended. The initializer is a pickle of this
script's own; do not put another's file there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from sklearn.base import BaseEstimator, clone

from protocol.pretrained import fit_key, read_kept
from protocol.provenance import hardware
from protocol.store import digest_of, write_atomically, write_json
from sklearn_mmdinit import save_theta0

__all__ = ["Checkpoint", "PassOrder", "learn_along", "portion_ends", "steps_of_passes", "warm_up"]

PassOrder = Callable[[int], np.ndarray]
"""From the number of a pass to the order of all rows in it."""


@dataclass(frozen=True)
class Checkpoint:
    """Where theta0 lies after so many steps, and what it took."""

    steps: int
    path: Path
    record: dict[str, Any]


def steps_of_passes(passes: Sequence[float], steps_a_pass: int) -> dict[float, int]:
    """Steps after which each number of passes is reached, to the nearest step, rising.

    Raises
    ------
    ValueError
        If a checkpoint falls on no step, or two on the same one.
    """
    steps = {p: round(p * steps_a_pass) for p in sorted(set(passes))}
    if min(steps.values()) < 1 or len(set(steps.values())) < len(steps):
        raise ValueError(
            f"a pass has {steps_a_pass} steps, so that the checkpoints {list(steps)} fall on "
            f"the steps {list(steps.values())}: they must be different and at least 1"
        )
    return steps


def portion_ends(checkpoints: Sequence[int], steps_a_pass: int) -> list[int]:
    """Steps at which a portion ends: the checkpoints, and the passes that end before the last."""
    last = max(checkpoints)
    return sorted({*checkpoints, *range(steps_a_pass, last, steps_a_pass)})


def warm_up(initializer: BaseEstimator, X: np.ndarray) -> None:
    """Two steps that count nowhere: threads start, buffers and kernels are made."""
    rows = X[: 2 * initializer.get_params()["batch_size"]]
    clone(initializer).set_params(verbose=0).partial_fit(rows)


def _portion(
    start: int, stop: int, steps_a_pass: int, batch_size: int, order: PassOrder
) -> np.ndarray:
    """Rows of the steps from start to stop, which one pass has all."""
    number = start // steps_a_pass
    offset = number * steps_a_pass
    return order(number)[(start - offset) * batch_size : (stop - offset) * batch_size]


class _Files:
    """Names of the three files of each checkpoint."""

    def __init__(self, folder: Path, slug: str, key: str, ends: Sequence[int]) -> None:
        names = [
            f"{slug}-{end:06d}-{digest_of([key, list(ends[: i + 1])])}"
            for i, end in enumerate(ends)
        ]
        self.theta0 = [folder / f"{name}.safetensors" for name in names]
        self.record = [folder / f"{name}.json" for name in names]
        self.state = [folder / f"{name}.joblib" for name in names]

    def n_done(self) -> int:
        """How many checkpoints are there, from the first one on without a gap."""
        done = 0
        for theta0, record in zip(self.theta0, self.record, strict=True):
            if not (theta0.exists() and record.exists()):
                break
            done += 1
        return done

    def n_resumable(self) -> int:
        """How many of them need not be learned again, given where one can go on from."""
        done = self.n_done()
        if done == len(self.record):
            return done
        return next((i for i in range(done, 0, -1) if self.state[i - 1].exists()), 0)

    def read_record(self, i: int) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.record[i].read_text(encoding="utf-8"))
        return record


def learn_along(
    initializer: BaseEstimator,
    X: np.ndarray,
    checkpoints: Sequence[int],
    *,
    order: PassOrder,
    name: str,
    folder: Path,
    X_digest: str,
    commit: str | None,
) -> list[Checkpoint]:
    """Learn theta0, or read what an earlier run kept, at each of the checkpoints.

    Parameters
    ----------
    initializer : estimator
        Unfitted.
    X : ndarray, shape (n, n_features)
        Unlabelled rows.
    checkpoints : sequence of int
        Rising numbers of steps.
    order : callable
        Order of the rows in a pass, from its number.
    name : str
        Beginning of the files' names, for people to read.
    folder : Path
        Where the files are.
    X_digest : str
        Stands for X and for what ``order`` follows from.
    commit : str or None
        Of the code that runs now, for the records: figures of two commits may not compare.

    Returns
    -------
    list of Checkpoint
        One for each of ``checkpoints``.
    """
    batch_size = min(initializer.get_params()["batch_size"], len(X))
    steps_a_pass = len(X) // batch_size
    ends = portion_ends(checkpoints, steps_a_pass)
    key = fit_key(initializer, X_digest)
    files = _Files(folder, name.replace("/", "-"), key, ends)
    done = files.n_resumable()
    if done < len(ends):
        fitted = read_kept(files.state[done - 1])["initializer"] if done else clone(initializer)
        # How loud a file's first run was must not decide how loud this one is.
        fitted.set_params(verbose=initializer.get_params()["verbose"])
        warm_up(initializer, X)
        for i in range(done, len(ends)):
            start = ends[i - 1] if i else 0
            rows = X[_portion(start, ends[i], steps_a_pass, batch_size, order)]
            before = files.read_record(i - 1) if i else {}
            cost = _timed_fit(fitted, rows)
            _keep(files, i, fitted, _record(fitted, ends[i], cost, before, commit))
    return [
        Checkpoint(end, files.theta0[i], files.read_record(i))
        for i, end in enumerate(ends)
        if end in set(checkpoints)
    ]


def _timed_fit(initializer: Any, rows: np.ndarray) -> dict[str, float]:
    """Train on the rows; what that took, in seconds of the clock and of all cores together."""
    wall, cpu = time.perf_counter(), time.process_time()
    initializer.partial_fit(rows)
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
    }


def _record(
    initializer: Any,
    steps: int,
    cost: dict[str, float],
    before: dict[str, Any],
    commit: str | None,
) -> dict[str, Any]:
    best_loss = float(initializer.best_loss_)
    # Seconds belong to a machine and its threads; theta0 can be learned on any.
    machine = hardware() | {"threads": torch.get_num_threads()}
    machines = before.get("machines", [])
    return {
        "steps": steps,
        **{name: before.get(name, 0.0) + value for name, value in cost.items()},
        "last_window": initializer.history_[-1],
        # Infinite while no window has ended, which JSON has no word for.
        "best_window_loss": best_loss if math.isfinite(best_loss) else None,
        "commits": list(dict.fromkeys([*before.get("commits", []), commit])),
        "machines": machines if machine in machines else [*machines, machine],
    }


def _keep(files: _Files, i: int, initializer: Any, record: dict[str, Any]) -> None:
    """Write a checkpoint down; an interruption at any point leaves one to go on from."""
    files.record[i].parent.mkdir(parents=True, exist_ok=True)
    save_theta0(files.theta0[i], initializer)
    write_atomically(files.state[i], lambda part: joblib.dump({"initializer": initializer}, part))
    write_json(files.record[i], record)
    if i:
        files.state[i - 1].unlink(missing_ok=True)
