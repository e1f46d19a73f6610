"""scikit-learn classifiers that train by skorch, and can start from learned initial weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.optim import SGD

from . import warm_start
from ._base import module_factory as factories
from ._base import validation as checks
from ._base.environment import torch_device, without_caller_settings
from ._base.mlp import MLP, PERCEPTRON_DEFAULTS, checked_structure
from ._base.random_streams import seeds_of
from ._base.row_scale import warn_if_another_scale
from .export import sklearn_mlp
from .fine_tuning import labels, net
from .fine_tuning.head import SkipConnection, body_of, fit_head_
from .theta0 import Theta0, arrays_of

__all__ = ["MLPClassifier", "NetClassifier"]

# Values of "auto" for each value of `fine_tuning`.
_PROTOCOLS: dict[str, dict[str, Any]] = {
    "head-first": {"learning_rate_init": 1e-4, "max_iter": 30, "validation_split": None},
    "paper": {"learning_rate_init": 1e-3, "max_iter": 10, "validation_split": 1 / 6},
}


class PartlyLabelled(ClassifierMixin, BaseEstimator):
    """Base of classifiers whose rows may lack a label."""

    def predict(self, X: Any) -> np.ndarray:
        """The most probable of ``classes_`` for each row of X."""
        indices = self.predict_proba(X).argmax(axis=1)  # first, because it checks for a fit
        return self.classes_[indices]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the rows that have a label.

        Parameters
        ----------
        X, y, sample_weight
            As ``fit`` takes them; rows with ``unlabelled_label`` are left out.

        Returns
        -------
        score : float
            Share of the rows whose label is predicted; a ValueError if no row has a label.
        """
        predicted = self.predict(X)  # first, because it checks for a fit
        return labels.accuracy(y, predicted, sample_weight, self.unlabelled_label, self.classes_)

    def _check_parameters(self) -> None:
        """Raise an error that names the first parameter that is not valid."""
        labels.check_marker(self.unlabelled_label)
        checks.check_parameters(self)

    def _validated(self, X: Any, *y: Any, **options: Any) -> Any:
        """Checked X, dense or CSR, and y if given, as a tuple."""
        return checks.examples_checked(self, X, *y, accept_sparse="csr", **options)

    def _with_labels(self, X: Any, y: Any, **options: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        """X and y, checked, and which rows have a label, bool (n_samples,)."""
        y, missing = labels.replace_missing(y, self.unlabelled_label)
        X, y = self._validated(X, y, **options)
        return X, y, labels.is_labelled(y, self.unlabelled_label) & ~missing


class NetClassifier(factories.ExtraParamsMixin, PartlyLabelled):
    """Any PyTorch module as a classifier that can start from learned initial weights.

    Trains all parameters that require a gradient by cross entropy, and keeps those of the epoch
    with the lowest validation loss. X may have any shape that the module takes: rows of features,
    images (n, 1, 28, 28), or, for an ``nn.Embedding``, whole numbers (n, length).

    Parameters
    ----------
    module : nn.Module or subclass of it, default=None
        The network, which returns logits (n, n_classes). An instance is copied and does not
        change; "fresh weights" are then its weights. A class is called with the ``module__<name>``
        parameters. It also gets ``n_classes``, if it has this argument, and ``n_features``, the
        number of values of an example, if it has this argument without a default;
        ``module__n_classes`` and ``module__n_features`` replace these. The network is converted to
        single precision, unless its ``forward`` casts X to a type of its own. None: the module of
        the initializer in `warm_start_from`.
    warm_start_from : object, default="auto"
        Where training starts:

        - "auto": if the step before in a Pipeline is an initializer, from the theta0 that its
          output carries; else from fresh weights. If there is an initializer earlier in the
          Pipeline, and a step after it lost theta0, ``fit`` raises an error. Pass None to start
          from fresh weights there.
        - "pipeline": as "auto", but an X without theta0 is always an error. This also works in
          the worker processes of an ensemble, where "auto" cannot find the Pipeline.
        - None: from fresh weights.
        - an unfitted initializer: a clone of it learns theta0 from the X given to ``fit``. In a
          cross-validation it learns again in each fold. Search its parameters as
          ``warm_start_from__<name>``.
        - a fitted initializer, a Theta0, or the path of a ``.safetensors`` file: from that
          theta0, which must have the module's class and shapes. If it is for another number of
          classes, the last layer is fresh, with a warning. Cloning this classifier keeps the
          initializer fitted. In a parameter grid write ``FrozenEstimator(initializer)``, because
          scikit-learn un-fits the estimators of a grid.
    fine_tuning : {"auto", "head-first", "paper"}, default="auto"
        How training begins. "auto" also sets other parameters, as their entries below say.

        - "head-first": first a regularised logistic regression fits the last layer and, if there is
          one, the skip connection. Then all layers are trained, at a low learning rate. If all
          layers were trained from the start, with few labels, the learned features would change
          before the last layer fits them [1]_. The last layer must be linear, not frozen, and
          without a constraint such as spectral_norm.
        - "paper": all layers at once, from the initial weights.
        - "auto": "head-first" if the initial weights are learned and it can fit the last layer,
          else "paper".
    skip_connection : bool, default=False
        Whether a linear map of the input is added to the logits. The network can then use the row
        itself, even if the hidden layers have lost information. Recommended for tables.
    optimizer : {"adam", "adamw", "rmsprop", "sgd"} or type, default="adam"
        A name, or a subclass of :class:`torch.optim.Optimizer`. Its arguments are parameters here,
        such as ``optimizer__weight_decay``.
    learning_rate_init : float or "auto", default="auto"
        Learning rate. "auto": 0.001, with "head-first" 0.0001.
    batch_size : int, default=50
        Rows of a mini-batch.
    max_iter : int or "auto", default="auto"
        Number of epochs. "auto": 10, with "head-first" 30. With 0 epochs "head-first" ends after
        the logistic regression.
    validation_split : float, splitter, tuple, None or "auto", default="auto"
        The validation set, by which the best epoch is chosen. It is taken from the rows that have a
        label and a weight above 0. A number is a random fraction of them, stratified where
        possible. A scikit-learn splitter gives its first split. A tuple (X_val, y_val) gives other
        rows, which earlier steps of a Pipeline do not transform. None: no validation, and the last
        epoch is kept. "auto": 1/6, with "head-first" None.
    class_weight : None, "balanced" or dict, default=None
        Weight of each class in the training and validation loss. The weight of a row is multiplied
        by that of its class. A class that is not in the dict has weight 1. "balanced" gives each
        class the same total weight.
    unlabelled_label : int, float or str, default=None
        The value in y, such as -1, of rows without a label. These rows are not in the loss and not
        in ``score``, but an initializer that is fitted here learns from them. If this is NaN, None
        and pandas.NA in y have the same meaning. Estimators that encode labels first, such as
        VotingClassifier, make a class of these rows. Scorers given by name, such as
        ``scoring="accuracy"``, count these rows as errors or as a class.
    device : str, default="auto"
        Any of PyTorch's devices; "auto" takes CUDA if it is available.
    random_state : int, RandomState instance or None, default=None
        Seed of fresh weights, of the validation split, of the order of rows, of the module's own
        draws, such as dropout, and of an initializer without ``random_state`` that is fitted here.
    **keywords : dict
        ``module__<name>``: arguments of the class in `module`. All others are arguments of
        :class:`skorch.NeuralNetClassifier`, such as ``callbacks``, ``criterion``, ``verbose``
        (default 0; 1 prints a line an epoch), ``iterator_train`` and ``optimizer__<name>``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    fine_tuning_ : str
        "head-first" or "paper".
    net_ : skorch.NeuralNetClassifier
        The net, whose classes are indices of ``classes_``.
    module_ : torch.nn.Module
        The network.
    theta0_ : Theta0
        The initial weights.
    initializer_ : estimator or None
        The fitted initializer that ``theta0_`` is from, if one was passed.
    history_ : skorch.history.History
        Skorch's record of each epoch.
    loss_curve_, validation_loss_curve_ : list of float
        Training loss and validation loss of each epoch; None without validation.
    best_epoch_ : int or None
        Epoch whose parameters are kept, counted from 0. Without validation this is the last epoch.
    best_validation_loss_ : float or None
        Validation loss of that epoch.
    n_iter_ : int
        Number of completed epochs. An epoch that a callback ends early is not counted, although
        its steps changed the weights.
    n_features_in_, input_shape_ : int, tuple of int
        Number of values of an example, and its shape.
    feature_names_in_ : ndarray of str
        Names of the features, if X has them.

    See Also
    --------
    MMDInitializer : Learns theta0 from unlabelled data.
    MLPClassifier : The same with a multi-layer perceptron.

    References
    ----------
    .. [1] A. Kumar, A. Raghunathan, R. Jones, T. Ma and P. Liang, "Fine-Tuning can Distort
       Pretrained Features and Underperform Out-of-Distribution", ICLR 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import torch
    >>> from torch import nn
    >>> from sklearn_mmdinit import MMDInitializer, NetClassifier
    >>> images, y = load_digits().images[:400, None] / 16 - 0.3, load_digits().target[:400]
    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(
    ...     nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)
    ... )
    >>> init = MMDInitializer(module=net, n_perturbations=8, max_iter=1, random_state=0)
    >>> clf = NetClassifier(warm_start_from=init.fit(images), max_iter=20, random_state=0)
    >>> clf.fit(images[:300], y[:300]).score(images[300:], y[300:]) > 0.7
    True
    >>> clf.input_shape_
    (1, 8, 8)
    """

    _parameter_constraints: ClassVar = {
        "batch_size": [checks.integers(1)],
        "fine_tuning": [checks.one_of(["auto", *_PROTOCOLS])],
        "skip_connection": ["boolean"],
        "max_iter": [checks.integers(0), checks.AUTO],
        "learning_rate_init": [checks.POSITIVE, checks.AUTO],
        "optimizer": [checks.one_of(net.OPTIMIZERS), type],
        "validation_split": [
            checks.numbers(0, 1, closed="neither"),
            checks.has_methods("split"),
            tuple,
            None,
            checks.AUTO,
        ],
        "class_weight": [dict, checks.one_of(["balanced"]), None],
        "unlabelled_label": [Integral, Real, str, None],
    }
    input_shape_: tuple[int, ...]

    def __init__(
        self,
        module: Any = None,
        *,
        warm_start_from: Any = "auto",
        fine_tuning: str = "auto",
        skip_connection: bool = False,
        optimizer: Any = "adam",
        learning_rate_init: Any = "auto",
        batch_size: int = 50,
        max_iter: Any = "auto",
        validation_split: Any = "auto",
        class_weight: Any = None,
        unlabelled_label: Any = None,
        device: str = "auto",
        random_state: Any = None,
        **keywords: Any,
    ) -> None:
        self.module = module
        self.warm_start_from = warm_start_from
        self.fine_tuning = fine_tuning
        self.skip_connection = skip_connection
        self.optimizer = optimizer
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_split = validation_split
        self.class_weight = class_weight
        self.unlabelled_label = unlabelled_label
        self.device = device
        self.random_state = random_state
        self._set_keywords(keywords)

    def _is_keyword(self, name: str) -> bool:
        return name.startswith(factories.PREFIX) or net.is_skorch_param(name)

    def _skorch_params(self) -> dict[str, Any]:
        """Parameters that skorch gets under its own names."""
        return {name: value for name, value in vars(self).items() if net.is_skorch_param(name)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of the initializer, the module and skorch.

        A new value of ``warm_start_from__<name>`` replaces the initializer by an unfitted copy,
        unless ``<name>`` is ``random_state`` or ``verbose``.
        """
        prefix = "warm_start_from__"
        nested = {n.removeprefix(prefix): v for n, v in params.items() if n.startswith(prefix)}
        super().set_params(**{n: v for n, v in params.items() if not n.startswith(prefix)})
        if nested:
            if not hasattr(initializer := self.warm_start_from, "set_params"):
                name = prefix + min(nested)
                raise ValueError(f"{name!r} cannot be set: {initializer!r} is not an initializer")
            self.warm_start_from = warm_start.with_params(initializer, nested)
        return self

    def __sklearn_clone__(self) -> Self:
        cloned: Self = super().__sklearn_clone__()
        # A plain clone would un-fit the initializer, and each fold would fit it again.
        if warm_start.is_fitted_initializer(self.warm_start_from):
            cloned.warm_start_from = self.warm_start_from
        return cloned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        """Raise an error that names the first parameter that is not valid."""
        super()._check_parameters()
        net.check_skorch_params(self._skorch_params())

    def _validated(self, X: Any, *y: Any, reset: bool = False, **options: Any) -> Any:
        """X (n, ...) as float32, or as int64 if the module takes integers; and y if given."""
        options |= {"reset": reset, "shape": None if reset else self.input_shape_}
        X, *validated_y = super()._validated(X, *y, **options)
        if not reset:
            X = self._as_inputs(X)
        else:
            self.input_shape_ = tuple(X.shape[1:])
            # Whether the module takes integers is not known yet.
            X = X if X.dtype.kind in "iu" else X.astype(np.float32, copy=False)
        return (X, *validated_y) if y else X

    def _as_inputs(self, X: Any) -> Any:
        """Rows as the module takes them: int64 or float32."""
        if not self._takes_integers:
            return X.astype(np.float32, copy=False)
        integers = X.astype(np.int64, copy=False)
        values, rounded = (X.data, integers.data) if issparse(X) else (X, integers)
        if (differs := values != rounded).any():
            bad = values[differs].flat[0]
            raise ValueError(f"X must hold whole numbers, as it did in fit, got {bad}")
        return integers

    def _rows(
        self,
        X: Any,
        y: np.ndarray,
        labelled: np.ndarray,
        sample_weight: Any,
        split: Any = None,
        seed: int = 0,
    ) -> net.Rows:
        """The labelled rows to train on; `split` sets aside or gives validation rows."""
        weights = labels.validate_weights(sample_weight, labelled)
        by_class = labels.class_weights(self.class_weight, self.classes_, y, weights)
        X = X if labelled.all() else X[labelled]
        rows = labels.rows_in_loss(X, y, weights, by_class)
        if split is None:
            return net.Rows(*rows)
        if not isinstance(split, tuple):
            train, valid = labels.split_rows(split, *rows[:2], seed)
            if len(valid) == 0:
                return net.Rows(*rows)
            X, y, weights = labels.take(rows, train)
            return net.Rows(X, y, weights, net.Rows(*labels.take(rows, valid)))
        if len(split) != 2:
            raise ValueError(f"validation_split must be (X_val, y_val), got {len(split)} items")
        with checks.add_error_context("validation_split"):
            X, y, labelled = self._with_labels(*split)
            y = labels.encode(y[labelled], self.classes_, "y_val of validation_split", "y")
            valid_rows = labels.rows_in_loss(X[labelled], y, None, by_class)
        return net.Rows(*rows, net.Rows(*valid_rows))

    def _factory(
        self, source: Any, shape: tuple[int, ...], n_classes: int, seed: int
    ) -> factories.ModuleFactory:
        """The factory of the network; `source` gives its module if `module` is None."""
        keywords, n_features = factories.keywords_of(vars(self)), math.prod(shape)
        factories.check_module(self.module, keywords)
        if self.module is not None:
            keywords = factories.with_sizes(self.module, keywords, n_features, n_classes)
            return factories.ModuleFactory(self.module, keywords, seed)
        factory = warm_start.factory_of(source, n_features, n_classes, seed)
        if factory is None:
            raise ValueError(
                f"module is None, and warm_start_from={self.warm_start_from!r} has no module "
                "either; pass module"
            )
        return factory

    def _find_start(
        self, X_given: Any, X: Any, n_classes: int, names: np.ndarray | None, seed: int
    ) -> warm_start.Start:
        """Where training starts, for rows X with columns of these names; changes no attribute.

        `X_given` may carry theta0. Raises an error if a parameter does not suit the start, and
        warns if X is on a wrong scale.
        """
        source = warm_start.find_source(self.warm_start_from, X_given)
        factory = self._factory(source, X.shape[1:], n_classes, seed)
        start = warm_start.start_from(source, factory, X, n_classes, names)
        if self.fine_tuning == "head-first" and not start.head:
            raise ValueError(
                "fine_tuning='head-first' needs a module whose logits come from an nn.Linear that "
                "is not frozen and can take any weights; the logits of "
                f"{start.architecture.module} do not; pass fine_tuning='paper'"
            )
        if self.skip_connection and start.takes_integers and X.dtype.kind in "iu":
            raise ValueError(
                "skip_connection=True multiplies X by weights, but the module has an embedding "
                "layer and X holds its indices; pass skip_connection=False"
            )
        if start.must_learn or warm_start.attached_theta0(X_given) is not None:
            return start  # the initializer compares scales itself, in its `fit` or its `transform`
        if not start.takes_integers:
            checks.warn_if_unscaled(X, names)
        warn_if_another_scale(X, start.theta0.row_mean, start.theta0.row_spread)
        return start

    def _resolve(self, X_given: Any, X: Any) -> tuple[list[int], warm_start.Start]:
        """Seeds of the validation split, training, weights and an initializer; and the start.

        Sets `fine_tuning_`, and the values of the other parameters that are "auto".
        """
        # Always these four draws: two fits that differ only in warm_start_from have the same
        # split and mini-batches.
        seeds, names = seeds_of(self.random_state, 4), getattr(self, "feature_names_in_", None)
        start = self._find_start(X_given, X, len(self.classes_), names, seeds[2])
        self._takes_integers = start.takes_integers and X.dtype.kind in "iu"
        self.fine_tuning_ = self.fine_tuning
        if checks.is_auto(self.fine_tuning):
            is_learned = start.source is not None
            self.fine_tuning_ = "head-first" if is_learned and start.head else "paper"
        self._choices = {
            name: default if checks.is_auto(getattr(self, name)) else getattr(self, name)
            for name, default in _PROTOCOLS[self.fine_tuning_].items()
        }
        return seeds, start

    def _build_net(
        self,
        start: warm_start.Start,
        X: Any,
        X_unlabelled: Sequence[Any],
        rows: net.Rows,
        seeds: Sequence[int],
    ) -> None:
        """Make the net with the weights of `start`; an unfitted initializer learns them first."""
        make_net = partial(
            net.build_net,
            skorch_params=self._skorch_params(),
            optimizer=net.OPTIMIZERS.get(self.optimizer, self.optimizer),
            lr=self._choices["learning_rate_init"],
            batch_size=int(self.batch_size),
            device=torch_device(self.device),
            row_size=math.prod(self.input_shape_),
            seed=seeds[1],
            module_draws=not start.architecture.is_perceptron,
            classes=list(range(len(self.classes_))),
        )
        if start.must_learn:
            # Made only so that a wrong parameter of skorch raises before the pre-training.
            make_net(partial(start.build, self.skip_connection))
            start = start.learn(X, X_unlabelled, None if self.random_state is None else seeds[3])
        self.net_ = make_net(partial(start.build, self.skip_connection))
        self.theta0_ = start.theta0
        self.initializer_ = None if isinstance(start.source, Theta0) else start.source
        if self.fine_tuning_ == "head-first":
            fit_head_(self.net_, start.head, rows, seeds[0])

    def _train(self, rows: net.Rows, n_epochs: int) -> Self:
        """Train the net and set the fitted attributes."""
        self.net_.train(rows, n_epochs)
        self.n_iter_ = len(self.net_.history)
        # skorch counts epochs from 1, and 0 stands for none.
        best_epoch = dict(self.net_.callbacks_)["best_epoch"].best_epoch_
        epoch = (best_epoch or self.n_iter_) - 1
        self.best_epoch_ = epoch if self.n_iter_ else None
        loss = self.net_.history[epoch, "valid_loss"] if best_epoch else None
        self.best_validation_loss_ = None if loss is None else float(loss)
        return self

    @without_caller_settings()
    @checks.all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_unlabelled: Any = None,
        classes: Any = None,
    ) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Numbers, best standardized. Sparse rows become dense a mini-batch at a time. A module
            may take rows of another shape.
        y : array-like of shape (n_samples,)
            Labels, numbers or strings, of at least two classes.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Weight of each row, at least 0. The training loss is the weighted mean over the rows of
            a mini-batch, the validation loss the weighted mean over all validation rows. A row of
            weight 0 is in neither, but an initializer that is fitted here learns from it.
        X_unlabelled : array-like or tuple of array-likes, default=None
            More rows of shape (n_unlabelled, n_features), for an initializer that is fitted
            here. In a cross-validation give a tuple ``(X_unlabelled,)``: if an array has as
            many rows as X, scikit-learn divides it among the folds.
        classes : array-like of shape (n_classes,), default=None
            All classes, if y lacks some of them, or if one of them is a value such as -1, which
            often means no label. None: the classes in y.

        Returns
        -------
        self : estimator
            The fitted classifier.
        """
        X_given = X
        self._check_parameters()
        X, y, labelled = self._with_labels(X, y, reset=True, ensure_min_samples=2)
        labels.warn_if_unmarked(y, labelled, self.unlabelled_label, X_unlabelled, classes)
        self.classes_, indices = labels.learn_classes(y[labelled], classes, self.unlabelled_label)
        seeds, start = self._resolve(X_given, X)
        X = self._as_inputs(X)
        unlabelled = labels.validate_unlabelled(X_unlabelled, self._validated)
        if unlabelled and not start.must_learn:
            checks.warn_user("X_unlabelled is not used: no initializer is fitted here")
        if start.must_learn and labelled.all() and not unlabelled:
            labels.warn_if_few(X, y)
        split = self._choices["validation_split"]
        rows = self._rows(X, indices, labelled, sample_weight, split, seeds[0])
        self._build_net(start, X, unlabelled, rows, seeds)
        return self._train(rows, self._choices["max_iter"])

    @without_caller_settings()
    @checks.all_or_nothing
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one more epoch on the given rows, without validation.

        The first call starts where ``fit`` does. Later calls, and calls after ``fit``, go on from
        the present weights and optimizer, with the parameters of the first call; only
        ``class_weight`` and ``unlabelled_label`` are read anew. After ``max_iter`` calls with the
        same rows the result is exactly that of one ``fit`` with ``validation_split=None``. A
        learning rate schedule of skorch's LRScheduler goes on too. For other callbacks each call
        is a new training. ``class_weight`` may not be "balanced".

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels, members of ``classes``.
        classes : array-like of shape (n_classes,), default=None
            All classes that any call will have. The first call needs it.
        X, sample_weight
            As ``fit`` takes them.

        Returns
        -------
        self : estimator
            The classifier.
        """
        X_given = X
        first = not hasattr(self, "net_")
        self._check_parameters()
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"for partial_fit class_weight must be None or a dict, got {self.class_weight!r}, "
                "whose weights need all rows"
            )
        X, y, labelled = self._with_labels(X, y, reset=first)
        if first and classes is None:
            raise ValueError("classes must be passed in the first call of partial_fit")
        given = self.classes_ if classes is None else classes
        classes, indices = labels.learn_classes(y[labelled], given, self.unlabelled_label)
        if not (first or np.array_equal(classes, self.classes_)):
            raise ValueError(f"classes={given!r} are not those of the first call, {self.classes_}")
        self.classes_ = classes
        if first:
            seeds, start = self._resolve(X_given, X)
            X = self._as_inputs(X)
        rows = self._rows(X, indices, labelled, sample_weight)
        if first:
            self._build_net(start, X, (), rows, seeds)
        return self._train(rows, n_epochs=1)

    @without_caller_settings()
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n_samples, n_classes) in float32, in the order of ``classes_``.

        X is as ``fit`` takes it. Rounding depends on the other rows of X: it changes probabilities
        by up to 1e-5. Rows with values too large for the network raise a ValueError.
        """
        check_is_fitted(self, "net_")
        probabilities = self.net_.predict_proba(net.Rows(self._validated(X)))
        if (wrong := ~np.isfinite(probabilities).all(axis=1)).any():
            raise ValueError(
                f"the probabilities of {wrong.sum()} rows of X are not finite, such as row "
                f"{wrong.argmax()}: values are too large for the network; scale X as in fit"
            )
        return probabilities

    @property
    def module_(self) -> nn.Module:
        """The network."""
        check_is_fitted(self, "net_")
        return self.net_.module_

    @property
    def history_(self) -> Any:
        """Skorch's record of each epoch."""
        check_is_fitted(self, "net_")
        return self.net_.history_

    @property
    def loss_curve_(self) -> list[float]:
        """Training loss of each epoch."""
        return [epoch["train_loss"] for epoch in self.history_]

    @property
    def validation_loss_curve_(self) -> list[float] | None:
        """Validation loss of each epoch, or None without validation."""
        losses = [epoch.get("valid_loss") for epoch in self.history_]
        return None if self.best_validation_loss_ is None else losses


class MLPClassifier(NetClassifier):
    """A multi-layer perceptron that can start from learned initial weights.

    A :class:`NetClassifier` whose module is an :class:`MLP`. From fresh weights the defaults are
    the fine-tuning protocol of [1]_; from learned weights they are those of "head-first", which
    `fine_tuning` explains.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=None
        Width of each hidden layer. None: the initializer's, or (392, 392, 392) without one.
    activation : {"relu", "tanh", "gelu"}, default=None
        Activation of the hidden layers. None: the initializer's, or "relu" without one.
    batch_norm : bool, default=None
        Batch normalization before each activation. None: the initializer's, or False.
    init : {"xavier", "he"}, default="xavier"
        Fresh weights: Glorot uniform or Kaiming normal (fan-in).
    warm_start_from, fine_tuning, skip_connection, optimizer, learning_rate_init
        As :class:`NetClassifier` takes them.
    batch_size, max_iter, validation_split, class_weight, unlabelled_label, device, random_state
        As :class:`NetClassifier` takes them.
    **keywords : dict
        Further arguments of :class:`skorch.NeuralNetClassifier`, such as ``callbacks``.

    Attributes
    ----------
    coefs_, intercepts_ : list of ndarray
        Weights of shape (n_in, n_out) and biases (n_out,) of each layer.
    n_features_in_, feature_names_in_, classes_, net_, module_, theta0_, initializer_
        As in :class:`NetClassifier`, and so are ``history_``, ``loss_curve_``, ``n_iter_``,
        ``validation_loss_curve_``, ``best_epoch_`` and ``best_validation_loss_``.

    See Also
    --------
    MMDInitializer : Learns theta0 from unlabelled data.
    NetClassifier : The same with any module.

    References
    ----------
    .. [1] C. Lee and K. Cho, "Unsupervised Learning of Initialization in Deep Neural
       Networks via Maximum Mean Discrepancy", arXiv:2302.04369, 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn_mmdinit import MLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = make_pipeline(
    ...     StandardScaler(), MLPClassifier((32, 32), learning_rate_init=0.01, random_state=0)
    ... )
    >>> clf.fit(X, y).score(X, y) > 0.9
    True

    With 30 labels, an initializer learns from all rows:

    >>> import numpy as np
    >>> from sklearn_mmdinit import MMDInitializer
    >>> few = np.where(np.arange(150) % 5, -1, y)
    >>> init = MMDInitializer((16,), n_classes=3, n_perturbations=16, max_iter=1, random_state=0)
    >>> clf = MLPClassifier(warm_start_from=init, unlabelled_label=-1, random_state=0)
    >>> clf.fit(X, few).classes_
    array([0, 1, 2])

    The result as scikit-learn's own classifier:

    >>> np.allclose(clf.to_sklearn().predict_proba(X), clf.predict_proba(X), atol=1e-6)
    True
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = None,
        *,
        activation: str | None = None,
        batch_norm: bool | None = None,
        init: str = "xavier",
        warm_start_from: Any = "auto",
        fine_tuning: str = "auto",
        skip_connection: bool = False,
        optimizer: Any = "adam",
        learning_rate_init: Any = "auto",
        batch_size: int = 50,
        max_iter: Any = "auto",
        validation_split: Any = "auto",
        class_weight: Any = None,
        unlabelled_label: Any = None,
        device: str = "auto",
        random_state: Any = None,
        **keywords: Any,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.batch_norm = batch_norm
        self.init = init
        self.warm_start_from = warm_start_from
        self.fine_tuning = fine_tuning
        self.skip_connection = skip_connection
        self.optimizer = optimizer
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_split = validation_split
        self.class_weight = class_weight
        self.unlabelled_label = unlabelled_label
        self.device = device
        self.random_state = random_state
        self._set_keywords(keywords)

    def _is_keyword(self, name: str) -> bool:
        return net.is_skorch_param(name)

    def _factory(
        self, source: Any, shape: tuple[int, ...], n_classes: int, seed: int
    ) -> factories.ModuleFactory:
        if len(shape) != 1:
            n_axes = len(shape) + 1
            raise ValueError(f"Found array with dim {n_axes}, but MLPClassifier expects <= 2")
        sizes = {"n_features": shape[0], "n_classes": n_classes}
        of_source = {} if source is None else warm_start.perceptron_keywords(source, **sizes)
        chosen = {name: getattr(self, name) for name in PERCEPTRON_DEFAULTS}
        chosen = {name: value for name, value in chosen.items() if value is not None}
        keywords = checked_structure(**(PERCEPTRON_DEFAULTS | of_source | chosen | sizes))
        for name, value in of_source.items():
            if value != (needed := keywords[name]):
                has = f"{warm_start.name_of(source)} has {name}={value!r}"
                if name in sizes:
                    of = "X has" if name == "n_features" else "the classes are"
                    raise ValueError(f"{has}, but {of} {needed}")
                raise ValueError(
                    f"{has}, but this classifier asks for {name}={needed!r}: leave {name} out of "
                    "the classifier, or give it an unfitted initializer with this value; a search "
                    f"sets the value as warm_start_from__{name}"
                )
        return factories.ModuleFactory(MLP, keywords | {"init": str(self.init)}, seed)

    def _weights(self) -> Theta0:
        """The current weights."""
        arrays = arrays_of(body_of(self.module_))  # first, because it checks for a fit
        return Theta0(self.theta0_.architecture, arrays)

    @property
    def coefs_(self) -> list[np.ndarray]:
        """Weights (n_in, n_out) of each layer."""
        return self._weights().coefs

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """Biases (n_out,) of each layer."""
        return self._weights().intercepts

    def to_sklearn(self, **params: Any) -> Any:
        """The network as a fitted MLPClassifier of scikit-learn, with equal probabilities.

        Its ``partial_fit`` goes on from these weights, and so does its ``fit`` with
        ``warm_start=True`` if y holds each of the classes; its optimizer starts anew. Batch
        normalization is folded into the linear layers, with its running statistics. For two
        classes the single output is the difference of the two logits. scikit-learn has neither
        "gelu" nor another criterion than the cross entropy.

        Parameters
        ----------
        **params : object
            Parameters of scikit-learn's classifier, such as ``warm_start``, but not those of the
            network. By default ``learning_rate_init``, ``batch_size``, ``max_iter`` and
            ``random_state`` are those of this classifier, ``alpha`` is 0, and ``solver`` is "sgd"
            if `optimizer` is "sgd".

        Returns
        -------
        fitted : sklearn.neural_network.MLPClassifier
            Its weights are float64.
        """
        check_is_fitted(self, "net_")
        if not isinstance(self.net_.criterion_, nn.CrossEntropyLoss):
            raise ValueError(f"criterion must be the cross entropy, got {self.net_.criterion_}")
        skorch_params = self._skorch_params()
        if (function := skorch_params.get("predict_nonlinearity", "auto")) != "auto":
            raise ValueError(f"predict_nonlinearity must be 'auto', the softmax, got {function!r}")
        if isinstance(factories.uncompiled(self.module_), SkipConnection):
            raise ValueError(
                "the fitted network has a skip connection, and scikit-learn's network has none; "
                "fit with skip_connection=False"
            )
        defaults = {name: getattr(self, name) for name in ("batch_size", "random_state")}
        defaults["learning_rate_init"] = self._choices["learning_rate_init"]
        defaults |= {"alpha": 0.0, "max_iter": max(self._choices["max_iter"], 1)}
        if self.optimizer in ("sgd", SGD):
            momentum = skorch_params.get("optimizer__momentum", 0.0)
            nesterov = skorch_params.get("optimizer__nesterov", False)
            defaults |= {"solver": "sgd", "momentum": momentum, "nesterovs_momentum": nesterov}
        feature_names = getattr(self, "feature_names_in_", None)
        fitted = sklearn_mlp(self._weights(), self.classes_, feature_names, **(defaults | params))
        fitted.loss_curve_ = self.loss_curve_
        fitted.n_iter_ = self.n_iter_
        return fitted
