"""Every estimator passes scikit-learn's own checks."""

import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import parametrize_with_checks
from skorch.callbacks import EarlyStopping
from skorch.utils import noop

from nets import Pooled
from sklearn_mmdinit import (
    EmbeddingClassifier,
    MLPClassifier,
    MMDInitializer,
    NetClassifier,
    OrientedGradients,
)

# A weight counts in the loss, not in which rows share a mini-batch or validate: a row of weight 2
# and two rows are the same on average alone. (A row of weight 0 and no row are the same.)
OF_MINI_BATCHES = {
    f"check_sample_weight_equivalence_on_{kind}_data": "rows are drawn into mini-batches"
    for kind in ("dense", "sparse")
}
OF_KEYWORDS = {
    "check_do_not_raise_errors_in_init_or_set_params": "the name of **keywords is no keyword"
}
OF_MODULES = {
    "check_no_attributes_set_in_init": "which module__<name> there are, the module's class says"
}
OF_MARKERS = {"check_classifiers_classes": "-1 is no class: it marks a row without a label"}
# Check -> reason. One listed here that passes is an error.
EXPECTED_FAILURES = {
    MLPClassifier: OF_MINI_BATCHES | OF_KEYWORDS,
    NetClassifier: OF_MINI_BATCHES | OF_KEYWORDS | OF_MODULES,
    EmbeddingClassifier: OF_MARKERS,
}


def estimators():
    short = {"max_iter": 1, "batch_size": 16, "n_perturbations": 4}
    yield MMDInitializer((4, 3), coherence="auto", **short)
    yield MMDInitializer((4, 3), n_classes=3, **short)
    yield OrientedGradients()
    long, sgd = {"max_iter": 10, "learning_rate_init": 0.05}, {"optimizer": "sgd", "max_iter": 20}
    yield MLPClassifier((8,), **long)
    yield MLPClassifier((8,), learning_rate_init=0.1, validation_split=None, **sgd)
    yield NetClassifier(Pooled, module__width=8, **long)
    sgd["learning_rate_init"] = 0.1
    yield NetClassifier(Pooled, module__batch_norm=True, validation_split=None, **sgd)
    yield EmbeddingClassifier()


# Some of these checks bring values around 100.
@pytest.mark.filterwarnings("ignore:X is not scaled")
@parametrize_with_checks(
    [*estimators()],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES.get(type(estimator), {}),
)
def test_an_estimator_keeps_scikit_learns_contract(estimator, check, monkeypatch):
    # Rows of any width, as these checks bring them, are images one pixel high: no argument says so.
    shape = "sklearn_mmdinit.transforms._image_shape"
    monkeypatch.setattr(shape, lambda X, asked: (1, 1, X.shape[1]))
    if check.func.__name__ == "check_class_weight_classifiers":  # it asks for a thousand epochs
        stop = EarlyStopping("train_loss", threshold=0.1, sink=noop)
        estimator.set_params(callbacks=[stop])
    check(estimator)


UNLIKE = {type(estimator): estimator for estimator in estimators()}


@pytest.mark.filterwarnings(
    "ignore:X is not scaled", "ignore::sklearn.exceptions.ConvergenceWarning"
)
@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("estimator", UNLIKE.values(), ids=lambda of: type(of).__name__)
def test_estimators_fit_and_predict_under_any_output(estimator, kind):
    X, y = make_blobs(40, 64, centers=2, random_state=0)
    frame = {"pandas": pd.DataFrame, "polars": pl.DataFrame}[kind](
        {f"column {i}": X[:, i] for i in range(64)}
    )
    with config_context(transform_output=kind):
        fitted = clone(estimator).fit(frame, y)
        if hasattr(fitted, "transform"):
            assert type(fitted.transform(frame)) is type(frame)
        else:
            assert fitted.predict(frame).shape == (40,)
