"""A classifier that fine-tunes a network: all of it but which network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from .._compute import all_or_nothing, torch_device
from .._export import write_onnx
from .attributes import NetAttributes
from .batches import Rows
from .labels import (
    given_classes,
    indices_of,
    is_labelled,
    learn_classes,
    warn_if_all_are_labelled,
)
from .net import Training, build_net, probabilities_module
from .parameters import RoutedParameters, check_parameters, plain
from .training_rows import TrainingRows
from .wanted import Wanted
from .warm_start import resolve

__all__ = ["BaseNetClassifier"]


class BaseNetClassifier(NetAttributes, ClassifierMixin, TrainingRows, RoutedParameters):
    """Fine-tunes a network from a theta0.

    A subclass names its parameters in ``__init__`` and says in ``_wanted`` which network it
    trains. ``_validated``, ``_inputs`` and ``_row_shape`` are for one that takes other rows than
    those of features.
    """

    optimizer: Any
    learning_rate_init: float
    batch_size: int
    max_iter: int
    memory: Any
    callbacks: list[Any] | None
    device: str
    random_state: Any
    verbose: int

    def _wanted(self, X: Any, seed: int) -> Wanted:
        """The network that X, ``classes_`` and the parameters ask for; `seed`: of its weights."""
        raise TypeError(f"{type(self).__name__} does not say which network it trains")

    def _check_parameters(self) -> None:
        check_parameters(self)

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, X_unlabelled: Any = None) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Inputs, numeric, best standardised. Sparse ones become dense a batch at a time. A
            module may take rows of another shape.
        y : array-like of shape (n_samples,)
            Labels, numbers or strings, of at least two classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weight of each row in the loss, at least 0. The loss of a mini-batch is the
            weighted mean over its rows, and the validation loss that over all validation rows.
            A row of weight 0 is in neither, but an initializer that is fitted here learns from
            it, and its label is one of ``classes_``.
        X_unlabelled : array-like or tuple of array-likes, default=None
            Further rows of shape (n_unlabelled, n_features), for an initializer that is fitted
            here: it learns from X and from these. With ``set_fit_request(X_unlabelled=True)``
            they reach it through a cross-validation, a search and a Pipeline. Give them as a
            tuple ``(X_unlabelled,)`` there: an array that has as many rows as X would be
            divided among the folds. The steps of a Pipeline transform them if its
            ``transform_input`` is ``["X_unlabelled"]``.

        Returns
        -------
        self : estimator
            The fitted classifier.

        Raises
        ------
        FileNotFoundError
            If ``warm_start_from`` names a file that does not exist.
        NotFittedError
            If the initializer has to be fitted and is not.
        TypeError
            If ``warm_start_from`` is none of the valid kinds.
        ValueError
            If a parameter or an argument is not valid, theta0 does not fit the data or the
            parameters, or the weights are no longer finite after training.
        """
        X_given = X
        self._check_parameters()
        X, y = self._validated(X, y, ensure_min_samples=2)
        labelled = is_labelled(y, self.unlabelled_label)
        if X_unlabelled is None:
            warn_if_all_are_labelled(labelled, self.unlabelled_label)
        self.classes_, indices = learn_classes(y[labelled])
        seeds = self._seeds()
        wanted = self._wanted(X, seeds[2])
        X = self._inputs(X)
        further = self._validated_unlabelled(X_unlabelled)
        rows = self._rows(X, indices, labelled, sample_weight, seeds[0])
        training = self._begun(wanted, X_given, X, further, seeds)
        training.run(rows, self.max_iter)
        return self._keep(training)

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one more epoch on the given rows, without validation.

        The first call starts where ``fit`` does, and an initializer that is not fitted learns
        from the rows of this call; later calls, and calls after ``fit``, go on from where the
        network and the optimiser are, with the parameters that they began with. ``max_iter``
        calls with the same rows equal ``fit`` with ``validation_split=None``, exactly. To
        callbacks each call is a training of its own.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,)
            Labels, members of ``classes``.
        classes : array-like of shape (n_classes,), default=None
            All labels there will ever be. Needed on the first call; later it may be left out.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weight of each row in the loss, as for ``fit``.

        Returns
        -------
        self : estimator
            The classifier.

        Raises
        ------
        ValueError
            As for ``fit``; and if ``classes`` is missing on the first call or changes later,
            y holds other labels, or ``class_weight`` is "balanced", for which all rows would
            have to be known.
        """
        X_given = X
        first = not hasattr(self, "net_")
        self._check_parameters()
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} is not for partial_fit, which does not know "
                "how many rows each class will have; pass a dict of weights"
            )
        X, y = self._validated(X, y, reset=first)
        known = None if first else self.classes_
        self.classes_ = given_classes(classes, known, self.unlabelled_label)
        labelled = is_labelled(y, self.unlabelled_label)
        indices = indices_of(y[labelled], self.classes_, "y", "classes")
        if first:
            seeds = self._seeds()
            wanted = self._wanted(X, seeds[2])
            X = self._inputs(X)
        rows = self._in_the_loss(X, indices, labelled, sample_weight)[0].to_train()
        training = self._begun(wanted, X_given, X, (), seeds) if first else self._training
        training.run(rows, n_epochs=1)
        return self._keep(training)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        proba : ndarray of float32 of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        check_is_fitted(self, "net_")
        X = self._validated(X, reset=False)
        return self.net_.predict_proba(Rows(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Members of ``classes_``.
        """
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the rows that have a label.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,)
            Labels; rows with ``unlabelled_label`` are left out.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row.

        Returns
        -------
        score : float
            Share of the rows whose label is predicted.

        Raises
        ------
        ValueError
            If no row has a label.
        """
        if self.unlabelled_label is None:
            return super().score(X, y, sample_weight)
        y, predicted = column_or_1d(y), self.predict(X)
        check_consistent_length(predicted, y, sample_weight)
        labelled = is_labelled(y, self.unlabelled_label)
        if sample_weight is not None:
            sample_weight = np.asarray(sample_weight)[labelled]
        return accuracy_score(y[labelled], predicted[labelled], sample_weight=sample_weight)

    def to_onnx(self, path: Any) -> None:
        """Write the network to an ONNX file, for any runtime.

        The file appears whole or not at all. Needs the extra ``onnx``.

        Parameters
        ----------
        path : str or path-like
            Where to write; must end in ``.onnx``. An existing file is replaced. Its one input
            ``X`` is float32 of shape (n_samples, n_features), prepared as for ``predict_proba``,
            its output ``probabilities`` what that returns, and its metadata ``classes`` are the
            labels of the columns, as JSON. A module's own input is of the shape that it was
            fitted on, and int64 where it takes whole numbers.

        Raises
        ------
        FileNotFoundError
            If there is no folder to write to.
        ImportError
            If a package of the extra is missing.
        ValueError
            If ``path`` ends otherwise or is a folder, or the module fixes the number of rows.
        """
        check_is_fitted(self, "net_")
        example = self._inputs(np.zeros((1, *self._row_shape())))
        write_onnx(path, probabilities_module(self.net_), example, self.classes_)

    def _row_shape(self) -> tuple[int, ...]:
        return (self.n_features_in_,)

    def _seeds(self) -> list[int]:
        """Seeds of the validation split, the batches, fresh weights and an initializer."""
        # Always the same draws in the same order: two fits that differ in warm_start_from
        # alone have the same split and batches, and can be compared pair by pair.
        draws = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=4)
        return list(map(int, draws))

    def _begun(
        self,
        wanted: Wanted,
        X_given: Any,
        X: Any,
        X_unlabelled: Sequence[Any],
        seeds: Sequence[int],
    ) -> Training:
        """A net at theta0, not yet trained."""
        _, batch_seed, _, initializer_seed = seeds
        start = resolve(
            self.warm_start_from,
            X_given,
            X,
            wanted,
            X_unlabelled=X_unlabelled,
            refit=plain(self.refit_initializer),
            memory=self.memory,
            seed=None if self.random_state is None else initializer_seed,
        )
        theta0 = start.theta0 or wanted.fresh()
        network = wanted.network(theta0)
        net = build_net(
            network,
            n_classes=len(self.classes_),
            row_size=math.prod(X.shape[1:]),
            optimizer=self.optimizer,
            learning_rate_init=self.learning_rate_init,
            batch_size=self.batch_size,
            callbacks=self.callbacks,
            skorch_params=self.skorch_params,
            device=torch_device(self.device),
            seed=batch_seed,
            verbose=self.verbose,
        )
        foreign = bool(self.callbacks or self.skorch_params)
        return Training(
            replace(start, theta0=theta0), network, net, seed=batch_seed, foreign=foreign
        )

    def _keep(self, training: Training) -> Self:
        """Fitted attributes."""
        net = training.net
        self._training = training  # for partial_fit
        self.net_ = net
        self.theta0_ = training.start.theta0
        self.initializer_ = training.start.initializer
        self.n_iter_ = len(net.history)
        best = dict(net.callbacks_)["best_epoch"]
        last_epoch = self.n_iter_ - 1 if self.n_iter_ else None
        self.best_epoch_ = last_epoch if best.epoch_ is None else best.epoch_
        self.best_validation_loss_ = None if best.epoch_ is None else float(best.loss_)
        return self
