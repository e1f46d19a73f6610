"""scikit-learn's own checks of initializers and transforms, and pages of all estimators."""

from email.message import Message
from importlib import metadata

import pytest
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


# Check -> reason, for each class. One listed here that passes is an error.
EXPECTED_FAILURES = {
    MMDInitializer: {},
    RandomLabelInitializer: {},
    Strips: {},
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


@parametrize_with_checks(
    [*initializers(), Strips()],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES[type(estimator)],
)
def test_scikit_learns_contract(estimator, check):
    check(estimator)


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
