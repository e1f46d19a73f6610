"""What the estimators that learn theta0 from unlabelled data have in common."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data

from .._compute import StepRandom, as_float32, check_float32, team, torch_device
from .._export import ToSklearn
from .._network import (
    ACTIVATIONS,
    INITS,
    Architecture,
    Theta0,
    module_from_theta0,
    tag,
    without_gain,
)
from .batches import Batches, RowBatches
from .checks import check_choice, check_finite, check_positive
from .loop import run_passes
from .schedule import Schedule
from .state import PretrainingState, initial_state
from .steps import Objective

__all__ = ["BaseInitializer"]

OUTPUTS = ("passthrough", "hidden")

# The draws of `score` come from step numbers that no training reaches.
_FIRST_SCORE_STEP = 1 << 31


def _is_width(size: Any) -> bool:
    whole = isinstance(size, int | np.integer) and not isinstance(size, bool | np.bool_)
    return whole and size >= 1


class _Hidden(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """The feature map: scikit-learn puts what it returns into the container of set_output."""

    def transform(self, X: Any) -> np.ndarray:
        module = module_from_theta0(self.theta0_, torch_device(self.device)).eval()
        with torch.no_grad():
            rows = torch.tensor(as_float32(_checked(self, X)))
            hidden: np.ndarray = module.hidden(rows.to(torch_device(self.device))).cpu().numpy()
        return hidden


def _checked(estimator: Any, X: Any) -> np.ndarray:
    return np.asarray(validate_data(estimator, X, reset=False, dtype="numeric"))


# auto_wrap_output_keys: a DataFrame cannot carry theta0, so the `transform` below is left as it
# is, and only that of _Hidden looks at set_output.
class BaseInitializer(ToSklearn, _Hidden, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Lifecycle of an initializer: validate, seed, pre-train, store.

    A subclass names its parameters in ``__init__``, checks those of its own in
    ``_check_own_params`` and builds what is minimised in ``_objective``.
    """

    hidden_layer_sizes: Any
    n_classes: int
    activation: str
    batch_norm: bool
    init: str
    learning_rate_init: Any
    batch_size: int
    max_iter: Any
    window: int
    tol: float | None
    n_iter_no_change: int
    output: str
    device: str
    random_state: Any
    verbose: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        hidden = self.output == "hidden"
        tags.transformer_tags.preserves_dtype = ["float32"] if hidden else ["float64", "float32"]
        return tags

    def _check_own_params(self) -> None:
        """Raise for parameters only the subclass has."""

    def _resolved(self, n_rows: int | None = None) -> Self:
        """The estimator with values in place of "auto": itself, or a copy.

        `n_rows` is None where the rows are not known yet, and values may be provisional.
        """
        return self

    def _objective(self) -> Objective:
        raise TypeError(f"{type(self).__name__} does not say what it minimises")

    def _batches(self, X: np.ndarray, seed: int) -> Batches:
        """The rows of each step."""
        return RowBatches(min(self.batch_size, len(X)))

    def _schedule(self) -> Schedule:
        """Learning rates, windows, early stop."""
        return Schedule(
            self.learning_rate_init,
            self.window,
            self.tol,
            self.n_iter_no_change,
        )

    def _finished(self, theta0: Theta0, X: np.ndarray, seed: int) -> Theta0:
        """What pre-training has learned, made ready to start from."""
        return theta0

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn theta0 from unlabelled rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled rows, at least two; standardised inputs are expected. A NumPy memory
            map larger than memory is read a window at a time.
        y : object, default=None
            Ignored, present by convention.

        Returns
        -------
        self : estimator
            Fitted.

        Raises
        ------
        ValueError
            If X or a parameter is not valid, or the loss is not finite in the first window.
        """
        X = self._validated(X, reset=True)
        return self._run(self._fresh_state(), X, self._resolved(len(X)).max_iter)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Train for one more pass.

        ``max_iter`` calls with one X equal ``fit``, exactly, unless `tol` ends the latter.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled rows, the same as before or new ones.
        y : object, default=None
            Ignored, present by convention.

        Returns
        -------
        self : estimator
            Fitted.

        Raises
        ------
        ValueError
            As for ``fit``.
        """
        first = not hasattr(self, "_state")
        X = self._validated(X, reset=first)
        if first:
            return self._run(self._fresh_state(), X, 1)
        # A copy, so that a pass that fails or is interrupted leaves no trace.
        state = replace(self._state, history=list(self._state.history))
        return self._run(state, X, 1)

    def transform(self, X: Any) -> np.ndarray:
        """Pass X on together with theta0, or map it to hidden activations.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        X_out : ndarray
            X itself in its own dtype, tagged with theta0 for an ``MLPClassifier`` behind
            this step (``output="passthrough"``), whatever ``set_output`` says: a DataFrame
            could not carry theta0. Or the activations of the last hidden layer at theta0,
            float32 of shape (n_samples, hidden_layer_sizes[-1]), in the container of
            ``set_output`` (``output="hidden"``).
        """
        check_is_fitted(self, "theta0_")
        check_choice("output", self.output, OUTPUTS)
        if self.output == "hidden":
            return super().transform(X)
        return tag(_checked(self, X), self.theta0_)

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Learn theta0 from X, then ``transform`` it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            As for ``fit``.
        y : object, default=None
            Ignored, present by convention.

        Returns
        -------
        X_out : ndarray
            As ``transform`` returns it.
        """
        return self.fit(X, y).transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that ``transform`` returns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns of X.

        Returns
        -------
        names : ndarray of str objects
            Those of X, or the class name in lower case and a number for hidden activations.
        """
        if self.output == "hidden":
            check_is_fitted(self, "theta0_")
            prefix = type(self).__name__.lower()
            width = self.theta0_.coefs[-1].shape[0]
            return np.asarray([f"{prefix}{i}" for i in range(width)], dtype=object)
        names: np.ndarray = super().get_feature_names_out(input_features)
        return names

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the mean loss at theta0, so that higher is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled rows, taken in mini-batches in their order; an incomplete last one is
            left out.
        y : object, default=None
            Ignored, present by convention.

        Returns
        -------
        score : float
            The same for every call: the perturbations are those of ``random_state``.
        """
        check_is_fitted(self, "theta0_")
        X = self._validated(X, reset=False)
        device = torch_device(self.device)
        # In training mode, as the loss is while it is learned, on a copy of the parameters.
        module = module_from_theta0(without_gain(self.theta0_), device).train()
        objective, random = self._objective(), StepRandom(self._state.seed, device)
        batches = self._batches(X, self._state.seed)
        n_batches = len(X) // batches.size
        total = 0.0
        rows_a_step = objective.rows_a_step(batches.n_rows)
        with torch.no_grad(), team(module.architecture.widths, rows_a_step):
            for i in range(n_batches):
                own = np.arange(i * batches.size, (i + 1) * batches.size)
                rows = batches.rows(own, _FIRST_SCORE_STEP + i)[0]
                batch = torch.from_numpy(X[rows].astype(np.float32)).to(device)
                total += float(objective(module, batch, random.at(_FIRST_SCORE_STEP + i))[0])
        return -total / n_batches

    def _validated(self, X: Any, reset: bool) -> np.ndarray:
        self._resolved()._check_params()
        # Two rows: with one there is no mini-batch over which classes could be spread.
        X = validate_data(
            self, X, reset=reset, dtype=[np.float32, np.float64], ensure_min_samples=2
        )
        check_float32(X)
        return np.asarray(X)

    def _check_params(self) -> None:
        sizes = np.atleast_1d(np.asarray(self.hidden_layer_sizes, dtype=object))
        if not all(_is_width(size) for size in sizes):
            raise ValueError(
                f"hidden_layer_sizes must be positive integers, got {self.hidden_layer_sizes!r}"
            )
        check_scalar(self.n_classes, "n_classes", Integral, min_val=2)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("init", self.init, INITS)
        check_choice("output", self.output, OUTPUTS)
        if not isinstance(self.batch_norm, bool | np.bool_):
            raise ValueError(f"batch_norm must be True or False, got {self.batch_norm!r}")
        check_positive(self, "batch_size", "window", "n_iter_no_change")
        if self.batch_norm and self.batch_size < 2:
            raise ValueError("batch_norm=True needs a batch_size of at least 2, got 1")
        check_scalar(self.max_iter, "max_iter", Integral, min_val=0)
        check_scalar(self.verbose, "verbose", Integral)
        check_finite(self, "learning_rate_init", zero=False)
        if self.tol is not None:
            check_finite(self, "tol")
        torch_device(self.device)
        self._check_own_params()

    def _fresh_state(self) -> PretrainingState:
        architecture = Architecture(
            n_features=self.n_features_in_,
            hidden_layer_sizes=tuple(int(w) for w in np.atleast_1d(self.hidden_layer_sizes)),
            n_classes=int(self.n_classes),
            activation=self.activation,
            batch_norm=bool(self.batch_norm),
        )
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return initial_state(architecture, self.init, seed)

    def _run(self, state: PretrainingState, X: np.ndarray, n_passes: int) -> Self:
        settings = self._resolved(len(X))
        objective, schedule = self._objective(), settings._schedule()
        state.begin(objective.term_names, settings.max_iter)
        run_passes(
            state,
            X,
            objective,
            self._batches(X, state.seed),
            schedule,
            n_passes,
            torch_device(self.device),
            self.verbose,
        )
        # Nothing is kept of a pass whose result cannot be.
        self.theta0_ = self._finished(state.result(schedule.keep), X, state.seed)
        self._state = state
        self.coefs_ = self.theta0_.coefs
        self.intercepts_ = self.theta0_.intercepts
        self.history_ = state.records(objective.term_names)
        self.loss_curve_ = [record["loss"] for record in self.history_]
        self.best_loss_ = min(self.loss_curve_, default=np.inf)
        self.n_iter_ = state.n_passes
        return self
