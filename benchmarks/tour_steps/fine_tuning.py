"""From theta0 to a classifier, as users of scikit-learn go there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_mmdinit import MLPClassifier, MMDInitializer
from sklearn_mmdinit.display import TaskAccuracyDisplay
from tour_steps.journey import Claims, Journey, say
from tour_steps.pretraining import HIDDEN

__all__ = ["features", "few_labels", "routed", "search", "stream", "unlabelled"]

EPOCHS = 30


def _classifier(journey: Journey, start: Any, **params: Any) -> MLPClassifier:
    epochs = journey.amount(EPOCHS, 4)
    own: dict[str, Any] = {"max_iter": epochs, "random_state": 0, **params}
    return MLPClassifier(HIDDEN, warm_start_from=start, **own)


def _features(journey: Journey) -> Pipeline:
    init = FrozenEstimator(journey.learned["coherent"].set_params(output="hidden"))
    return make_pipeline(init, Normalizer(), LogisticRegression(C=100, max_iter=1000))


def few_labels(journey: Journey) -> Claims:
    """A theta0 learned once, in pipelines with few labels: cross_val_score of each start."""
    coherent, scale = journey.learned["coherent"], FrozenEstimator(journey.scaler)
    makers: dict[str, Callable[[], Any]] = {
        "from scratch": lambda: make_pipeline(scale, _classifier(journey, None)),
        "from theta0": lambda: make_pipeline(scale, _classifier(journey, coherent)),
        "features": lambda: make_pipeline(scale, *_features(journey)),
    }
    sizes = (30, 50, 100) if not journey.quick else (30, 50)
    scores: dict[str, list[np.ndarray]] = {name: [] for name in makers}
    for n_labels in sizes:
        draws = journey.splits(n_labels, journey.amount(5, 2))
        for name, make in makers.items():
            scores[name].append(cross_val_score(make(), journey.raw, journey.y, cv=draws))
    journey.learned["coherent"].set_params(output="passthrough")
    for name, own in scores.items():
        means = ", ".join(f"{own[i].mean():.3f} with {n}" for i, n in enumerate(sizes))
        say(f"{name}: accuracy {means} labels")
    display = TaskAccuracyDisplay.from_scores(sizes, scores)
    display.ax_.set(xlabel="Labelled rows", ylabel="Mean accuracy over draws of them")
    journey.save("tour-accuracy.png", display)
    better = np.mean(scores["from theta0"]) > np.mean(scores["from scratch"])
    return {
        "theta0 is the better start": bool(better),
        "its features too": bool(np.mean(scores["features"]) > np.mean(scores["from scratch"])),
    }


def search(journey: Journey) -> Claims:
    """An initializer as a step of a Pipeline, whose parameters GridSearchCV looks through."""
    init = MMDInitializer(
        HIDDEN,
        n_classes=10,
        coherence="auto",
        max_iter=journey.amount(10, 1),
        random_state=0,
    )
    pipeline = Pipeline([("init", init), ("clf", _classifier(journey, "pipeline"))])
    grid = {"init__coherence__walk_length": [5.0, 40.0]}
    found = GridSearchCV(pipeline, grid, cv=2).fit(journey.X, journey.y)
    accuracy = found.cv_results_["mean_test_score"]
    for value, mean in zip(grid["init__coherence__walk_length"], accuracy, strict=True):
        say(f"walk_length {value:g}: {mean:.3f}")
    best = found.best_estimator_
    coefs = best["init"].coefs_, best["clf"].theta0_.coefs
    chosen = best["init"].coherence.walk_length
    return {
        "the best candidate is refitted": chosen == found.best_params_[next(iter(grid))],
        "the classifier starts at its pipeline's theta0": all(map(np.array_equal, *coefs)),
    }


def stream(journey: Journey) -> Claims:
    """partial_fit, of both: one pass of fit."""
    params: dict[str, Any] = {"hidden_layer_sizes": (16,), "n_perturbations": 8, "random_state": 0}
    whole = MMDInitializer(max_iter=2, **params).fit(journey.X)
    init = MMDInitializer(max_iter=2, **params)
    for _ in range(2):
        init.partial_fit(journey.X)
    clf = _classifier(journey, None, max_iter=2, validation_split=None)
    fitted = _classifier(journey, None, max_iter=2, validation_split=None)
    fitted.fit(journey.X, journey.y)
    for _ in range(2):
        clf.partial_fit(journey.X, journey.y, classes=np.arange(10))
    say("two calls of partial_fit beside max_iter=2")
    return {
        "theta0 is the same, bit for bit": all(map(np.array_equal, init.coefs_, whole.coefs_)),
        "so is the classifier": all(map(np.array_equal, clf.coefs_, fitted.coefs_)),
    }


def features(journey: Journey) -> Claims:
    """output="hidden": a feature map of theta0 for any classifier, here a linear one."""
    init = journey.learned["coherent"]
    pipeline = _features(journey).fit(journey.X[journey.few], journey.y[journey.few])
    accuracy = pipeline.score(journey.X[journey.rest], journey.y[journey.rest])
    hidden = pipeline[0].transform(journey.X[:5])
    init.set_params(output="passthrough")
    say(f"{len(journey.few)} labels: accuracy {accuracy:.3f}")
    H = journey.X[:5]
    for W, b in zip(init.coefs_[:-1], init.intercepts_[:-1], strict=True):
        H = np.maximum(H @ W + b, 0.0)
    return {
        "features are the last hidden activations": np.allclose(hidden, H, rtol=1e-4, atol=1e-4),
        "they tell digits apart": accuracy > 0.5,
    }


def unlabelled(journey: Journey) -> Claims:
    """Rows without a label among the others: unlabelled_label."""
    y = np.full_like(journey.y, -1)
    y[journey.few] = journey.y[journey.few]
    init = MMDInitializer(HIDDEN, coherence="auto", max_iter=journey.amount(20, 2), random_state=0)
    clf = _classifier(journey, init.set_params(n_classes=10), unlabelled_label=-1)
    clf.fit(journey.X, y)
    accuracy = clf.score(journey.X[journey.rest], journey.y[journey.rest])
    say(f"{int((y != -1).sum())} of {len(y)} rows have a label: accuracy {accuracy:.3f}")
    labelled = clf.score(journey.X[journey.few], y[journey.few])
    return {
        "-1 is no class": -1 not in clf.classes_ and len(clf.classes_) == 10,
        "the initializer saw all rows": clf.initializer_.n_features_in_ == 64
        and clf.initializer_.n_iter_ > 0,
        "rows without a label do not count in a score": clf.score(journey.X, y) == labelled,
    }


def routed(journey: Journey) -> Claims:
    """X_unlabelled as metadata: rows that are in no fold, scaled by the pipeline's first step."""
    init = MMDInitializer(
        HIDDEN, n_classes=10, coherence="auto", max_iter=journey.amount(20, 2), random_state=0
    )
    few, rest = journey.few, journey.rest
    with sklearn.config_context(enable_metadata_routing=True):
        clf = _classifier(journey, init).set_fit_request(X_unlabelled=True)
        steps = [("scale", FrozenEstimator(journey.scaler)), ("clf", clf)]
        pipe = Pipeline(steps, transform_input=["X_unlabelled"])
        pipe.fit(journey.raw[few], journey.y[few], X_unlabelled=(journey.raw[rest],))
        accuracy = pipe.score(journey.raw[rest], journey.y[rest])
    say(f"{len(few)} labelled rows, {len(rest)} others: accuracy {accuracy:.3f}")
    alone: Any = _classifier(journey, init).fit(journey.X[few], journey.y[few])
    theta0s = pipe["clf"].theta0_.coefs, alone.theta0_.coefs
    return {"theta0 is not that of the labelled rows": not any(map(np.array_equal, *theta0s))}
