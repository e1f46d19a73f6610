"""Learned theta0 kept on disk: learned once, reused by every later run, resumed if cut short.

An initializer's ``fit`` equals ``max_iter`` times ``partial_fit``, exactly, so the passes are
made one by one, and the initializer is written down after a pass once half a minute is over, at
an interruption and at the end. What is read back was written by this script into its own output
folder; like any pickle, do not put another's file there.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator

from protocol.provenance import versions
from protocol.store import digest_of, write_atomically
from sklearn_mmdinit import Coherence, Theta0

__all__ = [
    "Pretrained",
    "data_digest",
    "find",
    "fit_key",
    "keep",
    "learn",
    "learn_at",
    "read_kept",
    "theta0_digest",
    "theta0_path",
]

# What changes nothing in the result, of an initializer and of those within it.
IDLE_PARAMETERS = {"verbose", "memory", "n_jobs"}
# What of a coherence does not suit other rows than those it is for.
OF_THE_ROWS = ("graph", "embedding", "augmentation", "memory")

# Of what a fitted initializer holds. A file of another form is not found, and theta0 learned again:
# to be raised where an initializer gets a parameter, or keeps its state in another way.
FORM = 2

# What was spent on a theta0, in its file beside it.
SPENT = ("seconds", "cpu_seconds")

# Passes over small data are short, and a file of some megabytes after each would take longer.
SECONDS_BETWEEN_WRITES = 30.0


@dataclass(frozen=True)
class Pretrained:
    """A fitted initializer, with what it took.

    Parameters
    ----------
    initializer : estimator
        Fitted.
    digest : str
        Stands for its theta0, byte for byte.
    seconds : float
        Wall time of its passes, those of earlier runs of the script included.
    cpu_seconds : float
        Of all threads together: other programs that run lengthen it less.
    path : Path
        Where it is kept.
    reused : bool
        Whether nothing was left to learn.
    """

    initializer: Any
    digest: str
    seconds: float
    cpu_seconds: float
    path: Path
    reused: bool

    def record(self) -> dict[str, Any]:
        """What a table of results says of it, as JSON can hold it."""
        best_loss = float(self.initializer.best_loss_)
        gain = getattr(self.initializer, "gain_", ())
        return {
            "class": type(self.initializer).__name__,
            "passes": int(self.initializer.n_iter_),
            # Infinite while no window has ended, which JSON has no word for.
            "best_loss": best_loss if math.isfinite(best_loss) else None,
            "seconds": round(self.seconds, 2),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "random_state": self.initializer.get_params()["random_state"],
            "digest": self.digest,
            # What parameters of "auto" stood for; without any the paper's baseline.
            "auto": getattr(self.initializer, "auto_params_", {}),
            "gain": [float(factor) for factor in gain],
        }


def data_digest(X: np.ndarray) -> str:
    """Thirty-two hexadecimal digits that stand for an array's shape, type and values."""
    return str(joblib.hash(np.ascontiguousarray(X)))


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


def _automatic(initializer: BaseEstimator) -> dict[str, Any]:
    """What "auto" stands for now, by a fit of an instant: rules change from commit to commit."""
    coherence = initializer.get_params()["coherence"]
    own = coherence if isinstance(coherence, Coherence) else Coherence()
    # What "auto" stands for is asked of a perceptron, whatever the network.
    kept = {
        name: value
        for name, value in initializer.get_params(deep=False).items()
        if not name.startswith("module") and name != "hidden_layer"
    }
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
        "values": repr(sorted(probe.auto_params_.items())),
        # Its last digits depend on the machine.
        "gain": [f"{factor:.2g}" for factor in probe.gain_],
    }


def read_kept(path: Path) -> dict[str, Any]:
    """What a script wrote down earlier; a RuntimeError says what to delete if it is damaged."""
    try:
        return joblib.load(path)
    except Exception as error:  # unpickling raises nearly anything
        raise RuntimeError(f"{path} cannot be read ({error}); delete it and run again") from error


def _write(path: Path, state: dict[str, Any]) -> None:
    write_atomically(path, lambda part: joblib.dump(state, part))


def _passes_wanted(initializer: BaseEstimator, fitted: Any) -> float:
    """How many passes there are to be; an initializer that decides itself says so after one."""
    wanted = initializer.get_params()["max_iter"]
    if wanted != "auto":
        return float(wanted)
    decided = getattr(fitted, "auto_params_", None)
    return math.inf if decided is None else float(decided["max_iter"])


def theta0_path(initializer: BaseEstimator, *, name: str, folder: Path, X_digest: str) -> Path:
    """Where a theta0 is kept; the parameters as for :func:`learn`."""
    slug = name.replace("/", "-")
    return folder / f"{slug}-{fit_key(initializer, X_digest)}.joblib"


def _read(initializer: BaseEstimator, path: Path) -> tuple[Any, dict[str, float]]:
    """What an initializer has become so far, and the seconds spent on it."""
    kept = read_kept(path) if path.exists() else {"initializer": clone(initializer)}
    # How loud a file's first run was must not decide how loud this one is.
    fitted = kept["initializer"].set_params(verbose=initializer.get_params()["verbose"])
    return fitted, {name: kept.get(name, 0.0) for name in SPENT}


def _is_done(initializer: BaseEstimator, fitted: Any) -> bool:
    return getattr(fitted, "n_iter_", 0) >= _passes_wanted(initializer, fitted)


def find(initializer: BaseEstimator, path: Path) -> Pretrained | None:
    """The theta0 kept at a path; None while passes are missing."""
    fitted, spent = _read(initializer, path)
    if not _is_done(initializer, fitted):
        return None
    return Pretrained(fitted, theta0_digest(fitted.theta0_), **spent, path=path, reused=True)


def keep(theta0: Pretrained, path: Path) -> Pretrained:
    """Write down at another path what was learned elsewhere."""
    spent = {name: getattr(theta0, name) for name in SPENT}
    _write(path, {"initializer": theta0.initializer, **spent})
    return replace(theta0, path=path)


def learn(
    initializer: BaseEstimator, X: np.ndarray, *, name: str, folder: Path, X_digest: str
) -> Pretrained:
    """Fit an initializer pass by pass, or go on with what an earlier run left in the folder.

    Parameters
    ----------
    initializer : estimator
        Unfitted; its parameters, the data and the versions of this library and of torch make the
        key of the file.
    X : ndarray, shape (n, n_features)
        Unlabelled rows.
    name : str
        Beginning of the file's name, for people to read.
    folder : Path
        Where the file is kept.
    X_digest : str
        ``data_digest(X)``.
    """
    path = theta0_path(initializer, name=name, folder=folder, X_digest=X_digest)
    return learn_at(path, initializer, X)


def learn_at(path: Path, initializer: BaseEstimator, X: np.ndarray) -> Pretrained:
    """:func:`learn` with the file's path known."""
    fitted, spent = _read(initializer, path)
    written, unwritten = time.perf_counter(), False
    reused = _is_done(initializer, fitted)
    try:
        while not _is_done(initializer, fitted):
            started, cpu = time.perf_counter(), time.process_time()
            fitted.partial_fit(X)
            ended, unwritten = time.perf_counter(), True
            spent["seconds"] += ended - started
            spent["cpu_seconds"] += time.process_time() - cpu
            if ended - written >= SECONDS_BETWEEN_WRITES:
                _write(path, {"initializer": fitted, **spent})
                written, unwritten = ended, False
    finally:  # also of an interrupted pass, which leaves the passes before it as they were
        if unwritten:
            _write(path, {"initializer": fitted, **spent})
    digest = theta0_digest(fitted.theta0_)
    return Pretrained(fitted, digest, **spent, path=path, reused=reused)
