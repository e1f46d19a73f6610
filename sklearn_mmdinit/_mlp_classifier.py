"""MLPClassifier: skorch inside, scikit-learn outside, and a start that was learned."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch.nn import CrossEntropyLoss
from torch.optim import SGD

from ._export import sklearn_mlp
from ._fine_tuning import (
    BaseNetClassifier,
    WantedPerceptron,
    check_choices,
    find_optimizer,
    layer_sizes,
    plain,
)
from ._network import ACTIVATIONS, INITS, theta0_from_module

__all__ = ["MLPClassifier"]


_CHOICES: dict[str, tuple[Any, ...]] = {
    "activation": (None, *ACTIVATIONS),
    "batch_norm": (None, True, False),
    "init": tuple(INITS),
}


class MLPClassifier(BaseNetClassifier):
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
          is an initializer; from fresh weights when X is any other array; an error where X
          can be seen to have had a theta0 and to have lost it.
        - "pipeline": as "auto", but an X without theta0 is an error.
        - None: from fresh weights.
        - an unfitted initializer: a clone of it learns theta0 from the X given to ``fit``,
          so inside each fold of a cross-validation. Its parameters can be searched as
          ``warm_start_from__<name>``.
        - a fitted initializer: from its theta0. It stays fitted when this classifier is
          cloned, and when an ensemble sets its ``random_state``. Setting another one of its
          parameters puts an unfitted copy in its place. As a value of a parameter grid write
          ``FrozenEstimator(initializer)``, for scikit-learn un-fits the estimators that stand
          in a grid.
        - a fitted initializer in a :class:`sklearn.frozen.FrozenEstimator`, a Theta0, a dict
          of arrays named as in ``Architecture.array_shapes()``, or the path of a
          ``.safetensors`` file: as it is.
    refit_initializer : {"auto", True, False}, default="auto"
        Whether the initializer is fitted in ``fit``: when it is not fitted yet, always, or
        never.
    optimizer : {"adam", "adamw", "rmsprop", "sgd"} or type, default="adam"
        Or a subclass of :class:`torch.optim.Optimizer`. Its arguments are parameters here,
        in ``set_params`` and in grids: ``optimizer__weight_decay``; or ``skorch_params`` has them.
    learning_rate_init : float, default=1e-3
        Learning rate.
    batch_size : int, default=50
        Rows a step.
    max_iter : int, default=10
        Epochs. With 0 the network stays where it starts.
    validation_split : float, splitter, tuple or None, default=1/6
        Rows that choose the best epoch: a random fraction, stratified where possible; the
        first split of a scikit-learn splitter; a tuple (X_val, y_val), which the earlier
        steps of a Pipeline do not transform; or None, which keeps the last epoch. Only rows
        that have a label and a weight are drawn from or given to a splitter.
    class_weight : None, "balanced" or dict, default=None
        Weight of each class in the training and validation loss, by which the weights of its
        rows are multiplied; classes that a dict lacks have 1. "balanced" lets each class count
        the same, by the rows given to ``fit``.
    unlabelled_label : int, float or str, default=None
        Rows with this label, such as -1, have none: they are in no loss and in no score, but
        an initializer that is fitted here learns from them too. None: all rows have one. To a
        metric of its own, such as ``scoring="accuracy"``, they are rows of another class, and
        so they are to an estimator that encodes labels first, such as VotingClassifier.
    memory : None, str or joblib.Memory, default=None
        Cache of fitted initializers, so that candidates of a search that differ only in
        other parameters share one. Needs an int as ``random_state``: with None it gives again what
        was learned of the same X first. It knows functions by their code, not by globals that
        they read, and your own classes by name: clear it after a change.
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

    Here 30 labels are known. An initializer learns from all rows, and from others that a step
    of a Pipeline has scaled in the same way:

    >>> import numpy as np, sklearn
    >>> from sklearn.pipeline import Pipeline
    >>> from sklearn_mmdinit import MMDInitializer
    >>> few = np.where(np.arange(150) % 5, -1, y)
    >>> init = MMDInitializer((16,), n_classes=3, n_perturbations=16, max_iter=1, random_state=0)
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     last = MLPClassifier(warm_start_from=init, unlabelled_label=-1, random_state=0)
    ...     last.set_fit_request(X_unlabelled=True)
    ...     steps = [("scale", StandardScaler()), ("clf", last)]
    ...     pipe = Pipeline(steps, transform_input=["X_unlabelled"])
    ...     pipe.fit(X, few, X_unlabelled=(X + 0.1,)).classes_
    MLPClassifier(...)
    array([0, 1, 2])

    Rows in a stream, sparse and with weights; and the result as scikit-learn's own classifier:

    >>> from scipy.sparse import csr_array
    >>> stream = MLPClassifier((16,), random_state=0)
    >>> for start in (0, 1, 2):
    ...     rows = slice(start, None, 3)
    ...     _ = stream.partial_fit(
    ...         csr_array(X[rows]), y[rows], classes=[0, 1, 2], sample_weight=X[rows, 0]
    ...     )
    >>> stream.n_iter_
    3
    >>> theirs = stream.to_sklearn()
    >>> np.abs(theirs.predict_proba(X) - stream.predict_proba(X)).max() < 1e-6
    np.True_
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
        class_weight: Any = None,
        unlabelled_label: Any = None,
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
        self.class_weight = class_weight
        self.unlabelled_label = unlabelled_label
        self.memory = memory
        self.callbacks = callbacks
        self.skorch_params = skorch_params
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def to_sklearn(self, **params: Any) -> Any:
        """The network as a fitted MLPClassifier of scikit-learn's, with equal probabilities.

        Its ``partial_fit`` goes on from the weights, and so does its ``fit`` with
        ``warm_start=True``, where y holds each of the classes. It minimises the same loss, but
        its optimiser starts anew: scikit-learn has no place for the state of another one.
        With batch normalisation, weights are those at its running statistics, folded into the
        linear layers. For two classes its one output is the difference of the two logits.

        Parameters
        ----------
        **params : object
            Its parameters, such as ``warm_start``; the network's own aside. Where they are not
            given, ``learning_rate_init``, ``batch_size``, ``max_iter`` and ``random_state`` are
            those here, ``alpha`` is 0, and ``solver`` is "sgd" where it is that here.

        Returns
        -------
        fitted : sklearn.neural_network.MLPClassifier
            One with float64 weights.

        Raises
        ------
        ValueError
            If scikit-learn has no such activation, which is so of "gelu", or the criterion is
            not the cross entropy.
        """
        check_is_fitted(self, "net_")
        if not isinstance(self.net_.criterion_, CrossEntropyLoss):
            raise ValueError(
                "scikit-learn's MLPClassifier minimises the cross entropy, but skorch_params have "
                f"criterion={self.net_.criterion_}"
            )
        ours = {
            "alpha": 0.0,
            "batch_size": self.batch_size,
            "learning_rate_init": self.learning_rate_init,
            "max_iter": max(self.max_iter, 1),
            "random_state": self.random_state,
        }
        if find_optimizer(self.optimizer) is SGD:
            # The defaults are PyTorch's.
            given = self.skorch_params or {}
            ours |= {"solver": "sgd", "momentum": given.get("optimizer__momentum", 0.0)}
            ours |= {"nesterovs_momentum": given.get("optimizer__nesterov", False)}
        weights = theta0_from_module(self.net_.module_)
        names = getattr(self, "feature_names_in_", None)
        fitted = sklearn_mlp(weights, self.classes_, names, **(ours | params))
        fitted.loss_curve_ = self.loss_curve_
        fitted.n_iter_ = self.n_iter_
        return fitted

    def _check_parameters(self) -> None:
        check_choices(self, _CHOICES)
        super()._check_parameters()

    def _wanted(self, X: Any, seed: int) -> WantedPerceptron:
        names = getattr(self, "feature_names_in_", None)
        sizes = self.hidden_layer_sizes
        return WantedPerceptron(
            n_features=self.n_features_in_,
            n_classes=len(self.classes_),
            hidden_layer_sizes=None if sizes is None else layer_sizes(sizes),
            activation=plain(self.activation),
            batch_norm=plain(self.batch_norm),
            feature_names=None if names is None else tuple(names),
            init=plain(self.init),
            seed=seed,
        )

    @property
    def coefs_(self) -> list[np.ndarray]:
        """Weights, (n_in, n_out) a layer."""
        return theta0_from_module(self.net_.module_).coefs

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """Biases, (n_out,) a layer."""
        return theta0_from_module(self.net_.module_).intercepts
