"""L_iod of any module: the closed form of a perceptron, autograd, finite differences."""

import copy

import pytest
import torch
from torch import nn

from helpers import network
from module_zoo import Convs, Twice, Words, double_network, images, rows, seeded, tokens
from protocol.networks import MODULES
from sklearn_mmdinit._objective.detachment import detachment, jacobian_norms

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


def as_sequence(mlp):
    """The same perceptron as an ``nn.Sequential``, with the same weights."""
    parts = []
    for i, linear in enumerate(mlp.linear_layers):
        parts.append(copy.deepcopy(linear))
        if i < len(mlp.linear_layers) - 1:
            parts += [copy.deepcopy(mlp.norm_layers[i])] if mlp.norm_layers else []
            parts.append(ACTIVATIONS[mlp.architecture.activation]())
    return nn.Sequential(*parts).float()


def ordered(network):
    """Parameters in the order of a sequence's: a linear layer, then its normalisation."""
    norms = [*network.norm_layers, None] if network.norm_layers else [None] * 9
    layers = zip(network.linear_layers, norms, strict=False)
    return [p for pair in layers for layer in pair if layer is not None for p in layer.parameters()]


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("widths", [(5, 3), (5, 6, 4, 2)])
def test_a_sequence_has_the_closed_form_of_its_perceptron(widths, activation, batch_norm):
    mlp = network(*widths, activation=activation, batch_norm=batch_norm).train()
    own, batch = double_network(as_sequence(mlp), rows(6, widths[0]))
    own.module.load_state_dict(as_sequence(mlp).double().state_dict())
    mlp.float().double()  # as the other one, which was in single precision on its way
    expected = jacobian_norms(copy.deepcopy(mlp), batch)
    torch.testing.assert_close(jacobian_norms(own, batch), expected, rtol=1e-9, atol=1e-12)
    slopes = torch.autograd.grad(
        detachment(own, batch), list(own.parameters()), allow_unused=True, materialize_grads=True
    )
    closed = torch.autograd.grad(
        detachment(mlp, batch), ordered(mlp), allow_unused=True, materialize_grads=True
    )
    for ours, theirs in zip(slopes, closed, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


WITHOUT_BATCH_NORM = ("perceptron", "convnet", "transformer", "transformer+multihead")


@pytest.mark.parametrize("name", WITHOUT_BATCH_NORM)
def test_jacobians_of_the_input_against_autograd(name):
    own, batch = double_network(seeded(lambda: MODULES[name](3)), images(3))
    norms = jacobian_norms(own, batch)
    for b in range(2):
        jacobian = torch.autograd.functional.jacobian(lambda x: own.module(x[None])[0], batch[b])
        torch.testing.assert_close(norms[b, :, 0], jacobian.flatten(1).norm(dim=1))


@pytest.mark.parametrize("name", ["convnet+bn", "residual"])
def test_statistics_of_the_mini_batch_are_constants(name):
    own, batch = double_network(seeded(lambda: MODULES[name](3)), images(5))
    norms = jacobian_norms(own, batch)
    still = copy.deepcopy(own.module).eval()
    seen = {}
    for norm in still.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.register_forward_pre_hook(lambda norm, args: seen.update({norm: args[0]}))
    # A layer's statistics are known once those before it are in place.
    for norm in [n for n in still.modules() if isinstance(n, nn.BatchNorm2d)]:
        still(batch)
        variance, mean = torch.var_mean(seen[norm].detach(), dim=(0, 2, 3), correction=0)
        norm.running_var.copy_(variance), norm.running_mean.copy_(mean)
    for b in range(2):
        jacobian = torch.autograd.functional.jacobian(lambda x: still(x[None])[0], batch[b])
        torch.testing.assert_close(norms[b, :, 0], jacobian.flatten(1).norm(dim=1))


def test_an_inner_layer_of_any_shape_counts_with_all_its_numbers():
    own, batch = double_network(seeded(lambda: MODULES["convnet"](3)), images(3))
    norms, module = jacobian_norms(own, batch), own.module

    def rest(h):  # what follows the second convolution
        h = nn.functional.max_pool2d(h[None].relu(), 2)
        return module.fc2(module.fc1(h.flatten(1)).relu())[0]

    h = module.conv2(nn.functional.max_pool2d(module.conv1(batch).relu(), 2))
    for b in range(3):
        jacobian = torch.autograd.functional.jacobian(rest, h[b].detach())
        torch.testing.assert_close(norms[b, :, 2], jacobian.flatten(1).norm(dim=1))
    assert norms.shape == (3, 3, 4)  # the input, two convolutions and a linear layer


def test_a_layer_counts_as_often_as_it_is_called():
    own, batch = double_network(seeded(Twice), rows())
    assert jacobian_norms(own, batch).shape == (4, 3, 3)


def test_there_is_no_jacobian_with_respect_to_integers():
    own, batch = double_network(seeded(Words), tokens())
    assert batch.dtype == torch.int64
    norms = jacobian_norms(own, batch)
    assert norms.shape == (4, 3, 2)  # the embedding and the layer of its tokens
    torch.autograd.backward(detachment(own, batch))
    assert own.module.table.weight.grad.abs().sum() > 0


class Placed(nn.Module):
    """What a layer makes of the places is the same for all examples."""

    def __init__(self):
        super().__init__()
        self.place, self.layer = nn.Linear(3, 4), nn.Linear(2, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        places = self.place(torch.eye(3, dtype=x.dtype))
        return self.head((self.layer(x.view(len(x), 3, 2)) + places).tanh().mean(1))


class Turned(nn.Module):
    """Examples along the second axis inside."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.layer(x.view(len(x), 3, 2).transpose(0, 1)).tanh().mean(0))


def test_examples_are_found_on_any_axis():
    own, batch = double_network(seeded(Placed), rows(5))
    assert jacobian_norms(own, batch).shape == (5, 3, 2)
    own, batch = double_network(seeded(Turned), rows(5))
    norms = jacobian_norms(own, batch)
    alone = torch.cat([jacobian_norms(own, batch[b : b + 1]) for b in range(5)])
    torch.testing.assert_close(norms, alone)


def test_what_works_in_place_changes_nothing():
    own, batch = double_network(seeded(lambda: MODULES["residual"](3)), images())
    norms = jacobian_norms(own, batch)
    for part in own.module.modules():
        if isinstance(part, nn.ReLU):
            part.inplace = False
    assert torch.equal(jacobian_norms(own, batch), norms)


def test_running_statistics_are_updated_once():
    own, batch = double_network(seeded(lambda: MODULES["convnet+bn"](3)), images())
    other = copy.deepcopy(own.module)
    other(batch)
    jacobian_norms(own, batch)
    for name, value in other.state_dict().items():
        torch.testing.assert_close(own.module.state_dict()[name], value)
    assert int(own.module.norm1.num_batches_tracked) == 1


def test_without_gradients_the_values_are_the_same():
    own, batch = double_network(seeded(lambda: MODULES["residual"](3)), images())
    with torch.no_grad():
        values = detachment(own, batch)
    assert not values.requires_grad
    torch.testing.assert_close(values, detachment(own, batch).detach())


@pytest.mark.parametrize("make", [Convs, Twice, lambda: nn.Sequential(nn.Linear(6, 3))])
def test_gradient_by_finite_differences(make):
    own, batch = double_network(seeded(make), rows(3, 12 if make is Convs else 6))
    parameters = list(own.parameters())
    slopes = torch.autograd.grad(
        detachment(own, batch), parameters, allow_unused=True, materialize_grads=True
    )
    step = 1e-6
    for parameter, slope in zip(parameters, slopes, strict=True):
        flat = parameter.detach().view(-1)
        for i in range(0, len(flat), 7):
            centre, values = float(flat[i]), []
            for shift in (step, -step):
                flat[i] = centre + shift
                values.append(float(detachment(own, batch).detach()))
            flat[i] = centre
            expected = (values[0] - values[1]) / (2 * step)
            assert float(slope.flatten()[i]) == pytest.approx(expected, abs=1e-6)


def test_a_module_of_one_layer_by_hand():
    # Rows of norm 2 and 1/2: (1 - 2)^2 and (1 - 1/2)^2, their mean.
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, 0, 0], [0, 0.5, 0]]))
    own, batch = double_network(nn.Sequential(layer), rows(4, 3))
    assert float(detachment(own, batch).detach()) == pytest.approx(0.625, abs=1e-6)


class Heads(nn.Module):
    """A trunk, and for each class a head of its own."""

    def __init__(self, n_classes=3):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 1)) for _ in range(n_classes)
        )

    def forward(self, X):
        Z = self.trunk(X)
        return torch.cat([head(Z) for head in self.heads], dim=1)


def test_a_class_has_no_part_in_the_heads_of_others():
    own, batch = double_network(seeded(Heads), rows(7, 6))
    norms = jacobian_norms(own, batch)
    # The input, the trunk and the inner layer of each head; the class alone that owns it differs.
    inner = norms[..., 2:7:2]
    for i in range(3):
        others = [j for j in range(3) if j != i]
        assert (norms[:, i, :2] != 1.0).all()
        assert (inner[:, i, i] != 1.0).all()
        assert (inner[:, i, others] == 1.0).all()
    term = detachment(own, batch)
    (slope,) = torch.autograd.grad(term, [own.module.trunk[0].weight])
    assert 0.0 < float(term.detach()) < 0.999
    assert float(slope.abs().max()) > 0.0


def test_a_layer_that_no_class_feels_is_detached_from_all():
    module = seeded(lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)))
    own, batch = double_network(module, rows(7, 6))
    with torch.no_grad():
        own.module[0].bias.fill_(-100.0)
    assert (jacobian_norms(own, batch) < 1e-5).all()
    assert float(detachment(own, batch).detach()) == pytest.approx(1.0, abs=1e-4)
