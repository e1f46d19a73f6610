"""scikit-learn's own checks of initializers and transforms, and how they are shown."""

import pytest
from sklearn.datasets import load_iris
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
