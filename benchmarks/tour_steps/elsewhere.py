"""Files, and other libraries that a theta0 or a classifier goes to."""

from __future__ import annotations

import importlib.util

import numpy as np

from sklearn_mmdinit import MLPClassifier, load_theta0, save_theta0
from tour_steps.journey import Claims, Journey, say
from tour_steps.pretraining import HIDDEN

__all__ = ["files", "onnx", "scikit_learn"]


def _fitted(journey: Journey) -> MLPClassifier:
    """A classifier from theta0, fitted once for all these steps."""
    if "classifier" not in journey.learned:
        clf = MLPClassifier(
            HIDDEN, warm_start_from=journey.learned["coherent"], max_iter=10, random_state=0
        )
        clf.fit(journey.X[journey.few], journey.y[journey.few])
        journey.learned["classifier"] = clf
    return journey.learned["classifier"]


def files(journey: Journey) -> Claims:
    """save_theta0 and load_theta0, and a classifier that starts at a file."""
    path, init = journey.folder / "tour-theta0.safetensors", journey.learned["coherent"]
    save_theta0(path, init)
    loaded = load_theta0(path)
    say(f"{path.name}: {path.stat().st_size} bytes, {len(loaded.arrays)} arrays")
    clf = MLPClassifier(HIDDEN, warm_start_from=path, max_iter=10, random_state=0)
    clf.fit(journey.X[journey.few], journey.y[journey.few])
    arrays = init.theta0_.arrays
    mine, theirs = (c.predict_proba(journey.X[:20]) for c in (_fitted(journey), clf))
    return {
        "the file is theta0": loaded.architecture == init.theta0_.architecture
        and loaded.arrays.keys() == arrays.keys()
        and all(np.array_equal(arrays[name], value) for name, value in loaded.arrays.items()),
        "a classifier from the file is that from the initializer": np.array_equal(mine, theirs),
    }


def scikit_learn(journey: Journey) -> Claims:
    """to_sklearn: scikit-learn's own MLPClassifier, fitted, to predict with or to train on."""
    clf = _fitted(journey)
    theirs = clf.to_sklearn()
    difference = np.abs(theirs.predict_proba(journey.X) - clf.predict_proba(journey.X)).max()
    say(f"{type(theirs).__module__}.{type(theirs).__name__}: {difference:.1e} apart")
    start = journey.learned["coherent"].to_sklearn(classes=range(10))
    start.partial_fit(journey.X[journey.few], journey.y[journey.few])
    return {
        "it has the same probabilities": bool(difference < 1e-5),
        "theta0 can be trained on there": start.n_iter_ >= 1,
    }


def onnx(journey: Journey) -> Claims:
    """to_onnx, where the extra is installed."""
    if not all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime"))):
        say("left out: it needs the extra onnx, and onnxruntime to look at it")
        return {}
    import onnxruntime

    clf, path = _fitted(journey), journey.folder / "tour.onnx"
    clf.to_onnx(path)
    run = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = run.run(["probabilities"], {"X": journey.X[:50]})
    difference = np.abs(found - clf.predict_proba(journey.X[:50])).max()
    say(f"{path.name}: {path.stat().st_size} bytes, {difference:.1e} apart")
    return {"onnxruntime has the same probabilities": bool(difference < 1e-5)}
