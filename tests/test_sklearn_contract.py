"""scikit-learn's own checks of estimators, on small instances of all three."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_mmdinit import MLPClassifier, MMDInitializer, RandomLabelInitializer

# Check -> reason, for each class. None is known to fail; one listed here that passes is an
# error. Some checks skip themselves where an optional package, such as pandas, is missing.
EXPECTED_FAILURES = {
    MMDInitializer: {},
    RandomLabelInitializer: {},
    MLPClassifier: {},
}


def initializers():
    for kind, small in ((MMDInitializer, {"n_perturbations": 4}), (RandomLabelInitializer, {})):
        for variant in (
            {},
            {"output": "hidden"},
            {"batch_norm": True},
            {"n_classes": 3, "output": "hidden"},
        ):
            yield kind((4, 3), max_iter=1, window=2, batch_size=16, **small, **variant)
    for variant in ({}, {"output": "hidden"}, {"batch_norm": True}):
        yield MMDInitializer((4, 3), coherence="auto", max_iter=1, n_perturbations=4, **variant)


def classifiers():
    small = {"max_iter": 20, "learning_rate_init": 0.05, "batch_size": 15}
    yield MLPClassifier((8,), **small)
    yield MLPClassifier((8,), batch_norm=True, **small)
    sgd = {"optimizer": "sgd", "learning_rate_init": 0.3}
    yield MLPClassifier((8,), validation_split=None, **(small | sgd))


@parametrize_with_checks(
    [*initializers(), *classifiers()],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES[type(estimator)],
)
def test_scikit_learns_contract(estimator, check):
    check(estimator)
