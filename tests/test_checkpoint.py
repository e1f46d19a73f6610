"""A training that is killed, interrupted or stopped by a full disk resumes where it was."""

import copy
import errno
import os
import pickle
import platform
import resource
import signal
import time
from contextlib import contextmanager
from functools import partial
from itertools import count

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from helpers import FORKSERVER, seeded
from nets import Conv, assert_same_fit, digits
from sklearn_mmdinit import (
    Coherence,
    MLPClassifier,
    MMDInitializer,
    OrientedGradients,
    Theta0,
    mmd_init_,
)
from sklearn_mmdinit.training import checkpoint
from sklearn_mmdinit.training.config import Config

BATCH, STEPS, PASSES = 16, 5, 3
X, _ = digits(BATCH * STEPS)
SMALL = {"batch_size": BATCH, "max_iter": PASSES, "random_state": 0}


def augment(rows):
    return rows + 0.01 * torch.randn_like(rows)


def coherence(**params):
    return Coherence(**{"batch_size": BATCH, "n_neighbors": 5} | params)


def tiny(**params):
    return MMDInitializer((12, 8), **{"n_perturbations": 8} | SMALL | params)


OTHER = {"coherence": coherence(embedding=OrientedGradients(), augmentation=augment)}
UNFLATTEN = torch.nn.Unflatten(1, (1, 8, 8))
IMAGES = torch.nn.Sequential(UNFLATTEN, seeded(lambda: Conv(batch_norm=True)))


class Gated(nn.Module):
    """Has a layer that the first mini-batch does not reach, and few others do."""

    def __init__(self):
        super().__init__()
        self.always, self.seldom, self.last = nn.Linear(64, 5), nn.Linear(64, 5), nn.Linear(5, 3)

    def forward(self, x):
        hidden, is_reached = self.always(x), x[:, 22] > 0.7
        hidden = hidden + self.seldom(x) * is_reached[:, None] if is_reached.any() else hidden
        return self.last(hidden.tanh())


# What makes an initializer, and the steps of its windows.
KINDS = {
    "perceptron": (tiny, 3),
    "coherence": (partial(tiny, **OTHER), 6),
    "module": (partial(MMDInitializer, module=IMAGES, n_perturbations=4, **SMALL), 5),
    "gated": (partial(MMDInitializer, module=seeded(Gated), n_perturbations=4, **SMALL), 2),
}


@pytest.fixture(autouse=True)
def windows_of_three_steps(window):
    window(3)


@pytest.fixture
def path(tmp_path):
    (folder := tmp_path / "disk").mkdir()
    return folder / "training.safetensors"


@contextmanager
def before_steps(act):
    """Call a function with the number of each step of an optimizer, before the step."""
    numbers = count(1)

    def call(optimizer, args, kwargs):
        act(next(numbers), optimizer)

    hook = register_optimizer_step_pre_hook(call)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def interrupted_at(step):
    """Press Ctrl-C in a step, as in a terminal: a script in the background ignores it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with before_steps(lambda n, _: n == step and signal.raise_signal(signal.SIGINT)):
            yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def at_most(n_steps):
    """Fail where a training takes more steps."""
    steps = []
    with before_steps(lambda number, _: steps.append(number)):
        yield
    assert len(steps) <= n_steps


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_training_resumes_from_the_end_of_any_window(kind, path, window):
    make, n_steps = KINDS[kind]
    window(n_steps)
    whole = make().fit(X)
    for end in range(n_steps, PASSES * STEPS, n_steps):
        path.unlink(missing_ok=True)
        init = make(checkpoint=path)
        with interrupted_at(end + 1), pytest.raises(KeyboardInterrupt):
            init.fit(X)
        assert not hasattr(init, "theta0_")
        with at_most(PASSES * STEPS - end):
            assert_same_fit(init.fit(X), whole)


def test_a_warm_start_resumes_where_it_was(path):
    learned = pickle.dumps(tiny(warm_start=True).fit(X[:48]))
    whole = pickle.loads(learned).fit(X)
    cut, resumed = (pickle.loads(learned).set_params(checkpoint=path) for _ in range(2))
    with interrupted_at(8), pytest.raises(KeyboardInterrupt):
        cut.fit(X)
    assert_same_fit(cut, pickle.loads(learned))
    with at_most(PASSES * STEPS - 6):
        assert_same_fit(resumed.fit(X), whole)


def test_a_training_can_be_interrupted_again_and_again(path, capsys):
    init, whole = tiny(checkpoint=path), tiny().fit(X)
    for step in (3, 5, 5, 5):  # of the steps that are left; at first nothing was learned
        with pytest.raises(KeyboardInterrupt), interrupted_at(step):
            init.fit(X)
    with at_most(PASSES * STEPS - 9):
        assert_same_fit(init.set_params(verbose=True).fit(X), whole)
    bar = capsys.readouterr().err
    assert "continued at step 9: " in bar
    assert f"{PASSES * STEPS}/{PASSES * STEPS}" in bar
    with at_most(0):
        assert_same_fit(tiny(checkpoint=path).fit(X), init)


def test_an_interrupt_ends_whatever_contains_the_training(path):
    y = np.arange(len(X)) % 2
    init = tiny(checkpoint=path)
    for whole in (
        make_pipeline(init, LogisticRegression()),
        MLPClassifier((12, 8), warm_start_from=clone(init), max_iter=0),
    ):
        path.unlink(missing_ok=True)
        with pytest.raises(KeyboardInterrupt), interrupted_at(5):
            whole.fit(X, y)
        with at_most(PASSES * STEPS - 3):
            whole.fit(X, y)
    with pytest.raises(ValueError, match="checkpoint"):
        Theta0.load(path)


def test_an_interrupt_leaves_the_module_unchanged_and_the_same_call_goes_on(path):
    module, whole = copy.deepcopy(IMAGES), copy.deepcopy(IMAGES)
    params = {"n_perturbations": 4, "checkpoint": path} | SMALL
    with pytest.raises(KeyboardInterrupt), interrupted_at(5):
        mmd_init_(module, X, **params)
    torch.testing.assert_close(module.state_dict(), whole.state_dict(), rtol=0, atol=0)
    with at_most(PASSES * STEPS - 3):
        mmd_init_(module, X, **params)
    mmd_init_(whole, X, **params | {"checkpoint": None})
    torch.testing.assert_close(module.state_dict(), whole.state_dict(), rtol=0, atol=0)


def test_an_interrupt_of_a_write_leaves_the_file_before_and_no_other(path, monkeypatch):
    init = tiny(max_iter=1, checkpoint=path).fit(X)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *paths: signal.default_int_handler(2, None))
    with pytest.raises(KeyboardInterrupt):
        init.theta0_.save(path)
    assert [file.read_bytes() for file in path.parent.iterdir()] == [before]


def test_what_was_learned_is_kept_where_the_file_cannot_be_written(path):
    def unplug(step, optimizer):
        if step == PASSES * STEPS:
            path.parent.rename(path.parent.with_name("unplugged"))

    init = tiny(checkpoint=path)
    with before_steps(unplug), pytest.warns(UserWarning, match="not saved: .*No such file"):
        init.fit(X)
    assert init.history_[-1]["step"] == PASSES * STEPS


CHANGES = [{"random_state": 1}, {"activation": "tanh"}, {"init": "he"}, {"max_iter": 4}]
OF_COHERENCE = [{"n_neighbors": 4}, {"walk_length": 4.0}, {"embedding": OrientedGradients()}]
OF_COHERENCE += [{"augmentation": augment}, {"augmentation": nn.Dropout(0.9)}]


@pytest.mark.parametrize(
    ("rows", "params"),
    [
        *((rows, {}) for rows in (X[::-1], X.astype(float))),
        *((X, params) for params in CHANGES),
        *((X, {"coherence": coherence(**params)}) for params in OF_COHERENCE),
    ],
)
def test_the_checkpoint_of_another_training_is_refused(rows, params, path):
    base = {}
    if "coherence" in params:
        had_noise = isinstance(params["coherence"].augmentation, nn.Module)
        base["coherence"] = coherence(augmentation=nn.Dropout(0.1) if had_noise else None)
    tiny(**base, max_iter=1, checkpoint=path).fit(X)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"of another training.*pass another path"):
        tiny(**{"max_iter": 1, **base, **params}, checkpoint=path).fit(rows)
    assert path.read_bytes() == before
    with at_most(0):
        tiny(**base, max_iter=1, checkpoint=path).fit(X)


@pytest.mark.parametrize(
    "same",
    [
        np.asfortranarray,
        pd.DataFrame,
        lambda X: np.hstack([X, X])[:, : X.shape[1]],
        lambda X: X[::-1].copy()[::-1],
    ],
)
def test_the_same_rows_in_another_layout_are_the_same_training(same, path):
    rows = X.astype(np.float64)
    tiny(max_iter=1, checkpoint=path).fit(rows)
    with at_most(0):
        tiny(max_iter=1, checkpoint=path).fit(same(rows))


def test_a_checkpoint_knows_a_function_by_its_code(path):
    def learn(function):
        own = {"coherence": coherence(augmentation=function), "checkpoint": path}
        return tiny(**own, max_iter=1).fit(X)

    def plus(amount):
        return lambda rows: rows + amount

    learn(partial(plus(0.1)))
    with at_most(0):
        learn(partial(plus(0.1)))
    for other in (
        partial(plus(2.0)),
        partial(lambda rows: rows - 1),
        lambda rows, by=0.1: rows + by,
    ):
        with pytest.raises(ValueError, match="of another training"):
            learn(other)


OF_LAYERS = seeded(lambda: nn.Sequential(nn.Dropout(0.1), nn.Linear(64, 64)))
OF_A_MODULE = {"coherence": coherence(augmentation=OF_LAYERS)}


def learn_with_a_module(path):
    tiny(**OF_A_MODULE, max_iter=1, checkpoint=path).fit(X)


def test_another_process_finds_the_same_training(path):
    process = FORKSERVER.Process(target=learn_with_a_module, args=(path,))
    process.start()
    process.join()
    with at_most(0):
        learn_with_a_module(path)


@pytest.mark.parametrize("folder", ["missing", "/proc"])
def test_a_path_that_cannot_be_written_is_an_error_before_the_first_step(folder):
    with pytest.raises(OSError, match=f"{folder}/.x.safetensors"), at_most(0):
        tiny(checkpoint=f"{folder}/x.safetensors").fit(X)


def test_a_damaged_checkpoint_is_refused_and_left_alone(path):
    init = tiny(checkpoint=path, max_iter=1).fit(X)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    wrong = [data[:n] for n in (0, 7, len(data) // 2, len(data) - 1)]
    for place in rng.integers(len(data), size=60):
        wrong.append(data[:place] + bytes([data[place] ^ 1 << rng.integers(8)]) + data[place + 1 :])
    init.theta0_.save(path)
    for content in [*wrong, path.read_bytes(), b"{}", b"not ours"]:
        path.write_bytes(content)
        with pytest.raises((ValueError, KeyError)) as caught:
            tiny(checkpoint=path, max_iter=1).fit(X)
        assert "training.safetensors is not a checkpoint of fit" in caught.value.__notes__[-1]
        assert path.read_bytes() == content


def test_a_checkpoint_of_another_version_is_refused(path, monkeypatch):
    monkeypatch.setattr("sklearn_mmdinit.__version__", "9.8.7")
    tiny(max_iter=1, checkpoint=path).fit(X)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="version of sklearn_mmdinit differ"):
        tiny(max_iter=1, checkpoint=path).fit(X)


LONGER = {"max_iter": 30}


def learn(path, begun, kind="perceptron", limit=None):
    """Fit until killed, or until a disk of so many bytes is full: the exit code is the error's."""

    def begin(step, optimizer):
        if limit and step == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        begun.set()

    # No argument says how often; this process has settings of its own.
    checkpoint._SECONDS_BETWEEN_WRITES, Config.window = 0.0, 3
    try:
        with before_steps(begin):
            KINDS[kind][0](checkpoint=path, **LONGER).fit(X)
    except OSError as error:
        raise SystemExit(error.errno) from error


KILLS = ("perceptron", 2), *(pytest.param(k, 15, marks=pytest.mark.long) for k in KINDS)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of short windows
@pytest.mark.parametrize(("kind", "n_kills"), KILLS)
def test_a_training_killed_at_random_moments_ends_as_if_it_had_not_been(kind, n_kills, path):
    make, rng, killed = KINDS[kind][0], np.random.default_rng(n_kills), 0
    whole = make(**LONGER).fit(X)
    while killed < n_kills:
        begun = FORKSERVER.Event()
        process = FORKSERVER.Process(target=learn, args=(path, begun, kind))
        process.start()
        assert begun.wait(60) or process.exitcode == 0
        time.sleep(rng.uniform(0, 0.2))
        process.kill()
        process.join()
        if process.exitcode == 0:  # had ended
            assert_same_fit(make(checkpoint=path, **LONGER).fit(X), whole)
            path.unlink()
        killed += process.exitcode == -signal.SIGKILL
    assert_same_fit(make(checkpoint=path, **LONGER).fit(X), whole)
    assert os.listdir(path.parent) == [path.name], "a killed process has left a file"


def test_an_unfinished_file_of_another_machine_stays(path):
    other = path.parent / f".{path.name}.{platform.node()}.cluster.4711.part"
    other.touch()
    tiny(checkpoint=path).fit(X)
    assert {*os.listdir(path.parent)} == {path.name, other.name}


def test_a_full_disk_is_an_error_and_leaves_the_last_checkpoint(path):
    begun = FORKSERVER.Event()
    process = FORKSERVER.Process(target=learn, args=(path, begun, "perceptron", 5000))
    process.start()
    process.join()
    assert process.exitcode == errno.EFBIG
    assert os.listdir(path.parent) == [path.name]
    assert_same_fit(tiny(checkpoint=path, **LONGER).fit(X), tiny(**LONGER).fit(X))
