"""MMDInitializer: initial weights learned by the maximum mean discrepancy."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._auto import auto_gain, auto_values, rows_of_paper
from ._mmd_objective import objective_of
from ._mmd_parameters import check_numbers, check_parameters
from ._module_parameters import check_module, chosen_samplers, input_shape, module_blueprint
from ._nested_parameters import NestedParameters
from ._network import Theta0, with_gain
from ._pretraining import (
    BaseInitializer,
    Batches,
    Blueprint,
    Feed,
    Objective,
    PretrainingState,
    RowFeed,
    Schedule,
    WalkBatches,
    examples_checked,
    steps_at_a_time,
)
from .coherence import Walks, coherence_of, fit_embedding

__all__ = ["MMDInitializer"]


class MMDInitializer(NestedParameters, BaseInitializer):
    r"""Learn a network's initial weights from unlabelled data.

    Minimises eq. (final_loss) of Lee & Cho [1]_ over theta0,

    .. math:: L = L_{uni} + \lambda L_{sd} + \xi L_{iod},

    so that small random perturbations of theta0 give predictions that are uniform over the
    class simplex for every input, use all classes, and depend on the input. The values of
    the paper are the defaults.

    With ``coherence="auto"``, which is not the paper's, functions near theta0 are also smooth
    on the data, which is worth far more to tasks with few labels: see :class:`Coherence`.
    Parameters of "auto" then have the values that were measured to be best with it.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(392, 392, 392)
        Width of each hidden layer.
    module : None, nn.Module or subclass of it, default=None
        The network, which returns logits: an instance, of which copies are made and which gives
        the weights to start from, or a class, called with ``module__<name>`` parameters. X may
        have any shape that it takes. `n_classes` is handed to a class that takes it, its default
        where the class has none; what describes a perceptron stays as it is. None: a perceptron.
    hidden_layer : str, default=None
        Name of the linear layer in the module whose inputs are the last hidden activations, for
        `coherence` and `output`. None: the one that returns the logits.
    n_classes : int, default=2
        Number of classes of the tasks to come, the paper's d.
    activation : {"relu", "tanh", "gelu"}, default="relu"
        Non-linearity of the hidden layers.
    batch_norm : bool, default=False
        Batch normalisation before each activation. Each perturbed network normalises by its
        own mini-batch; scale and shift are learned but not perturbed.
    init : {"xavier", "he"}, default="xavier"
        Random weights to start from: Glorot uniform or Kaiming normal (fan-in), biases 0.
    perturbation_scale : float, default=0.7071067811865476
        The paper's s: weights are perturbed with standard deviation s / sqrt(n_in), biases
        with s / sqrt(n_out).
    coherence : None, "auto" or Coherence, default=None
        A fourth term that makes functions near theta0 smooth on the nearest-neighbour graph
        of X; "auto" stands for ``Coherence()``, with fewer neighbours where few rows differ.
        None is the paper's loss.
    n_perturbations : int or "auto", default="auto"
        Perturbed networks a step, the paper's K; at least 2. "auto": 256; with coherence 32.
    n_uniform_samples : int, default=None
        Samples of the uniform law a step, the paper's M; None means ``n_perturbations``.
    uniformity_weight : float, default=1.0
        Weight of L_uni. 1 sums its nine kernels, as the paper's text does; 1 / 9 averages them,
        with which, beside the other two terms, few units die, as in its tables. All weights 0,
        which needs a coherence: the paper's terms are neither computed nor in the history.
    degeneracy_weight : float, default=0.4
        The paper's lambda, weight of L_sd against degenerate softmax.
    detachment_weight : float, default=1.0
        The paper's xi, weight of L_iod against input-output detachment.
    jacobian_at : {"pre_activation", "activation"}, default="pre_activation"
        What of each hidden layer L_iod's Jacobians are with respect to: what enters its
        activation, as the paper's text has it, or what leaves it, with which its figure of
        L_iod near theta0 comes out as the paper describes it. Of a perceptron alone.
    mmd_estimator : {"unbiased", "biased"}, default="unbiased"
        Within-set means without or with the pairs of a point with itself. Unbiased, 0 means
        uniform, and single values may be negative.
    reference : {"auto", "sampled", "closed_form"}, default="auto"
        Means over uniform samples as in the paper, or exact expectations, which removes
        their noise; the latter for two classes only. "auto": "sampled"; with coherence
        "closed_form" for two classes.
    sampler : {"auto", "direct", "gram", "functional"}, default="auto"
        How perturbed networks are drawn. All have the same law: ``"direct"`` draws every
        weight, ``"gram"`` what they add to the pre-activations; ``"auto"`` takes the cheaper
        one for each layer, and a layer of a module without a form by gram is direct.
        ``"functional"``, slower, serves whatever :func:`torch.func.vmap` runs (not LSTM or GRU),
        and is what "auto" takes where layers of a module are not known (:func:`register_layer`).
    precision : {"float32", "bfloat16", "auto"}, default="float32"
        To what factors of perturbed perceptrons' products with weights are rounded; all else is
        float32. "auto": "bfloat16" where the device multiplies such numbers itself.
    learning_rate_init : float or "auto", default="auto"
        Of Adam. "auto": 0.0002; with coherence 0.004.
    learning_rate : {"auto", "constant", "cosine"}, default="auto"
        Constant, or falling to 2 % along a half cosine over ``max_iter`` passes. "auto":
        "constant"; with coherence "cosine".
    batch_size : int, default=32
        Rows a step that go through the paper's terms; at most the rows there are, and with
        coherence at most its own ``batch_size``.
    max_iter : int or "auto", default="auto"
        Passes over X. "auto": 5; with coherence as many as make 3,000 steps, which are
        13 passes over 60,000 rows: there a step starts a walk at ``coherence.batch_size`` rows.
    window : int, default=100
        Steps over which the loss is averaged.
    keep : {"auto", "best", "last"}, default="auto"
        Theta0 is what the parameters are at the end of the window with the lowest mean, or
        at the end of the run. "auto": "best"; with coherence "last", since a falling learning
        rate goes on improving what the mean of a window hardly shows.
    gain : float, sequence of float or "auto", default="auto"
        What each hidden layer's weights are multiplied by at the end, one number for all or
        one for each; the last layer's are divided by the product, so that the network computes
        the same function. For ReLU without batch normalisation only, or a module whose layers
        hand a scale on, one after the other; 1 for other modules. Fine-tuning with a fixed
        learning rate moves larger weights less and answers faster. "auto": 1; with coherence
        such that the first step of fine-tuning can move a logit by 0.75.
    tol : float, default=None
        Stop early once ``n_iter_no_change`` windows in a row improve the best mean loss by
        no more than this; None never stops early.
    n_iter_no_change : int, default=10
        Windows to wait; only with ``tol``.
    output : {"passthrough", "hidden"}, default="passthrough"
        What ``transform`` returns: X, tagged with theta0, or the last hidden activations.
    device : str, default="auto"
        Any of PyTorch's devices; "auto" takes CUDA where there is one.
    random_state : int, RandomState instance or None, default=None
        Of initial weights, order of rows, perturbations and uniform samples.
    verbose : int, default=0
        A progress bar with the means of the last window if positive.
    **module__params : dict
        ``module__<name>``: what the class in `module` is called with.

    Attributes
    ----------
    theta0_ : Theta0
        What was learned, with its architecture.
    coefs_, intercepts_ : list of ndarray
        Weights (n_in, n_out) and biases (n_out,) of each layer; of a perceptron alone.
    history_ : list of dict
        Means of "loss", "uniformity", "degeneracy", "detachment" and, where there is one,
        "coherence" of each window that ended at "step".
    loss_curve_ : list of float
        Mean loss of each window.
    best_loss_ : float
        The lowest of them.
    embedding_ : estimator or None
        The ``coherence.embedding``, fitted.
    gain_ : tuple of float
        Factor of each hidden layer's weights in ``theta0_``.
    auto_params_ : dict
        What each parameter of "auto" stood for; the gain is ``gain_``.
    samplers_ : dict of str to str
        How each layer is drawn, by its name; under "functional" each parameter.
    why_functional_ : str
        Why a module has the functional sampler; empty where it has not.
    n_iter_ : int
        Passes over X begun.
    n_features_in_ : int
        Columns of X, or numbers of an example.
    feature_names_in_ : ndarray of str
        Names of the columns, where X has them.

    See Also
    --------
    mmd_init_ : The same for a module, in place.
    Coherence : The fourth term and its parameters.
    register_layer : Makes a type of layer known.
    RandomLabelInitializer : The paper's baseline.
    MLPClassifier, NetClassifier : Fine-tune from theta0.

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

    def __init__(
        self,
        hidden_layer_sizes: Any = (392, 392, 392),
        *,
        module: Any = None,
        hidden_layer: str | None = None,
        n_classes: int = 2,
        activation: str = "relu",
        batch_norm: bool = False,
        init: str = "xavier",
        perturbation_scale: float = math.sqrt(0.5),
        coherence: Any = None,
        n_perturbations: Any = "auto",
        n_uniform_samples: int | None = None,
        uniformity_weight: float = 1.0,
        degeneracy_weight: float = 0.4,
        detachment_weight: float = 1.0,
        jacobian_at: str = "pre_activation",
        mmd_estimator: str = "unbiased",
        reference: str = "auto",
        sampler: str = "auto",
        precision: str = "float32",
        learning_rate_init: Any = "auto",
        learning_rate: str = "auto",
        batch_size: int = 32,
        max_iter: Any = "auto",
        window: int = 100,
        keep: str = "auto",
        gain: Any = "auto",
        tol: float | None = None,
        n_iter_no_change: int = 10,
        output: str = "passthrough",
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        **module__params: Any,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.module = module
        self.hidden_layer = hidden_layer
        self.n_classes = n_classes
        self.activation = activation
        self.batch_norm = batch_norm
        self.init = init
        self.perturbation_scale = perturbation_scale
        self.coherence = coherence
        self.n_perturbations = n_perturbations
        self.n_uniform_samples = n_uniform_samples
        self.uniformity_weight = uniformity_weight
        self.degeneracy_weight = degeneracy_weight
        self.detachment_weight = detachment_weight
        self.jacobian_at = jacobian_at
        self.mmd_estimator = mmd_estimator
        self.reference = reference
        self.sampler = sampler
        self.precision = precision
        self.learning_rate_init = learning_rate_init
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.window = window
        self.keep = keep
        self.gain = gain
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.output = output
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self._set_module_keywords(module__params)

    def _check_params(self) -> None:
        check_numbers(self)
        super()._check_params()
        check_parameters(self)
        check_module(self)

    def _rows(self, X: Any, *, reset: bool, **checks: Any) -> np.ndarray:
        shape = None if reset else input_shape(self._blueprint)
        if shape is None and not (reset and self.module is not None):
            return super()._rows(X, reset=reset, **checks)
        return np.asarray(examples_checked(self, X, reset=reset, shape=shape, **checks))

    def _new_blueprint(self, X: np.ndarray, seed: int) -> Blueprint:
        if self.module is None:
            return super()._new_blueprint(X, seed)
        return module_blueprint(self, X, seed)

    def _feed(self, X: np.ndarray, state: PretrainingState, blueprint: Blueprint) -> Feed:
        if self.module is None:
            return super()._feed(X, state, blueprint)
        batches = self._batches(X, state)
        most = steps_at_a_time(batches.n_rows, X[0].size)
        return RowFeed(X, batches, state.seed, blueprint.examples, most)

    def _resolved(self, n_rows: int | None = None) -> Self:
        resolved = copy(self)
        for name, value in auto_values(self, n_rows).items():
            setattr(resolved, name, value)
        return resolved

    def _objective(self) -> Objective:
        return objective_of(self._resolved())

    def _begun(self, X: np.ndarray) -> tuple[Blueprint, PretrainingState]:
        blueprint, state = super()._begun(X)
        coherence = coherence_of(self.coherence, X)
        if coherence is not None:
            state.embedding = fit_embedding(coherence, X, state.seed)
        # A graph is known by its transformer's name, which another class may have by now.
        self._walks = Walks()
        return blueprint, state

    @property
    def embedding_(self) -> Any:
        """The ``coherence.embedding``, fitted; None where there is none."""
        check_is_fitted(self, "theta0_")
        return self._state.embedding

    def _batches(self, X: np.ndarray, state: PretrainingState) -> Batches:
        coherence = coherence_of(self.coherence, X)
        if coherence is None:
            return super()._batches(X, state)
        walk = self._walks.of(coherence, state.embedding, X, self.verbose)
        size = min(coherence.batch_size, len(X))
        return WalkBatches(size, walk, coherence.walk_length, state.seed, coherence.augmentation)

    def _schedule(self) -> Schedule:
        return replace(super()._schedule(), learning_rate=self.learning_rate, keep=self.keep)

    def _finished(self, theta0: Theta0, X: np.ndarray, seed: int, blueprint: Blueprint) -> Theta0:
        self.auto_params_ = auto_values(self, len(X), theta0.architecture.n_classes)
        self.gain_ = auto_gain(self, theta0, X, seed, blueprint)
        n_rows = rows_of_paper(self, len(X))
        self.samplers_ = chosen_samplers(blueprint, theta0, self.sampler, n_rows)
        self.why_functional_ = getattr(blueprint, "why_functional", "")
        return with_gain(theta0, self.gain_)
