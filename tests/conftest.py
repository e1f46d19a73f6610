"""One thread a process: tensors here are small, and threads that wait for each other spin."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
