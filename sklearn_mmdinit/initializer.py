"""The estimator that pre-trains a network: validate, inspect, resolve, train, store."""

from __future__ import annotations

import inspect
import math
from copy import copy
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import nn

from ._base import module_factory as factories
from ._base import validation as checks
from ._base.environment import torch_device, with_gradients, without_caller_settings
from ._base.mlp import ACTIVATIONS, INITS
from ._base.random_streams import Purpose, permutation, seed_of, seeds_of
from ._base.validation import mean_and_variance, unit_rows, warn_if_another_scale, warn_user
from .coherence import (
    Coherence,
    check_augmentation,
    check_coherence,
    coherence_of,
    fit_embedding,
    positive_pairs,
)
from .networks.builder import NetworkBuilder
from .theta0 import Theta0, checked_path, put_arrays_, set_theta0_
from .training.checkpoint import resumed
from .training.config import MOST_STEPS, PAPER_WEIGHTS, Config, resolve
from .training.loop import mean_loss, train
from .training.minibatches import RowBatches
from .training.schedule import has_converged, is_still_falling, levels_before_the_fall
from .training.state import State
from .training.streams import LoaderEpochs, StreamBatches

__all__ = ["MMDInitializer"]


# Number of the first step of `score`, so large that `score` never uses a draw of the training.
_FIRST_SCORE_STEP = 1 << 31

# Rows of X over which the mean of the features is taken.
_MEAN_ROWS = 2048

# Training has diverged if the loss is above this factor times the larger of the first loss and 1.
# The losses of single mini-batches differ by less than this factor.
_DIVERGED = 4.0

# L_iod drowns the paper's other terms, which are about 1, if it is above this.
_DROWNS = 1000.0


class MMDInitializer(
    factories.ExtraParamsMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""Pre-train a neural network on unlabelled data.

    ``fit`` learns theta0, the weights from which a network is later trained with few labels. Use
    them in three ways: :meth:`transform` gives features for any classifier, :class:`MLPClassifier`
    and :class:`NetClassifier` fine-tune from them, and :meth:`to_module` returns a PyTorch module.
    With ``coherence="auto"`` the loss is contrastive: similar examples get similar features, see
    :class:`Coherence`. With few labels this gives far more accurate classifiers than the default.
    The default is the loss of Lee & Cho [1]_, with their settings,

    .. math:: L = L_{uni} + \lambda L_{sd} + \xi L_{iod} .

    For every input this loss spreads the predictions of randomly perturbed networks evenly over the
    class simplex. It also makes each network use all classes, and depend on its input.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(392, 392, 392)
        Width of each hidden layer.
    n_classes : int or "auto", default="auto"
        Number of classes of the classification task to come, the paper's d. A classifier that
        starts from the initializer must have the same number. "auto": the number of classes in y if
        ``fit`` gets labels (-1, NaN and None do not count); without labels, the default of the
        argument ``n_classes`` if `module` is a Python class that has one, or else 2. A module that
        is an instance, or whose class has no argument ``n_classes``, keeps its own number of
        logits. Set `n_classes` if y holds integers that are not labels, such as targets of a
        regression. It also decides ``Coherence(separation="auto")``. Time and memory of the term
        L_iod grow with its square; ``detachment_weight=0`` omits this term.
    coherence : None, "auto" or Coherence, default=None
        Whether similar examples get similar features. "auto" stands for ``Coherence()``.
        None: the paper's loss.
    max_iter : int or "auto", default="auto"
        Epochs over X. "auto" without coherence: 5. "auto" with coherence: the learning rate is
        constant until L_coh, the coherence loss, stops falling. If L_coh is then at most 0.5, a
        longer training is better, and this part is made twice as long. The rate then decays over
        the last third of the training. The number of steps is at least n_samples / 20, and always
        between 225 and 3,000. A small number of epochs may give weights that are worse than random
        ones.
    random_state : int, RandomState instance or None, default=None
        Seed of random weights, the order of examples, walks, augmentations, perturbations and
        uniform samples.
    module : None, nn.Module or subclass of it, default=None
        The network, which returns logits. None: an :class:`MLP`. An instance is copied, and
        training starts at its weights. A class is called with the ``module__<name>`` parameters. If
        it has an argument ``n_classes``, it gets the number of classes. If it has an argument
        ``n_features`` without a default, it gets the number of values of an example. X may have any
        shape that the network takes. The network is converted to single precision. Parameters that
        require no gradient do not change. To freeze the statistics of a normalization layer, put
        the layer in evaluation mode and leave the module in training mode. With a module,
        parameters that describe an MLP must keep their defaults.
    activation : str, default="relu"
        Activation of the hidden layers, as :class:`MLP` takes it.
    device : str, default="auto"
        Any of PyTorch's devices. "auto" takes CUDA where there is one.
    verbose : bool or int, default=False
        Whether to show a progress bar, with the remaining time and the last record of ``history_``.
    checkpoint : None, str or path-like, default=None
        A ``.safetensors`` file to which ``fit`` writes its training, at the end of a window of
        steps and at most once a minute. After a kill or an interrupt the same call goes on from
        there. On a CPU the result is then bit for bit that of a training without interruption. A
        file written with other rows, parameters or initial weights raises an error, so each ``fit``
        of a search needs a file of its own. A loader is recognised by its length and first
        examples, a module by its class and weights, a function by its code. Other changes of your
        code are not noticed: after them, use another file. A checkpoint needs a `random_state`.
    warm_start : bool, default=False
        Whether ``fit`` of a fitted initializer starts at its theta0, for example when new rows
        have arrived. The learning rate schedule, the optimizer and the graph are new. The network
        must be the same. ``n_classes="auto"`` keeps the earlier number of classes; if y has more,
        ``fit`` raises an error. Each ``fit`` is a training of its own and needs a `checkpoint` of
        its own.
    callback : callable or None, default=None
        ``callback(record, module)`` is called whenever ``history_`` gets a record, with a copy of
        it and of the network, on the CPU and in evaluation mode. It may log, or evaluate the
        features on a few labels. If it returns True, training ends there.

    Other Parameters
    ----------------
    n_perturbations : int or "auto", default="auto"
        Number of perturbed networks in a step, the paper's K, and of samples of the uniform
        distribution, the paper's M. At least 2. "auto": 256; 8 with coherence. Without effect if
        the weights of the terms are 0, as by default with coherence.
    learning_rate_init : float or "auto", default="auto"
        Learning rate of Adam. "auto": 0.0002; 0.004 with coherence. With coherence it falls to 2 %
        along a half cosine over the last third of the training.
    batch_size : int or "auto", default="auto"
        Mini-batch size for the paper's three terms. "auto": 32; 8 with coherence. It is capped at
        n_samples, and with coherence at the number of pairs a step, ``Coherence(batch_size=...)``.
        It has no effect if the weights of the three terms are 0, as by default with coherence.
    init : {"xavier", "he"}, default="xavier"
        Random weights at which training starts: Glorot uniform or Kaiming normal (fan-in). Biases
        are 0.
    perturbation_scale : float, default=0.7071067811865476
        The paper's s: weights are perturbed with standard deviation s / sqrt(n_in), biases with
        s / sqrt(n_out).
    uniformity_weight, degeneracy_weight, detachment_weight : float or "auto", default="auto"
        Weights of the paper's three terms, L_uni, L_sd (the paper's :math:`\lambda`) and L_iod (its
        :math:`\xi`). "auto": the paper's 1, 0.4 and 1; all 0 with coherence, where the terms would
        take most of the time and add nothing with ``fine_tuning="head-first"``. L_uni sums nine
        kernels, as the paper's text says. The paper's results on dead neurons are closer to those
        of the mean of the kernels, which is ``uniformity_weight=1 / 9``. If all weights are 0, none
        of the terms is computed.
    **module__params : dict
        ``module__<name>``: arguments of the class in `module`.

    Attributes
    ----------
    theta0_ : Theta0
        The pre-trained weights, with their architecture. Coherence alone does not train the last
        layer, which is then 0.
    coefs_, intercepts_ : list of ndarray
        Weights (n_in, n_out) and biases (n_out,) of each layer of an MLP.
    history_ : list of dict
        One dict for each epoch or, if an epoch has more than 100 steps (50 with coherence), for
        each window of 100 (50) steps. "step" is the step at which it ended. The other keys are
        means over it: "loss" and the terms that were computed, "uniformity", "degeneracy",
        "detachment" and "coherence". The last dict may be of fewer steps.
    loss_curve_, best_loss_ : list of float, float
        The "loss" of each dict in ``history_``; and the lowest mean loss of a window of 100 steps
        (50 with coherence), or of the training if it is shorter. Without coherence theta0 is the
        parameters at the end of that window; with coherence, at the end of training, unless the
        loss became NaN.
    feature_mean_ : ndarray of shape (n_units,)
        Mean of the last hidden activations at theta0, over all rows of X or 2,048 random ones.
    embedding_ : estimator or None
        The ``coherence.embedding``, fitted.
    converged_ : bool or None
        Whether L_coh was below 1 and steady when the learning rate began to decay. False also if
        there were too few steps to judge. None without coherence.
    config_ : Config
        Settings of the training, with "auto" resolved.
    sampler_ : str
        "gram" or "functional", see :class:`MMDObjective`.
    why_functional_ : str
        Why the sampler is "functional"; empty for "gram".
    n_iter_ : int
        Number of epochs, including an unfinished last one.
    n_features_in_, feature_names_in_ : int, ndarray of str
        Number of columns of X, or of values of an example; names of the columns, if X has them.

    See Also
    --------
    Coherence : The contrastive loss and its parameters.
    MLPClassifier, NetClassifier : Fine-tune from the pre-trained weights.
    mmd_init_ : The same for a module, in place, from an array or a DataLoader.
    MMDObjective : The paper's terms, for training loops of one's own.

    Notes
    -----
    The same call gives the same bits, if PyTorch has the same number of threads. With another
    number of threads rounding may differ: weights differ by about 1.5e-6 after two steps. Over
    thousands of steps this leads to other weights of the same quality.

    References
    ----------
    .. [1] C. Lee and K. Cho, "Unsupervised Learning of Initialization in Deep Neural Networks
       via Maximum Mean Discrepancy", arXiv 2302.04369, 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_mmdinit import MMDInitializer
    >>> X, y = load_digits(return_X_y=True)
    >>> init = MMDInitializer((32, 32), n_classes=10, coherence="auto", random_state=0)
    >>> features = init.fit_transform(X / 16)  # no labels
    >>> clf = LogisticRegression(C=100).fit(features[:50], y[:50])
    >>> clf.score(features[50:], y[50:]) > 0.85
    True
    """

    _parameter_constraints: ClassVar = {
        "n_classes": [checks.integers(2), checks.AUTO],
        "coherence": [Coherence, checks.AUTO, None],
        "max_iter": [checks.integers(0), checks.AUTO],
        "activation": [checks.one_of(ACTIVATIONS)],
        "init": [checks.one_of(INITS)],
        "warm_start": ["boolean"],
        "callback": [callable, None],
        "verbose": [Integral],
        "n_perturbations": [checks.integers(2), checks.AUTO],  # the U-statistic divides by n - 1
        "learning_rate_init": [checks.POSITIVE, checks.AUTO],
        "batch_size": [checks.integers(1), checks.AUTO],
        "perturbation_scale": [checks.POSITIVE],
        **{name: [checks.numbers(0), checks.AUTO] for name in PAPER_WEIGHTS},
    }
    config_: Config

    def __init__(
        self,
        hidden_layer_sizes: Any = (392, 392, 392),
        *,
        n_classes: Any = "auto",
        coherence: Any = None,
        max_iter: Any = "auto",
        random_state: Any = None,
        module: Any = None,
        activation: str = "relu",
        device: str = "auto",
        verbose: bool | int = False,
        checkpoint: Any = None,
        warm_start: bool = False,
        callback: Any = None,
        n_perturbations: Any = "auto",
        learning_rate_init: Any = "auto",
        batch_size: Any = "auto",
        init: str = "xavier",
        perturbation_scale: float = math.sqrt(0.5),
        uniformity_weight: Any = "auto",
        degeneracy_weight: Any = "auto",
        detachment_weight: Any = "auto",
        **module__params: Any,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.n_classes = n_classes
        self.coherence = coherence
        self.max_iter = max_iter
        self.random_state = random_state
        self.module = module
        self.activation = activation
        self.device = device
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.warm_start = warm_start
        self.callback = callback
        self.n_perturbations = n_perturbations
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.init = init
        self.perturbation_scale = perturbation_scale
        self.uniformity_weight = uniformity_weight
        self.degeneracy_weight = degeneracy_weight
        self.detachment_weight = detachment_weight
        self._set_keywords(module__params)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, including those of the coherence and of the module's class.

        Parameters
        ----------
        **params : dict
            Values by name. ``coherence__<name>`` replaces None and "auto" by a Coherence.

        Returns
        -------
        self : estimator
            The initializer itself.
        """
        prefix = "coherence__"
        nested = {n.removeprefix(prefix): v for n, v in params.items() if n.startswith(prefix)}
        coherence = params.get("coherence", self.coherence)
        if nested and not isinstance(coherence, Coherence):
            # If a name is not valid, this raises an error and the old value stays.
            params["coherence"] = Coherence().set_params(**nested)
        return super().set_params(**params)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _check_params(self) -> None:
        """Raise an error that names the first parameter that is not valid."""
        checks.check_parameters(self)
        checks.check_widths(self.hidden_layer_sizes)
        torch_device(self.device)
        if self.checkpoint is not None:
            checked_path(self.checkpoint, "checkpoint")
            if self.random_state is None:
                reason = "because the next call would draw another seed"
                raise ValueError(f"random_state=None cannot be used with a checkpoint, {reason}")
        coherence = coherence_of(self.coherence)
        if coherence is not None:
            check_coherence(coherence)
        elif not any(getattr(self, name) for name in PAPER_WEIGHTS):
            names = ", ".join(PAPER_WEIGHTS)
            raise ValueError(f"coherence is None, and {names} are 0: set at least one of them")
        factories.check_module(self.module, factories.keywords_of(vars(self)))
        defaults = inspect.signature(type(self).__init__).parameters
        for name in factories.OF_A_PERCEPTRON if self.module is not None else ():
            value = getattr(self, name)
            if not np.array_equal(value, defaults[name].default):
                raise ValueError(
                    f"{name}={value!r} describes an MLP, but module is given; leave {name} out"
                )

    def fit(self, X: Any, y: Any = None) -> Self:
        """Pre-train on unlabelled examples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled examples, preferably standardized. At least two; hundreds to learn anything.
            A NumPy memory map of floats may be larger than memory. A module may take examples of
            another shape.
        y : array-like of shape (n_samples,), default=None
            Labels. Only the number of classes is used, and only if ``n_classes`` is "auto".

        Returns
        -------
        self : estimator
            Fitted.

        Raises
        ------
        TypeError, ValueError
            If X or a parameter is not valid, if the loss is not finite in the first window, or if
            the checkpoint is damaged or of other data, parameters or initial weights.
        OSError
            If the checkpoint cannot be written, at the start or during training. At the end of
            training this gives only a warning.
        """
        return self._fit(X, y)

    @without_caller_settings()
    @with_gradients()
    @checks.all_or_nothing
    def _fit(
        self,
        X: Any,
        y: Any = None,
        epochs: LoaderEpochs | None = None,
        autocast: torch.dtype | None = None,
    ) -> Self:
        """Pre-train on rows X, or on epochs of a loader, whose first rows are X.

        `autocast` is the precision in which the network computes in training; None: its own.
        """
        learned = getattr(self, "theta0_", None) if self.warm_start else None
        X = self._validated(X, reset=learned is None)
        coherence, device = coherence_of(self.coherence), torch_device(self.device)
        (seed,) = seeds_of(self.random_state, 1)
        n_classes = checks.n_classes_in(y, X)
        builder, network, theta0 = self._network(X, n_classes, learned, seed)
        is_known = bool(n_classes) or self.module is not None or not checks.is_auto(self.n_classes)
        is_known |= learned is not None and self.config_.n_classes_is_known
        n_rows, n_loaded = (len(X), None) if epochs is None else (epochs.n_rows, epochs.size)
        config = resolve(vars(self), coherence, builder.info.n_classes, is_known, n_rows, n_loaded)
        if coherence is not None:
            builder.known_last_layer()  # raises without a last linear layer
            check_augmentation(coherence, X, config.rows_a_step, builder.as_examples, device)
            if not config.has_paper_terms:
                theta0 = builder.with_head_of_zeros(theta0)
        stream = epochs and (epochs.n_rows, epochs.size, epochs.n_views)
        settings = config, coherence and vars(coherence), stream, str(autocast)
        state, keep = resumed(self.checkpoint, State(seed, theta0), X, *settings)
        embedding, size = fit_embedding(coherence, X, seed), config.rows_a_step
        batches: RowBatches | StreamBatches
        if epochs is None:
            pairs = positive_pairs(coherence, embedding, X, seed, self.verbose)
            batches = RowBatches(X, size, seed, builder.as_examples, pairs)
        else:
            augmentation = None if coherence is None else coherence.augmentation
            batches = StreamBatches(
                epochs, size, builder.takes_integers, seed, coherence is not None, augmentation
            )
        put_arrays_(network, state.current.arrays)
        network.to(device)
        options: dict[str, Any] = {"keep": keep, "callback": self.callback, "autocast": autocast}
        try:
            train(network, builder, batches, config, state, self.verbose, **options)
        finally:
            if keep is not None:
                keep.write_at_end()
        self._builder, self._seed, self.embedding_, self.config_ = builder, seed, embedding, config
        self._coherence = copy(self.coherence)  # as it was in this fit
        return self._store(X, state, network)

    @without_caller_settings()
    @with_gradients()  # Jacobians need them
    def score(self, X: Any, y: Any = None) -> float:
        """Minus the mean loss at theta0, so that higher is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled rows, taken in mini-batches in their order, without an incomplete last one.
        y
            Ignored, present by convention.

        Returns
        -------
        score : float
            Every call gives the same number, because the perturbations follow from the seed.
        """
        check_is_fitted(self, "theta0_")
        X, builder = self._validated(X, reset=False), self._builder
        coherence, config = coherence_of(self._coherence), self.config_.for_rows(len(X))
        network = builder.network_at(self.theta0_, torch_device(self.device))
        pairs = positive_pairs(coherence, self.embedding_, X, self._seed, self.verbose)
        batches = RowBatches(X, config.rows_a_step, self._seed, builder.as_examples, pairs)
        return -mean_loss(network, builder.info, batches, config, _FIRST_SCORE_STEP)

    @without_caller_settings()
    def transform(self, X: Any) -> np.ndarray:
        """The features of X: last hidden activations at theta0, minus their mean, with unit norm.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Examples on the scale that theta0 was learned on; a different scale gives a warning.

        Returns
        -------
        ndarray of shape (n_samples, n_units)
            Features in float32: the activations of an example, less ``feature_mean_``, scaled to
            unit norm. Because of rounding they differ by up to 1e-5, depending on the other rows.
        """
        check_is_fitted(self, "theta0_")
        rows = self._rows(X)
        warn_if_another_scale(rows, self.theta0_.row_mean, self.theta0_.row_spread)
        network = self._builder.network_at(self.theta0_, torch_device(self.device))
        return unit_rows(self._builder.hidden(network, rows) - self.feature_mean_)

    @property
    def _n_features_out(self) -> int:
        """The number of features, for ``get_feature_names_out``."""
        last: Any = self.to_module().get_submodule(self._builder.known_last_layer())
        return int(last.in_features)

    def to_module(self) -> nn.Module:
        """A fresh module on the CPU, of the class in `module` or an :class:`MLP`, at theta0."""
        check_is_fitted(self, "theta0_")
        return self._builder.module_at(self.theta0_)

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

    def _rows(self, X: Any, *, reset: bool = False, **options: Any) -> np.ndarray:
        """Rows of X in the shape that the network takes, checked."""
        options["shape"] = None if reset else self._builder.architecture.input_shape
        options["allow_nd"] = self.module is not None
        return np.asarray(checks.examples_checked(self, X, reset=reset, **options)[0])

    def _validated(self, X: Any, reset: bool) -> np.ndarray:
        """Check all parameters, then X; return its rows."""
        self._check_params()
        # A mini-batch of one row cannot use all classes.
        X = self._rows(X, reset=reset, ensure_min_samples=2)
        if self.module is not None:
            return X  # a module may take integers
        dtype = X.dtype.newbyteorder("=")
        return X.astype(dtype if dtype in (np.float32, np.float64) else np.float32, copy=False)

    def _network(
        self, X: np.ndarray, n_classes: int | None, learned: Theta0 | None, seed: int
    ) -> tuple[NetworkBuilder, nn.Module, Theta0]:
        """The builder, a network, and its initial weights: `learned`, or else fresh ones.

        `n_classes` is the number of classes of the labels, None without labels.
        """
        if learned is not None:  # later labels may miss classes
            n_classes = max(n_classes or 0, learned.architecture.n_classes)
        factory = factories.factory_of_initializer(
            vars(self), self.n_features_in_, seed_of(seed, Purpose.WEIGHTS), n_classes
        )
        builder, network, fresh = NetworkBuilder.of(factory.snapshot(), X)
        if not builder.takes_integers:
            checks.warn_if_unscaled(X, getattr(self, "feature_names_in_", None))
        architecture = builder.architecture
        if not (checks.is_auto(self.n_classes) or self.n_classes == architecture.n_classes):
            raise ValueError(
                f"n_classes={self.n_classes}, and the module {architecture.module} returns "
                f"{architecture.n_classes} logits; make them equal, or leave n_classes at 'auto'"
            )
        if learned is None:
            return builder, network, fresh
        set_theta0_(network, learned)  # raises for another network
        warn_if_another_scale(X, learned.row_mean, learned.row_spread)
        return builder, network, learned

    def _store(self, X: np.ndarray, state: State, network: nn.Module) -> Self:
        """Set the attributes that training gave; `network` is the one that was trained."""
        config, builder = self.config_, self._builder
        theta0 = state.current if config.coherence or state.best is None else state.best
        if not builder.takes_integers:
            mean, variance = (array.reshape(X.shape[1:]) for array in mean_and_variance(X))
            theta0 = replace(theta0, row_mean=mean, row_spread=np.sqrt(variance))
        self.theta0_ = theta0
        self.sampler_ = builder.info.sampler
        self.why_functional_ = builder.info.why_functional
        self.history_ = state.history
        self.loss_curve_ = [record["loss"] for record in self.history_]
        self.best_loss_ = state.best_loss
        self.n_iter_ = state.n_epochs + (state.steps_in_epoch > 0)
        if builder.info.last_layer:
            rows = np.sort(permutation(state.seed, 0, len(X))[:_MEAN_ROWS])
            put_arrays_(network, theta0.arrays)  # it may have diverged
            self.feature_mean_ = builder.hidden(network, X[rows]).mean(axis=0)
        self.converged_ = None if config.coherence is None else self._judged(state)
        loss, where = self.best_loss_, "in the best window"
        if config.coherence and self.history_:
            last = [r["loss"] for r in self.history_ if r["step"] > state.step - config.window]
            loss, where = float(np.mean(last)), "at the end"
        remedy = ""
        if self.history_ and self.history_[-1].get("detachment", 0.0) > _DROWNS:
            remedy = "detachment_weight=0, because the term L_iod outweighs the others"
        if self.history_ and loss > _DIVERGED * max(state.first_loss, 1.0):
            remedy = f"a smaller learning_rate_init than {config.learning_rate_init}"
            remedy += ", or standardize X"
        if remedy:
            warn_user(
                f"Pre-training may have failed: the loss began at {state.first_loss:.3g} and is "
                f"{loss:.3g} {where}; try {remedy}",
                ConvergenceWarning,
            )
        return self

    def _judged(self, state: State) -> bool:
        """Whether L_coh has stopped falling, at a low value; a warning if it clearly has not."""
        config = self.config_
        levels = levels_before_the_fall(state, config.schedule.n_steps(state), config.window)
        if len(levels) < 2:  # these are too few to judge, or the training is not over
            return False
        if has_converged(levels):
            return True
        auto = "'auto' or " * (state.step < MOST_STEPS and not checks.is_auto(self.max_iter))
        longer = f"max_iter={auto}{2 * self.n_iter_}"
        if not state.steps_an_epoch:  # a stream without a length
            n_rows = 2 * state.step * config.rows_a_step
            longer = f"max_iter=1 and a loader with a __len__ of {n_rows:,} examples or more"
        before, last = levels[-2:]
        what = f"L_coh is {last:.3g}, no lower than if nothing is learned; standardize X, or"
        if is_still_falling(levels):
            what = f"L_coh fell from {before:.3g} to {last:.3g} in the last {config.window} steps "
            what += "at a constant learning rate;"
        warn_user(f"Pre-training has not converged: {what} try {longer}", ConvergenceWarning)
        return False
