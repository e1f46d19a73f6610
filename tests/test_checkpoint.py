"""What is cut off goes on where it was: kills, interrupts, full disks, damaged files."""

import errno
import multiprocessing
import os
import resource
import signal
import time
from functools import partial

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from helpers import seeded
from nets import Conv, assert_same_arrays, assert_same_fit, digits
from sklearn_mmdinit import (
    Coherence,
    MLPClassifier,
    MMDInitializer,
    OrientedGradients,
    load_theta0,
    save_theta0,
)
from sklearn_mmdinit.training import checkpoint
from sklearn_mmdinit.training import loop as training

BATCH, STEPS, PASSES = 16, 5, 3
X, _ = digits(BATCH * STEPS)
SMALL = {"batch_size": BATCH, "max_iter": PASSES, "random_state": 0}


@pytest.fixture(autouse=True)
def _interrupts_as_in_a_terminal():
    # What is started in the background of a script ignores them.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def changed(rows, rng):
    return rows + rng.normal(0, 0.01, rows.shape)


def coherence(**own):
    return Coherence(**{"batch_size": BATCH, "n_neighbors": 5} | own)


def tiny(**own):
    return MMDInitializer((12, 8), **{"n_perturbations": 8, "window": 3} | SMALL | own)


OTHER = {"coherence": coherence(embedding=OrientedGradients(), augmentation=changed)}
IMAGES = torch.nn.Sequential(
    torch.nn.Unflatten(1, (1, 8, 8)), seeded(lambda: Conv(batch_norm=True))
)
KINDS = {
    "perceptron": lambda **own: tiny(**own),
    "coherence": lambda **own: tiny(window=4, batch_size=8, batch_norm=True, **OTHER, **own),
    "module": lambda **own: MMDInitializer(
        module=IMAGES, n_perturbations=4, window=5, **SMALL, **own
    ),
    "no window ends": lambda **own: tiny(window=100, **own),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "training.safetensors"


@pytest.fixture
def at_each_window(monkeypatch):
    monkeypatch.setattr(checkpoint, "_SECONDS_BETWEEN_WRITES", 0.0)


@pytest.fixture
def before_step(monkeypatch):
    """Let something happen before a step of this process's next training, such as Ctrl-C."""
    own = training.take_step

    def begin(number, act=lambda: os.kill(os.getpid(), signal.SIGINT)):
        calls = []

        def step(*args):
            calls.append(0)
            if len(calls) == number:
                act()
            return own(*args)

        monkeypatch.setattr(training, "take_step", step)

    return begin


def fail():
    raise AssertionError("a step was taken")


def assert_same_training(one, other):
    assert_same_fit(one, other)
    assert joblib.hash(vars(one._state)) == joblib.hash(vars(other._state))


# Ctrl-C


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("at_each_window")
def test_interrupted_where_any_window_ends_it_goes_on_as_if_it_had_not_been(
    kind, path, before_step
):
    whole = KINDS[kind]().fit(X)
    ends = {n for n in range(1, PASSES * STEPS) if n % whole.window == 0 or n % STEPS == 0}
    for end in ends:
        path.unlink(missing_ok=True)
        before_step(end + 1)
        init = KINDS[kind](checkpoint=path)
        with pytest.warns(ConvergenceWarning, match=f"up to step {end}; partial_fit goes on"):
            assert init.fit(X).transform(X) is not None
        assert (init._state.step, init.n_iter_) == (end, -(-end // STEPS))
        before_step(0)
        assert_same_training(KINDS[kind](checkpoint=path).fit(X), whole)
        while init._state.step < PASSES * STEPS:
            init.partial_fit(X)
        assert_same_training(init, whole)


def test_a_training_is_cut_off_again_and_again(path, before_step):
    init = tiny(checkpoint=path)
    with pytest.raises(KeyboardInterrupt):  # nothing was learned yet
        before_step(3), init.fit(X)
    assert not hasattr(init, "theta0_")
    for _ in range(3):
        before_step(5)  # of those that are left
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            init.fit(X)
    assert_same_training(init.fit(X), tiny().fit(X))
    before_step(1, fail)  # none is left
    assert_same_training(tiny(checkpoint=path).fit(X), init)


@pytest.mark.usefixtures("at_each_window")
def test_what_builds_on_a_training_is_cut_off_with_it(path, before_step):
    y = np.arange(len(X)) % 2
    init = tiny(checkpoint=path)
    for whole in (
        make_pipeline(init, MLPClassifier(max_iter=1)),
        MLPClassifier((12, 8), warm_start_from=clone(init), max_iter=1),
    ):
        path.unlink(missing_ok=True)
        before_step(5)
        with pytest.raises(KeyboardInterrupt):
            whole.fit(X, y)
        assert path.exists(), "and goes on from there"
        before_step(PASSES * STEPS, fail)  # fewer are left
        whole.fit(X, y)
    with pytest.raises(ValueError, match="is a checkpoint of a training, not a theta0"):
        load_theta0(path)


@pytest.mark.usefixtures("at_each_window")
def test_a_first_round_that_is_cut_off_has_no_second(path, before_step):
    first = tiny(output="hidden", checkpoint=path)
    both = tiny(coherence=Coherence(n_neighbors=3, embedding=first))
    before_step(5)
    with pytest.raises(KeyboardInterrupt):
        both.fit(X)
    assert path.exists()
    assert not hasattr(both, "theta0_")


# Another's


@pytest.mark.parametrize(
    ("name", "rows", "params"),
    [
        ("X", X[::-1], {}),
        ("X", X.astype(float), {}),
        ("random_state", X, {"random_state": 1}),
        ("architecture", X, {"activation": "tanh"}),
        ("initial weights", X, {"init": "he"}),
        ("max_iter", X, {"max_iter": 4}),
        ("coherence__n_neighbors", X, {"coherence": coherence(n_neighbors=4)}),
        ("coherence__embedding", X, OTHER),
        ("coherence__augmentation", X, OTHER),
    ],
)
def test_a_file_of_another_training_is_refused_by_name(name, rows, params, path):
    base = {"coherence": coherence()} if "coherence" in params else {}
    tiny(**base, max_iter=1, checkpoint=path).fit(X)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"is of another training: (.*; )?{name} is .*, there"):
        tiny(**{"max_iter": 1, **base, **params}, checkpoint=path).fit(rows)
    assert path.read_bytes() == before


def test_a_function_is_known_by_what_it_does(path):
    def learned(function, path=path):
        init = tiny(coherence=coherence(augmentation=function), max_iter=1, checkpoint=path)
        return init.fit(X).theta0_

    def scaled(factor):
        return lambda rows, rng: factor * rows

    first = learned(scaled(1.0))
    assert_same_arrays(learned(lambda rows, rng: 1.0 * rows, None), first)
    assert_same_arrays(learned(scaled(1.0)), first)
    for other in (scaled(2.0), lambda rows, rng: rows + 1, changed):
        with pytest.raises(ValueError, match="another training: coherence__augmentation is"):
            learned(other)
    with pytest.raises(ValueError, match="cannot tell coherence__augmentation="):
        learned(partial(lambda rows, rng: rows))


@pytest.mark.parametrize("folder", ["missing", "/proc"])
def test_what_cannot_be_written_is_told_before_the_first_step(folder, before_step):
    before_step(1, fail)
    with pytest.raises(OSError, match=f"{folder}/x.safetensors cannot be written"):
        tiny(checkpoint=f"{folder}/x.safetensors").fit(X)


def test_a_damaged_file_is_refused_and_left_alone(path):
    init = tiny(checkpoint=path, max_iter=1).fit(X)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    wrong = [data[:n] for n in (0, 7, len(data) // 2, len(data) - 1)]
    for place in rng.integers(len(data), size=60):
        wrong.append(data[:place] + bytes([data[place] ^ 1 << rng.integers(8)]) + data[place + 1 :])
    save_theta0(path, init)
    for content in [*wrong, path.read_bytes(), b"{}", b"not ours"]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="may be deleted to begin anew"):
            tiny(checkpoint=path, max_iter=1).fit(X)
        assert path.read_bytes() == content


# In processes of their own


CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["sklearn_mmdinit", "torch._dynamo", "sklearn.datasets", "pytest"])
LONGER = {"max_iter": 30, "window": 2}


def learn(path, begun, limit=None):
    """Fit until killed; with a limit the disk is full, of which the error is told."""
    own = training.take_step

    def step(*args):
        if limit and begun.is_set():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        begun.set()
        return own(*args)

    training.take_step, checkpoint._SECONDS_BETWEEN_WRITES = step, 0.0
    try:
        tiny(checkpoint=path, **LONGER).fit(X)
    except OSError as error:
        raise SystemExit(error.errno) from error


@pytest.mark.parametrize("n_kills", [2, pytest.param(50, marks=pytest.mark.long)])
def test_killed_at_random_moments_it_ends_as_if_it_had_not_been(n_kills, path):
    whole, rng, killed = tiny(**LONGER).fit(X), np.random.default_rng(n_kills), 0
    while killed < n_kills:
        begun = CONTEXT.Event()
        process = CONTEXT.Process(target=learn, args=(path, begun))
        process.start()
        assert begun.wait(60) or process.exitcode == 0
        time.sleep(rng.uniform(0, 0.2))
        process.kill()
        process.join()
        if process.exitcode == 0:  # had ended
            assert_same_training(tiny(checkpoint=path, **LONGER).fit(X), whole)
            path.unlink()
        killed += process.exitcode == -signal.SIGKILL
    assert_same_training(tiny(checkpoint=path, **LONGER).fit(X), whole)
    assert os.listdir(path.parent) == [path.name], "nothing of the killed is left"


def test_a_full_disk_is_told_and_what_was_written_stays(path):
    begun = CONTEXT.Event()
    process = CONTEXT.Process(target=learn, args=(path, begun, 5000))
    process.start()
    process.join()
    assert process.exitcode == errno.EFBIG
    assert os.listdir(path.parent) == [path.name]
    assert_same_training(tiny(checkpoint=path, **LONGER).fit(X), tiny(**LONGER).fit(X))
