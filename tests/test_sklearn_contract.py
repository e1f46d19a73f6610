"""scikit-learn's own checks of estimators, on small instances of all four."""

from email.message import Message
from importlib import metadata

import pytest
from sklearn.datasets import load_iris
from sklearn.utils import estimator_html_repr
from sklearn.utils.estimator_checks import parametrize_with_checks

from module_zoo import AnyWidth
from sklearn_mmdinit import (
    Coherence,
    MLPClassifier,
    MMDInitializer,
    NetClassifier,
    OrientedGradients,
    RandomAffine,
    RandomLabelInitializer,
)


class Strips(OrientedGradients):
    """Rows of any width, as scikit-learn's checks bring them, are images one pixel high."""

    def _shape_of(self, X):
        return (1, 1, X.shape[1])


# A weight counts in the loss, not in which rows share a mini-batch or validate: a row of weight 2
# and two rows are the same on average alone. (A row of weight 0 and no row are the same.)
OF_MINI_BATCHES = {
    f"check_sample_weight_equivalence_on_{kind}_data": "rows are drawn into mini-batches"
    for kind in ("dense", "sparse")
}
OF_KEYWORDS = {
    "check_no_attributes_set_in_init": "which module__<name> there are, the module's class says"
}
# Check -> reason, for each class. One listed here that passes is an error.
EXPECTED_FAILURES = {
    MMDInitializer: {},
    RandomLabelInitializer: {},
    Strips: {},
    MLPClassifier: OF_MINI_BATCHES,
    NetClassifier: OF_MINI_BATCHES | OF_KEYWORDS,
}


def initializers():
    for kind, small in ((MMDInitializer, {"n_perturbations": 4}), (RandomLabelInitializer, {})):
        for variant in (
            {},
            {"output": "hidden"},
            {"batch_norm": True},
            {"n_classes": 3, "output": "hidden"},
            {"n_classes": 10, "batch_norm": True, "output": "hidden"},
        ):
            yield kind((4, 3), max_iter=1, window=2, batch_size=16, **small, **variant)
    for variant in ({}, {"output": "hidden"}, {"batch_norm": True, "n_classes": 10}):
        yield MMDInitializer((4, 3), coherence="auto", max_iter=1, n_perturbations=4, **variant)


def classifiers():
    small = {"max_iter": 20, "learning_rate_init": 0.05}
    yield MLPClassifier((8,), **small)
    yield MLPClassifier((8,), batch_norm=True, **small)
    sgd = {"optimizer": "sgd", "learning_rate_init": 0.1}
    yield MLPClassifier((8,), validation_split=None, **(small | sgd))
    yield NetClassifier(AnyWidth, module__width=8, **small)


@parametrize_with_checks(
    [*initializers(), *classifiers(), Strips()],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES[type(estimator)],
)
def test_scikit_learns_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("fitted", [False, True])
def test_they_are_shown_as_html(fitted):
    init = MMDInitializer((4, 3), n_classes=3, n_perturbations=4, max_iter=1)
    module_init = MMDInitializer(
        module=AnyWidth, module__n_classes=3, n_perturbations=4, max_iter=1
    )
    net = NetClassifier(warm_start_from=module_init, max_iter=1)
    for estimator in (MLPClassifier(warm_start_from=init, max_iter=1), init, net):
        if fitted:
            estimator.fit(*load_iris(return_X_y=True))
        html = estimator_html_repr(estimator)
        assert type(estimator).__name__ in html
        assert "n_perturbations" in html
        # Pages of scikit-learn's are not of it.
        assert 'href="https://scikit-learn.org' not in html
        assert 'href=""' not in html


OURS = [
    MMDInitializer,
    RandomLabelInitializer,
    MLPClassifier,
    NetClassifier,
    Coherence,
    OrientedGradients,
    RandomAffine,
]


def installed_with(*urls):
    message = Message()
    for url in urls:
        message["Project-URL"] = url
    return lambda name: message


@pytest.mark.parametrize("kind", OURS)
def test_they_link_to_their_page_where_the_metadata_name_one(kind, monkeypatch):
    urls = "Paper, https://papers.local", "Documentation, https://pages.local/stable/"
    monkeypatch.setattr(metadata, "metadata", installed_with(*urls))
    estimator = kind(module=AnyWidth) if kind is NetClassifier else kind()
    html = estimator_html_repr(estimator)
    assert f"https://pages.local/stable/generated/sklearn_mmdinit.{kind.__name__}.html" in html


def test_a_class_of_a_users_has_no_page_there(monkeypatch):
    urls = installed_with("Documentation, https://pages.local")
    monkeypatch.setattr(metadata, "metadata", urls)
    page = "https://pages.local/generated/sklearn_mmdinit.OrientedGradients.html"
    assert OrientedGradients()._get_doc_link() == page
    assert Strips()._get_doc_link() == ""


def test_without_such_a_page_there_is_no_link(monkeypatch):
    for installed in (installed_with(), installed_with("Paper, https://papers.local")):
        monkeypatch.setattr(metadata, "metadata", installed)
        assert Coherence()._get_doc_link() == ""

    def none(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "metadata", none)
    assert Coherence()._get_doc_link() == ""
