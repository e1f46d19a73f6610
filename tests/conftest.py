"""What makes all tests quicker."""

import gc
import os

# Tensors here are small, and threads that wait for each other spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish():
    """What imports have left stays: who looks for garbage need not go through it each time."""
    gc.collect()
    gc.freeze()
