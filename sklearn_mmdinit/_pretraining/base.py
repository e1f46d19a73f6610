"""What the estimators that learn theta0 from unlabelled data have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.utils.data import DataLoader

from .._compute import StepRandom, all_or_nothing, check_float32, torch_device
from .._export import ToSklearn
from .._network import Architecture, Theta0, tag, without_gain
from .batches import Batches, RowBatches
from .blueprint import Blueprint, PerceptronBlueprint
from .checks import check_choice, check_common
from .feeds import Feed, LoaderFeed, RowFeed
from .hidden_output import HiddenOutput
from .loop import run_passes
from .rows import rows_checked
from .schedule import Schedule
from .state import PretrainingState, network_parameters
from .steps import Objective

__all__ = ["BaseInitializer"]

OUTPUTS = ("passthrough", "hidden")

# The draws of `score` come from step numbers that no training reaches.
_FIRST_SCORE_STEP = 1 << 31


# auto_wrap_output_keys: a DataFrame cannot carry theta0, so the `transform` below is left as it
# is, and only that of HiddenOutput looks at set_output.
class BaseInitializer(ToSklearn, HiddenOutput, auto_wrap_output_keys=None):  # type: ignore[call-arg]
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

    def _batches(self, X: np.ndarray, state: PretrainingState) -> Batches:
        """The rows of each step."""
        return RowBatches(min(self.batch_size, len(X)))

    def _rows(self, X: Any, *, reset: bool, **checks: Any) -> np.ndarray:
        """The rows of X, checked."""
        return rows_checked(self, X, reset=reset, **checks)

    def _new_blueprint(self, X: np.ndarray, seed: int) -> Blueprint:
        """How networks for rows like these are made."""
        architecture = Architecture(
            n_features=self.n_features_in_,
            hidden_layer_sizes=tuple(int(w) for w in np.atleast_1d(self.hidden_layer_sizes)),
            n_classes=int(self.n_classes),
            activation=self.activation,
            batch_norm=bool(self.batch_norm),
        )
        return PerceptronBlueprint(architecture, self.init, seed)

    def _feed(self, X: np.ndarray, state: PretrainingState, blueprint: Blueprint) -> Feed:
        """The mini-batches of the passes over rows."""
        return RowFeed(X, self._batches(X, state), state.seed, blueprint.examples)

    def _schedule(self) -> Schedule:
        """Learning rates, windows, early stop."""
        return Schedule(self.learning_rate_init, self.window, self.tol, self.n_iter_no_change)

    def _finished(self, theta0: Theta0, X: np.ndarray, seed: int, blueprint: Blueprint) -> Theta0:
        """What pre-training has learned, made ready to start from."""
        return theta0

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn theta0 from unlabelled rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled rows, at least two; standardised inputs are expected. A NumPy memory
            map larger than memory is read a window at a time. A module may take rows of
            another shape.
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
        return self._run(*self._begun(X), X, self._resolved(len(X)).max_iter)

    @all_or_nothing
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
            As for ``fit``; and if the loss has other terms than before, or the network would
            be another one.
        """
        first = not hasattr(self, "_state")
        X = self._validated(X, reset=first)
        if first:
            return self._run(*self._begun(X), X, 1, stop=False)
        # A copy, so that a pass that fails or is interrupted leaves no trace.
        state = replace(self._state, history=list(self._state.history))
        return self._run(self._blueprint, state, X, 1, stop=False)

    def transform(self, X: Any) -> np.ndarray:
        """Pass X on together with theta0, or map it to hidden activations.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        X_out : ndarray
            X itself in its own dtype, tagged with theta0 for the classifier right behind
            this step (``output="passthrough"``), whatever ``set_output`` says: a DataFrame
            could not carry theta0. Or the activations of the last hidden layer at theta0,
            float32 of shape (n_samples, hidden_layer_sizes[-1]), in the container of
            ``set_output`` (``output="hidden"``).
        """
        check_is_fitted(self, "theta0_")
        check_choice("output", self.output, OUTPUTS)
        if self.output == "hidden":
            return super().transform(X)
        return tag(self._rows(X, reset=False, dtype="numeric"), self.theta0_)

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
            width = self._blueprint.hidden_width(self.theta0_)
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
        network = self._blueprint.network(without_gain(self.theta0_), device)
        objective, random = self._objective(), StepRandom(self._state.seed, device)
        batches = self._batches(X, self._state)
        n_batches = len(X) // batches.size
        total = 0.0
        n_rows = objective.rows_a_step(batches.n_rows)
        with torch.no_grad(), self._blueprint.threads(n_rows, device):
            for i in range(n_batches):
                own = np.arange(i * batches.size, (i + 1) * batches.size)
                rows = batches.gathered(X, own, _FIRST_SCORE_STEP + i)[0]
                batch = self._blueprint.examples(rows).to(device)
                total += float(objective(network, batch, random.at(_FIRST_SCORE_STEP + i))[0])
        return -total / n_batches

    def to_module(self) -> nn.Module:
        """A fresh PyTorch module that starts at theta0.

        Called without arguments it gives a new one each time, so that it can stand for a class:
        ``skorch.NeuralNetClassifier(init.to_module)``.

        Returns
        -------
        module : nn.Module
            On the CPU; it returns logits.
        """
        check_is_fitted(self, "theta0_")
        return self._blueprint.module(self.theta0_)

    @property
    def coefs_(self) -> list[np.ndarray]:
        """Weights (n_in, n_out) of each layer."""
        check_is_fitted(self, "theta0_")
        return self.theta0_.coefs

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """Biases (n_out,) of each layer."""
        check_is_fitted(self, "theta0_")
        return self.theta0_.intercepts

    def _validated(self, X: Any, reset: bool) -> np.ndarray:
        self._resolved()._check_params()
        # Two rows: with one there is no mini-batch over which classes could be spread.
        X = self._rows(X, reset=reset, dtype=[np.float32, np.float64], ensure_min_samples=2)
        check_float32(X)
        return X

    def _check_params(self) -> None:
        check_common(self)
        check_choice("output", self.output, OUTPUTS)
        torch_device(self.device)
        self._check_own_params()

    def _begun(self, X: np.ndarray) -> tuple[Blueprint, PretrainingState]:
        """How networks are made, and fresh random weights."""
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        blueprint = self._new_blueprint(X, seed)
        return blueprint, PretrainingState(seed, blueprint.fresh())

    def _fit_loader(
        self, loader: DataLoader[Any], opened: Iterable[Any], first: np.ndarray
    ) -> Self:
        """Fit on a DataLoader's mini-batches; the first pass is opened, and its first one known."""
        first = self._validated(first, reset=True)
        blueprint, state = self._begun(first)
        feed = LoaderFeed(loader, opened, len(first), blueprint.examples)
        return self._run(blueprint, state, first, self._resolved(len(first)).max_iter, feed)

    def _run(
        self,
        blueprint: Blueprint,
        state: PretrainingState,
        X: np.ndarray,
        n_passes: int,
        feed: Feed | None = None,
        stop: bool = True,
    ) -> Self:
        settings = self._resolved(len(X))
        objective, schedule = self._objective(), settings._schedule()
        schedule = schedule if stop else replace(schedule, tol=None)
        state.begin(objective.term_names, settings.max_iter, network_parameters(self))
        run_passes(
            state,
            feed or self._feed(X, state, blueprint),
            blueprint,
            objective,
            schedule,
            n_passes,
            torch_device(self.device),
            self.verbose,
        )
        # Nothing is kept of a pass whose result cannot be.
        self.theta0_ = self._finished(state.result(schedule.keep), X, state.seed, blueprint)
        self._state, self._blueprint = state, blueprint
        self.history_ = state.records(objective.term_names)
        self.loss_curve_ = [record["loss"] for record in self.history_]
        self.best_loss_ = min(self.loss_curve_, default=np.inf)
        self.n_iter_ = state.n_passes
        return self
