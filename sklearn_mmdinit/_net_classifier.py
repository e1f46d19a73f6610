"""NetClassifier: fine-tunes any PyTorch module, from its own weights or from learned ones."""

from __future__ import annotations

from typing import Any

from ._fine_tuning import BaseNetClassifier, WantedModule, as_inputs, source_of_initializer
from ._modules import ModuleKeywords, ModuleSource, check_source, keywords_of, with_n_classes
from ._pretraining import examples_checked

__all__ = ["NetClassifier"]


class NetClassifier(ModuleKeywords, BaseNetClassifier):
    """Any PyTorch module as a classifier that can start from learned initial weights.

    What :class:`MLPClassifier` is to the multi-layer perceptron: trains all parameters that
    require a gradient by cross entropy, from the weights that the module comes with or from the
    theta0 that an :class:`MMDInitializer` learned for it, and keeps those of the epoch with
    the lowest validation loss. X may have any shape that the module takes: rows of features,
    images (n, 1, 28, 28), or, where it has an ``nn.Embedding``, whole numbers (n, length).

    Parameters
    ----------
    module : nn.Module or subclass of it, default=None
        The network, which returns logits (n, n_classes). An instance is copied and never
        changed, and its weights are the fresh ones. A class is called with the
        ``module__<name>`` parameters, and with ``n_classes=`` the classes of y where it takes
        such an argument and ``module__n_classes`` is not given. None: the module of the
        initializer in `warm_start_from`, called as that one calls it.
    warm_start_from : object, default="auto"
        Where training starts:

        - "auto": from the theta0 that X carries when the step before this one in a Pipeline
          is an initializer; from fresh weights when X is any other array; an error where X
          can be seen to have had a theta0 and to have lost it.
        - "pipeline": as "auto", but an X without theta0 is an error.
        - None: from fresh weights.
        - an unfitted initializer with ``module=``: a clone of it learns theta0 from the X
          given to ``fit``, so inside each fold of a cross-validation. Its parameters can be
          searched as ``warm_start_from__<name>``.
        - a fitted initializer: from its theta0. It stays fitted when this classifier is
          cloned, and when an ensemble sets its ``random_state``. Setting another one of its
          parameters puts an unfitted copy in its place. As a value of a parameter grid write
          ``FrozenEstimator(initializer)``, for scikit-learn un-fits the estimators that stand
          in a grid.
        - a fitted initializer in a :class:`sklearn.frozen.FrozenEstimator`, a Theta0, a dict
          of arrays or tensors named as in the module's ``state_dict``, or the path of a
          ``.safetensors`` file: as it is.

        A theta0 has to be of the module's own class, with arrays of the same shapes.
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
        Of a class's fresh weights, the validation split, the order of the rows, what the module
        itself draws, as dropout does, and an initializer that is fitted here and whose own
        ``random_state`` is None.
    verbose : int, default=0
        1 prints skorch's table, a line an epoch.
    **module__params : dict
        ``module__<name>``: what the class in `module` is called with.

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
    input_shape_ : tuple of int
        Shape of one example.
    n_features_in_ : int
        Numbers of an example.
    feature_names_in_ : ndarray of str of shape (n_features_in_,)
        Names of the features, where X had any.

    See Also
    --------
    MMDInitializer : Learns theta0 from unlabelled data.
    MLPClassifier : The same for the multi-layer perceptron.
    WarmStart : Starts a skorch net of your own at theta0.

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

    input_shape_: tuple[int, ...]
    _integers: bool

    def __init__(
        self,
        module: Any = None,
        *,
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
        **module__params: Any,
    ) -> None:
        self.module = module
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
        self._set_module_keywords(module__params)

    def _check_parameters(self) -> None:
        check_source(self.module, keywords_of(vars(self)))
        super()._check_parameters()

    def _validated(self, *arrays: Any, reset: bool = True, **checks: Any) -> Any:
        # At first whole numbers stay: only the module tells whether it takes them as such.
        shape = None if reset else self.input_shape_
        checked = examples_checked(
            self, *arrays, reset=reset, shape=shape, accept_sparse="csr", **checks
        )
        X, *labels = checked if len(arrays) > 1 else (checked,)
        if reset:
            self.input_shape_ = X.shape[1:]
            X = X if X.dtype.kind in "iu" else as_inputs(X, integers=False)
        else:
            X = self._inputs(X)
        return (X, *labels) if labels else X

    def _inputs(self, X: Any) -> Any:
        return as_inputs(X, self._integers)

    def _row_shape(self) -> tuple[int, ...]:
        return self.input_shape_

    def _wanted(self, X: Any, seed: int) -> WantedModule:
        names = getattr(self, "feature_names_in_", None)
        wanted = WantedModule.of(
            self._source(seed), X, len(self.classes_), None if names is None else tuple(names)
        )
        self._integers = wanted.integers
        return wanted

    def _source(self, seed: int) -> ModuleSource:
        if self.module is None:
            source = source_of_initializer(self.warm_start_from, seed)
            if source is None:
                raise ValueError(
                    "module=None stands for the module of an initializer in warm_start_from, "
                    f"which has none: {self.warm_start_from!r}; give NetClassifier its module"
                )
            return source
        keywords = with_n_classes(self.module, keywords_of(vars(self)), len(self.classes_))
        return ModuleSource(self.module, keywords, seed)
