"""What each file of results was made with: seeds, runs, time, commit, machine, versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reporting.library import Library
from reporting.table import Table

__all__ = ["made_with_table"]

SHORT_COMMIT = 7


def _settings(results: dict[str, Any]) -> dict[str, Any]:
    return results.get("settings", results.get("plan", {}))


def _runs(results: dict[str, Any]) -> str:
    settings = _settings(results)
    runs = settings.get("runs")
    if runs is None:
        return str(settings.get("run", "-"))
    first = settings.get("first_run", 0)
    return str(first) if runs == 1 else f"{first} to {first + runs - 1}"


def _learned(results: dict[str, Any]) -> Iterator[float]:
    """Seconds of each theta0, wherever a file has them; of a checkpoint those since the start."""
    for record in results.get("theta0", []):
        if "seconds" in record:
            yield record["seconds"]
    for record in results.get("records", []):
        if "seconds" in record.get("theta0", {}):
            yield record["theta0"]["seconds"]
    longest: dict[tuple[str, int], float] = {}
    for record in results.get("checkpoints", []):
        key = record["setting"], record["run"]
        longest[key] = max(record["seconds"], longest.get(key, 0.0))
    yield from longest.values()


def _duration(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _time(results: dict[str, Any]) -> str:
    learned = list(_learned(results))
    parts = [f"{len(learned)} theta0 in {_duration(sum(learned))}"] if learned else []
    call = results.get("seconds_of_this_call", results.get("seconds"))
    if call is not None:
        parts.append(f"last call {_duration(call)}")
    return ", ".join(parts) or "-"


def _commit(results: dict[str, Any]) -> str:
    # Where cells were measured in portions, the last call has only put them together.
    commits = results.get("measured_at_commits") or [results.get("git_commit")]
    if commits[0] is None:
        return "-"
    changed = results.get("git_changed")
    return ", ".join(c[:SHORT_COMMIT] for c in commits) + (" with changes" if changed else "")


def _machine(results: dict[str, Any]) -> str:
    machines = results.get("measured_on") or [results.get("hardware")]
    return "; ".join("-" if machine is None else _hardware(machine) for machine in machines)


def _hardware(machine: dict[str, Any]) -> str:
    gpu = f", {machine['gpu']}" if machine.get("gpu") else ""
    cores = machine["cores"]
    return f"{machine['cpu']}, {cores} core{'' if cores == 1 else 's'}{gpu}"


def _versions(results: dict[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in results.get("versions", {}).items())


def _parts(file: str, results: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was measured in one go, of a file that may have been put together."""
    parts = results.get("parts")
    if parts is None:
        yield file, results
        return
    for number, part in enumerate(parts, 1):
        yield f"{file}, part {number}", part


def made_with_table(library: Library, files: Iterable[str]) -> Table:
    """One row for each file that is there or each of its parts; a letter for a set of versions.

    Returns
    -------
    Table
        Its title says which versions a letter stands for.
    """
    letters: dict[str, str] = {}
    rows = []
    for file in dict.fromkeys(files):
        results = library.results(file)
        if results is None:
            continue
        for name, part in _parts(file, results):
            versions = _versions(part)
            letter = letters.setdefault(versions, chr(ord("a") + len(letters)))
            seed = str(_settings(part).get("seed", "-"))
            made = _runs(part), _time(part), _commit(part), _machine(part)
            rows.append([name, seed, *made, letter])
    named = "; ".join(f"{letter}: {versions}" for versions, letter in letters.items())
    title = f"What each file was made with (versions {named})" if named else "Nothing is measured"
    return Table(title, ["file", "seed", "runs", "time", "commit", "machine", "versions"], rows)
