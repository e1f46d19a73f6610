"""What a figure was made with: versions, hardware, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import sklearn_mmdinit

__all__ = ["deciding_versions", "hardware", "provenance", "require_versions", "versions"]

# Versions that cannot change a score.
IDLE_VERSIONS = {"python"}

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "skorch", "joblib")


def versions() -> dict[str, str]:
    """Version of Python, of this library and of what the figures depend on."""
    found = {"python": platform.python_version(), "sklearn_mmdinit": sklearn_mmdinit.__version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def deciding_versions() -> dict[str, str]:
    """The versions that can change a score."""
    return {name: found for name, found in versions().items() if name not in IDLE_VERSIONS}


@cache
def _own_versions() -> dict[str, str]:
    return deciding_versions()


def require_versions(used: dict[str, str]) -> None:
    """Raise a RuntimeError where a worker has other versions than those a score is kept under."""
    own = _own_versions()
    other = [f"{name} {own[name]} and not {used[name]}" for name in used if own[name] != used[name]]
    if other:
        raise RuntimeError(f"the worker on {platform.node()} has {', '.join(other)}")


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def hardware() -> dict[str, Any]:
    """The processor, the cores this process may use, and the GPU if torch sees one."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": _cpu_name(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }


def _git(*arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None  # no git, or a copy without its history
    return answer.stdout.strip()


def provenance() -> dict[str, Any]:
    """Versions, hardware, and the commit with whether files it tracks were changed since."""
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "versions": versions(),
        "hardware": hardware(),
        "git_commit": _git("rev-parse", "HEAD"),
        "git_changed": None if changed is None else bool(changed),
    }
