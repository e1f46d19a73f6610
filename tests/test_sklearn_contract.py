"""scikit-learn's own checks of initializers and transforms, and pages of all estimators."""

from email.message import Message
from importlib import metadata

import pytest
from sklearn.datasets import load_iris
from sklearn.utils import estimator_html_repr
from sklearn.utils.estimator_checks import parametrize_with_checks

from nets import Pooled
from sklearn_mmdinit import (
    Coherence,
    MLPClassifier,
    MMDInitializer,
    NetClassifier,
    OrientedGradients,
    RandomAffine,
    RandomLabelInitializer,
)


def estimators():
    small = {"max_iter": 1, "window": 2, "batch_size": 16}
    for variant in (
        {},
        {"output": "hidden"},
        {"output": "hidden", "batch_norm": True, "n_classes": 3},
        {"coherence": "auto", "batch_norm": True},
    ):
        yield MMDInitializer((4, 3), n_perturbations=4, **small, **variant)
    for variant in ({"batch_norm": True}, {"output": "hidden"}):
        yield RandomLabelInitializer((4, 3), **small, **variant)
    yield OrientedGradients()


@parametrize_with_checks([*estimators()])
def test_scikit_learns_contract(estimator, check, monkeypatch):
    # Rows of any width, as these checks bring them, are images one pixel high.
    shape = "sklearn_mmdinit.transforms._image_shape"
    monkeypatch.setattr(shape, lambda X, asked: (1, 1, X.shape[1]))
    check(estimator)


@pytest.mark.parametrize("fitted", [False, True])
def test_an_initializer_is_shown_as_html(fitted):
    init = MMDInitializer((4, 3), coherence=Coherence(walk_length=3), n_perturbations=4, max_iter=1)
    html = estimator_html_repr(init.fit(load_iris().data) if fitted else init)
    assert all(part in html for part in ("MMDInitializer", "n_perturbations", "Coherence"))
    # Pages of scikit-learn's are not of it.
    assert 'href="https://scikit-learn.org' not in html
    assert 'href=""' not in html


def installed_with(*urls):
    message = Message()
    for url in urls:
        message["Project-URL"] = url
    return lambda name: message


def test_they_link_to_their_page_where_the_metadata_name_one(monkeypatch):
    urls = "Paper, https://papers.local", "Documentation, https://pages.local/stable/"
    monkeypatch.setattr(metadata, "metadata", installed_with(*urls))
    plain = MMDInitializer, RandomLabelInitializer, MLPClassifier, Coherence, RandomAffine
    for estimator in (*(kind() for kind in plain), NetClassifier(Pooled), OrientedGradients()):
        page = f"generated/sklearn_mmdinit.{type(estimator).__name__}.html"
        assert f"https://pages.local/stable/{page}" in estimator_html_repr(estimator)

    class Own(Coherence):
        """A user's."""

    assert Own()._get_doc_link() == "", "it has no page there"


def test_without_such_a_page_there_is_no_link(monkeypatch):
    for installed in (installed_with(), installed_with("Paper, https://papers.local")):
        monkeypatch.setattr(metadata, "metadata", installed)
        assert Coherence()._get_doc_link() == ""

    def none(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "metadata", none)
    assert Coherence()._get_doc_link() == ""
