"""Run one form of pre-training in a process of its own and say how much memory it needed.

Called by ``scaling.py`` as ``python -m timing.memory_probe JSON``; prints JSON.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sklearn_mmdinit import MMDInitializer
from timing.agreement import random_rows
from timing.module_step import ConvSize, convnet_initializer, module_initializer
from timing.step_forms import Size, initializer, library_measure, textbook_measure

__all__ = ["MemoryUse", "memory_now"]

_STATUS = Path("/proc/self/status")


def memory_now() -> dict[str, int]:
    """Bytes of this process: its peak, and where the system tells, what is in use now.

    ``ru_maxrss`` of a child counts what its parent used before the child's program began, so
    Linux's own record of this program is read where there is one.
    """
    if not _STATUS.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"peak": peak * (1 if sys.platform == "darwin" else 1024)}
    names = {"VmHWM": "peak", "VmRSS": "now", "RssAnon": "anonymous", "RssFile": "file"}
    fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines() if ":" in line)
    return {
        ours: 1024 * int(fields[theirs].split()[0])
        for theirs, ours in names.items()
        if theirs in fields
    }


class MemoryUse:
    """Growth of this process's memory while the body of a ``with`` statement runs.

    Attributes
    ----------
    grown : dict
        Bytes: "peak" of all resident memory; and, where the system tells, the largest
        "anonymous" seen, without pages of files, which the system takes back at will.
    """

    def __enter__(self) -> MemoryUse:
        with contextlib.suppress(OSError):
            # Forget a peak from before: the next one is this body's.
            Path("/proc/self/clear_refs").write_text("5")
        self._before = memory_now()
        self._anonymous = self._before.get("anonymous", 0)
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self._anonymous = max(self._anonymous, memory_now().get("anonymous", 0))

    def __exit__(self, *exception: Any) -> None:
        self._done.set()
        self._watcher.join()
        after = memory_now()
        before = self._before.get("now", self._before["peak"])
        self.grown = {"peak": max(after["peak"] - before, 0)}
        if "anonymous" in after:
            most = max(self._anonymous, after["anonymous"])
            self.grown["anonymous"] = most - self._before["anonymous"]


def _size(job: dict[str, Any]) -> Size:
    return Size(**{**job["size"], "hidden_layer_sizes": tuple(job["size"]["hidden_layer_sizes"])})


def _probe_step(job: dict[str, Any]) -> dict[str, Any]:
    size = _size(job)
    if job["form"] != "library":
        with MemoryUse() as memory:
            seconds = textbook_measure(size, job["form"], warm_up=False)()
        return {"seconds": seconds, **memory.grown}
    # Once with the rows there already, which are no part of the figure, and the threads' own
    # memory with them.
    rows = random_rows(2 * size.batch_size, size.n_features)
    with MemoryUse() as memory:
        initializer(size).partial_fit(rows)
    measure = library_measure(size, job["n_steps"])
    return {"seconds": min(measure() for _ in range(job["rounds"])), **memory.grown}


def _probe_module(job: dict[str, Any]) -> dict[str, Any]:
    """Two steps of the general path, after one that brings in code and buffers of its own."""
    rows: np.ndarray
    if job["form"] == "convnet":
        convnet = ConvSize(**job["size"])
        rows, estimator = convnet.images(2 * convnet.batch_size), convnet_initializer(convnet)
        few = convnet_initializer(replace(convnet, n_perturbations=2))
    else:
        size = _size(job)
        rows = random_rows(2 * size.batch_size, size.n_features)
        estimator = module_initializer(size)
        few = module_initializer(replace(size, n_perturbations=2))
    few.partial_fit(rows)
    with MemoryUse() as memory:
        estimator.partial_fit(rows)
    return memory.grown


def _probe_rows(job: dict[str, Any]) -> dict[str, Any]:
    """Twenty steps of ``fit`` on rows on disk: ends after two windows that do not improve."""
    X = np.memmap(job["path"], dtype=np.float32, mode="r", shape=tuple(job["shape"]))
    estimator = MMDInitializer(
        (32, 32), n_perturbations=16, window=10, tol=1e9, n_iter_no_change=1,
        max_iter=1, device="cpu", random_state=0,
    )  # fmt: skip
    # The same steps on rows in memory first: code and buffers of the first call.
    estimator.fit(random_rows(1000, X.shape[1]))
    with MemoryUse() as memory:
        start = time.perf_counter()
        estimator.fit(X)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, **memory.grown}


PROBES = {"module": _probe_module, "rows": _probe_rows, "step": _probe_step}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    torch.set_num_threads(given["threads"])
    print(json.dumps(PROBES[given["probe"]](given)))
