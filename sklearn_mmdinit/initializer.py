"""The estimator that learns theta0 from unlabelled rows: validate, resolve, train, store."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import nn

from ._base import module_factory as factories
from ._base import validation as checks
from ._base.environment import torch_device, without_caller_settings
from ._base.mlp import ACTIVATIONS, INITS
from ._base.random_streams import Purpose, permutation, seed_of, seeds_of
from ._base.row_scale import mean_and_variance, warn_if_another_scale
from ._base.validation import warn_user
from .coherence import (
    Coherence,
    WalkCache,
    check_augmentation,
    check_coherence,
    coherence_of,
    fit_embedding,
    has_graph,
    settings_of,
)
from .fine_tuning import labels
from .losses import logit_correlation
from .networks.builder import NetworkBuilder
from .networks.info import SAMPLERS
from .theta0 import Architecture, Theta0, checked_path
from .training import Config, resolve
from .training.checkpoint import Checkpointer, digest_of
from .training.loop import mean_loss, train
from .training.minibatches import PositivePairs, RowBatches
from .training.schedule import SPAN, has_converged, is_still_falling
from .training.state import State
from .training.streams import LoaderEpochs, StreamBatches
from .warm_start import attach_theta0

__all__ = ["MMDInitializer"]

OUTPUTS = ("passthrough", "hidden")

# Parameters of the network, which partial_fit may not change.
_OF_THE_NETWORK = (*factories.OF_A_PERCEPTRON, "n_classes", "module", "hidden_layer", "sampler")
PAPER_WEIGHTS = ("uniformity_weight", "degeneracy_weight", "detachment_weight")

# Number of the first step of `score`, so large that `score` never uses a draw of the training.
_FIRST_SCORE_STEP = 1 << 31

# With coherence, gain="auto" is such that the first step of fine-tuning moves a logit by
# _FIRST_MOVE, in the mean over _JUDGED_ROWS rows. That step is
# Adam's, with the learning rate _FINE_TUNING_RATE.
_FIRST_MOVE, _FINE_TUNING_RATE = 0.75, 1e-3
_JUDGED_ROWS = 2048

# Training has diverged if the loss is above this factor times the larger of the first loss and 1.
# The losses of single mini-batches differ by less than this factor.
_DIVERGED = 4.0

# Predictions have collapsed if the mean squared correlation of _COLLAPSE_ROWS of them is above
# _COLLAPSED.
_COLLAPSE_ROWS, _COLLAPSED = 512, 0.9

_TINY = float(np.finfo(np.float32).tiny)


class _HiddenFeatures(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Maps rows to hidden activations, in the container that set_output asks for."""

    @without_caller_settings()
    def transform(self, X: Any) -> np.ndarray:
        """Inputs of the last layer at theta0, for rows X."""
        rows = self._rows_with_scale_warning(X)
        return self._builder.hidden(self.theta0_, rows, torch_device(self.device))

    def _rows_with_scale_warning(self, X: Any) -> np.ndarray:
        """Rows of X, with a warning if theta0 was learned on another scale."""
        rows = self._rows(X)
        warn_if_another_scale(rows, self.theta0_.row_mean, self.theta0_.row_spread)
        return rows


# auto_wrap_output_keys=None switches scikit-learn's set_output off for the `transform` of this
# class, because a DataFrame cannot carry theta0. `_HiddenFeatures.transform` keeps set_output: that
# is why there are two classes.
class _CarriesTheta0(_HiddenFeatures, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Returns X as an array that carries theta0 to the next step, or hidden activations."""

    def transform(self, X: Any) -> np.ndarray:
        """Pass X on together with theta0, or map it to hidden activations.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows on the scale that theta0 was learned on. A warning reports another scale.

        Returns
        -------
        ndarray
            X itself, as a read-only array that carries theta0 to the next step of a pipeline. It
            stays an array where ``set_output`` asks for a DataFrame, which cannot carry theta0.
            With ``output="hidden"``: inputs of the last layer at theta0, (n_samples, n_units).
            The hidden activations of a row differ by rounding if X has other rows beside it: by
            up to 1e-5 of the largest activation.
        """
        check_is_fitted(self, "theta0_")
        checks.check_argument("output", self.output, checks.one_of(OUTPUTS))
        if self.output == "hidden":
            return super().transform(X)
        return attach_theta0(self._rows_with_scale_warning(X), self.theta0_)

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Learn theta0 from X, then ``transform`` X; an interrupt raises KeyboardInterrupt.

        Parameters
        ----------
        X, y
            As ``fit`` takes them.

        Returns
        -------
        ndarray
            As ``transform`` returns.
        """
        # Overrides scikit-learn's, which puts X into the container of set_output.
        return self.fit(X, y).transform(X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that ``transform`` returns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of X's columns, used with ``output="passthrough"``.

        Returns
        -------
        ndarray of str objects
        """
        if self.output == "hidden":
            check_is_fitted(self, "theta0_")
            prefix = type(self).__name__.lower()
            last = self.to_module().get_submodule(self._builder.known_last_layer())
            return np.asarray([f"{prefix}{i}" for i in range(last.in_features)], dtype=object)
        return super().get_feature_names_out(input_features)


class MMDInitializer(factories.ExtraParamsMixin, _CarriesTheta0):
    r"""Learn a network's initial weights from unlabelled data.

    Minimises eq. (final_loss) of Lee & Cho [1]_ over theta0,

    .. math:: L = L_{uni} + \lambda L_{sd} + \xi L_{iod},

    so that small random perturbations of theta0 give predictions that are uniform over the class
    simplex for every input, use all classes, and depend on the input. The defaults are the paper's
    values. ``coherence="auto"`` adds a term that the paper does not have: networks near theta0 then
    predict similarly for similar rows. With few labels this term brings most of the improvement.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(392, 392, 392)
        Width of each hidden layer.
    n_classes : int or "auto", default="auto"
        Number of classes of the tasks to come, the paper's d. "auto": if ``fit`` gets labels, the
        number of classes of y without -1, NaN and None; else the default of the module's class, or
        2. A module that is an instance, or whose class has no argument ``n_classes``, keeps its own
        number of logits. Set `n_classes` if y holds whole numbers that are not labels, such as
        targets of a regression. Time and memory of L_iod grow with its square: with 1,000 classes a
        step takes one or two seconds on two cores. With a coherence it also sets
        ``Coherence(separation="auto")``.
    coherence : None, "auto" or Coherence, default=None
        A fourth term that makes functions near theta0 alike for neighbours in X, or for two views
        of a row. "auto" stands for ``Coherence()``, with fewer neighbours if X has few distinct
        rows. None is the paper's loss.
    max_iter : int or "auto", default="auto"
        Epochs over X. "auto" without coherence: 5. "auto" with coherence: the learning rate stays
        constant until L_coh stops falling. If L_coh is then at most 0.4, the rate stays constant
        for as many steps again. Then it falls, for half as many steps as it was constant. The
        number of steps is at least m and at most max(m, 1,500), where m is n_samples / 20, kept
        between 225 and 3,000. Fewer steps may give weights that are worse than random ones.
    random_state : int, RandomState instance or None, default=None
        Seed of initial weights, order of rows, perturbations and uniform samples.
    module : None, nn.Module or subclass of it, default=None
        The network, which returns logits. None: a perceptron, an :class:`MLP`. An instance is
        copied, and training starts at its weights. A class is called with the ``module__<name>``
        parameters. If it has an argument ``n_classes``, it gets the number of classes. If it has an
        argument ``n_features`` without a default, it gets the number of values of an example. X may
        have any shape that the network takes. The network is converted to single precision, unless
        its ``forward`` casts X to a type of its own. Parameters that require no gradient do not
        change. To freeze the statistics of a normalization layer, put the layer in evaluation mode
        and leave the module in training mode. With a module, parameters that describe a perceptron
        must keep their defaults.
    activation : {"relu", "tanh", "gelu"}, default="relu"
        Non-linearity of the hidden layers.
    batch_norm : bool, default=False
        Batch normalization before each activation. Each perturbed network uses the mean and
        variance of its own activations. Scale and shift are learned but not perturbed.
    output : {"passthrough", "hidden"}, default="passthrough"
        What ``transform`` returns: X itself, which carries theta0, or the last hidden activations.
    device : str, default="auto"
        Any of PyTorch's devices. "auto" takes CUDA where there is one.
    verbose : bool or int, default=False
        Whether to show a progress bar, with the remaining time and the mean loss of the last
        window.
    checkpoint : None, str or path-like, default=None
        A ``.safetensors`` file to which ``fit`` writes its training once a minute. After a kill or
        an interrupt the same call goes on from there. On a CPU the result is then bit for bit that
        of a training without interruption. A file of other rows, parameters or initial weights
        raises an error, so each ``fit`` of a search needs a file of its own. A loader is known by
        its length and first examples, a function by its name: where their code changes, take
        another file. ``partial_fit`` does not use the file. A checkpoint needs a `random_state`.
    warm_start : bool, default=False
        Whether ``fit`` of a fitted initializer starts at its theta0, for example when new rows
        have arrived. The learning rate schedule, the optimizer and the graph are new. The network
        must be the same. ``n_classes="auto"`` keeps the earlier number of classes; if y has more,
        ``fit`` raises an error. Each ``fit`` is a training of its own and needs a `checkpoint` of
        its own.

    Other Parameters
    ----------------
    n_perturbations : int or "auto", default="auto"
        Perturbed networks a step, the paper's K, and samples of the uniform law, its M; at least
        2. "auto": 256, with coherence 32. With coherence and two classes the expectations over the
        uniform law are exact.
    learning_rate_init : float or "auto", default="auto"
        Learning rate of Adam. "auto": 0.0002, with coherence 0.004. With coherence it falls to 2 %
        along a half cosine over the last third of the training.
    batch_size : int, default=32
        Rows of a step for the paper's terms. It is capped at n_samples, and with coherence also at
        the coherence's ``batch_size``.
    window : int, default=100
        Steps over which the loss is averaged. Theta0 is the parameters at the end of the window
        with the lowest mean; with coherence, at the end of training.
    gain : float or "auto", default="auto"
        Factor of each hidden layer's weights after training. The last layer's weights are divided
        by the product, so that the network computes the same function. This needs layers whose
        outputs scale with their inputs, as linear layers with ReLU and without normalization do.
        For other networks only 1 and "auto" are valid. "auto" without coherence: 1. "auto" with
        coherence: chosen such that the first step of fine-tuning can move a logit by 0.75.
    init : {"xavier", "he"}, default="xavier"
        Random weights at which training starts: Glorot uniform or Kaiming normal (fan-in). Biases
        are 0.
    perturbation_scale : float, default=0.7071067811865476
        The paper's s: weights are perturbed with standard deviation s / sqrt(n_in), biases with
        s / sqrt(n_out).
    uniformity_weight : float, default=1.0
        Weight of L_uni, a sum of nine kernels as in the paper's text. 1 / 9 averages them: then few
        hidden units die, as the paper reports. With coherence all three weights may be 0: the
        paper's terms are then not computed.
    degeneracy_weight : float, default=0.4
        The paper's lambda, the weight of L_sd against degenerate softmax.
    detachment_weight : float, default=1.0
        The paper's xi, the weight of L_iod against input-output detachment. With 0 it is not
        computed.
    sampler : {"auto", "gram", "functional"}, default="auto"
        How perturbed networks are drawn, all by the same law. "gram" draws the outputs of layers
        and serves a perceptron and an nn.Sequential of nn.Linear and elementwise layers.
        "functional" draws the parameters and serves any module: by :func:`torch.func.vmap`, or one
        network after the other where vmap fails, with a warning because it is slow. "auto" takes
        "gram" where it serves.
    hidden_layer : str, default=None
        Name of the linear layer of the module whose inputs are the last hidden activations, for
        `coherence` and `output`. None: the layer that returns the logits.
    **module__params : dict
        ``module__<name>``: arguments of the class in `module`.

    Attributes
    ----------
    theta0_ : Theta0
        What was learned, with its architecture.
    coefs_, intercepts_ : list of ndarray
        Weights (n_in, n_out) and biases (n_out,) of each layer of a perceptron.
    history_ : list of dict
        One dict for each window of steps: "step" is the step at which the window ended. The others
        are means over the window of "loss" and of the terms that were computed: "uniformity",
        "degeneracy", "detachment" and "coherence". The last window may have fewer steps; then
        `partial_fit` goes on with it and replaces its record.
    loss_curve_, best_loss_ : list of float, float
        Mean loss of each window, and the lowest of a complete window (if none is complete: the only
        mean).
    embedding_ : estimator or None
        The ``coherence.embedding``, fitted.
    converged_ : bool or None
        Whether L_coh had stopped falling when the learning rate began to fall; False also if there
        were too few steps to judge, or if all predictions still moved together (told only for a
        separation of 1 or more). None without coherence.
    gain_ : tuple of float
        Factor of each hidden layer's weights in ``theta0_``; empty if the network allows no gain.
    config_ : Config
        Settings of the training, with "auto" resolved; the gain is in ``gain_``.
    sampler_ : str
        "gram" or "functional".
    why_functional_ : str
        Why the sampler is "functional"; empty for "gram".
    n_iter_ : int
        Number of epochs, including an unfinished last one.
    n_features_in_, feature_names_in_ : int, ndarray of str
        Number of columns of X, or of values of an example; names of the columns, if X has them.

    See Also
    --------
    MMDObjective : The paper's terms, for training loops of one's own.
    mmd_init_ : The same for a module, in place.
    Coherence : The fourth term and its parameters.
    MLPClassifier, NetClassifier : Fine-tune from theta0.

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
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn_mmdinit import MMDInitializer
    >>> X = StandardScaler().fit_transform(load_digits().data)
    >>> init = MMDInitializer((32, 32), n_perturbations=32, max_iter=4, random_state=0).fit(X)
    >>> [weights.shape for weights in init.coefs_]
    [(64, 32), (32, 32), (32, 2)]
    >>> init.loss_curve_[0] > init.best_loss_
    True
    """

    _parameter_constraints: ClassVar = {
        "n_classes": [checks.integers(2), checks.AUTO],
        "max_iter": [checks.integers(0), checks.AUTO],
        "activation": [checks.one_of(ACTIVATIONS)],
        "init": [checks.one_of(INITS)],
        "batch_norm": ["boolean"],
        "output": [checks.one_of(OUTPUTS)],
        "warm_start": ["boolean"],
        "verbose": [Integral],
        "n_perturbations": [checks.integers(2), checks.AUTO],  # the U-statistic divides by n - 1
        "learning_rate_init": [checks.POSITIVE, checks.AUTO],
        "batch_size": [checks.integers(1)],
        "window": [checks.integers(1)],
        "gain": [checks.POSITIVE, checks.AUTO],
        "perturbation_scale": [checks.POSITIVE],
        "uniformity_weight": [checks.numbers(0)],
        "degeneracy_weight": [checks.numbers(0)],
        "detachment_weight": [checks.numbers(0)],
        "sampler": [checks.one_of(SAMPLERS)],
    }
    _state: State
    _n_classes_is_known: bool  # from labels, a parameter or the module
    # Mean and spread of the rows that theta0 was learned from; None if the module takes integers.
    _moments: tuple[np.ndarray, np.ndarray] | None

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
        batch_norm: bool = False,
        output: str = "passthrough",
        device: str = "auto",
        verbose: bool | int = False,
        checkpoint: Any = None,
        warm_start: bool = False,
        n_perturbations: Any = "auto",
        learning_rate_init: Any = "auto",
        batch_size: int = 32,
        window: int = 100,
        gain: Any = "auto",
        init: str = "xavier",
        perturbation_scale: float = math.sqrt(0.5),
        uniformity_weight: float = 1.0,
        degeneracy_weight: float = 0.4,
        detachment_weight: float = 1.0,
        sampler: str = "auto",
        hidden_layer: str | None = None,
        **module__params: Any,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.n_classes = n_classes
        self.coherence = coherence
        self.max_iter = max_iter
        self.random_state = random_state
        self.module = module
        self.activation = activation
        self.batch_norm = batch_norm
        self.output = output
        self.device = device
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.warm_start = warm_start
        self.n_perturbations = n_perturbations
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.window = window
        self.gain = gain
        self.init = init
        self.perturbation_scale = perturbation_scale
        self.uniformity_weight = uniformity_weight
        self.degeneracy_weight = degeneracy_weight
        self.detachment_weight = detachment_weight
        self.sampler = sampler
        self.hidden_layer = hidden_layer
        self._set_keywords(module__params)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the coherence and of the module's class among them.

        Parameters
        ----------
        **params : dict
            Values by name. ``coherence__<name>`` replaces ``coherence="auto"`` by a Coherence.

        Returns
        -------
        self : estimator
            This one.
        """
        prefix = "coherence__"
        nested = {n.removeprefix(prefix): v for n, v in params.items() if n.startswith(prefix)}
        coherence = params.get("coherence", self.coherence)
        if nested and checks.is_auto(coherence):
            # If a name is not valid, this raises an error and "auto" stays.
            params["coherence"] = Coherence().set_params(**nested)
        elif nested and not isinstance(coherence, Coherence):
            name = prefix + next(iter(nested))
            raise ValueError(
                f"{name} needs a Coherence, got {coherence=}; pass coherence='auto' too"
            )
        return super().set_params(**params)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        hidden = self.output == "hidden"
        tags.transformer_tags.preserves_dtype = ["float32"] if hidden else ["float64", "float32"]
        return tags

    def _check_params(self) -> None:
        """Raise an error that names the first parameter that is not valid."""
        checks.check_parameters(self)
        checks.check_widths(self.hidden_layer_sizes)
        if self.batch_norm and self.batch_size < 2:
            raise ValueError("batch_norm=True needs a batch_size of at least 2, got 1")
        torch_device(self.device)
        if self.checkpoint is not None:
            checked_path(self.checkpoint, "checkpoint")
            if self.random_state is None:
                raise ValueError(
                    "random_state=None cannot be used with a checkpoint, because the next call "
                    "would draw another seed; pass random_state=0, for example"
                )
        coherence = coherence_of(self.coherence)
        if coherence is not None:
            check_coherence(coherence)
            if np.size(self.hidden_layer_sizes) == 0:
                raise ValueError("coherence needs a hidden layer, got hidden_layer_sizes=()")
        elif not any(getattr(self, name) for name in PAPER_WEIGHTS):
            names = ", ".join(PAPER_WEIGHTS)
            raise ValueError(
                f"one of {names} must be above 0 if coherence is None, got 0 for all: there is no "
                "loss; raise one of them, or pass coherence='auto'"
            )
        factories.check_module(self.module, factories.keywords_of(vars(self)))
        if self.module is None and self.hidden_layer is not None:
            name = f"hidden_layer={self.hidden_layer!r}"
            raise ValueError(
                f"{name} names a layer of module, but module is None; pass a module, or leave "
                "hidden_layer out"
            )
        defaults = inspect.signature(type(self).__init__).parameters
        for name in factories.OF_A_PERCEPTRON if self.module is not None else ():
            value = getattr(self, name)
            if not np.array_equal(value, defaults[name].default):
                raise ValueError(
                    f"{name}={value!r} describes a perceptron, but module is given; leave it out"
                )

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn theta0 from unlabelled rows.

        An interrupt (Ctrl-C) raises KeyboardInterrupt, and the initializer stays as it was. With a
        ``checkpoint`` the same call goes on from the last window or epoch.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Unlabelled rows, at least two, best standardized. A NumPy memory map larger than memory
            is read in parts. A module may take rows of another shape.
        y : array-like of shape (n_samples,), default=None
            Labels. Only the number of classes is used, and only if ``n_classes`` is "auto".

        Returns
        -------
        self : estimator
            Fitted.

        Raises
        ------
        ValueError
            If X or a parameter is not valid, if the loss is not finite in the first window, or if
            the checkpoint is damaged or of other data, parameters or initial weights.
        OSError
            If the checkpoint cannot be written, at the start or during training. At the end of
            training this gives only a warning.
        """
        return self._fit(X, y)

    @without_caller_settings()
    @checks.all_or_nothing
    def _fit(
        self,
        X: Any,
        y: Any = None,
        epochs: LoaderEpochs | None = None,
        autocast: torch.dtype | None = None,
    ) -> Self:
        """Learn theta0 from rows X, or from epochs of a loader, whose first rows are X.

        `autocast` is the precision in which the network computes in training; None: its own.
        """
        X = self._validated(X, reset=self._learned() is None)
        y = labels.one_for_each_row(X, y)
        labels.warn_if_few(X, y)
        coherence = coherence_of(self.coherence, X)
        n_rows = len(X) if epochs is None else epochs.n_rows
        config, fresh = self._begin(X, y, coherence, n_rows)
        path = None if self.checkpoint is None else Path(self.checkpoint)
        digest = ""
        if path is not None:
            digest = self._digest(X, n_rows, str(autocast), coherence, config, fresh)
        checkpointer = Checkpointer(path, digest)
        state = checkpointer.first_state(fresh)
        self._prepare(X, coherence, config, fresh.seed)
        last_epoch = None if config.ends_by_coherence else config.max_iter
        try:
            # Skips `_train` if the checkpoint holds all epochs. But with max_iter=0 `_train` runs:
            # it takes no step, but it builds the graph, which may raise an error.
            if last_epoch != state.n_ended or not config.max_iter:
                self._train(X, coherence, config, state, last_epoch, epochs, checkpointer, autocast)
        finally:  # also after an interrupt
            checkpointer.write_at_end()
        return self._store(X, config, state)

    @without_caller_settings()
    @checks.all_or_nothing
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Train for one more epoch.

        n calls give the same as ``fit`` with ``max_iter=n``, also with pickling in between. With
        coherence, set ``max_iter=n`` for these calls as well, because the learning rate falls over
        n epochs. ``max_iter="auto"`` with coherence gives a warning if an epoch has fewer steps
        than coherence needs. The graph of each call holds only the rows of this call. For rows
        that arrive over time use ``warm_start=True`` and ``fit`` on all rows so far, or on the new
        ones.

        Parameters
        ----------
        X, y
            As ``fit`` takes them.

        Returns
        -------
        self : estimator
            Fitted.

        Raises
        ------
        ValueError
            If X or a parameter is not valid, or the network is another one than in the first call.
        """
        first = not hasattr(self, "_state")
        X = self._validated(X, reset=first)
        y = labels.one_for_each_row(X, y)
        coherence = coherence_of(self.coherence, X)
        if first:
            config, state = self._begin(X, y, coherence, len(X))
            _warn_if_an_epoch_is_short(config, len(X))
            self._prepare(X, coherence, config, state.seed)
        else:
            config = self._config(len(X), coherence)
            self._check_unchanged(coherence, config)
            # A copy, so that an epoch that fails or is interrupted leaves no trace.
            state = self._state.copied()
            if state.steps_in_epoch >= len(X) // config.rows_a_step:
                state.steps_in_epoch = 0  # the unfinished epoch had more rows than X
        self._train(X, coherence, config, state, state.n_ended + 1)
        return self._store(X, config, state)

    @without_caller_settings()
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
        X = self._validated(X, reset=False)
        coherence, theta0 = coherence_of(self.coherence, X), self.theta0_.without_gain()
        config, device = self._config(len(X), coherence), torch_device(self.device)
        batches = self._row_batches(X, coherence, config, self._state.seed, for_score=True)
        loss = mean_loss(self._builder, batches, config, theta0, _FIRST_SCORE_STEP, device)
        if not math.isfinite(loss):
            raise checks.not_finite("the loss of X is")
        return -loss

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

    def _begin(
        self, X: np.ndarray, y: Any, coherence: Coherence | None, n_rows: int
    ) -> tuple[Config, State]:
        """Inspect the network on a few rows; return the training's settings and a fresh state."""
        (seed,) = seeds_of(self.random_state, 1)
        learned, of_labels = self._learned(), labels.n_classes_in(y)
        was_known = learned is not None and self._n_classes_is_known
        self._n_classes_is_known = bool(
            of_labels or was_known or self.module is not None or not checks.is_auto(self.n_classes)
        )
        if learned is not None:  # a later y may miss classes
            of_labels = max(of_labels or 0, learned.architecture.n_classes)
        factory = factories.factory_of_initializer(
            vars(self), self.n_features_in_, seed_of(seed, Purpose.WEIGHTS), of_labels
        )
        self._builder, theta0 = NetworkBuilder.of(
            factory.snapshot(), X, self.sampler, self.hidden_layer
        )
        if not self._builder.takes_integers:
            checks.warn_if_unscaled(X, getattr(self, "feature_names_in_", None))
        self._moments = None if self._builder.takes_integers else mean_and_variance(X)
        architecture = self._builder.architecture
        if not (checks.is_auto(self.n_classes) or self.n_classes == architecture.n_classes):
            raise ValueError(
                f"n_classes={self.n_classes}, and the module {architecture.module} returns "
                f"{architecture.n_classes} logits; make them equal, or leave n_classes at 'auto'"
            )
        if learned is not None:
            _check_same_network(learned.architecture, architecture)
            warn_if_another_scale(X, learned.row_mean, learned.row_spread)
            theta0 = learned.without_gain()
        if coherence is not None or self.output == "hidden":
            self._builder.hidden(theta0, X[:2], "cpu")  # raises without a last linear layer
        config = self._config(n_rows, coherence)
        return config, State(seed, theta0, n_planned_epochs=max(config.max_iter, 1))

    def _learned(self) -> Theta0 | None:
        """The theta0 that a warm start goes on from, or None."""
        return getattr(self, "theta0_", None) if self.warm_start else None

    def _train(
        self,
        X: np.ndarray,
        coherence: Coherence | None,
        config: Config,
        state: State,
        last_epoch: int | None,
        epochs: LoaderEpochs | None = None,
        keep: Checkpointer | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        """Train until epoch `last_epoch` ends; if None, for as many steps as L_coh decides."""
        batches: RowBatches | StreamBatches
        if epochs is None:
            batches = self._row_batches(X, coherence, config, state.seed)
        else:
            augmentation = coherence.augmentation if coherence else None
            integers = self._builder.takes_integers
            of_data = epochs, config, integers, state.seed, augmentation
            batches = StreamBatches(*of_data, state.steps_an_epoch)
        device = torch_device(self.device)
        of_training = self._builder, batches, config, state, last_epoch, device
        train(*of_training, self.verbose, keep, autocast)

    def _config(self, n_rows: int, coherence: Coherence | None) -> Config:
        """Settings by the parameters as they are now; an error if the network cannot have them."""
        _check_gain(self.gain, self._builder.architecture.chain)
        n_classes, is_known = self._builder.info.n_classes, self._n_classes_is_known
        parameters = vars(self) | {"sampler": self._builder.info.sampler}
        return resolve(parameters, coherence, n_rows, n_classes, is_known)

    def _prepare(
        self, X: np.ndarray, coherence: Coherence | None, config: Config, seed: int
    ) -> None:
        """Fit the embedding, and store the parameters that partial_fit may not change."""
        self._begun_with = self._unchangeable(coherence, config)
        self._walks = WalkCache()
        self.embedding_ = None
        if coherence is not None:  # errors of the augmentation come before a long fit
            check_augmentation(coherence, X, self._builder.as_examples, torch_device(self.device))
            self.embedding_ = fit_embedding(coherence, X, seed)

    def _unchangeable(self, coherence: Coherence | None, config: Config) -> dict[str, Any]:
        """Parameters that partial_fit may not change."""
        parameters = self.get_params(deep=False)
        kept = {name: parameters[name] for name in _OF_THE_NETWORK}
        kept |= {name: v for name, v in parameters.items() if name.startswith("module__")}
        embedding = checks.repr_without_address(getattr(coherence, "embedding", None))
        return kept | {"embedding": embedding, "terms of the loss": config.term_names}

    def _check_unchanged(self, coherence: Coherence | None, config: Config) -> None:
        now, before = self._unchangeable(coherence, config), self._begun_with
        for name in sorted(now.keys() | before.keys()):
            value: Any = now.get(name)
            first: Any = before.get(name)
            if value is not first and not np.array_equal(value, first):
                raise ValueError(
                    f"{name} is now {value!r}, and pre-training began with {first!r}; begin anew "
                    "with fit"
                )

    def _row_batches(
        self,
        X: np.ndarray,
        coherence: Coherence | None,
        config: Config,
        seed: int,
        *,
        for_score: bool = False,
    ) -> RowBatches:
        """Mini-batches of rows X, with positive pairs if there is a coherence."""
        pairs = None
        if coherence is not None:
            walk = None
            if has_graph(coherence):
                of_rows = coherence, self.embedding_, X, self.verbose
                walk = self._walks.of(*of_rows, for_score=for_score)
            length = float(coherence.walk_length)
            pairs = PositivePairs(walk, length, seed, coherence.augmentation)
        return RowBatches(X, config.rows_a_step, seed, self._builder.as_examples, pairs)

    def _digest(
        self,
        X: np.ndarray,
        n_rows: int,
        autocast: str,
        coherence: Coherence | None,
        config: Config,
        fresh: State,
    ) -> str:
        """A hash of everything that affects the training."""
        # The same rows have the same hash in any layout. Rows in C order are not copied.
        rows = np.ascontiguousarray(X, X.dtype.newbyteorder("="))
        weights = fresh.current.architecture.to_json(), dict(fresh.current.arrays)
        settings = vars(config), settings_of(coherence), autocast
        return digest_of(rows, n_rows, fresh.seed, *weights, *settings)

    def _store(self, X: np.ndarray, config: Config, state: State) -> Self:
        """Set the fitted attributes."""
        self._state, self.config_ = state, config
        theta0 = state.result(config)
        if self._moments is not None:
            mean, variance = (array.reshape(X.shape[1:]) for array in self._moments)
            theta0 = replace(theta0, row_mean=mean, row_spread=np.sqrt(variance))
        H = None
        if config.coherence is not None:
            rows = np.sort(permutation(state.seed, 0, len(X))[:_JUDGED_ROWS])
            H = self._builder.hidden(theta0, X[rows], "cpu")
        self.gain_ = self._factors(len(theta0.architecture.chain) - 1, H)
        self.theta0_ = theta0.with_gain(self.gain_)
        self.sampler_ = self._builder.info.sampler
        self.why_functional_ = self._builder.info.why_functional
        self.history_ = state.records(config.term_names)
        self.loss_curve_ = [record["loss"] for record in self.history_]
        complete = state.history or self.history_
        self.best_loss_ = min((record["loss"] for record in complete), default=np.inf)
        self.n_iter_ = state.n_epochs
        self.converged_: bool | None = None
        if H is not None:
            self._judge_coherence(state.levels_before_the_fall(), H)
        loss, where = self.best_loss_, "in the best window"
        if config.coherence and self.history_:
            loss, where = self.loss_curve_[-1], "in the last window"
        if self.history_ and loss > _DIVERGED * max(state.first_loss, 1.0):
            warn_user(
                f"the loss is {loss:.3g} {where} and began at {state.first_loss:.3g}; try a "
                f"smaller learning_rate_init than {config.learning_rate_init}, or standardize X",
                ConvergenceWarning,
            )
        return self

    def _judge_coherence(self, levels: list[float], H: np.ndarray) -> None:
        """Set ``converged_``; warn if L_coh was still falling, or if predictions have collapsed."""
        assert self.config_.coherence is not None
        self.converged_ = has_converged(levels, self.config_.coherence.separation)
        if len(levels) < 2:
            return  # too few steps to judge, or a training that is not over
        longer = f"max_iter={2 * self.n_iter_}"
        # No epoch of the stream has ended, and perhaps none ever does.
        if self._state.steps_an_epoch == math.inf:
            n_rows = 2 * self._state.step * self.config_.rows_a_step
            longer = f"max_iter=1 with data that end after {n_rows:,} examples"
        if is_still_falling(levels):
            warn_user(
                f"L_coh was still falling, from {levels[-2]:.3g} to {levels[-1]:.3g} in {SPAN} "
                f"steps, when the learning rate began to fall; try {longer}",
                ConvergenceWarning,
            )
        some = torch.from_numpy(H[:: -(-len(H) // _COLLAPSE_ROWS)])
        C = logit_correlation(some, self._builder.info.n_biases)
        together = float(C.square().mean())
        if together > _COLLAPSED:
            warn_user(
                f"theta0 hardly distinguishes rows: the mean squared correlation of their "
                f"predictions is {together:.2f}, and 1 means that all predictions move together; "
                f"standardize X, learn longer ({longer}), take a network without global average "
                "pooling, or set a larger coherence__separation",
                ConvergenceWarning,
            )

    def _factors(self, n_hidden: int, H: np.ndarray | None) -> tuple[float, ...]:
        """Gain of each hidden layer. "auto" depends on how far Adam's first step moves a logit.

        H (n, n_units) are last hidden activations, or None without coherence.
        """
        if n_hidden < 1:
            return ()
        if not checks.is_auto(self.gain):
            factor = float(self.gain)
        elif H is None:
            factor = 1.0
        else:
            moved = _FINE_TUNING_RATE * float(np.abs(H).sum(axis=1).mean())
            factor = 1.0 if moved == 0.0 else (_FIRST_MOVE / moved) ** (1.0 / n_hidden)
        return (factor,) * n_hidden


def _warn_if_an_epoch_is_short(config: Config, n_rows: int) -> None:
    """Warn if one epoch has fewer steps than a training with coherence needs."""
    n_steps = n_rows // config.rows_a_step
    if n_steps < config.fewest_steps:
        warn_user(
            f"an epoch of these {n_rows:,} rows has {n_steps} steps, but coherence needs at least "
            f"{config.fewest_steps}. For rows that arrive over time use warm_start=True and fit, "
            "on all rows so far or on the new ones: a partial_fit looks for neighbours only among "
            "its own rows. To train epoch by epoch, set max_iter to the number of epochs",
            ConvergenceWarning,
        )


def _check_same_network(before: Architecture, now: Architecture) -> None:
    """Raise a ValueError if the network is not the one that a warm start goes on from."""
    described, described_now = (dict(each.parameters) | vars(each) for each in (before, now))
    for name, value in described_now.items():
        if value != (first := described.get(name)):
            raise ValueError(
                f"warm_start=True goes on from the theta0 of a network whose {name} is {first}, "
                f"and now it is {value}: keep the network, or pass warm_start=False to begin anew"
            )


def _check_gain(gain: Any, chain: tuple[str, ...]) -> None:
    """Raise a ValueError if the weights of a network cannot have this gain."""
    if checks.is_auto(gain):
        return
    if not chain and gain != 1:
        raise ValueError(
            f"{gain=} would change the function of this network: each of its layers must scale its "
            "output with its input, as ReLU without normalization does; use gain=1"
        )
    n_hidden = max(len(chain) - 1, 1)
    if n_hidden * abs(math.log(gain)) > -math.log(_TINY):
        # float32 cannot hold the product over all layers, or its inverse.
        largest = _TINY ** (-1 / n_hidden)
        limits = f"from {1 / largest:.2g} to {largest:.2g}"
        raise ValueError(f"{gain=} must be {limits}, so that the product over layers fits float32")
