"""L_iod: Jacobians against autograd, known values, finite differences."""

import pytest
import torch

from helpers import network, normal
from sklearn_mmdinit._network import ACTIVATIONS
from sklearn_mmdinit._objective.detachment import JACOBIANS, detachment, jacobian_norms


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("widths", [(5, 3), (5, 4, 3), (5, 6, 4, 2)])
def test_jacobian_norms_against_autograd(widths, activation):
    module, X = network(*widths, activation=activation), normal(3, widths[0], seed=1)
    norms = jacobian_norms(module, X)
    at_activation = jacobian_norms(module, X, at="activation")
    assert norms.shape == at_activation.shape == (3, widths[-1], len(widths) - 1)
    function = ACTIVATIONS[activation].function
    layers = module.linear_layers
    for b in range(3):
        x = X[b]
        for start in range(len(layers)):

            def rest(x, start=start):
                for i in range(start, len(layers)):
                    x = layers[i](function(x) if i else x)
                return x

            jacobian = torch.autograd.functional.jacobian(rest, x)
            assert torch.allclose(norms[b, :, start], jacobian.norm(dim=1), atol=1e-6)

            def rest_of_activation(x, start=start):
                x = layers[start](x)
                for layer in layers[start + 1 :]:
                    x = layer(function(x))
                return x

            a = function(x) if start else x
            jacobian = torch.autograd.functional.jacobian(rest_of_activation, a)
            assert torch.allclose(at_activation[b, :, start], jacobian.norm(dim=1), atol=1e-6)
            x = layers[start](function(x) if start else x)


def test_jacobian_norms_under_batch_norm():
    # Evaluation mode makes the statistics constants for autograd as well.
    module, X = network(5, 6, 4, 2, batch_norm=True), normal(8, 5, seed=1)
    module(X)
    module.eval()
    norms = jacobian_norms(module, X)
    for b in range(3):
        jacobian = torch.autograd.functional.jacobian(lambda x: module(x[None])[0], X[b])
        assert torch.allclose(norms[b, :, 0], jacobian.norm(dim=1), atol=1e-6)
    # In training mode they are those of the mini-batch, and the running ones are updated once.
    module.train()
    before = module.norm_layers[0].num_batches_tracked.clone()
    H = module.linear_layers[0](X)
    assert not torch.allclose(jacobian_norms(module, X), norms, rtol=1e-3)
    assert int(module.norm_layers[0].num_batches_tracked - before) == 1
    gain = module.norm_layers[0].weight / (H.var(0, correction=0) + 1e-5).sqrt()
    assert torch.isfinite(gain).all()


def test_detachment_by_hand():
    # Linear network with rows of norm 2 and 1/2: (1 - 2)^2 and (1 - 1/2)^2, their mean.
    module = network(3, 2)
    with torch.no_grad():
        module.linear_layers[0].weight.copy_(torch.tensor([[2.0, 0, 0], [0, 0.5, 0]]))
        loss = float(detachment(module, normal(4, 3)))
    assert loss == pytest.approx((1 + 0.25) / 2, abs=1e-5)


def test_detachment_at_activations_is_that_of_the_last_weights_where_all_units_are_dead():
    # Units that are dead pass nothing on from before them, and stand there to be changed.
    module = network(3, 4, 2)
    with torch.no_grad():
        module.linear_layers[0].bias.fill_(-100)
        last = module.linear_layers[1].weight.norm(dim=1)
        norms = jacobian_norms(module, normal(5, 3), at="activation")
    assert torch.allclose(norms[..., 1], last.expand(5, -1), atol=1e-6)
    assert float(norms[..., 0].max()) < 1e-5


def test_detachment_takes_the_worst_layer():
    # A dead first layer: the Jacobian with respect to the input is 0, so the loss is at least 1
    # whatever the last layer's norm.
    module = network(3, 4, 2)
    with torch.no_grad():
        module.linear_layers[0].bias.fill_(-100)
        loss = float(detachment(module, normal(5, 3)))
    assert loss == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("at", JACOBIANS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_detachment_gradient_by_finite_differences(activation, at):
    module, X = network(4, 5, 3, 2, activation=activation), normal(3, 4, seed=2)
    parameters = list(module.parameters())
    gradients = torch.autograd.grad(
        detachment(module, X, at), parameters, allow_unused=True, materialize_grads=True
    )
    step = 1e-6
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat = parameter.detach().view(-1)
        for i in range(len(flat)):
            centre = float(flat[i])
            values = []
            for shift in (step, -step):
                flat[i] = centre + shift
                values.append(float(detachment(module, X, at).detach()))
            flat[i] = centre
            slope = (values[0] - values[1]) / (2 * step)
            assert slope == pytest.approx(float(gradient.view(-1)[i]), abs=1e-6)
