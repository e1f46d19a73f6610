"""What makes all tests quicker, and short windows."""

import gc
import os

import pytest

# Tensors here are small, and threads that wait for each other spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish():
    """What imports have left stays: who looks for garbage need not go through it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def window(monkeypatch):
    """A function that sets the number of steps of a window, which no argument says."""

    def set_window(n_steps):
        monkeypatch.setattr("sklearn_mmdinit.training.config.Config.window", n_steps)

    return set_window
