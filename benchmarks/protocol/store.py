"""Files that survive an interruption, what stands for a value, and what a figure was made with."""

import ast
import contextlib
import hashlib
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

import sklearn_mmdinit

# Files


def digest_of(value: Any) -> str:
    """Sixteen hexadecimal digits for a value that JSON can hold, the same in every process."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def data_digest(X: np.ndarray) -> str:
    """Thirty-two hexadecimal digits for an array's shape, type and values."""
    return str(joblib.hash(np.ascontiguousarray(X)))


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let ``write`` fill a file in a folder beside ``path``, then put it in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part-") as folder:
        part = Path(folder) / path.name
        write(part)
        os.replace(part, path)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write an object, one key a line and one element of a list a line, atomically."""
    entries = []
    for key, entry in value.items():
        text = json.dumps(entry)
        if isinstance(entry, list):
            text = "[" + ",".join(f"\n  {json.dumps(element)}" for element in entry) + "\n ]"
        entries.append(f"\n {json.dumps(key)}: {text}")
    text = "{" + ",".join(entries) + "\n}\n"
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


class Log:
    """Results as they come, one JSON object a line, looked up by their ``"key"``.

    A line that a killed process cut short is dropped on reading, and its cell is done again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}
        lines = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        for line in lines.splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                # What is left of a line may be JSON too, but no record with a result.
                is_record = isinstance(record, dict) and record.keys() > {"key"}
                if is_record and isinstance(record["key"], str):
                    self.records[record["key"]] = record

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; it is on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            # On a line of its own, whatever a killed process left before it.
            file.write(b"\n" + json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.records[record["key"]] = record


# Versions and machines

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "skorch", "joblib")


def versions() -> dict[str, str]:
    """Version of Python, of this library and of what the figures depend on."""
    first = {"python": platform.python_version(), "sklearn_mmdinit": sklearn_mmdinit.__version__}
    return first | {package: version(package) for package in PACKAGES}


@cache
def deciding_versions() -> dict[str, str]:
    """The versions that can change a score, which Python's cannot."""
    return {name: number for name, number in versions().items() if name != "python"}


DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef
# Of the package's files, what learns no theta0.
LEARNS_NOTHING = frozenset(
    {"__init__", "classifiers", "embedding_classifier", "fine_tuning", "warm_start"}
)


@cache
def code_digest(
    package: Path = Path(sklearn_mmdinit.__file__).parent, without: frozenset[str] = LEARNS_NOTHING
) -> str:
    """What stands for the code that learns a theta0, whatever its comments and docstrings say."""
    parts = []
    for path in sorted(package.rglob("*.py")):
        if not without.isdisjoint(path.relative_to(package).with_suffix("").parts):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
                del node.body[0]
        parts.append(ast.dump(tree))
    return digest_of(parts)


@cache
def commit() -> str | None:
    """The commit that this file is of; None in a copy without its history."""
    return _git("rev-parse", "HEAD")


def hardware() -> dict[str, Any]:
    """The processor, the cores this process may use, and the GPU if torch sees one."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, ValueError):  # not on Linux, or without a name
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        (cpu, *_) = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": cpu,
        "cores": joblib.cpu_count(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None  # no git, or a copy without its history
    return done.stdout.strip()


def provenance() -> dict[str, Any]:
    """Versions, hardware, and the commit with whether files it tracks were changed since."""
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "versions": versions(),
        "hardware": hardware(),
        "git_commit": commit(),
        "git_changed": None if changed is None else bool(changed),
    }
