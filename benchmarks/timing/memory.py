"""Memory of a step and of a whole fit, and a fit's seconds, each in a process of its own."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sklearn_mmdinit import MMDInitializer
from timing.steps import Step, timed

N_FACTORS = 10  # of the rows of a whole fit


def _memory(field: str) -> int:
    """Bytes of this process by Linux's record of it: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def grown_by(action: Callable[[], Any], device: str = "cpu") -> int:
    """By how many bytes this process, or its share of a GPU, grows at most while an action runs."""
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_reserved()  # what a recorded step keeps is not allocated
        action()
        return torch.cuda.max_memory_reserved() - before
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget a peak from before
    before = _memory("VmRSS")
    action()
    return max(_memory("VmHWM") - before, 0)


def _peak(step: Step, form: str) -> int:
    """Peak memory of two steps; on a GPU of as many as are recorded."""
    if form != "library":
        return grown_by(lambda: step.textbook(form)(), step.device)
    rows = step.rows((2 if step.device == "cpu" else 20) * step.batch_size)
    replace(step, n_perturbations=2).initializer(max_iter=1).fit(rows)  # code of the first call
    return grown_by(lambda: step.initializer(max_iter=1).fit(rows), step.device)


def _fit(n_rows: int, n_columns: int, device: str) -> dict[str, Any]:
    """A whole fit with coherence; rows are near a plane, as those of real tables are."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, N_FACTORS), np.float32) @ rng.standard_normal(
        (N_FACTORS, n_columns), np.float32
    )
    X += rng.standard_normal(X.shape, np.float32)
    X /= X.std()
    hidden = (392, 392, 392) if n_columns == 784 else (256, 256)  # the paper's for images
    init = MMDInitializer(hidden, coherence="auto", device=device, random_state=0, verbose=0)
    torch.zeros(1, device=device)  # a GPU is taken before the first second counts
    taken: list[float] = []
    peak = grown_by(lambda: taken.append(timed(lambda: init.fit(X), device)), device)
    return {"rows": n_rows, "columns": n_columns, "seconds": round(taken[0], 2), "peak": peak}


def _in_a_new_process(function: Callable[..., Any], *args: Any) -> Any:
    """What a function returns where nothing has run before it."""
    threads = torch.set_num_threads, (torch.get_num_threads(),)
    with ProcessPoolExecutor(1, get_context("spawn"), *threads) as pool:
        return pool.submit(function, *args).result()


def measure_peak(step: Step, form: str = "library") -> dict[str, Any]:
    """Peak memory of a step above what the process held before."""
    return {"form": form, "peak": _in_a_new_process(_peak, step, form)}


def measure_fit(n_rows: int, n_columns: int, device: str = "cpu") -> dict[str, Any]:
    """Seconds of a fit, and by how many bytes its process, or a GPU, grew meanwhile."""
    return _in_a_new_process(_fit, n_rows, n_columns, device)
