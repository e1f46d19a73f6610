"""Work shared among threads: every item once, errors heard, settings left as they were."""

import threading

import pytest
import torch

from helpers import LARGE, SMALL, as_a_team_of, threads
from sklearn_mmdinit._compute import share, team, worthwhile_threads
from sklearn_mmdinit._compute.threads import one_thread


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
        with team(LARGE, 10_000, "cpu"):
            assert torch.get_num_threads() == 1
            assert set(share(3, settings)) == {(1, False)}
            assert torch.is_grad_enabled()
        assert torch.get_num_threads() == 3
        with pytest.raises(KeyError), team(LARGE, 10_000, "cpu"):
            raise KeyError
        assert torch.get_num_threads() == 3
        assert len(share(3, settings)) == 1, "the team has ended"


def test_small_products_are_not_worth_a_second_thread():
    with threads(2):
        with worthwhile_threads(SMALL, 1000):
            assert torch.get_num_threads() == 1
        with worthwhile_threads(LARGE, 1000):
            assert torch.get_num_threads() == 2
        with team(SMALL, 1000, "cpu"):
            assert len(share(5, lambda start, stop: None)) == 1
        with one_thread():
            assert torch.get_num_threads() == 1


def test_other_devices_have_no_team():
    # Each thread would put its work into a queue of its own there.
    with threads(3), team(LARGE, 10_000, "cuda"):
        assert share(5, lambda start, stop: (start, stop)) == [(0, 5)]
        assert torch.get_num_threads() == 3


def test_a_thread_of_the_users_own_is_no_part_of_the_team():
    sizes = []
    with as_a_team_of(2):
        user = threading.Thread(target=lambda: sizes.append(len(share(2, lambda a, b: None))))
        user.start()
        user.join()
    assert sizes == [1]
