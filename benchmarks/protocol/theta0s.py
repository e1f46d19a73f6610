"""Learned theta0 kept on disk: learned once, reused by every later run.

While one is learned its training is in a checkpoint beside it, from which the same command goes on
after it was cut off. They are pickles: do not put another's file there.
"""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.base import BaseEstimator, clone

from protocol.store import code_digest, commit, data_digest, digest_of, versions, write_atomically
from sklearn_mmdinit import Theta0

# Keys

# What changes nothing in the result, of an initializer and of those within it.
IDLE_PARAMETERS = {"verbose", "checkpoint"}

# Of what a fitted initializer holds. A file of another form is not found, and theta0 learned again:
# to be raised where an initializer gets a parameter, or keeps its state in another way.
FORM = 4


def theta0_digest(theta0: Theta0) -> str:
    """Sixteen hexadecimal digits that stand for a theta0, byte for byte."""
    return digest_of({key: data_digest(value) for key, value in theta0.arrays.items()})


def fit_key(initializer: BaseEstimator, X_digest: str) -> str:
    """What stands for an unfitted initializer, its data, and the versions it is fitted with."""
    installed = versions()
    parameters = {
        # Those of an estimator within stand beside it under their names.
        name: type(value).__name__ if isinstance(value, BaseEstimator) else repr(value)
        for name, value in initializer.get_params().items()
        if name.rpartition("__")[2] not in IDLE_PARAMETERS
    }
    parts = {
        "form": FORM,
        "class": type(initializer).__name__,
        "parameters": parameters,
        "data": X_digest,
        "versions": {name: installed[name] for name in ("sklearn_mmdinit", "torch")},
    }
    return digest_of(parts)


# One theta0


@dataclass(frozen=True)
class Pretrained:
    """A fitted initializer, what stands for its theta0, and what it took.

    ``seconds`` are those of ``fit``, None where it was cut off and went on.
    """

    initializer: Any
    digest: str
    seconds: float | None
    commit: str | None

    def record(self) -> dict[str, Any]:
        """What a table of results says of it, as JSON can hold it."""
        loss = float(self.initializer.best_loss_)
        return {
            "passes": int(self.initializer.n_iter_),
            "best_loss": loss if math.isfinite(loss) else None,  # while no window has ended
            "seconds": self.seconds,
            "random_state": self.initializer.get_params()["random_state"],
            "digest": self.digest,
            "commit": self.commit,
        }


def path_of(initializer: BaseEstimator, name: str, folder: Path, X_digest: str) -> Path:
    """Its key is of the parameters, the data, the versions and the code; the name is for people."""
    key = digest_of([fit_key(initializer, X_digest), code_digest()])
    return folder / f"{name.replace('/', '-')}-{key}.pretrained"


def learn(path: Path, initializer: Any, X: np.ndarray) -> Pretrained:
    """Fit an initializer, or go on with what an earlier run left at the path or beside it."""
    if path.exists():
        try:
            return joblib.load(path)
        except Exception as error:  # unpickling raises nearly anything
            message = f"{path} cannot be read ({error}); delete it and run again"
            raise RuntimeError(message) from error
    training = path.with_suffix(".safetensors")
    training.parent.mkdir(parents=True, exist_ok=True)
    goes_on, fitted = training.exists(), clone(initializer)
    takes_checkpoint = "checkpoint" in fitted.get_params(deep=False)  # those of rivals have none
    start = time.perf_counter()
    if takes_checkpoint:
        fitted.set_params(checkpoint=training)
    fitted.fit(X)
    seconds = None if goes_on else round(time.perf_counter() - start, 2)
    if takes_checkpoint:
        fitted.set_params(checkpoint=None)
    learned = Pretrained(fitted, theta0_digest(fitted.theta0_), seconds, commit())
    write_atomically(path, lambda part: joblib.dump(learned, part))
    training.unlink(missing_ok=True)
    return learned
