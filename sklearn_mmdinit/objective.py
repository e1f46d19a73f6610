"""The paper's objective for any module and mini-batch, in any training loop."""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ._base.environment import in_single_precision
from ._base.module_factory import uncompiled
from ._base.random_streams import StepRandom
from ._base.validation import POSITIVE, check_argument, integers, numbers, one_of
from .losses import degeneracy, detachment, uniformity
from .networks.gram import gram_layers
from .networks.info import SAMPLERS, ModuleInfo, inspect_module, perturbed_logits
from .networks.passes import jacobian_norms, update_running_statistics

__all__ = ["MMDObjective", "MMDTerms"]

# The last inspection of each module, with what it depends on.
_inspections: WeakKeyDictionary[nn.Module, tuple[Any, ModuleInfo]] = WeakKeyDictionary()


class MMDTerms(NamedTuple):
    """The loss that :class:`MMDObjective` returns, and its three terms, each a scalar tensor.

    Parameters
    ----------
    total : Tensor
        The weighted sum of the terms, to be minimised.
    uniformity, degeneracy : Tensor
        L_uni and L_sd, without their weights.
    detachment : Tensor or None
        L_iod; None where its weight is 0, because it is then not computed.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit import MLP, MMDObjective
    >>> terms = MMDObjective(n_perturbations=8)(MLP(4, (8,), 2), torch.randn(16, 4))
    >>> terms.total.ndim, terms._fields
    (0, ('total', 'uniformity', 'degeneracy', 'detachment'))
    """

    total: torch.Tensor
    uniformity: torch.Tensor
    degeneracy: torch.Tensor
    detachment: torch.Tensor | None


class MMDObjective(nn.Module):
    r"""The pre-training loss of Lee & Cho (2023) for any module, for training loops of your own.

    The complete loss of Lee & Cho, :math:`L = L_{uni} + \lambda L_{sd} + \xi L_{iod}`, at the
    current parameters of the module. Each call draws K networks around the module, and each
    predicts the whole mini-batch. The defaults are the paper's values.

    Parameters
    ----------
    n_perturbations : int, default=256
        Number of perturbed networks in a call, the paper's K. It is also the number of samples of
        the uniform distribution, the paper's M. At least 2.
    uniformity_weight : float, default=1.0
        Weight of L_uni, a sum of nine kernels. 1 / 9 averages them.
    degeneracy_weight : float, default=0.4
        :math:`\lambda`, the weight of L_sd.
    detachment_weight : float, default=1.0
        :math:`\xi`, the weight of L_iod. With 0 it is not computed.
    perturbation_scale : float, default=0.7071067811865476
        The paper's s: weights are perturbed with standard deviation s / sqrt(n_in), biases with
        s / sqrt(n_out). Parameters that require no gradient are not perturbed.
    sampler : {"auto", "gram", "functional"}, default="auto"
        How the networks are drawn; their distribution is the same. "gram" draws the outputs of
        layers. It works for an :class:`MLP`, and for an nn.Sequential of nn.Linear, elementwise
        layers and nn.BatchNorm1d, perhaps after an nn.Flatten. "functional" draws the parameters of
        any module, by :func:`torch.func.vmap`, or one network after the other where vmap fails.
        "auto" takes "gram" where it works.
    generator : torch.Generator or None, default=None
        A generator on the CPU. It seeds the perturbations of each call, also those on a GPU. None:
        PyTorch's global one. Dropout always uses the global one. Under ``torchrun`` give each rank
        a different seed.

    Raises
    ------
    TypeError, ValueError
        If a parameter has a wrong type or value.

    See Also
    --------
    mmd_init_ : A training loop with this objective.
    sklearn_mmdinit.losses.coherence : The contrastive loss, which may be added to ``total``.

    Notes
    -----
    The first call with a module inspects a copy of it by a few forward passes. Each call updates
    running statistics of normalizations from the mini-batch. If the module has batch
    normalization, give each call at least 32 examples: with fewer, the gradient of L_iod is mostly
    noise. In deep networks L_iod is very large at random initialisation, 1e4 for ResNet-50 and 1e33
    for EfficientNet, and outweighs the other terms: set ``detachment_weight=0``.

    The module keeps its mode, device and precision. In training mode dropout is on;
    :func:`mmd_init_` switches it off. Differentiate by ``backward`` or
    :func:`torch.autograd.grad`, not by :func:`torch.func.grad`. Under :class:`torch.autocast`
    matrix products run in half precision. The losses, and the Cholesky factors of "gram", are
    computed in float32.

    For several GPUs, write a module whose ``forward`` returns the loss, and wrap that module, not
    the network, in DistributedDataParallel. DistributedDataParallel averages gradients only if its
    own forward pass was called, and the objective does not call it for perturbed networks.

    The terms are differentiable once: a backward pass with ``create_graph=True`` raises an error.
    Under :func:`torch.compile` the objective runs uncompiled, with a graph break before and after.

    Examples
    --------
    A training loop with a term of one's own, here a small norm of the weights:

    >>> import torch
    >>> from sklearn_mmdinit import MMDObjective
    >>> X = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    >>> net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    >>> objective = MMDObjective(n_perturbations=16, generator=torch.Generator().manual_seed(0))
    >>> for x in X.split(16):
    ...     terms = objective(net, x)
    ...     loss = terms.total + 1e-3 * sum(p.square().sum() for p in net.parameters())
    ...     loss.backward()
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    >>> terms.detachment.shape
    torch.Size([])
    """

    def __init__(
        self,
        n_perturbations: int = 256,
        *,
        uniformity_weight: float = 1.0,
        degeneracy_weight: float = 0.4,
        detachment_weight: float = 1.0,
        perturbation_scale: float = math.sqrt(0.5),
        sampler: str = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_argument("n_perturbations", n_perturbations, integers(2))
        check_argument("uniformity_weight", uniformity_weight, numbers(0))
        check_argument("degeneracy_weight", degeneracy_weight, numbers(0))
        check_argument("detachment_weight", detachment_weight, numbers(0))
        check_argument("perturbation_scale", perturbation_scale, POSITIVE)
        check_argument("sampler", sampler, one_of(SAMPLERS))
        check_argument("generator", generator, torch.Generator, None)
        self.n_perturbations = n_perturbations
        self.uniformity_weight = uniformity_weight
        self.degeneracy_weight = degeneracy_weight
        self.detachment_weight = detachment_weight
        self.perturbation_scale = perturbation_scale
        self.sampler = sampler
        self.generator = generator

    def forward(self, module: nn.Module, X: torch.Tensor) -> MMDTerms:
        """Draw networks around a module and compute the terms on a mini-batch.

        Parameters
        ----------
        module : nn.Module
            Returns logits (B, d) for at least two classes.
        X : Tensor of shape (B, ...)
            Examples as the module takes them, on its device.

        Returns
        -------
        MMDTerms
            ``total`` and the single terms, differentiable with respect to the module's parameters.

        Raises
        ------
        TypeError
            If `module` is no nn.Module or is a DistributedDataParallel, or `X` is no tensor.
        ValueError
            If `X` has no examples, or the module returns no logits. Also if ``detachment_weight``
            is above 0 and there is nothing to differentiate by: the input holds no floats, and no
            nn.Linear, nn.Embedding or convolution comes before the last layer. Errors of the module
            itself keep their type, with a note.
        """
        terms = self._terms
        # Double backward cannot be compiled. A decorator would always import the compiler.
        if torch.compiler.is_compiling():
            terms = torch.compiler.disable(terms)
        return terms(module, X)

    def _terms(self, module: nn.Module, X: torch.Tensor) -> MMDTerms:
        """The terms of a module on X (B, ...)."""
        check_argument("module", module, nn.Module)
        check_argument("X", X, torch.Tensor)
        if X.ndim == 0 or len(X) == 0:
            raise ValueError(f"X must hold examples (B, ...), got shape {tuple(X.shape)}")
        module = uncompiled(module)
        if isinstance(module, DistributedDataParallel):
            raise TypeError(
                "module is a DistributedDataParallel, which averages gradients only after its own "
                "forward pass; write an nn.Module that holds the plain net and whose forward(X) "
                "returns objective(self.net, X).total, wrap it, and call wrapped(X).backward()"
            )
        info, seed = self._inspected(module, X)
        return paper_terms(self, module, info, X, StepRandom(seed, X.device))

    def _inspected(self, module: nn.Module, X: torch.Tensor) -> tuple[ModuleInfo, int]:
        """The ModuleInfo of the module, inspected anew only after a change, and a seed."""
        parts = tuple((id(part), part.training) for part in module.modules())
        moving = tuple(parameter.requires_grad for parameter in module.parameters())
        # Hooks and shared weights, which gram cannot serve, may be added between calls.
        is_chain = bool(gram_layers(module))
        key = X.shape[1:], X.dtype, X.device, self.sampler, parts, moving, is_chain
        seed = torch.empty((), dtype=torch.int64, device="cpu").random_(generator=self.generator)
        if _inspections.get(module, (None,))[0] != key:
            _inspections[module] = key, inspect_module(module, X, self.sampler)
        return _inspections[module][1], int(seed)


def paper_terms(
    settings: Any, module: nn.Module, info: ModuleInfo, X: torch.Tensor, random: StepRandom
) -> MMDTerms:
    """The terms of an inspected module on X (B, ...); `settings` is an MMDObjective or a Config."""
    K, d = settings.n_perturbations, info.n_classes
    U = random.simplex(K, d)  # (M, d), M = K
    logits = perturbed_logits(module, info, X, K, settings.perturbation_scale, random)
    P = in_single_precision(logits).softmax(dim=-1)
    L_uni = uniformity(P, U)
    L_sd, L_iod = degeneracy(P), None
    total = settings.uniformity_weight * L_uni + settings.degeneracy_weight * L_sd
    with torch.set_grad_enabled(torch.is_grad_enabled() and bool(settings.detachment_weight)):
        statistics = update_running_statistics(module, X)
    if settings.detachment_weight:
        L_iod = detachment(jacobian_norms(module, X, d, statistics))
        total = total + settings.detachment_weight * L_iod
    return MMDTerms(total, L_uni, L_sd, L_iod)
