"""theta0 kept along the way: which rows it saw, and going on after an interruption."""

import numpy as np
import pytest

from protocol import checkpoints
from protocol.checkpoints import learn_along, portion_ends, steps_of_passes
from sklearn_mmdinit import MMDInitializer, load_theta0


def test_checkpoints_fall_on_steps_and_portions_end_with_the_passes_too():
    assert steps_of_passes([1, 0.1, 0.25], 40) == {0.1: 4, 0.25: 10, 1: 40}
    assert portion_ends([4, 10, 40], 40) == [4, 10, 40]
    assert portion_ends([4, 90], 40) == [4, 40, 80, 90]
    with pytest.raises(ValueError, match=r"a pass has 40 steps.*\[0.001\] fall on the steps \[0\]"):
        steps_of_passes([0.001], 40)
    with pytest.raises(ValueError, match="must be different"):
        steps_of_passes([0.5, 0.501], 40)


class _Recorder:
    """Stands in for the training: keeps the rows that each portion got."""

    def __init__(self, portions):
        self.portions = portions

    def __call__(self, initializer, rows):
        self.portions.append(rows[:, 0].astype(int).tolist())
        initializer.partial_fit(rows)
        return {"seconds": float(len(rows)), "cpu_seconds": 0.0}


@pytest.fixture
def learn(tmp_path, monkeypatch):
    """``learn(checkpoints)`` on 30 numbered rows, seven steps a pass, and the rows it used."""
    X = np.column_stack([np.arange(30.0), np.linspace(-1, 1, 30)]).astype(np.float32)
    portions = []
    monkeypatch.setattr(checkpoints, "_timed_fit", _Recorder(portions))

    def learn(checkpoints, folder="a"):
        portions.clear()
        initializer = MMDInitializer((3,), n_perturbations=2, batch_size=4, random_state=0)
        order = {"order": lambda number: np.random.default_rng(number).permutation(30)}
        place = {"name": "x", "folder": tmp_path / folder, "X_digest": "d", "commit": "c"}
        return learn_along(initializer, X, checkpoints, **order, **place), list(portions)

    return learn


def test_portions_are_the_passes_cut_where_checkpoints_fall(learn):
    found, portions = learn([3, 10])
    assert [checkpoint.steps for checkpoint in found] == [3, 10]
    assert [len(rows) for rows in portions] == [12, 16, 12]
    first, second = (np.random.default_rng(number).permutation(30) for number in range(2))
    assert portions[0] + portions[1] == first[:28].tolist()  # the pass leaves two rows out
    assert portions[2] == second[:12].tolist()
    # Costs add up along the way.
    assert [checkpoint.record["seconds"] for checkpoint in found] == [12.0, 40.0]
    assert [checkpoint.record["commits"] for checkpoint in found] == [["c"], ["c"]]


def _arrays(checkpoint):
    return load_theta0(checkpoint.path).arrays


def test_learning_goes_on_where_it_ended_to_the_same_theta0(learn, monkeypatch):
    learn([3, 10])
    assert learn([3, 10])[1] == []
    assert learn([3])[1] == []
    longer, portions = learn([3, 10, 14])
    assert [len(rows) for rows in portions] == [16]
    whole, portions = learn([3, 10, 14], "whole")
    assert len(portions) == 4
    for one, other in zip(longer, whole, strict=True):
        assert one.record == other.record
        for name, array in _arrays(one).items():
            np.testing.assert_array_equal(array, _arrays(other)[name])


def test_another_machine_goes_on_and_is_named(learn, monkeypatch):
    first, _ = learn([3])
    monkeypatch.setattr(checkpoints, "hardware", lambda: {"cpu": "other", "cores": 1})
    (early, late), portions = learn([3, 10])
    assert [len(rows) for rows in portions] == [16, 12], "theta0 of the first one is taken"
    assert early.record == first[0].record
    assert [machine["cpu"] == "other" for machine in late.record["machines"]] == [False, True]


@pytest.mark.parametrize("cut", ["save_theta0", "write_atomically", "write_json"])
def test_an_interruption_while_a_checkpoint_is_written_loses_one_portion(learn, monkeypatch, cut):
    keep, kept = getattr(checkpoints, cut), []

    def interrupted(*args):
        if len(kept) == 1:
            raise KeyboardInterrupt
        kept.append(args)
        keep(*args)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, cut, interrupted)
        with pytest.raises(KeyboardInterrupt):
            learn([3, 7])
    resumed, portions = learn([3, 7])
    assert [len(rows) for rows in portions] == [16]
    whole, _ = learn([3, 7], "whole")
    for name, array in _arrays(resumed[-1]).items():
        np.testing.assert_array_equal(array, _arrays(whole[-1])[name])


def test_other_checkpoints_begin_anew_where_none_can_be_gone_on_from(learn):
    learn([3, 7])
    assert [len(rows) for rows in learn([3, 5])[1]] == [12, 8]
    assert [len(rows) for rows in learn([2, 7])[1]] == [8, 20]
