"""scikit-learn's own checks, on small instances of every estimator, and how they are shown."""

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


# A weight counts in the loss, not in which rows share a mini-batch or validate: a row of weight 2
# and two rows are the same on average alone. (A row of weight 0 and no row are the same.)
OF_MINI_BATCHES = {
    f"check_sample_weight_equivalence_on_{kind}_data": "rows are drawn into mini-batches"
    for kind in ("dense", "sparse")
}
OF_KEYWORDS = {"check_no_attributes_set_in_init": "which module__<name> there are, the class says"}


def estimators():
    """Estimators, each with the checks that it fails, and why; one that passes is an error."""
    small = {"max_iter": 1, "window": 2, "batch_size": 16}
    for variant in (
        {},
        {"output": "hidden", "batch_norm": True, "n_classes": 3},
        {"coherence": "auto", "batch_norm": True},
    ):
        yield MMDInitializer((4, 3), n_perturbations=4, **small, **variant), {}
    for variant in ({"batch_norm": True}, {"output": "hidden"}):
        yield RandomLabelInitializer((4, 3), **small, **variant), {}
    quick = {"max_iter": 20, "learning_rate_init": 0.05}
    yield MLPClassifier((8,), batch_norm=True, **quick), OF_MINI_BATCHES
    yield MLPClassifier((8,), validation_split=None, **quick), OF_MINI_BATCHES
    yield NetClassifier(Pooled, module__width=8, **quick), OF_MINI_BATCHES | OF_KEYWORDS
    yield OrientedGradients(), {}


EXPECTED = {repr(estimator): failures for estimator, failures in estimators()}


@parametrize_with_checks(
    [estimator for estimator, _ in estimators()],
    expected_failed_checks=lambda estimator: EXPECTED[repr(estimator)],
)
def test_scikit_learns_contract(estimator, check, monkeypatch):
    # Rows of any width, as these checks bring them, are images one pixel high.
    shape = "sklearn_mmdinit.transforms._image_shape"
    monkeypatch.setattr(shape, lambda X, asked: (1, 1, X.shape[1]))
    check(estimator)


@pytest.mark.parametrize("fitted", [False, True])
def test_they_are_shown_as_html(fitted):
    init = MMDInitializer((4, 3), n_classes=3, n_perturbations=4, max_iter=1)
    of_module = MMDInitializer(module=Pooled, module__n_classes=3, n_perturbations=4, max_iter=1)
    net = NetClassifier(warm_start_from=of_module, max_iter=1)
    for estimator in (MLPClassifier(warm_start_from=init, max_iter=1), init, net):
        if fitted:
            estimator.fit(*load_iris(return_X_y=True))
        html = estimator_html_repr(estimator)
        assert type(estimator).__name__ in html
        assert "n_perturbations" in html
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
