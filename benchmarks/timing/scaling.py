"""Time and memory against the size of a step, and against the number of rows on disk.

Every point is measured in a process of its own, one after the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from timing.module_step import ConvSize
from timing.step_forms import Size

__all__ = [
    "measure_memory",
    "measure_module_memory",
    "measure_rows",
    "measure_scaling",
    "sizes_to_scale",
]

# By its name and not its path (and -P: not from the folder one stands in), so that the child
# imports the very files that this process does.
_PROBE = ("-P", "-m", "timing.memory_probe")

# What varies, and how a size follows from its value.
AXES: dict[str, tuple[tuple[int, ...], Callable[[Size, int], Size]]] = {
    "K": ((64, 128, 256, 512), lambda size, v: replace(size, n_perturbations=v)),
    "B": ((8, 16, 32, 64), lambda size, v: replace(size, batch_size=v)),
    "width": (
        (98, 196, 392, 784),
        lambda size, v: replace(size, hidden_layer_sizes=(v,) * len(size.hidden_layer_sizes)),
    ),
    "depth": (
        (1, 2, 3, 5),
        lambda size, v: replace(size, hidden_layer_sizes=(size.hidden_layer_sizes[0],) * v),
    ),
    "d": ((2, 3, 10), lambda size, v: replace(size, n_classes=v)),
}


def _probe(**job: Any) -> dict[str, Any]:
    job["threads"] = torch.get_num_threads()
    answer = subprocess.run(
        [sys.executable, *_PROBE, json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    if answer.returncode != 0:
        raise RuntimeError(f"measuring {job} failed:\n{answer.stderr}")
    return json.loads(answer.stdout.splitlines()[-1])


def measure_memory(forms: Sequence[str], size: Size) -> list[dict[str, Any]]:
    """Peak memory of two steps of each form, above what its process held before."""
    return [
        {"form": form, **_probe(probe="step", form=form, size=asdict(size), n_steps=1, rounds=1)}
        for form in forms
    ]


def measure_module_memory(
    size: Size, convnet: ConvSize, numbers: Sequence[int]
) -> list[dict[str, Any]]:
    """Peak memory of two steps of the general path, by the number of perturbed networks."""
    sizes: dict[str, Size | ConvSize] = {"sequential": size, "convnet": convnet}
    return [
        {"form": form, "K": K}
        | _probe(probe="module", form=form, size=asdict(replace(own, n_perturbations=K)))
        for form, own in sizes.items()
        for K in numbers
    ]


def sizes_to_scale(size: Size, quick: bool) -> list[tuple[str, int, Size]]:
    """Axis, value and size of each point; the ends of K and d alone where it must be quick."""
    points = []
    for axis, (values, at) in AXES.items():
        if quick and axis not in ("K", "d"):
            continue
        chosen = (values[0], values[-1]) if quick else values
        points += [(axis, value, at(size, value)) for value in chosen]
    return points


def measure_scaling(size: Size, quick: bool) -> list[dict[str, Any]]:
    """Seconds a step of the library and its memory, one number of the size changed at a time."""
    known: dict[Size, dict[str, Any]] = {}  # the size itself lies on every axis
    n_steps, rounds = (2, 1) if quick else (5, 2)
    records = []
    for axis, value, point in sizes_to_scale(size, quick):
        if point not in known:
            known[point] = _probe(
                probe="step", form="library", size=asdict(point), n_steps=n_steps, rounds=rounds
            )
        records.append({"axis": axis, "value": value, **known[point]})
    return records


@contextmanager
def _sparse_file(n_bytes: int) -> Iterator[Path]:
    """A file of so many zeros that takes no room on a disk with sparse files."""
    handle, name = tempfile.mkstemp(prefix="speed-rows-", suffix=".float32")
    try:
        os.ftruncate(handle, n_bytes)
        os.close(handle)
        yield Path(name)
    finally:
        os.unlink(name)


def measure_rows(numbers_of_rows: Sequence[int], n_features: int = 784) -> list[dict[str, Any]]:
    """Seconds and memory of the same twenty steps on ever more rows on disk."""
    records = []
    for n_rows in numbers_of_rows:
        n_bytes = 4 * n_rows * n_features
        with _sparse_file(n_bytes) as path:
            found = _probe(probe="rows", path=str(path), shape=[n_rows, n_features])
        records.append({"rows": n_rows, "bytes": n_bytes, **found})
    return records
