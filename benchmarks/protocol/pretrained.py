"""Learned theta0 kept on disk: learned once, reused by every later run, resumed if cut short.

An initializer's ``fit`` equals ``max_iter`` times ``partial_fit``, exactly, so the passes are
made one by one and the initializer is written down after each. What is read back was written
by this script into its own output folder; like any pickle, do not put another's file there.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.base import BaseEstimator, clone

from protocol.provenance import versions
from protocol.store import digest_of, write_atomically
from sklearn_mmdinit import Theta0

__all__ = ["Pretrained", "data_digest", "fit_key", "learn", "read_kept", "theta0_digest"]

# What changes nothing in the result.
IDLE_PARAMETERS = {"verbose"}


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
    path : Path
        Where it is kept.
    reused : bool
        Whether nothing was left to learn.
    """

    initializer: Any
    digest: str
    seconds: float
    path: Path
    reused: bool

    def record(self) -> dict[str, Any]:
        """What a table of results says of it, as JSON can hold it."""
        best_loss = float(self.initializer.best_loss_)
        return {
            "class": type(self.initializer).__name__,
            "passes": int(self.initializer.n_iter_),
            # Infinite while no window has ended, which JSON has no word for.
            "best_loss": best_loss if math.isfinite(best_loss) else None,
            "seconds": round(self.seconds, 2),
            "random_state": self.initializer.get_params()["random_state"],
            "digest": self.digest,
        }


def data_digest(X: np.ndarray) -> str:
    """Thirty-two hexadecimal digits that stand for an array's shape, type and values."""
    return str(joblib.hash(np.ascontiguousarray(X)))


def theta0_digest(theta0: Theta0) -> str:
    """Sixteen hexadecimal digits that stand for a theta0, byte for byte."""
    return digest_of({key: data_digest(value) for key, value in theta0.arrays.items()})


def fit_key(initializer: BaseEstimator, X_digest: str) -> str:
    """What stands for an unfitted initializer, its data, and the versions it is fitted with."""
    parameters = {
        name: repr(value)
        for name, value in initializer.get_params().items()
        if name not in IDLE_PARAMETERS
    }
    found = versions()
    return digest_of(
        {
            "class": type(initializer).__name__,
            "parameters": parameters,
            "data": X_digest,
            "versions": {name: found[name] for name in ("sklearn_mmdinit", "torch")},
        }
    )


def read_kept(path: Path) -> dict[str, Any]:
    """What a script wrote down earlier; a RuntimeError says what to delete if it is damaged."""
    try:
        return joblib.load(path)
    except Exception as error:  # unpickling raises nearly anything
        raise RuntimeError(f"{path} cannot be read ({error}); delete it and run again") from error


def _write(path: Path, state: dict[str, Any]) -> None:
    write_atomically(path, lambda part: joblib.dump(state, part))


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
    slug = name.replace("/", "-")
    path = folder / f"{slug}-{fit_key(initializer, X_digest)}.joblib"
    kept = read_kept(path) if path.exists() else {"initializer": clone(initializer), "seconds": 0.0}
    # How loud a file's first run was must not decide how loud this one is.
    fitted = kept["initializer"].set_params(verbose=initializer.get_params()["verbose"])
    seconds, wanted = kept["seconds"], initializer.get_params()["max_iter"]
    reused = getattr(fitted, "n_iter_", 0) >= wanted
    while getattr(fitted, "n_iter_", 0) < wanted:
        started = time.perf_counter()
        fitted.partial_fit(X)
        seconds += time.perf_counter() - started
        _write(path, {"initializer": fitted, "seconds": seconds})
    return Pretrained(fitted, theta0_digest(fitted.theta0_), seconds, path, reused)
