"""Claim: by coherence alone a fit takes a third of the time of the version with the paper's terms.

Whole fits by an earlier checkout of the package and by this one, in turns, in processes of their
own. The two do not learn by the same loss. Beside the seconds stands the accuracy (%) of the
networks that ``MLPClassifier`` fine-tunes from them with five labels of each class. Run it on an
idle machine (ten minutes on two cores)::

    PYTHONPATH=.. python -m timing.against ../../dc17dfb4 > speed-against.json
"""

import json
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits, make_classification
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
from sklearn.preprocessing import StandardScaler

BENCHMARKS = Path(__file__).resolve().parents[1]
ROUNDS, N_CHOICES, PER_CLASS = 5, 20, 5
# Hidden layers, classes, rows and columns.
FITS = {
    "digits": ((64, 64), 10, 0, 0),
    "300 x 20": ((392, 392, 392), 4, 300, 20),
    "2,000 x 30": ((392, 392, 392), 4, 2_000, 30),
    "20,000 x 50": ((392, 392, 392), 4, 20_000, 50),
}


def answer(name: str, with_accuracy: bool) -> dict[str, float]:
    """In the process of a checkout: seconds of a fit, and the accuracy from there."""
    from sklearn_mmdinit import MLPClassifier, MMDInitializer
    from timing.steps import timed

    hidden, n_classes, n_rows, n_columns = FITS[name]
    if n_rows:
        of_classes = {"n_classes": n_classes, "n_informative": 10, "random_state": 0}
        X, y = make_classification(n_rows, n_columns, **of_classes)
        X = StandardScaler().fit_transform(X)
    else:
        X, y = load_digits(return_X_y=True)
        X = (X - X.mean()) / X.std()
    init = MMDInitializer(hidden, n_classes=n_classes, coherence="auto", random_state=0)
    MMDInitializer((8,), n_classes=2, max_iter=1).fit(X[:64])  # imports of the first call
    found = {"seconds": timed(lambda: init.fit(X.astype(np.float32)))}
    if with_accuracy:
        few = StratifiedShuffleSplit(N_CHOICES, train_size=PER_CLASS * n_classes, random_state=0)
        classifier = MLPClassifier(warm_start_from=init, random_state=0)
        found["accuracy"] = 100 * cross_val_score(classifier, X, y, cv=few).mean()
    return found


def ask(checkout: Path, name: str, with_accuracy: bool = False) -> dict[str, Any]:
    """What a process with the package of a checkout answers."""
    path = os.pathsep.join([str(checkout.resolve()), str(BENCHMARKS)])
    job = [sys.executable, "-P", "-m", "timing.against", "--answer", name, str(int(with_accuracy))]
    run = subprocess.run(
        job, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    if run.returncode:
        raise RuntimeError(run.stderr)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def main(old: Path, names: list[str]) -> None:
    from protocol.store import commit, provenance
    from timing.steps import in_turns

    checkouts, fits = {"old": old, "new": BENCHMARKS.parent}, []
    for name in names or FITS:
        accuracy = {side: ask(place, name, True)["accuracy"] for side, place in checkouts.items()}
        measures = {
            s: partial(lambda p, n: ask(p, n)["seconds"], p, name) for s, p in checkouts.items()
        }
        fit: dict[str, Any] = {"name": name, "accuracy": accuracy}
        fit["seconds"] = in_turns(measures, ROUNDS)
        median = {side: fit["seconds"][side]["median"] for side in checkouts}
        fit["new / old"] = {"median": median["new"] / median["old"]}
        print(json.dumps(fit), file=sys.stderr)
        fits.append(fit)
    revision = ["git", "-C", str(old), "rev-parse", "HEAD"]
    of_old = subprocess.run(revision, capture_output=True, text=True, check=True).stdout.strip()
    commits = {"old": of_old, "new": commit()}
    about = {"device": "cpu", "threads": torch.get_num_threads(), "commits": commits}
    settings = {"choices": N_CHOICES, "labels_of_each_class": PER_CLASS, "rounds": ROUNDS}
    print(json.dumps(about | {"settings": settings} | provenance() | {"fits": fits}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "--answer":
        print(json.dumps(answer(sys.argv[2], sys.argv[3] == "1")))
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
