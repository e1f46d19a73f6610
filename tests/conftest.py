"""One thread a process: tensors here are small, and threads that wait for each other spin."""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish():
    """What imports have left stays: who looks for garbage need not go through it each time."""
    gc.collect()
    gc.freeze()
