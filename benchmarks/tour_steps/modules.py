"""Any PyTorch module: as an estimator, in place before a loop of one's own, in skorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier
from torch import nn

from protocol.networks import ConvNet
from sklearn_mmdinit import (
    MMDInitializer,
    ModuleArchitecture,
    NetClassifier,
    WarmStart,
    mmd_init_,
    register_layer,
)
from tour_steps.journey import Claims, Journey, say

__all__ = ["convolutions", "in_place", "own_layer", "skorch"]

SMALL: dict[str, Any] = {"n_perturbations": 8, "batch_size": 8, "random_state": 0}


def convolutions(journey: Journey) -> Claims:
    """A convolutional network's theta0, and NetClassifier from there."""
    init = MMDInitializer(
        module=ConvNet,
        module__n_classes=10,
        coherence="auto",
        max_iter=journey.amount(60, 4),
        **SMALL,
    ).fit(journey.images)
    journey.learned["convolutions"] = init
    say(f"layers are drawn {init.samplers_}")
    few, rest, y = journey.few, journey.rest, journey.y
    accuracy = {}
    for name, start in {"from theta0": init, "from scratch": None}.items():
        clf = NetClassifier(
            ConvNet, warm_start_from=start, max_iter=journey.amount(100, 3), random_state=0
        ).fit(journey.images[few], y[few])
        accuracy[name] = clf.score(journey.images[rest], y[rest])
        say(f"{name}: accuracy {accuracy[name]:.3f} with {len(few)} labels")
        if start is not None:
            begun: Any = clf.theta0_
    return {
        "theta0 is of a ModuleArchitecture": isinstance(
            init.theta0_.architecture, ModuleArchitecture
        ),
        "training starts there": all(
            np.array_equal(begun.arrays[name], value) for name, value in init.theta0_.arrays.items()
        ),
        "theta0 is the better start": journey.quick
        or accuracy["from theta0"] > accuracy["from scratch"],
    }


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(body, nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 10))


def in_place(journey: Journey) -> Claims:
    """mmd_init_ changes a module where it is; then a training loop of one's own."""
    images, labels = torch.from_numpy(journey.images), torch.from_numpy(journey.y)
    net = _net()
    weight: Any = net[1].weight
    before = weight.detach().clone()
    history = mmd_init_(net, images, coherence="auto", max_iter=journey.amount(20, 1), **SMALL)
    moved = float((weight - before).norm().detach() / before.norm())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    few, rest = torch.from_numpy(journey.few), torch.from_numpy(journey.rest)
    losses = []
    for _ in range(journey.amount(100, 20)):
        loss = nn.functional.cross_entropy(net(images[few]), labels[few])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    with torch.no_grad():
        accuracy = float((net(images[rest]).argmax(1) == labels[rest]).float().mean())
    say(f"{len(history)} windows, weights moved by {moved:.0%}; accuracy {accuracy:.3f}")
    return {"weights have moved": moved > 0.0, "the loop trains": losses[-1] < losses[0]}


def skorch(journey: Journey) -> Claims:
    """A skorch net of one's own: init.to_module as its module, or WarmStart among its callbacks."""
    init, few = journey.learned["convolutions"], journey.few
    own: dict[str, Any] = {
        "criterion": nn.CrossEntropyLoss,
        "optimizer": torch.optim.Adam,
        "train_split": None,
        "verbose": 0,
    }
    net = NeuralNetClassifier(init.to_module, lr=1e-3, max_epochs=journey.amount(100, 2), **own)
    net.initialize()
    at_start = {name: value.numpy().copy() for name, value in net.module_.state_dict().items()}
    net.fit(journey.images[few], journey.y[few])
    accuracy = net.score(journey.images[journey.rest], journey.y[journey.rest])
    say(f"skorch: accuracy {accuracy:.3f}")
    one, other = init.to_module(), init.to_module()
    start = WarmStart(init)
    called = NeuralNetClassifier(
        ConvNet, module__n_classes=10, max_epochs=0, callbacks=[start], **own
    ).fit(journey.images[few], journey.y[few])
    begun = called.module_.state_dict()
    return {
        "skorch starts at theta0": all(
            np.array_equal(at_start[name], value) for name, value in init.theta0_.arrays.items()
        ),
        "so it does with the callback": all(
            np.array_equal(begun[name], value) for name, value in init.theta0_.arrays.items()
        ),
        "each module is a copy of its own": one.fc1.weight is not other.fc1.weight,
    }


class Scale(nn.Module):
    """One weight for each feature."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features, each times its weight."""
        return x * self.weight


def own_layer(journey: Journey) -> Claims:
    """register_layer: a layer of one's own is drawn as fast as PyTorch's."""

    def samplers() -> MMDInitializer:
        torch.manual_seed(0)
        net = nn.Sequential(Scale(64), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2))
        return MMDInitializer(module=net, max_iter=1, **SMALL).fit(journey.X[:64])

    before = samplers()
    register_layer(Scale, lambda layer, s: {"weight": s})  # one weight an output
    after = samplers()
    say(f"before: functional, since {before.why_functional_}")
    say(f"after: {after.samplers_}")
    return {
        "an unknown layer makes it functional": set(before.samplers_.values()) == {"functional"},
        "a registered one does not": "functional" not in after.samplers_.values(),
    }
