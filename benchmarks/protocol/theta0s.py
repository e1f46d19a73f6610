"""Learned theta0 kept on disk: learned once, reused by every later run, resumed if cut short.

An initializer's ``fit`` equals ``max_iter`` times ``partial_fit``, exactly, so passes are made one
by one, or in portions, and written down between them. What is read back was written by these
commands into their own output folder; like any pickle, do not put another's file there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import joblib
import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from tqdm import tqdm

from engines.engine import Call, Engine
from protocol.store import (
    Log,
    data_digest,
    deciding_versions,
    digest_of,
    hardware,
    provenance,
    require_versions,
    versions,
    write_atomically,
)
from sklearn_mmdinit import Coherence, Theta0, save_theta0

# Keys

# What changes nothing in the result, of an initializer and of those within it.
IDLE_PARAMETERS = {"verbose", "memory", "n_jobs", "checkpoint"}
# What of a coherence does not suit other rows than those it is for.
OF_THE_ROWS = ("graph", "embedding", "augmentation", "memory")

# Of what a fitted initializer holds. A file of another form is not found, and theta0 learned again:
# to be raised where an initializer gets a parameter, or keeps its state in another way.
FORM = 2


def theta0_digest(theta0: Theta0) -> str:
    """Sixteen hexadecimal digits that stand for a theta0, byte for byte."""
    return digest_of({key: data_digest(value) for key, value in theta0.arrays.items()})


def fit_key(initializer: BaseEstimator, X_digest: str) -> str:
    """What stands for an unfitted initializer, its data, and the versions it is fitted with."""
    found = versions()
    parts = {
        "form": FORM,
        "class": type(initializer).__name__,
        "parameters": _parameters(initializer),
        "data": X_digest,
        "versions": {name: found[name] for name in ("sklearn_mmdinit", "torch")},
    }
    if initializer.get_params().get("coherence") is not None:
        parts["automatic"] = _automatic(initializer)
    return digest_of(parts)


def _parameters(estimator: BaseEstimator) -> dict[str, str]:
    """All that decide a result; those of an estimator within stand beside it under their names."""
    return {
        name: _said(value)
        for name, value in estimator.get_params().items()
        if name.rpartition("__")[2] not in IDLE_PARAMETERS
    }


def _said(value: Any) -> str:
    if isinstance(value, FrozenEstimator):  # which was learned is said by no parameter
        return f"FrozenEstimator, {joblib.hash(value.estimator)}"
    return type(value).__name__ if isinstance(value, BaseEstimator) else repr(value)


def _decided(fitted: Any) -> dict[str, Any]:
    """What parameters of "auto" stood for, where the network and the device have no say."""
    config = getattr(fitted, "config_", None)
    values = {} if config is None else asdict(config)
    params = fitted.get_params(deep=False)
    return {name: value for name, value in values.items() if str(params.get(name)) == "auto"}


def _automatic(initializer: BaseEstimator) -> dict[str, Any]:
    """What "auto" stands for now, by a fit of an instant: rules change from commit to commit."""
    params = initializer.get_params(deep=False)
    own = params["coherence"] if isinstance(params["coherence"], Coherence) else Coherence()
    # What "auto" stands for is asked of a perceptron, whatever the network.
    kept = {k: v for k, v in params.items() if not k.startswith(("module", "hidden_layer"))}
    probe = type(initializer)(**kept).set_params(
        hidden_layer_sizes=(8,),
        gain="auto",
        coherence=clone(own).set_params(**dict.fromkeys(OF_THE_ROWS)),
        device="cpu",
        verbose=0,
        random_state=0,
    )
    probe.partial_fit(np.random.default_rng(0).normal(size=(32, 4)))
    return {
        "coherence": _parameters(own),
        "values": repr(probe.config_),
        # Its last digits depend on the machine.
        "gain": [f"{factor:.2g}" for factor in probe.gain_],
    }


# One theta0

# What was spent on a theta0, in its file beside it.
SPENT = ("seconds", "cpu_seconds")

# Passes over small data are short, and a file of some megabytes after each would take longer.
SECONDS_BETWEEN_WRITES = 30.0


@dataclass(frozen=True)
class Pretrained:
    """A fitted initializer, what stands for its theta0, and what it took.

    ``seconds`` are of its passes, those of earlier runs included; ``cpu_seconds`` of all threads
    together, which other programs lengthen less; ``reused``: whether nothing was left to learn.
    """

    initializer: Any
    digest: str
    seconds: float
    cpu_seconds: float
    path: Path
    reused: bool

    def record(self) -> dict[str, Any]:
        """What a table of results says of it, as JSON can hold it."""
        return {
            "class": type(self.initializer).__name__,
            "passes": int(self.initializer.n_iter_),
            "best_loss": _finite(self.initializer.best_loss_),
            "seconds": round(self.seconds, 2),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "random_state": self.initializer.get_params()["random_state"],
            "digest": self.digest,
            "auto": _decided(self.initializer),
            "gain": [float(factor) for factor in getattr(self.initializer, "gain_", ())],
        }


def _finite(loss: float) -> float | None:
    """Infinite while no window has ended, which JSON has no word for."""
    return float(loss) if math.isfinite(loss) else None


def read_kept(path: Path) -> Any:
    """What a command wrote down earlier; a RuntimeError says what to delete if it is damaged."""
    try:
        return joblib.load(path)
    except Exception as error:  # unpickling raises nearly anything
        raise RuntimeError(f"{path} cannot be read ({error}); delete it and run again") from error


def _write(path: Path, state: dict[str, Any]) -> None:
    write_atomically(path, lambda part: joblib.dump(state, part))


def _slug(name: str) -> str:
    return name.replace("/", "-")


def _read(initializer: BaseEstimator, path: Path) -> tuple[Any, dict[str, float]]:
    """What an initializer has become so far, and the seconds spent on it."""
    kept = read_kept(path) if path.exists() else {"initializer": clone(initializer)}
    # How loud a file's first run was must not decide how loud this one is.
    fitted = kept["initializer"].set_params(verbose=initializer.get_params()["verbose"])
    return fitted, {name: kept.get(name, 0.0) for name in SPENT}


def _is_done(initializer: BaseEstimator, fitted: Any) -> bool:
    wanted = initializer.get_params()["max_iter"]
    if wanted == "auto":  # an initializer that decides itself says so after one pass
        wanted = _decided(fitted).get("max_iter", math.inf)
    return bool(getattr(fitted, "n_iter_", 0) >= wanted)


def learn(
    initializer: BaseEstimator, X: np.ndarray, *, name: str, folder: Path, X_digest: str
) -> Pretrained:
    """Fit an initializer, or go on with what an earlier run left in the folder.

    The parameters, the data and the versions make the key of the file, whose name begins with
    ``name``, for people to read.
    """
    path = folder / f"{_slug(name)}-{fit_key(initializer, X_digest)}.joblib"
    return _learn_at(path, initializer, X)


def _learn_at(path: Path, initializer: BaseEstimator, X: np.ndarray) -> Pretrained:
    fitted, spent = _read(initializer, path)
    written, unwritten = time.perf_counter(), False
    reused = _is_done(initializer, fitted)
    try:
        while not _is_done(initializer, fitted):
            for name, seconds in _timed_fit(fitted, X).items():
                spent[name] += seconds
            ended, unwritten = time.perf_counter(), True
            if ended - written >= SECONDS_BETWEEN_WRITES:
                _write(path, {"initializer": fitted, **spent})
                written, unwritten = ended, False
    finally:  # also of an interrupted pass, which leaves the passes before it as they were
        if unwritten:
            _write(path, {"initializer": fitted, **spent})
    return Pretrained(fitted, theta0_digest(fitted.theta0_), **spent, path=path, reused=reused)


def _timed_fit(initializer: Any, rows: np.ndarray) -> dict[str, float]:
    """Train on the rows once; what that took, by the clock and of all cores together."""
    wall, cpu = time.perf_counter(), time.process_time()
    initializer.partial_fit(rows)
    return dict(zip(SPENT, (time.perf_counter() - wall, time.process_time() - cpu), strict=True))


# The theta0 of several runs, on any engine

LONGEST_FIRST = ("ours", "ours+coherence", "rlabel")


def _learn_in_worker(
    key: tuple[str, int],
    used: dict[str, str],
    initializer: BaseEstimator,
    path: Path,
    n_rows: int,
    X: np.ndarray,
) -> tuple[tuple[str, int], Pretrained]:
    """Learn a theta0 from the first rows of X, in the command's own folder where it is seen."""
    require_versions(used)
    rows = np.require(X[:n_rows], requirements="A")  # a message may end in the middle of a number
    if path.parent.exists():
        return key, _learn_at(path, initializer, rows)
    with TemporaryDirectory() as folder:
        return key, _learn_at(Path(folder) / path.name, initializer, rows)


def learn_all(
    initializers: dict[tuple[str, int], BaseEstimator],
    X: np.ndarray,
    n_rows: int,
    *,
    folder: Path,
    engine: Engine,
    say: Callable[[str], None],
    quiet: bool = False,
) -> dict[tuple[str, int], Pretrained]:
    """The theta0 of each method and run, learned from the first ``n_rows`` of X, or found.

    All rows are handed on, since they are what the evaluation needs too. Each theta0 is in the
    folder as soon as it is there. A pre-training has a machine for itself.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    X_digest = data_digest(X[:n_rows])
    paths = {
        key: folder / f"{_slug(key[0])}-{fit_key(initializer, X_digest)}.joblib"
        for key, initializer in initializers.items()
    }
    # Bars of passes are for a terminal; on a cluster there is one bar, of theta0.
    alone = engine.in_process
    found, calls = {}, {}
    for key, initializer in initializers.items():
        name, run = key
        if paths[key].exists() and _is_done(initializer, _read(initializer, paths[key])[0]):
            found[key] = _learn_at(paths[key], initializer, X[:n_rows])
            say(f"run {run}: reused {paths[key].name}")
            continue
        passes = initializer.get_params()["max_iter"]
        loud = [n for n in initializer.get_params() if n.rpartition("__")[2] == "verbose"]
        initializer = clone(initializer).set_params(
            **dict.fromkeys(loud, 0 if quiet or not alone else 1)
        )
        line = f"run {run}: learning theta0 of {name}, passes: {passes}"
        args = (key, deciding_versions(), initializer, paths[key], n_rows)
        calls[key] = line, Call(args, shared=(X,))
    # Where several run at a time, the one that takes longest should not be the last to begin.
    order = sorted(calls, key=lambda key: LONGEST_FIRST.index(key[0].rpartition("/")[2]))

    def said() -> Iterator[Call]:
        for line, call in (calls[key] for key in (calls if alone else order)):
            say(line)
            yield call

    hidden = quiet or alone or not calls
    with tqdm(desc="pre-training", total=len(calls), unit="theta0", disable=hidden) as bar:
        for key, theta0 in engine.results(_learn_in_worker, said(), whole_machine=True):
            if not paths[key].exists():  # a worker that does not see the folder
                spent = {name: getattr(theta0, name) for name in SPENT}
                _write(paths[key], {"initializer": theta0.initializer, **spent})
            found[key] = replace(theta0, path=paths[key])
            say(f"run {key[1]}: kept {paths[key].name}")
            bar.update()
    return {key: found[key] for key in initializers}


# Theta0 along the way

PassOrder = Callable[[int], np.ndarray]
"""From the number of a pass to the order of all rows in it."""


@dataclass(frozen=True)
class Checkpoint:
    """Where theta0 lies after so many steps, and what it took."""

    steps: int
    path: Path
    record: dict[str, Any]


def portion_ends(checkpoints: Sequence[int], steps_a_pass: int) -> list[int]:
    """Steps at which a portion ends: the checkpoints, and the passes that end before the last."""
    return sorted({*checkpoints, *range(steps_a_pass, max(checkpoints), steps_a_pass)})


def warm_up(initializer: BaseEstimator, X: np.ndarray) -> None:
    """Two steps that count nowhere: threads start, buffers and kernels are made."""
    rows = X[: 2 * initializer.get_params()["batch_size"]]
    clone(initializer).set_params(verbose=0).partial_fit(rows)


def learn_along(
    initializer: BaseEstimator,
    X: np.ndarray,
    checkpoints: Sequence[int],
    *,
    order: PassOrder,
    name: str,
    folder: Path,
    X_digest: str,
) -> list[Checkpoint]:
    """Learn theta0, or read what an earlier run kept, at each of some rising numbers of steps.

    The rows of a pass, in an order drawn for it (``X_digest`` stands for that too), are cut where
    a checkpoint falls, and ``partial_fit``, which alone is timed, gets one slice after the other.
    Every checkpoint has its theta0, a line in a log, and the initializer to go on from, which is
    deleted once the next one is there. Their names stand for all that came before, so that longer
    runs go on where shorter ones ended.
    """
    batch_size = min(initializer.get_params()["batch_size"], len(X))
    steps_a_pass = len(X) // batch_size
    ends = portion_ends(checkpoints, steps_a_pass)
    key, log = fit_key(initializer, X_digest), Log(folder / "checkpoints.jsonl")
    paths = [
        folder / f"{_slug(name)}-{end:06d}-{digest_of([key, ends[: i + 1]])}.safetensors"
        for i, end in enumerate(ends)
    ]
    states = [path.with_suffix(".joblib") for path in paths]
    kept = log.read()
    done = next((i for i, p in enumerate(paths) if not (p.exists() and p.stem in kept)), len(ends))
    if done < len(ends):
        # The last checkpoint that can be gone on from.
        done = next((i for i in range(done, 0, -1) if states[i - 1].exists()), 0)
        fitted = read_kept(states[done - 1])["initializer"] if done else clone(initializer)
        fitted.set_params(verbose=initializer.get_params()["verbose"])
        warm_up(initializer, X)
        for i in range(done, len(ends)):
            start = ends[i - 1] if i else 0
            number, first = divmod(start, steps_a_pass)
            last = ends[i] - number * steps_a_pass
            rows = X[order(number)[first * batch_size : last * batch_size]]
            cost = _timed_fit(fitted, rows)
            before = kept[paths[i - 1].stem] if i else {}
            kept[paths[i].stem] = _along_record(fitted, ends[i], cost, before)
            folder.mkdir(parents=True, exist_ok=True)
            save_theta0(paths[i], fitted)
            _write(states[i], {"initializer": fitted})
            log.append({"key": paths[i].stem, **kept[paths[i].stem]})
            if i:
                states[i - 1].unlink(missing_ok=True)
    return [
        Checkpoint(end, path, {k: v for k, v in kept[path.stem].items() if k != "key"})
        for end, path in zip(ends, paths, strict=True)
        if end in checkpoints
    ]


def _along_record(
    fitted: Any, steps: int, cost: dict[str, float], before: dict[str, Any]
) -> dict[str, Any]:
    """What is said of a checkpoint: seconds belong to a machine, its threads and a commit."""
    machine = hardware() | {"threads": torch.get_num_threads()}
    machines = before.get("machines", [])
    commits = [*before.get("commits", []), provenance()["git_commit"]]
    return {
        "steps": steps,
        **{name: before.get(name, 0.0) + value for name, value in cost.items()},
        "last_window": fitted.history_[-1] if fitted.history_ else None,
        "best_window_loss": _finite(fitted.best_loss_),
        "commits": list(dict.fromkeys(commits)),
        "machines": machines if machine in machines else [*machines, machine],
    }
