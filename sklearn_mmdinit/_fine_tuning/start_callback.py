"""A skorch callback that starts any net at a theta0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from sklearn.exceptions import NotFittedError
from skorch.callbacks import Callback
from torch import nn

from .._network import as_arrays, put_arrays_, start_module_, uncompiled
from .given import GIVEN, given
from .initializers import is_fitted_initializer, is_initializer

__all__ = ["WarmStart"]


class WarmStart(Callback):
    """Skorch callback that starts a net of your own at learned initial weights.

    Whenever skorch has made a fresh ``net.module_``, and before it is first trained, its weights
    become theta0: in every ``fit`` but one with skorch's ``warm_start=True`` that goes on, and in
    the first ``partial_fit``. Later calls of ``partial_fit`` go on from where the net is.

    Parameters
    ----------
    theta0 : Theta0, initializer, dict, str, path-like or None
        A Theta0; a fitted initializer, which ``clone`` of the net leaves fitted; arrays or tensors
        named as in the module's ``state_dict``; or the path of a ``.safetensors`` file. It is
        read when training begins. None: fresh weights, so that a search can compare.

    See Also
    --------
    NetClassifier : Does this and more, without a skorch net of your own.

    Notes
    -----
    Training begins with a TypeError if `theta0` is none of these, with a NotFittedError if it is an
    initializer that has not learned, and with a ValueError if it is of another class than
    ``net.module_`` or has other arrays.

    Examples
    --------
    >>> import torch
    >>> from skorch import NeuralNetClassifier
    >>> from torch import nn
    >>> from sklearn_mmdinit import MMDInitializer, WarmStart
    >>> X = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    >>> module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> init = MMDInitializer(module=module, n_perturbations=4, max_iter=1, random_state=0)
    >>> start = WarmStart(init.fit(X))
    >>> net = NeuralNetClassifier(module, max_epochs=0, callbacks=[start])
    >>> weight = net.fit(X, (X[:, 0] > 0).long()).module_[0].weight.detach()
    >>> bool((weight.numpy() == init.theta0_.arrays["0.weight"]).all())
    True
    """

    def __init__(self, theta0: Any) -> None:
        self.theta0 = theta0

    def __sklearn_clone__(self) -> Self:
        # A plain clone would drop what an initializer has learned.
        return type(self)(self.theta0)

    def initialize(self) -> Self:
        """What skorch calls when it makes a net afresh.

        Returns
        -------
        self : WarmStart
            This one.
        """
        self.waiting_ = True
        return self

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Start a fresh module at theta0.

        Parameters
        ----------
        net : skorch.NeuralNet
            About to be trained.
        X : object, default=None
            Not used.
        y : object, default=None
            Not used.
        **kwargs : dict
            Not used.
        """
        # Skorch also calls initialize() where set_params concerns any callback: then the net may
        # have been trained already.
        if self.waiting_ and not net.history and self.theta0 is not None:
            _start(uncompiled(net.module_), self.theta0)
        self.waiting_ = False


def _start(module: nn.Module, source: Any) -> None:
    if is_initializer(source):
        if not is_fitted_initializer(source):
            raise NotFittedError(f"{type(source).__name__} is not fitted yet; call its fit first")
        source = source.theta0_
    found = given(source)
    if found is None:
        raise TypeError(f"theta0 must be a fitted initializer, {GIVEN}, or None; got {source!r}")
    if isinstance(found, Mapping):
        put_arrays_(module, as_arrays(found))
    else:
        start_module_(module, found)
