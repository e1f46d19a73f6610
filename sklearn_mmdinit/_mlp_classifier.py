"""MLPClassifier: skorch inside, scikit-learn outside, and a start that was learned."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ._compute import torch_device
from ._fine_tuning import (
    NetAttributes,
    RoutedParameters,
    Rows,
    Wanted,
    build_net,
    check_parameters,
    fresh_theta0,
    indices_of,
    layer_sizes,
    learn_classes,
    resolve,
    split_rows,
    train,
)

__all__ = ["MLPClassifier"]


class MLPClassifier(NetAttributes, ClassifierMixin, RoutedParameters):
    """A multi-layer perceptron that can start from learned initial weights.

    Trains all parameters by cross entropy, from fresh weights or from the theta0 that an
    :class:`MMDInitializer` learned from unlabelled data, and keeps the parameters of the epoch
    with the lowest validation loss. The defaults are the fine-tuning protocol of [1]_. The
    training itself is a :class:`skorch.NeuralNetClassifier`, at hand as ``net_``.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=None
        Width of each hidden layer. None: the initializer's, or (392, 392, 392) without one.
    activation : {"relu", "tanh", "gelu"}, default=None
        None: the initializer's, or "relu" without one.
    batch_norm : bool, default=None
        Batch normalisation before each activation. None: the initializer's, or False.
    init : {"xavier", "he"}, default="xavier"
        Fresh weights, where nothing was learned: Glorot uniform or Kaiming normal (fan-in).
    warm_start_from : object, default="auto"
        Where training starts:

        - "auto": from the theta0 that X carries when the step before this one in a Pipeline
          is an initializer; from fresh weights when X is any other array.
        - "pipeline": as "auto", but an X without theta0 is an error.
        - None: from fresh weights.
        - an unfitted initializer: a clone of it learns theta0 from the X given to ``fit``,
          so inside each fold of a cross-validation. Its parameters can be searched as
          ``warm_start_from__<name>``.
        - a fitted initializer: from its theta0. It stays fitted when this classifier is
          cloned. Setting one of its parameters puts an unfitted copy in its place. As a value
          of a parameter grid write ``FrozenEstimator(initializer)``, for scikit-learn
          un-fits the estimators that stand in a grid.
        - a fitted initializer in a :class:`sklearn.frozen.FrozenEstimator`, a Theta0, a dict
          of arrays named as in ``Architecture.array_shapes()``, or the path of a
          ``.safetensors`` file: as it is.
    refit_initializer : {"auto", True, False}, default="auto"
        Whether the initializer is fitted in ``fit``: when it is not fitted yet, always, or
        never.
    optimizer : {"adam", "adamw", "rmsprop", "sgd"} or type, default="adam"
        Or a subclass of :class:`torch.optim.Optimizer`. Its arguments are parameters here:
        ``optimizer__weight_decay=1e-4``.
    learning_rate_init : float, default=1e-3
        Learning rate.
    batch_size : int, default=50
        Rows a step.
    max_iter : int, default=10
        Epochs. With 0 the network stays where it starts.
    validation_split : float, splitter, tuple or None, default=1/6
        Rows that choose the best epoch: a random fraction, stratified where possible; the
        first split of a scikit-learn splitter; a tuple (X_val, y_val), which the earlier
        steps of a Pipeline do not transform; or None, which keeps the last epoch.
    memory : None, str or joblib.Memory, default=None
        Cache of fitted initializers, so that candidates of a search that differ only in
        other parameters share one. Needs an int as ``random_state``.
    callbacks : list, default=None
        Skorch callbacks, or pairs of a name and one.
    skorch_params : dict, default=None
        Further arguments of :class:`skorch.NeuralNetClassifier`. ``set_params`` puts
        ``optimizer__*``, ``criterion__*``, ``iterator_train__*``, ``iterator_valid__*`` and
        ``callbacks__*`` here, so that a search can name them.
    device : str, default="auto"
        Any of PyTorch's devices; "auto" takes CUDA where there is one.
    random_state : int, RandomState instance or None, default=None
        Of fresh weights, the validation split, the order of the rows, and an initializer
        that is fitted here and whose own ``random_state`` is None.
    verbose : int, default=0
        1 prints skorch's table, a line an epoch.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    net_ : skorch.NeuralNetClassifier
        The net, which knows the classes by their index.
    module_ : torch.nn.Module
        The network.
    theta0_ : Theta0
        Where training started.
    initializer_ : estimator or None
        The fitted initializer that theta0 came from, where one was passed.
    history_ : skorch.history.History
        Skorch's record of each epoch.
    loss_curve_ : list of float
        Training loss an epoch.
    validation_loss_curve_ : list of float or None
        Validation loss an epoch.
    best_epoch_ : int or None
        Epoch whose parameters are kept, from 0; the last one without validation.
    best_validation_loss_ : float or None
        Its validation loss.
    n_iter_ : int
        Epochs run.
    coefs_, intercepts_ : list of ndarray
        Weights of shape (n_in, n_out) and biases (n_out,), a layer each.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str of shape (n_features_in_,)
        Names of the features, where X had any.

    See Also
    --------
    MMDInitializer : Learns theta0 from unlabelled data.

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
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = None,
        *,
        activation: str | None = None,
        batch_norm: bool | None = None,
        init: str = "xavier",
        warm_start_from: Any = "auto",
        refit_initializer: str | bool = "auto",
        optimizer: Any = "adam",
        learning_rate_init: float = 1e-3,
        batch_size: int = 50,
        max_iter: int = 10,
        validation_split: Any = 1 / 6,
        memory: Any = None,
        callbacks: list[Any] | None = None,
        skorch_params: dict[str, Any] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.batch_norm = batch_norm
        self.init = init
        self.warm_start_from = warm_start_from
        self.refit_initializer = refit_initializer
        self.optimizer = optimizer
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_split = validation_split
        self.memory = memory
        self.callbacks = callbacks
        self.skorch_params = skorch_params
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, dense and numeric, best standardised.
        y : array-like of shape (n_samples,)
            Labels, numbers or strings, of at least two classes.

        Returns
        -------
        self : MLPClassifier
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
            If a parameter, X or y is not valid, theta0 does not fit the data or the
            parameters, or the weights are no longer finite after training.
        """
        X_given = X
        check_parameters(self)
        X, y = self._validated(X, y, ensure_min_samples=2)
        self.classes_, y = learn_classes(y)
        # Always the same draws in the same order: two fits that differ in warm_start_from
        # alone have the same split and batches, and can be compared pair by pair.
        draws = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=4)
        split_seed, batch_seed, weight_seed, initializer_seed = map(int, draws)

        rows = self._rows(X, y, split_seed)
        wanted = self._wanted()
        start = resolve(
            self.warm_start_from,
            X_given,
            X,
            wanted,
            refit=self.refit_initializer,
            memory=self.memory,
            seed=None if self.random_state is None else initializer_seed,
        )
        theta0 = start.theta0 or fresh_theta0(wanted, self.init, weight_seed)
        net = build_net(
            theta0,
            optimizer=self.optimizer,
            learning_rate_init=self.learning_rate_init,
            batch_size=self.batch_size,
            max_iter=self.max_iter,
            callbacks=self.callbacks,
            skorch_params=self.skorch_params,
            device=torch_device(self.device),
            seed=batch_seed,
            verbose=self.verbose,
        )
        train(net, rows, seed=batch_seed, foreign=bool(self.callbacks or self.skorch_params))

        self.net_ = net
        self.theta0_ = theta0
        self.initializer_ = start.initializer
        self.n_iter_ = len(net.history)
        best = dict(net.callbacks_)["best_epoch"]
        last_epoch = self.n_iter_ - 1 if self.n_iter_ else None
        self.best_epoch_ = last_epoch if best.epoch_ is None else best.epoch_
        self.best_validation_loss_ = None if best.epoch_ is None else float(best.loss_)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        proba : ndarray of float32 of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        return self.net_.predict_proba(Rows(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Members of ``classes_``.
        """
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

    def _validated(self, *arrays: Any, **checks: Any) -> Any:
        with np.errstate(over="ignore"):  # too large for float32: the check itself reports it
            return validate_data(self, *arrays, dtype=np.float32, **checks)

    def _wanted(self) -> Wanted:
        """What X, y and the parameters ask of the network."""
        names = getattr(self, "feature_names_in_", None)
        sizes = self.hidden_layer_sizes
        return Wanted(
            n_features=self.n_features_in_,
            n_classes=len(self.classes_),
            hidden_layer_sizes=None if sizes is None else layer_sizes(sizes),
            activation=self.activation,
            batch_norm=self.batch_norm,
            feature_names=None if names is None else tuple(names),
        )

    def _rows(self, X: np.ndarray, y: np.ndarray, seed: int) -> Rows:
        """The rows to train on, with those that choose the best epoch."""
        if self.validation_split is None:
            return Rows(X, y)
        if isinstance(self.validation_split, tuple):
            return Rows(X, y, self._given_validation(self.validation_split))
        train, valid = split_rows(self.validation_split, X, y, seed)
        return Rows(X[train], y[train], Rows(X[valid], y[valid]))

    def _given_validation(self, pair: tuple[Any, ...]) -> Rows:
        if len(pair) != 2:
            raise ValueError(
                f"validation_split as a tuple must be (X_val, y_val), got {len(pair)} items"
            )
        X, y = self._validated(*pair, reset=False)
        return Rows(X, indices_of(y, self.classes_))
