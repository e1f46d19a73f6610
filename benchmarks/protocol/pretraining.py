"""The pre-trainings of several runs, each a cell of its own, on any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import numpy as np
from sklearn.base import BaseEstimator, clone
from tqdm import tqdm

from engines.engine import Call, Engine
from protocol.pretrained import Pretrained, data_digest, find, keep, learn_at, theta0_path
from protocol.provenance import deciding_versions, require_versions

__all__ = ["Pretraining", "learn_all"]

# Where several run at a time, the one that takes longest should not be the last to begin.
LONGEST_FIRST = ("ours", "ours+coherence", "rlabel")


@dataclass(frozen=True)
class Pretraining:
    """What one theta0 is learned from.

    Parameters
    ----------
    name : str
        Its method; the last part of it says how theta0 is learned.
    run : int
        The run whose theta0 it is.
    initializer : estimator
        Unfitted.
    """

    name: str
    run: int
    initializer: BaseEstimator

    def __str__(self) -> str:
        return (
            f"run {self.run}: learning theta0 of {self.name}, passes: {self.initializer.max_iter}"
        )


@contextmanager
def _mark(folder: Path) -> Iterator[str]:
    """The name of a file that is in the folder for a while: who sees it sees this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".seen-{uuid4().hex}"
    path.touch()
    try:
        yield path.name
    finally:
        path.unlink(missing_ok=True)


def _learn(
    number: int,
    used: dict[str, str],
    initializer: BaseEstimator,
    path: Path,
    mark: str,
    n_rows: int,
    X: np.ndarray,
) -> tuple[int, Pretrained]:
    """Learn a theta0 from the first rows of X; runs in a worker.

    Where the worker sees the command's own folder it writes there as it goes, and goes on with
    what is there. Anywhere else what it writes would be found by nobody.
    """
    require_versions(used)
    rows = np.require(X[:n_rows], requirements="A")  # a message may end in the middle of a number
    if (path.parent / mark).exists():
        return number, learn_at(path, initializer, rows)
    with TemporaryDirectory() as folder:
        return number, learn_at(Path(folder) / path.name, initializer, rows)


def learn_all(
    pretrainings: Sequence[Pretraining],
    X: np.ndarray,
    n_rows: int,
    *,
    folder: Path,
    engine: Engine,
    say: Callable[[str], None],
    quiet: bool = False,
) -> dict[tuple[str, int], Pretrained]:
    """The theta0 of each pre-training by its method and run, learned or found.

    Each one is in the folder as soon as it is there. A pre-training has a machine for itself.

    Parameters
    ----------
    pretrainings : sequence of Pretraining
    X : ndarray, shape (n, ...)
        Rows, of which the first `n_rows` are unlabelled ones to learn from. All are handed on,
        since they are what the evaluation needs too.
    n_rows : int
    folder : Path
        Where the files are kept.
    engine : Engine
        Where they are learned; entered already.
    say : callable
        Takes lines of progress.
    quiet : bool, default=False
        No progress bars.
    """
    X_digest = data_digest(X[:n_rows])
    paths = [
        theta0_path(p.initializer, name=p.name, folder=folder.absolute(), X_digest=X_digest)
        for p in pretrainings
    ]
    learned: dict[int, Pretrained] = {}
    for number, (pretraining, path) in enumerate(zip(pretrainings, paths, strict=True)):
        found = find(pretraining.initializer, path)
        if found is not None:
            learned[number] = found
            say(f"run {pretraining.run}: reused {path.name}")
    missing = [number for number in range(len(pretrainings)) if number not in learned]
    # Bars of passes are for a terminal; on a cluster there is one bar, of theta0.
    alone = engine.in_process
    if not alone:
        missing.sort(key=lambda i: LONGEST_FIRST.index(pretrainings[i].name.rpartition("/")[2]))

    def calls(mark: str) -> Iterator[Call]:
        used = deciding_versions()
        for number in missing:
            pretraining = pretrainings[number]
            say(str(pretraining))
            initializer = clone(pretraining.initializer)
            loud = 0 if quiet or not alone else 1
            names = [n for n in initializer.get_params() if n.rpartition("__")[2] == "verbose"]
            initializer.set_params(**dict.fromkeys(names, loud))
            args = (number, used, initializer, paths[number], mark, n_rows)
            yield Call(args, shared=(X,))

    hidden = quiet or alone or not missing
    with (
        _mark(folder) as mark,
        tqdm(desc="pre-training", total=len(missing), unit="theta0", disable=hidden) as bar,
    ):
        for number, theta0 in engine.results(_learn, calls(mark), whole_machine=True):
            path = paths[number]
            learned[number] = theta0 if theta0.path == path else keep(theta0, path)
            say(f"run {pretrainings[number].run}: kept {path.name}")
            bar.update()
    return {(p.name, p.run): learned[number] for number, p in enumerate(pretrainings)}
