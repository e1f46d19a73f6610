"""scikit-learn classifiers that train by skorch, and can start from pre-trained weights."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from . import warm_start
from ._base import module_factory as factories
from ._base import validation as checks
from ._base.environment import own_generators, torch_device, with_gradients, without_caller_settings
from ._base.random_streams import seeds_of
from ._base.validation import warn_if_another_scale
from .fine_tuning import labels, net
from .fine_tuning.head import fit_head_
from .theta0 import Theta0, arrays_of

__all__ = ["MLPClassifier", "NetClassifier"]

# Values of "auto" for each value of `fine_tuning`.
_PROTOCOLS: dict[str, dict[str, Any]] = {
    "head-first": {"learning_rate_init": 1e-4, "max_iter": 30, "validation_split": None},
    "paper": {"learning_rate_init": 1e-3, "max_iter": 10, "validation_split": 1 / 6},
}
_NESTED = "warm_start_from__"


class NetClassifier(factories.ExtraParamsMixin, ClassifierMixin, BaseEstimator):
    """Any PyTorch module as a classifier that can start from pre-trained weights.

    Trains all parameters that require a gradient by cross entropy. With a validation set it keeps
    the parameters of the epoch with the lowest validation loss. X may have any shape that the
    module takes: rows of features, images (n, 1, 28, 28), or, for an ``nn.Embedding``, whole
    numbers (n, length).

    Parameters
    ----------
    module : nn.Module or subclass of it, default=None
        The network, which returns logits (n, n_classes). If it returns a tuple in training mode, as
        networks with auxiliary outputs do, the first element is trained as the logits. An instance
        is copied and does not change; training without `warm_start_from` starts at its weights. A
        class is called with the ``module__<name>`` parameters. It also gets ``n_classes``, if it
        has this argument, and ``n_features``, the number of values of an example, if it has this
        argument without a default. Both can be given as ``module__<name>``. The network is
        converted to single precision. None: the module of the initializer in `warm_start_from`.
    warm_start_from : MMDInitializer, Theta0, str, path-like or None, default=None
        Where training starts:

        - None: from random weights, or from those of a module that is an instance.
        - an unfitted initializer: a clone of it pre-trains on the X given to ``fit``. In a
          cross-validation it does so again in each fold. Search its parameters as
          ``warm_start_from__<name>``. If its ``random_state`` is None, it gets a seed from that of
          the classifier.
        - a fitted initializer, a :class:`Theta0`, or the path of its ``.safetensors`` file: from
          these weights, which must have the module's class and shapes. Clones of this classifier
          share a fitted initializer, so that it is not fitted again in a cross-validation. Its
          parameters are not among those of the classifier. In a parameter grid write
          ``initializer.theta0_``, because a search would clone an initializer there, unfitted.
    fine_tuning : {"auto", "head-first", "paper"}, default="auto"
        How training begins. The "auto" of other parameters depends on it, as their entries say.

        - "head-first": linear probing, then fine-tuning. First a regularised logistic regression
          fits the classification layer. Then all layers are trained, at a low learning rate. If all
          layers were trained from the start, with few labels, the pre-trained features would
          change before the classification layer fits them [1]_. This layer must be a plain
          ``nn.Linear`` that is learned and shares no weights.
        - "paper": all layers at once, from the initial weights.
        - "auto": "head-first" if the initial weights are pre-trained and the classification layer
          can be fitted, else "paper".
    optimizer : {"adam", "adamw", "rmsprop", "sgd"} or type, default="adam"
        A name, or a subclass of :class:`torch.optim.Optimizer`. Its arguments are parameters here,
        such as ``optimizer__weight_decay``.
    learning_rate_init : float or "auto", default="auto"
        Learning rate. "auto": 0.001, with "head-first" 0.0001.
    batch_size : int, default=50
        Examples of a mini-batch.
    max_iter : int or "auto", default="auto"
        Number of epochs. "auto": 10, with "head-first" 30. With 0 epochs "head-first" ends after
        the logistic regression.
    validation_split : float, splitter, tuple, None or "auto", default="auto"
        The validation set, by which the best epoch is chosen. A number: this fraction of the
        examples of positive weight, drawn at random, stratified where possible. A scikit-learn
        splitter gives its first split of these examples. A tuple (X_val, y_val) gives other
        examples, which earlier steps of a Pipeline do not transform. None: no validation, and the
        last epoch is kept. "auto": 1/6, with "head-first" None.
    class_weight : None, "balanced" or dict, default=None
        Weight of each class in the training and validation loss. The weight of an example is
        multiplied by that of its class. A class that is not in the dict has weight 1. "balanced"
        gives each class the same total weight.
    device : str, default="auto"
        Any of PyTorch's devices; "auto" takes CUDA if it is available.
    random_state : int, RandomState instance or None, default=None
        Seed of random weights, of the validation split, of the order of examples, of the module's
        own draws, such as dropout, and of an initializer without ``random_state`` that is fitted
        here.
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
        The skorch classifier; it predicts indices into ``classes_``.
    module_ : torch.nn.Module
        The network.
    theta0_ : Theta0
        The initial weights.
    initializer_ : MMDInitializer or None
        The fitted initializer that ``theta0_`` is from, if `warm_start_from` is an initializer.
    history_ : skorch.history.History
        Skorch's record of each epoch.
    loss_curve_, validation_loss_curve_ : list of float
        Training loss and validation loss of each epoch; the latter is None without validation.
    best_epoch_ : int or None
        Epoch whose parameters are kept, counted from 0. Without validation this is the last epoch,
        and after 0 epochs None.
    best_validation_loss_ : float or None
        Validation loss of that epoch.
    n_iter_ : int
        Number of epochs.
    n_features_in_, input_shape_ : int, tuple of int
        Number of values of an example, and its shape.
    feature_names_in_ : ndarray of str
        Names of the features, if X has them.

    See Also
    --------
    MMDInitializer : Pre-trains on unlabelled data.
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
    }
    input_shape_: tuple[int, ...]

    def __init__(
        self,
        module: Any = None,
        *,
        warm_start_from: Any = None,
        fine_tuning: str = "auto",
        optimizer: Any = "adam",
        learning_rate_init: Any = "auto",
        batch_size: int = 50,
        max_iter: Any = "auto",
        validation_split: Any = "auto",
        class_weight: Any = None,
        device: str = "auto",
        random_state: Any = None,
        **keywords: Any,
    ) -> None:
        self.module = module
        self.warm_start_from = warm_start_from
        self.fine_tuning = fine_tuning
        self.optimizer = optimizer
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_split = validation_split
        self.class_weight = class_weight
        self.device = device
        self.random_state = random_state
        self._set_keywords(keywords)

    # Parameters

    def _is_keyword(self, name: str) -> bool:
        return name.startswith(factories.PREFIX) or net.is_skorch_param(name)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters; `deep` adds those of an unfitted initializer in `warm_start_from`."""
        params = super().get_params(deep)
        if warm_start.is_fitted(self.warm_start_from):  # a value, without parameters
            params = {name: v for name, v in params.items() if not name.startswith(_NESTED)}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of an unfitted initializer, of the module and of skorch."""
        nested = [name for name in params if name.startswith(_NESTED)]
        if nested and warm_start.is_fitted(params.get("warm_start_from", self.warm_start_from)):
            raise ValueError(
                f"{nested[0]} cannot be set, because the initializer in warm_start_from is fitted; "
                "pass clone(initializer)"
            )
        return super().set_params(**params)

    def __sklearn_clone__(self) -> Self:
        cloned: Self = super().__sklearn_clone__()
        if warm_start.is_fitted(self.warm_start_from):  # a clone of it would not be
            cloned.warm_start_from = self.warm_start_from
        return cloned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # Examples

    def _validated(self, X: Any, *y: Any, reset: bool = False, **options: Any) -> Any:
        """X (n, ...), dense or CSR, and y if given; after ``fit`` X is as the module takes it."""
        options |= {"reset": reset, "shape": None if reset else self.input_shape_}
        options["allow_nd"] = hasattr(self, "module")  # an MLP takes rows
        X, *given = checks.examples_checked(self, X, *y, accept_sparse="csr", **options)
        if reset:  # whether the module takes integers is not known yet
            self.input_shape_ = tuple(X.shape[1:])
        else:
            X = self._as_inputs(X)
        return (X, *given) if y else X

    @checks.cast_to_float32()
    def _as_inputs(self, X: Any) -> Any:
        """Examples as the module takes them: int64 or float32."""
        if not self._takes_integers:
            return X.astype(np.float32, copy=False)
        integers = X.astype(np.int64, copy=False)
        values, rounded = (X.data, integers.data) if issparse(X) else (X, integers)
        if (differs := values != rounded).any():
            bad = values[differs].flat[0]
            raise ValueError(f"X must hold whole numbers, as it did in fit, got {bad}")
        return integers

    def _rows(self, X: Any, y: np.ndarray, sample_weight: Any, split: Any, seed: int) -> net.Rows:
        """The examples to train on, with their validation set."""
        weights = labels.checked_weights(sample_weight, y)
        by_class = labels.class_weights(self.class_weight, self.classes_, y, weights)
        in_loss = labels.examples_in_loss(X, y, weights, by_class)
        if split is None:
            return net.Rows(*in_loss)
        if not isinstance(split, tuple):
            train, valid = labels.split_examples(split, *in_loss[:2], seed)
            valid_rows = net.Rows(*labels.take(in_loss, valid)) if len(valid) else None
            X, y, weights = labels.take(in_loss, train)
            return net.Rows(X, y, weights, valid_rows)
        with checks.add_error_context("in validation_split=(X_val, y_val)"):
            X_val, y_val = split
            X_val, y_val = self._validated(X_val, y_val)
            y_val = labels.encode(y_val, self.classes_)
            valid_rows = net.Rows(*labels.examples_in_loss(X_val, y_val, None, by_class))
        return net.Rows(*in_loss, valid_rows)

    # Training

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

    def _start(self, X_given: Any, X: Any, seed: int) -> warm_start.Start:
        """Where training starts; X is X_given, checked. Warns if X has the wrong scale."""
        source, n_classes = warm_start.source_of(self.warm_start_from), len(self.classes_)
        warm_start.check_columns(source, X_given)
        factory = self._factory(source, X.shape[1:], n_classes, seed)
        start = warm_start.start_from(source, factory, X, n_classes)
        if self.fine_tuning == "head-first" and not start.head:
            raise ValueError(
                "fine_tuning='head-first' needs logits from a trainable nn.Linear that shares no "
                f"weights; {start.architecture.module} has none: pass fine_tuning='paper'"
            )
        if start.must_learn:
            return start  # the initializer warns itself
        if not start.takes_integers:
            checks.warn_if_unscaled(X, getattr(self, "feature_names_in_", None))
        warn_if_another_scale(X, start.theta0.row_mean, start.theta0.row_spread)
        return start

    def _resolve(self, start: warm_start.Start) -> dict[str, Any]:
        """Set ``fine_tuning_``; the values of the parameters that may be "auto"."""
        self.fine_tuning_ = self.fine_tuning
        if checks.is_auto(self.fine_tuning):
            can_begin = start.source is not None and start.head
            self.fine_tuning_ = "head-first" if can_begin else "paper"
        return {
            name: default if checks.is_auto(getattr(self, name)) else getattr(self, name)
            for name, default in _PROTOCOLS[self.fine_tuning_].items()
        }

    @without_caller_settings()
    @with_gradients()
    @checks.all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train from the initial weights.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Examples, best standardized. A module may take examples of another shape.
        y : array-like of shape (n_samples,)
            Labels, numbers or strings, of at least two classes; -1 is a class like any other.
            To use examples without a label, fit the initializer on them first.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each example, at least 0. The training loss is the weighted mean over the
            examples of a mini-batch, the validation loss the weighted mean over the validation set.
            An example of weight 0 is in neither, but an initializer that is fitted here pre-trains
            on it.

        Returns
        -------
        self : estimator
            The fitted classifier.
        """
        X_given = X
        checks.check_parameters(self)
        device = torch_device(self.device)
        X, y = self._validated(X, y, reset=True, ensure_min_samples=2)
        self.classes_, y = labels.learn_classes(y)
        # Always four seeds: two fits that differ only in warm_start_from have the same validation
        # set and mini-batches.
        split_seed, seed, weights_seed, initializer_seed = seeds_of(self.random_state, 4)
        start = self._start(X_given, X, weights_seed)
        self._takes_integers = start.takes_integers and X.dtype.kind in "iu"
        X, choices = self._as_inputs(X), self._resolve(start)
        rows = self._rows(X, y, sample_weight, choices["validation_split"], split_seed)
        if start.must_learn:
            start = start.learned(X_given, y, initializer_seed)
        self.theta0_ = start.theta0
        self.initializer_ = None if isinstance(start.source, Theta0) else start.source
        with own_generators(seed):
            self.net_ = net.build_net(
                start.build,
                rows,
                {name: v for name, v in vars(self).items() if net.is_skorch_param(name)},
                optimizer=net.OPTIMIZERS.get(self.optimizer, self.optimizer),
                lr=choices["learning_rate_init"],
                batch_size=int(self.batch_size),
                device=device,
                seed=seed,
                classes=list(range(len(self.classes_))),
            )
            if self.fine_tuning_ == "head-first":
                fit_head_(self.net_, start.head, rows, split_seed)
            if choices["max_iter"]:
                net.train(self.net_, rows, choices["max_iter"])
        self.n_iter_ = len(self.net_.history_)
        # skorch counts epochs from 1, and 0 stands for none.
        best = getattr(dict(self.net_.callbacks_).get("best_epoch"), "best_epoch_", 0)
        epoch = best or self.n_iter_
        self.best_epoch_ = epoch - 1 if epoch else None
        loss = self.history_[best - 1, "valid_loss"] if best else None
        self.best_validation_loss_ = None if loss is None else float(loss)
        return self

    @without_caller_settings()
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n_samples, n_classes) in float32, in the order of ``classes_``.

        X is as ``fit`` takes it. Rounding depends on the other examples of X: it changes
        probabilities by up to 1e-5. Examples with values too large for the network raise an
        error.
        """
        check_is_fitted(self, "net_")
        probabilities = self.net_.predict_proba(net.Rows(self._validated(X)))
        if not np.isfinite(probabilities).all():
            raise checks.not_finite("the probabilities of X are")
        return probabilities

    def predict(self, X: Any) -> np.ndarray:
        """The most probable of ``classes_`` for each example of X."""
        indices = self.predict_proba(X).argmax(axis=1)  # first, because it checks for a fit
        return self.classes_[indices]

    # Attributes

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
        return [epoch["train_loss"] for epoch in self.history_ if "train_loss" in epoch]

    @property
    def validation_loss_curve_(self) -> list[float] | None:
        """Validation loss of each epoch, or None without validation."""
        losses = [epoch.get("valid_loss") for epoch in self.history_]
        return None if self.best_validation_loss_ is None else losses


class MLPClassifier(NetClassifier):
    """A multi-layer perceptron that can start from pre-trained weights.

    A :class:`NetClassifier` whose module is an :class:`MLP`. From random weights (Glorot uniform)
    the defaults are the fine-tuning protocol of [1]_; from pre-trained weights they are those of
    "head-first", which :class:`NetClassifier` explains.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=None
        Width of each hidden layer. None: those of `warm_start_from`, or (392, 392, 392) without
        one.
    warm_start_from, fine_tuning
        As :class:`NetClassifier` takes them.
    activation : str, default=None
        Activation of the hidden layers, as :class:`MLP` takes it. None: that of `warm_start_from`,
        or "relu" without one.
    optimizer, learning_rate_init, batch_size, max_iter
        As :class:`NetClassifier` takes them.
    validation_split, class_weight, device, random_state
        As :class:`NetClassifier` takes them.
    **keywords : dict
        Further arguments of :class:`skorch.NeuralNetClassifier`, such as ``callbacks``.

    Attributes
    ----------
    coefs_, intercepts_ : list of ndarray
        Weights of shape (n_in, n_out) and biases (n_out,) of each layer.
    n_features_in_, feature_names_in_, classes_, net_, module_, theta0_, initializer_
        As in :class:`NetClassifier`, and so are ``history_``, ``loss_curve_``, ``n_iter_``,
        ``fine_tuning_``, ``input_shape_``, ``validation_loss_curve_``, ``best_epoch_`` and
        ``best_validation_loss_``.

    See Also
    --------
    MMDInitializer : Pre-trains on unlabelled data.
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

    With 30 labels, first pre-train an initializer on all examples:

    >>> from sklearn_mmdinit import MMDInitializer
    >>> X = StandardScaler().fit_transform(X)
    >>> init = MMDInitializer((16,), n_classes=3, n_perturbations=16, max_iter=1, random_state=0)
    >>> clf = MLPClassifier(warm_start_from=init.fit(X), random_state=0)
    >>> clf.fit(X[::5], y[::5]).score(X, y) > 0.8
    True
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = None,
        *,
        warm_start_from: Any = None,
        fine_tuning: str = "auto",
        activation: str | None = None,
        optimizer: Any = "adam",
        learning_rate_init: Any = "auto",
        batch_size: int = 50,
        max_iter: Any = "auto",
        validation_split: Any = "auto",
        class_weight: Any = None,
        device: str = "auto",
        random_state: Any = None,
        **keywords: Any,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.warm_start_from = warm_start_from
        self.fine_tuning = fine_tuning
        self.activation = activation
        self.optimizer = optimizer
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_split = validation_split
        self.class_weight = class_weight
        self.device = device
        self.random_state = random_state
        self._set_keywords(keywords)

    def _is_keyword(self, name: str) -> bool:
        return net.is_skorch_param(name)

    def _factory(
        self, source: Any, shape: tuple[int, ...], n_classes: int, seed: int
    ) -> factories.ModuleFactory:
        chosen: dict[str, Any] = {}
        if self.hidden_layer_sizes is not None:
            chosen["hidden_layer_sizes"] = checks.check_widths(self.hidden_layer_sizes)
        if self.activation is not None:
            chosen["activation"] = self.activation
        return warm_start.mlp_factory(source, chosen, shape[0], n_classes, seed)

    def _weights(self) -> Theta0:
        """The current weights."""
        arrays = arrays_of(factories.uncompiled(self.module_))
        return Theta0(self.theta0_.architecture, arrays)

    @property
    def coefs_(self) -> list[np.ndarray]:
        """Weights (n_in, n_out) of each layer."""
        return self._weights().coefs

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """Biases (n_out,) of each layer."""
        return self._weights().intercepts
