"""Features for any classifier: a row, and its hidden activations at learned initial weights."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from ._base import validation as checks
from ._base.environment import torch_device, without_caller_settings
from ._base.random_streams import seeds_of
from .coherence import coherence_of
from .fine_tuning import labels
from .initializer import PAPER_WEIGHTS, MMDInitializer
from .warm_start import (
    check_feature_names,
    fitted_or_cloned,
    is_fitted_initializer,
    is_initializer,
    seeded,
)

__all__ = ["LearnedFeatures"]

_WIDTHS = (256, 256)
_FIT_FIRST = (
    "fit LearnedFeatures on all rows first, and put FrozenEstimator(features) into the Pipeline"
)


def coherent_initializers(X: np.ndarray, **params: Any) -> list[MMDInitializer]:
    """Two initializers with these parameters: one has long walks, one short walks and corruption.

    The paper's terms have weight 0, because they would take most of the time and hardly change
    these features.
    """
    params = dict.fromkeys(PAPER_WEIGHTS, 0.0) | params
    short: Any = coherence_of("auto", X)
    short.set_params(walk_length=2.0, augmentation=nn.Dropout(0.3))
    return [MMDInitializer(coherence=each, **params) for each in ("auto", short)]


def _lengths(rows: np.ndarray) -> np.ndarray:
    """Euclidean lengths (n,) of rows (n, p), in double precision without a copy of the rows."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)))


def _flat(X: np.ndarray) -> np.ndarray:
    """Examples of any shape as rows (n, p)."""
    return X.reshape(len(X), -1)


def _learned(initializer: Any, name: str, X: np.ndarray, n_classes: int | None) -> Any:
    """The initializer, fitted to rows X."""
    # Only the number of classes in y affects an initializer.
    y = None if n_classes is None else range(n_classes)
    with checks.add_error_context(name):
        return initializer.fit(X, y)


def _hidden(initializer: Any, X: np.ndarray) -> np.ndarray:
    """Last hidden activations (n, n_units) at the initializer's theta0, scaled to length 1."""
    device = torch_device(initializer.device)
    activations = initializer._builder.hidden(initializer.theta0_, X, device)
    lengths = _lengths(activations)
    return np.asarray(activations / np.where(lengths > 0, lengths, 1.0)[:, None], np.float32)


class LearnedFeatures(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Adds learned features to each row; initializers learn them from unlabelled data.

    With :math:`h_k(x)` the last hidden activations at the weights of initializer k, and
    :math:`\ell` the mean length of the rows in ``fit``, a row x becomes

    .. math::

        \left( \frac{x}{\ell}, \frac{h_1(x)}{\lVert h_1(x) \rVert}, \frac{h_2(x)}{\lVert h_2(x)
        \rVert}, \dots \right).

    A linear model on these features still sees the row itself. If the learned features suit the
    labels, it needs few labels. Fit this on all rows, with and without a label. Then train any
    classifier on the labelled rows, in a Pipeline that begins with ``FrozenEstimator(features)``:
    the ``fit`` of the Pipeline does not fit the features again.

    Parameters
    ----------
    initializers : "auto" or list of MMDInitializer, default="auto"
        The initializers that give the features. A fitted one, or a FrozenEstimator of one, is used
        as it is. An unfitted one is cloned, and the clone is fitted in ``fit``. "auto": two
        perceptrons, both without the paper's terms. One is ``MMDInitializer(coherence="auto")``,
        the other has walks of 2 edges in the mean and dropout of the columns. They take flat
        rows. For images with three axes give initializers with a module.
    hidden_layer_sizes : int or sequence of int, default=(256, 256)
        Width of each hidden layer if `initializers` is "auto". Listed initializers have their own.
    with_row : bool, default=True
        Whether the row itself is among the features. An example with several axes is flattened.
    n_classes : int or "auto", default="auto"
        Number of classes of the tasks to come, for initializers whose own ``n_classes`` is "auto".
        "auto": the number of classes in the y of ``fit``, if it has labels.
    n_jobs : int, default=None
        Number of initializers that are fitted at the same time, as joblib's parameter.
    random_state : int, RandomState instance or None, default=None
        Seed of initializers whose own ``random_state`` is None. Each gets a different seed.

    Attributes
    ----------
    initializers_ : list of MMDInitializer
        The initializers, fitted.
    row_length_ : float
        Mean Euclidean length of the rows in ``fit``; 1 if all entries are 0.
    n_features_in_ : int
        Number of columns of X, or of values of an example.
    feature_names_in_ : ndarray of str
        Names of the columns, if X has them.

    See Also
    --------
    MMDInitializer : With ``output="hidden"`` it returns its own activations, not scaled.
    StackedStartsClassifier : Stacks networks, other classifiers and one on these features.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_mmdinit import LearnedFeatures, MMDInitializer
    >>> X, y = load_digits(return_X_y=True)
    >>> X = X / 16
    >>> init = MMDInitializer((64,), n_classes=10, coherence="auto", max_iter=15)
    >>> features = LearnedFeatures([init], random_state=0).fit(X)
    >>> features.transform(X).shape  # 64 pixels and 64 hidden units
    (1797, 128)
    >>> logistic = LogisticRegression(C=100, max_iter=1000)
    >>> clf = make_pipeline(FrozenEstimator(features), logistic).fit(X[:50], y[:50])
    >>> clf.score(X[50:], y[50:]) > logistic.fit(X[:50], y[:50]).score(X[50:], y[50:]) + 0.03
    True
    """

    _parameter_constraints: ClassVar = {
        "initializers": [list, tuple, checks.AUTO],
        "with_row": ["boolean"],
        "n_classes": [checks.integers(2), checks.AUTO],
    }

    def __init__(
        self,
        initializers: Any = "auto",
        *,
        hidden_layer_sizes: Any = _WIDTHS,
        with_row: bool = True,
        n_classes: Any = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.initializers = initializers
        self.hidden_layer_sizes = hidden_layer_sizes
        self.with_row = with_row
        self.n_classes = n_classes
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_clone__(self) -> Self:
        cloned: Self = super().__sklearn_clone__()
        if isinstance(self.initializers, list | tuple):
            cloned.initializers = fitted_or_cloned(self.initializers, cloned.initializers)
        return cloned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    @without_caller_settings()
    @checks.all_or_nothing
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the initializers that are not fitted, and the length of a row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows with or without a label, best standardized. Modules may take rows of another shape.
        y : array-like of shape (n_samples,), default=None
            Labels; -1 stands for none. Only the number of classes is used.

        Returns
        -------
        self : estimator
            The fitted transformer.
        """
        checks.check_parameters(self)
        widths = checks.check_widths(self.hidden_layer_sizes)
        (X,) = checks.examples_checked(self, X, reset=True, ensure_min_samples=2)
        y = labels.one_for_each_row(X, y)
        if checks.is_auto(self.initializers):
            if X.ndim > 2:
                raise ValueError(
                    f"initializers='auto' are perceptrons, and X has examples of shape "
                    f"{X.shape[1:]}; give X.reshape(len(X), -1), or initializers with a module"
                )
            given: Any = coherent_initializers(X, hidden_layer_sizes=widths)
        else:
            given = self.initializers
            if widths != _WIDTHS:
                raise ValueError(
                    f"hidden_layer_sizes={self.hidden_layer_sizes!r} is only for "
                    "initializers='auto', and initializers is a list; set it in each of them"
                )
        if not given:
            raise ValueError("initializers must hold at least one initializer, got []")
        n_classes = labels.n_classes_in(y) if checks.is_auto(self.n_classes) else self.n_classes
        seeds = seeds_of(self.random_state, len(given))
        names = [f"initializers[{i}]" for i in range(len(given))]
        # Check all of them before the first one learns.
        prepared = list(map(partial(self._prepared, X), given, names, seeds))
        to_learn = [i for i, each in enumerate(prepared) if not is_fitted_initializer(each)]
        if to_learn:
            labels.warn_if_few(X, y, _FIT_FIRST)
        learned = Parallel(n_jobs=self.n_jobs)(
            delayed(_learned)(prepared[i], names[i], X, n_classes) for i in to_learn
        )
        for i, initializer in zip(to_learn, learned, strict=True):
            prepared[i] = initializer
        self.initializers_ = prepared
        self.row_length_ = float(_lengths(_flat(X)).mean()) or 1.0
        return self

    def _prepared(self, X: np.ndarray, given: Any, name: str, seed: int) -> Any:
        """A fitted initializer, checked for rows X; or a clone of an unfitted one, ready to fit."""
        if not is_initializer(given):
            raise TypeError(f"{name} must be an initializer, fitted or not, got {given!r}")
        if is_fitted_initializer(given):
            shape = given.theta0_.architecture.input_shape
            if shape != X.shape[1:]:
                raise ValueError(
                    f"{name} was fitted to examples of shape {shape}, and X has examples of shape "
                    f"{X.shape[1:]}; pass examples of the first shape, or an unfitted initializer"
                )
            with checks.add_error_context(name):
                check_feature_names(given, getattr(self, "feature_names_in_", None))
                _hidden(given, X[:2])  # raises where no layer has hidden activations
            return given
        if isinstance(given, FrozenEstimator):
            raise NotFittedError(f"{name} is frozen and not fitted; call its fit first")
        initializer = seeded(given, seed).set_params(output="hidden")
        with checks.add_error_context(name):
            clone(initializer)._validated(X[:2], reset=True)
        return initializer

    @without_caller_settings()
    def transform(self, X: Any) -> np.ndarray:
        """Return the row divided by ``row_length_``, then each initializer's features.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows on the scale of those in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Float32. The features of each initializer have length 1, or 0 if all of them are 0.
        """
        check_is_fitted(self, "initializers_")
        shape = self.initializers_[0].theta0_.architecture.input_shape
        (X,) = checks.examples_checked(self, X, reset=False, shape=shape)
        row = [(_flat(X) / self.row_length_).astype(np.float32)] if self.with_row else []
        return np.concatenate([*row, *(_hidden(each, X) for each in self.initializers_)], axis=1)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that ``transform`` returns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of X's columns.

        Returns
        -------
        ndarray of str objects
            The row's own names, then ``learnedfeatures0_7`` for unit 7 of the first initializer.
        """
        check_is_fitted(self, "initializers_")
        names = list(super().get_feature_names_out(input_features)) if self.with_row else []
        prefix = type(self).__name__.lower()
        for i, each in enumerate(self.initializers_):
            last = each.to_module().get_submodule(each.theta0_.architecture.last_layer)
            names += [f"{prefix}{i}_{unit}" for unit in range(last.in_features)]
        return np.asarray(names, dtype=object)
