"""MMDInitializer: initial weights learned by the maximum mean discrepancy."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from sklearn.utils import check_scalar

from ._compute import Workspace
from ._objective import ESTIMATORS, REFERENCES, MMDObjective
from ._pretraining import BaseInitializer, check_choice, check_finite
from ._sampling import SAMPLERS, Perturbation

__all__ = ["MMDInitializer"]


class MMDInitializer(BaseInitializer):
    r"""Learn a network's initial weights from unlabelled data.

    Minimises eq. (final_loss) of Lee & Cho [1]_ over theta0,

    .. math:: L = L_{uni} + \lambda L_{sd} + \xi L_{iod},

    so that small random perturbations of theta0 give predictions that are uniform over the
    class simplex for every input, use all classes, and depend on the input. The values of
    the paper are the defaults.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(392, 392, 392)
        Width of each hidden layer.
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
    n_perturbations : int, default=256
        Perturbed networks a step, the paper's K; at least 2.
    n_uniform_samples : int, default=None
        Samples of the uniform law a step, the paper's M; None means ``n_perturbations``.
    degeneracy_weight : float, default=0.4
        The paper's lambda, weight of L_sd against degenerate softmax.
    detachment_weight : float, default=1.0
        The paper's xi, weight of L_iod against input-output detachment.
    mmd_estimator : {"unbiased", "biased"}, default="unbiased"
        Within-set means without or with the pairs of a point with itself. Unbiased, 0 means
        uniform, and single values may be negative.
    reference : {"sampled", "closed_form"}, default="sampled"
        Means over uniform samples as in the paper, or exact expectations, which removes
        their noise; the latter for two classes only.
    sampler : {"auto", "direct", "gram"}, default="auto"
        How perturbed networks are drawn. All have the same law: ``"direct"`` draws every
        weight, ``"gram"`` what they add to the pre-activations; ``"auto"`` takes the cheaper
        one for each layer.
    learning_rate_init : float, default=0.0002
        Of Adam.
    batch_size : int, default=32
        Rows a step; at most the rows there are.
    max_iter : int, default=5
        Passes over X.
    window : int, default=100
        Steps over which the loss is averaged; theta0 is what the parameters are at the end of
        the window with the lowest mean.
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

    Attributes
    ----------
    theta0_ : Theta0
        What was learned, with its architecture.
    coefs_, intercepts_ : list of ndarray
        Weights (n_in, n_out) and biases (n_out,) of each layer.
    history_ : list of dict
        Means of "loss", "uniformity", "degeneracy" and "detachment" of each window that ended
        at "step".
    loss_curve_ : list of float
        Mean loss of each window.
    best_loss_ : float
        The lowest of them.
    n_iter_ : int
        Passes over X begun.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of str
        Names of the columns, where X has them.

    See Also
    --------
    RandomLabelInitializer : The paper's baseline.
    MLPClassifier : Fine-tunes from theta0.

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
        n_classes: int = 2,
        activation: str = "relu",
        batch_norm: bool = False,
        init: str = "xavier",
        perturbation_scale: float = math.sqrt(0.5),
        n_perturbations: int = 256,
        n_uniform_samples: int | None = None,
        degeneracy_weight: float = 0.4,
        detachment_weight: float = 1.0,
        mmd_estimator: str = "unbiased",
        reference: str = "sampled",
        sampler: str = "auto",
        learning_rate_init: float = 2e-4,
        batch_size: int = 32,
        max_iter: int = 5,
        window: int = 100,
        tol: float | None = None,
        n_iter_no_change: int = 10,
        output: str = "passthrough",
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.n_classes = n_classes
        self.activation = activation
        self.batch_norm = batch_norm
        self.init = init
        self.perturbation_scale = perturbation_scale
        self.n_perturbations = n_perturbations
        self.n_uniform_samples = n_uniform_samples
        self.degeneracy_weight = degeneracy_weight
        self.detachment_weight = detachment_weight
        self.mmd_estimator = mmd_estimator
        self.reference = reference
        self.sampler = sampler
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.window = window
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.output = output
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _check_own_params(self) -> None:
        check_choice("mmd_estimator", self.mmd_estimator, ESTIMATORS)
        check_choice("reference", self.reference, REFERENCES)
        check_choice("sampler", self.sampler, SAMPLERS)
        if self.reference == "closed_form" and self.n_classes != 2:
            raise ValueError(
                "reference='closed_form' is known for n_classes=2 only, got "
                f"n_classes={self.n_classes}; use reference='sampled'"
            )
        # The U-statistic divides by n - 1.
        check_scalar(self.n_perturbations, "n_perturbations", Integral, min_val=2)
        if self.n_uniform_samples is not None:
            check_scalar(self.n_uniform_samples, "n_uniform_samples", Integral, min_val=2)
        check_finite(self, "perturbation_scale", zero=False)
        check_finite(self, "degeneracy_weight", "detachment_weight")

    def _objective(self) -> MMDObjective:
        return MMDObjective(
            Perturbation(self.n_perturbations, self.perturbation_scale, self.sampler),
            n_uniform_samples=self.n_uniform_samples or self.n_perturbations,
            degeneracy_weight=self.degeneracy_weight,
            detachment_weight=self.detachment_weight,
            estimator=self.mmd_estimator,
            reference=self.reference,
            workspace=Workspace(),
        )
