"""Parts that are computed again have the gradients of the whole."""

import pytest
import torch

from sklearn_mmdinit._compute import StepRandom, recomputed


def leaves():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, dtype=torch.float64, generator=generator) for _ in range(3)]


def made_of(a, b, c, calls):
    weights = torch.linspace(-1, 2, 12, dtype=torch.float64).view(4, 3)

    def part(i):
        calls.append(i)
        return (weights[i] * a.exp() + b * i).sum().view(1)  # c acts nowhere

    return part


@pytest.mark.parametrize("n_kept", range(6))
@pytest.mark.parametrize("frozen", [0, 1, None])
def test_gradients_are_those_of_the_whole(frozen, n_kept):
    tensors = [t.requires_grad_(i != frozen) for i, t in enumerate(leaves())]
    wanted = [t for t in tensors[:2] if t.requires_grad]
    calls, slopes = [], torch.arange(1.0, 5.0, dtype=torch.float64)
    part = made_of(*tensors, calls)
    result = recomputed(part, 4, tensors, n_kept)
    assert calls == [0, 1, 2, 3]
    own = torch.autograd.grad(result, [*wanted, tensors[2]], slopes, allow_unused=True)
    assert calls == [0, 1, 2, 3, *range(n_kept, 4)]
    assert own[-1] is None
    whole = torch.cat([part(i) for i in range(4)])
    assert torch.equal(result, whole)
    torch.testing.assert_close(own[:-1], torch.autograd.grad(whole, wanted, slopes))


def test_without_gradients_there_is_no_graph():
    tensors = [t.requires_grad_() for t in leaves()]
    with torch.no_grad():
        assert not recomputed(made_of(*tensors, []), 4, tensors).requires_grad
    assert not recomputed(made_of(*leaves(), []), 4, leaves()).requires_grad


def test_a_tensor_changed_in_between_is_noticed():
    tensors = [t.requires_grad_() for t in leaves()]
    result = recomputed(made_of(*tensors, []), 4, tensors)
    with torch.no_grad():
        tensors[0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(result.sum())


def test_draws_that_go_back_to_a_state_are_the_same():
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    random = StepRandom(3, dtype=torch.float64)
    parts = random.split(2)
    states = [own.generator.get_state() for own in parts]

    def part(i):
        parts[i].generator.set_state(states[i])
        return (weight * parts[i].normal(5, 2)).square()

    result = recomputed(part, 2, [weight])
    random.at(9)  # and other draws in between
    random.split(2)[0].normal(7)
    torch.autograd.backward(result.sum())
    torch.testing.assert_close(weight.grad, 2 * result.detach().sum(0))
