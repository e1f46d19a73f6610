"""Work shared among threads: every item once, errors heard, settings left as they were."""

import threading
from contextlib import contextmanager

import pytest
import torch

from sklearn_mmdinit._compute import concatenated, share, team, worthwhile_threads
from sklearn_mmdinit._compute.threads import one_thread

LARGE = (784, 392, 2)
SMALL = (4, 3, 2)


@contextmanager
def threads(n):
    """So many threads of PyTorch's for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def as_a_team_of(n):
    with threads(n), team(LARGE, 10_000):
        yield


@pytest.mark.parametrize("n_threads", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_each_item_once_by_as_many_threads(n_threads, n):
    with as_a_team_of(n_threads):
        stretches = share(n, lambda start, stop: (list(range(start, stop)), threading.get_ident()))
    assert [item for items, _ in stretches for item in items] == list(range(n))
    assert len(stretches) == min(n, n_threads)
    sizes = [len(items) for items, _ in stretches]
    assert max(sizes) - min(sizes) <= 1
    assert stretches[0][1] == threading.get_ident(), "the caller works too"


def test_outside_a_team_the_caller_does_it_all():
    with threads(3):
        assert share(5, lambda start, stop: (start, stop)) == [(0, 5)]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_error_is_heard_after_all_have_ended(place):
    ended = []

    def work(start, stop):
        if start == place:
            raise ValueError("of this stretch")
        ended.append(start)

    with as_a_team_of(3):
        with pytest.raises(ValueError, match="of this stretch"):
            share(3, work)
        assert sorted([*ended, place]) == [0, 1, 2]
        assert len(share(3, lambda start, stop: None)) == 3, "and the team goes on"


def test_settings_of_the_caller_are_left_alone():
    def settings(start, stop):
        return torch.get_num_threads(), torch.is_grad_enabled()

    with threads(3):
        with team(LARGE, 10_000):
            assert torch.get_num_threads() == 1
            assert set(share(3, settings)) == {(1, False)}
            assert torch.is_grad_enabled()
        assert torch.get_num_threads() == 3
        with pytest.raises(KeyError), team(LARGE, 10_000):
            raise KeyError
        assert torch.get_num_threads() == 3
        assert len(share(3, settings)) == 1, "the team has ended"


def test_small_products_are_not_worth_a_second_thread():
    with threads(2):
        with worthwhile_threads(SMALL, 1000):
            assert torch.get_num_threads() == 1
        with worthwhile_threads(LARGE, 1000):
            assert torch.get_num_threads() == 2
        with team(SMALL, 1000):
            assert len(share(5, lambda start, stop: None)) == 1
        with one_thread():
            assert torch.get_num_threads() == 1


def test_a_thread_of_the_users_own_is_no_part_of_the_team():
    sizes = []
    with as_a_team_of(2):
        user = threading.Thread(target=lambda: sizes.append(len(share(2, lambda a, b: None))))
        user.start()
        user.join()
    assert sizes == [1]


# a function in parts

WEIGHTS = torch.linspace(-1, 2, 12, dtype=torch.float64).view(4, 3)


def part(i, tensors):
    a, b, c = tensors
    return (WEIGHTS[i] * a.exp() + b * c * i).sum().view(1)


@pytest.mark.parametrize("n_threads", [1, 2, 4])
@pytest.mark.parametrize("frozen", [0, 1, 2, None])
def test_gradients_are_those_of_the_whole(n_threads, frozen):
    generator = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(3, dtype=torch.float64, generator=generator).requires_grad_(i != frozen)
        for i in range(3)
    ]
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    slopes = torch.arange(1.0, 5.0, dtype=torch.float64)
    whole = torch.cat([part(i, tensors) for i in range(4)])
    with as_a_team_of(n_threads):
        result = concatenated(part, 4, tensors)
        gradients = torch.autograd.grad(result, wanted, slopes)
    assert torch.equal(result, whole)
    torch.testing.assert_close(gradients, torch.autograd.grad(whole, wanted, slopes))


def test_without_gradients_there_is_no_graph():
    tensors = [torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    with torch.no_grad():
        assert not concatenated(part, 4, tensors).requires_grad
    detached = [tensor.detach() for tensor in tensors]
    assert not concatenated(part, 4, detached).requires_grad
    assert concatenated(part, 4, tensors).requires_grad
    assert concatenated(part, 1, tensors).shape == (1,)
