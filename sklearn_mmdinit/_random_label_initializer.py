"""RandomLabelInitializer: the paper's baseline, initial weights learned from random labels."""

from __future__ import annotations

from typing import Any

from ._objective import RandomLabelObjective
from ._pretraining import BaseInitializer

__all__ = ["RandomLabelInitializer"]


class RandomLabelInitializer(BaseInitializer):
    """Learn initial weights by fitting random labels, the paper's "R.label" baseline.

    Minimises cross entropy with labels drawn anew, uniformly over the classes, for every
    mini-batch [1]_. Optimiser, passes and selection are those of :class:`MMDInitializer`.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(392, 392, 392)
        Width of each hidden layer.
    n_classes : int, default=2
        Number of classes of the tasks to come, the paper's d.
    activation : {"relu", "tanh", "gelu"}, default="relu"
        Non-linearity of the hidden layers.
    batch_norm : bool, default=False
        Batch normalisation before each activation.
    init : {"xavier", "he"}, default="xavier"
        Random weights to start from: Glorot uniform or Kaiming normal (fan-in), biases 0.
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
        Of initial weights, order of rows and labels.
    verbose : int, default=0
        A progress bar with the means of the last window if positive.

    Attributes
    ----------
    theta0_ : Theta0
        What was learned, with its architecture.
    coefs_, intercepts_ : list of ndarray
        Weights (n_in, n_out) and biases (n_out,) of each layer.
    history_ : list of dict
        Mean "loss" of each window that ended at "step".
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
    MMDInitializer : The paper's own initialization.

    References
    ----------
    .. [1] V. Pondenkandath et al., "Leveraging Random Label Memorization for Unsupervised
       Pre-Training", arXiv 1811.01640, 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_mmdinit import RandomLabelInitializer
    >>> X = load_digits().data / 16
    >>> init = RandomLabelInitializer((32,), max_iter=2, random_state=0).fit(X)
    >>> bool(0.6 < init.best_loss_ < 0.8)  # log(2) is all that random labels allow
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

    def _objective(self) -> RandomLabelObjective:
        return RandomLabelObjective()
