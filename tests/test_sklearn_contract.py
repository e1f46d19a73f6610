"""scikit-learn's own checks of initializers and transforms, and pages of all estimators."""

from email.message import Message
from importlib import metadata

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
    own = small | {"n_perturbations": 4}
    yield MMDInitializer((4, 3), coherence="auto", batch_norm=True, **own)
    yield MMDInitializer((4, 3), output="hidden", n_classes=3, **own)
    yield RandomLabelInitializer((4, 3), output="hidden", batch_norm=True, **small)
    yield OrientedGradients()


@parametrize_with_checks([*estimators()])
def test_scikit_learns_contract(estimator, check, monkeypatch):
    # Rows of any width, as these checks bring them, are images one pixel high.
    shape = "sklearn_mmdinit.transforms._image_shape"
    monkeypatch.setattr(shape, lambda X, asked: (1, 1, X.shape[1]))
    check(estimator)


def test_they_link_to_their_page_where_the_metadata_name_one(monkeypatch):
    installed = Message()
    monkeypatch.setattr(metadata, "metadata", lambda name: installed)
    installed["Project-URL"] = "Paper, https://papers.local"
    html = estimator_html_repr(MMDInitializer(coherence=Coherence()))
    assert "Coherence" in html
    assert "href" not in html, "nor do they link to scikit-learn's"
    installed["Project-URL"] = "Documentation, https://pages.local/stable/"
    plain = MMDInitializer, RandomLabelInitializer, MLPClassifier, Coherence, RandomAffine
    for estimator in (*(kind() for kind in plain), NetClassifier(Pooled), OrientedGradients()):
        page = f"generated/sklearn_mmdinit.{type(estimator).__name__}.html"
        assert f"https://pages.local/stable/{page}" in estimator_html_repr(estimator)
