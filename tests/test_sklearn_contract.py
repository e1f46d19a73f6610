"""scikit-learn's own checks of initializers and transforms, and how they are shown."""

import pytest
from sklearn.utils import estimator_html_repr
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_mmdinit import (
    Coherence,
    MMDInitializer,
    OrientedGradients,
    RandomLabelInitializer,
)


def estimators():
    small = {"max_iter": 1, "window": 2, "batch_size": 16}
    own = small | {"n_perturbations": 4}
    yield MMDInitializer((4, 3), coherence="auto", batch_norm=True, **own)
    yield MMDInitializer((4, 3), output="hidden", n_classes=3, **own)
    yield RandomLabelInitializer((4, 3), output="hidden", batch_norm=True, **small)
    yield OrientedGradients()


# Some of these checks bring values around 100.
@pytest.mark.filterwarnings("ignore:X is not scaled")
@parametrize_with_checks([*estimators()])
def test_scikit_learns_contract(estimator, check, monkeypatch):
    # Rows of any width, as these checks bring them, are images one pixel high.
    shape = "sklearn_mmdinit.transforms._image_shape"
    monkeypatch.setattr(shape, lambda X, asked: (1, 1, X.shape[1]))
    check(estimator)


def test_an_initializer_is_shown_as_html():
    html = estimator_html_repr(MMDInitializer(n_perturbations=7, coherence=Coherence()))
    assert all(part in html for part in ("MMDInitializer", "n_perturbations", "Coherence"))
    assert "href" not in html, "nor does it link to scikit-learn's pages"
