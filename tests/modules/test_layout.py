"""The order of an image's numbers in memory: another speed, the same figures."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from module_zoo import double_network, draw, images, seeded
from protocol.networks import ConvNet, PatchTransformer, ResidualNet, flat_perceptron
from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit._modules import blueprint
from sklearn_mmdinit._modules.layout import layout_of


class Viewing(nn.Module):
    """Asks for the usual order, as much code does."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 3, 3), nn.Linear(3 * 36, 2)

    def forward(self, x):
        return self.head(self.conv(x).relu().view(len(x), -1))


class Volumes(nn.Module):
    """Has weights of images and of volumes; these have no such order."""

    def __init__(self):
        super().__init__()
        self.flat, self.deep = nn.Conv2d(1, 2, 3), nn.Conv3d(1, 3, 3, padding=1)
        self.head = nn.Linear(3 * 2 * 36, 2)

    def forward(self, x):
        return self.head(self.deep(self.flat(x).relu().unsqueeze(1)).flatten(1))


LAYOUTS = {
    ConvNet: torch.channels_last,
    ResidualNet: torch.channels_last,
    Viewing: torch.contiguous_format,
    Volumes: torch.contiguous_format,
    flat_perceptron: torch.contiguous_format,
}


@pytest.mark.parametrize("make", LAYOUTS)
def test_the_order_is_one_that_the_module_can_be_computed_in(make):
    module = seeded(make)
    strides = [p.stride() for p in module.parameters()]
    state = {name: value.clone() for name, value in module.state_dict().items()}
    before = torch.random.get_rng_state()
    assert layout_of(module, torch.from_numpy(images())) == LAYOUTS[make]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [p.stride() for p in module.parameters()] == strides
    for name, value in module.state_dict().items():
        assert torch.equal(value, state[name])


def fitted(make, monkeypatch, layout, **params):
    with monkeypatch.context() as patch:
        patch.setattr(blueprint, "layout_of", lambda module, examples: layout)
        init = MMDInitializer(
            module=seeded(make), n_perturbations=6, max_iter=2, random_state=0, **params
        )
        return init.fit(images(n=64))


@pytest.mark.parametrize("sampler", ["direct", "functional"])
@pytest.mark.parametrize("make", [ConvNet, ResidualNet, PatchTransformer])
def test_figures_are_the_same_in_both(make, sampler, monkeypatch):
    layouts = torch.channels_last, torch.contiguous_format
    inits = [fitted(make, monkeypatch, layout, sampler=sampler) for layout in layouts]
    curves = [init.loss_curve_ for init in inits]
    np.testing.assert_allclose(*curves, rtol=1e-4)
    X = torch.from_numpy(images())
    with torch.no_grad():
        logits = [init.to_module().eval()(X) for init in inits]
    torch.testing.assert_close(*logits, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("sampler", ["direct", "gram"])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_layers_of_copies_keep_one_order_forward_and_backward(sampler, layout, monkeypatch):
    # Noise comes in another order than the outputs it is added to; a mixed one is slow.
    monkeypatch.setattr(blueprint, "layout_of", lambda module, examples: layout)
    network, batch = double_network(seeded(lambda: ConvNet(3, 2)), images()[:3])
    seen = []

    def look(layer, inputs, output):
        for tensor in (output, *(H for H in inputs if H.requires_grad)):
            seen.append(tensor.is_contiguous(memory_format=layout))
            tensor.register_hook(
                lambda slopes: seen.append(slopes.is_contiguous(memory_format=layout))
            )

    for layer in (network.module.conv1, network.module.conv2):
        layer.register_forward_hook(look)
    draw(network, batch, 4, sampler).square().sum().backward()
    # Two outputs and an input that is learned, and their gradients.
    assert seen == [True] * 6


def test_theta0_and_modules_are_in_the_usual_order(monkeypatch):
    init = fitted(ConvNet, monkeypatch, torch.channels_last)
    assert all(array.flags.c_contiguous for array in init.theta0_.arrays.values())
    assert all(p.is_contiguous() for p in init.to_module().parameters())
    again = pickle.loads(pickle.dumps(init))
    X = images(n=64, seed=1)
    assert again.score(X) == init.score(X)


@pytest.mark.parametrize("kind", [Viewing, Volumes])
def test_a_module_that_asks_for_the_usual_order_is_learned(kind):
    init = MMDInitializer(module=kind, n_perturbations=4, max_iter=1, random_state=0)
    assert len(init.fit(images(n=64)).loss_curve_) == 1
