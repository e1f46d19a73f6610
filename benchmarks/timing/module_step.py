"""The general path, of any PyTorch module: beside the perceptron's own, and beside its floor.

The paper's perceptron as an ``nn.Sequential`` in ``module=`` must compute what the perceptron's own
code does, on the same noise and in law; only then its step is timed beside it. A ConvNet's step is
timed beside its dense products at the rate of this machine's own sgemm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from engines.threads import threads
from protocol.networks import ConvNet
from sklearn_mmdinit import MMDInitializer, Theta0
from timing.agreement import (
    compare_laws,
    compare_predictions,
    random_rows,
    random_theta0,
    relative_error,
    require,
)
from timing.clock import in_turns, ratio
from timing.floor import LayerSize, products_of_layers, sgemm_runner, total_flops
from timing.library_step import library_loss, module_loss
from timing.step_forms import Size, estimator_measure, initializer

__all__ = [
    "ConvSize",
    "check_module_law",
    "check_module_same_noise",
    "convnet_initializer",
    "layers_of",
    "measure_modules",
    "module_initializer",
    "sequential_of",
]

# In float64 both paths do the same operations, in another order.
_SAME = 1e-9


@dataclass(frozen=True)
class ConvSize:
    """What a step of a ConvNet works on."""

    side: int = 28
    width: int = 8
    n_classes: int = 2
    n_perturbations: int = 64
    batch_size: int = 32

    def images(self, n_rows: int) -> np.ndarray:
        """So many images (n, 1, side, side)."""
        rows = random_rows(n_rows, self.side**2)
        return rows.reshape(n_rows, 1, self.side, self.side)


def sequential_of(theta0: Theta0) -> nn.Sequential:
    """The ReLU perceptron at a theta0, in layers of PyTorch's."""
    layers: list[nn.Module] = []
    for W, b in zip(theta0.coefs, theta0.intercepts, strict=True):
        linear = nn.Linear(*W.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(W.T)))
            linear.bias.copy_(torch.from_numpy(np.ascontiguousarray(b)))
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def module_initializer(
    size: Size, device: str = "cpu", theta0: Theta0 | None = None, **parameters: Any
) -> MMDInitializer:
    """The library at a given size by its general path, which starts where the other one does."""
    if theta0 is None:
        theta0 = random_theta0(initializer(size), size.n_features)
    return MMDInitializer(
        module=sequential_of(theta0),
        n_perturbations=size.n_perturbations,
        batch_size=size.batch_size,
        device=device,
        random_state=0,
        **parameters,
    )


def convnet_initializer(size: ConvSize, device: str = "cpu") -> MMDInitializer:
    """The library at a ConvNet of a given size."""
    return MMDInitializer(
        module=ConvNet,
        module__side=size.side,
        module__width=size.width,
        module__n_classes=size.n_classes,
        n_classes=size.n_classes,
        n_perturbations=size.n_perturbations,
        batch_size=size.batch_size,
        device=device,
        random_state=0,
    )


# Do both paths compute the same thing?


def check_module_same_noise(
    n_classes: int = 2, batch_size: int = 8, **changed: Any
) -> dict[str, float]:
    """Loss and gradient of both paths on the same perturbed networks, in float64.

    Parameters
    ----------
    n_classes, batch_size : int
        Size of the problem.
    **changed : dict
        Parameters of the general path that differ, to see a difference noticed.

    Returns
    -------
    dict
        Relative errors of loss and gradient.

    Raises
    ------
    DisagreementError
        If one of them exceeds 1e-9.
    """
    size = Size(20, (24, 16), n_classes, n_perturbations=32, batch_size=batch_size)
    own = initializer(size, sampler="direct")
    theta0 = random_theta0(own, size.n_features)
    general = module_initializer(size, theta0=theta0, **{"sampler": "direct"} | changed)
    X = torch.from_numpy(random_rows(batch_size, size.n_features, seed=1)).double()
    generator = torch.Generator().manual_seed(2)
    U = torch.empty(32, n_classes, dtype=X.dtype).exponential_(generator=generator)
    shapes = [s for W, b in zip(theta0.coefs, theta0.intercepts, strict=True)
              for s in (W.T.shape, b.shape)]  # fmt: skip
    normals = [torch.randn(32, *s, generator=generator, dtype=X.dtype) for s in shapes]
    draws = U / U.sum(1, keepdim=True), normals
    loss, gradient = library_loss(own, theta0, X, draws)
    found, slopes = module_loss(general, X, draws)
    errors = {
        "module loss": abs(found - loss) / abs(loss),
        "module gradient": max(map(relative_error, slopes, gradient)),
    }
    require(max(errors.values()) < _SAME, "both paths differ on the same noise", errors)
    return errors


def check_module_law(
    repetitions: int, size: Size, n_networks: int, **changed: Any
) -> dict[str, float]:
    """Both paths' mean loss and gradient at a small size, and outputs at a given one, in law.

    Parameters
    ----------
    repetitions : int
        Losses and gradients to average.
    size : Size
        Of the outputs that are compared.
    n_networks : int
        Perturbed networks to compare them of.
    **changed : dict
        Parameters of the general path that differ, to see a difference noticed.

    Returns
    -------
    dict
        Largest differences in standard errors, and the smallest p-value of the tests of outputs.

    Raises
    ------
    DisagreementError
        If a difference exceeds 5 standard errors or a p-value falls below 1e-4.
    """
    small = Size(16, (12, 12), n_perturbations=64, batch_size=4)
    own = initializer(small, sampler="gram")
    theta0 = random_theta0(own, small.n_features)
    general = module_initializer(small, theta0=theta0, **{"sampler": "gram"} | changed)
    X = torch.from_numpy(random_rows(small.batch_size, small.n_features, seed=1))
    samples: list[list[np.ndarray]] = [[], []]
    with threads(1):  # nothing here is large enough for two
        for seed in range(repetitions):
            pairs = (
                library_loss(own, theta0, X, seed=seed),
                module_loss(general, X, seed=10**6 + seed),
            )
            for sample, (loss, gradient) in zip(samples, pairs, strict=True):
                sample.append(np.concatenate([[loss], *map(np.ravel, gradient)]))
    found = compare_laws(*map(np.stack, samples))
    start = random_theta0(initializer(size), size.n_features)
    # No pass: what it is fitted to is where it starts.
    fitted = module_initializer(size, theta0=start, max_iter=0, **changed)
    fitted.fit(random_rows(2, size.n_features))
    rows = random_rows(size.batch_size, size.n_features, seed=1)
    scale = fitted.perturbation_scale
    return found | compare_predictions(start, fitted, rows, n_networks, scale=scale)


# How long a step takes


def layers_of(module: nn.Module, X: torch.Tensor, samplers: Mapping[str, str]) -> list[LayerSize]:
    """Layers with a weight in the order of their calls, as sizes of products.

    Parameters
    ----------
    module : nn.Module
        Of linear layers and convolutions without groups.
    X : Tensor of shape (1, ...)
        An example.
    samplers : mapping of str to str
        How each layer is drawn, by its name.
    """
    found: list[LayerSize] = []
    names = {layer: name for name, layer in module.named_modules()}

    def look(layer: Any, inputs: Any, output: torch.Tensor) -> None:
        n_out, n_in = len(layer.weight), layer.weight[0].numel()
        by_gram = samplers[names[layer]] == "gram"
        found.append(LayerSize(n_in, n_out, by_gram, output.numel() // n_out))

    handles = [layer.register_forward_hook(look) for layer in names if hasattr(layer, "weight")]
    with torch.no_grad():
        module.eval()(X)
    for handle in handles:
        handle.remove()
    return found


def _convnet_flops(size: ConvSize) -> int:
    fitted = convnet_initializer(size).set_params(max_iter=0).fit(size.images(size.batch_size))
    example = torch.from_numpy(size.images(1))
    layers = layers_of(fitted.to_module(), example, fitted.samplers_)
    return total_flops(products_of_layers(layers, size.batch_size, size.n_perturbations))


def measure_modules(
    size: Size, convnets: Sequence[ConvSize], n_steps: int, rounds: int, device: str = "cpu"
) -> dict[str, Any]:
    """Time a step of both paths, of ConvNets and of their floors, in turns.

    Parameters
    ----------
    size : Size
        Of the perceptron's steps.
    convnets : sequence of ConvSize
        Of the ConvNets', each of another width.
    n_steps : int
        Steps in one measure.
    rounds : int
        Measures of each.
    device : str, default="cpu"
        Where to compute.

    Returns
    -------
    dict
        "seconds" of each, "ratios", and of each ConvNet its size and the "flops" of its products.
        A ConvNet goes by its width, as "convnet 8", and its floor as "convnet 8 floor".
    """
    rows = random_rows((n_steps + 1) * size.batch_size, size.n_features)
    width = max(size.hidden_layer_sizes)
    shape = (size.batch_size * size.n_perturbations, width, width)
    sgemm = sgemm_runner(*shape[:2], device)

    def steps(estimator: MMDInitializer, X: np.ndarray) -> Any:
        return estimator_measure(estimator, X, n_steps, device)

    def floor_of(flops: int) -> Any:
        return lambda: sgemm() * flops / (2 * int(np.prod(shape)))

    measures = {
        "perceptron": steps(initializer(size, device), rows),
        "sequential": steps(module_initializer(size, device), rows),
    }
    pairs, sizes = [("sequential", "perceptron")], []
    for convnet in convnets:
        name, flops = f"convnet {convnet.width}", _convnet_flops(convnet)
        images = convnet.images((n_steps + 1) * convnet.batch_size)
        measures[name] = steps(convnet_initializer(convnet, device), images)
        measures[f"{name} floor"] = floor_of(flops)
        pairs.append((name, f"{name} floor"))
        sizes.append({**vars(convnet), "flops": flops})
    times = in_turns(measures, rounds)
    return {
        "seconds": times,
        "ratios": {f"{above} / {below}": ratio(times, above, below) for above, below in pairs},
        "convnets": sizes,
    }
