"""The shape of the benchmarks, read from their syntax trees: commands at the top, rooms below."""

import ast
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter

import pytest

from protocol.methods import NAMES
from test_architecture import ROOT, imported_by

BENCHMARKS = ROOT / "benchmarks"

# Room -> the rooms it may import. The commands at the top may import every room, and nothing
# imports a command.
ROOMS = {
    "data": set(),
    "rivals": set(),
    "protocol": {"data", "rivals"},
    "timing": {"protocol"},
    "reporting": {"protocol"},
}

# At the top too, and no command: what all of them are, for the report and the reader.
NO_COMMANDS = {"runs.py"}

TOP = sorted(BENCHMARKS.glob("*.py"))
COMMANDS = [path for path in TOP if path.name not in NO_COMMANDS]
FILES = [*TOP, *sorted(path for room in ROOMS for path in (BENCHMARKS / room).rglob("*.py"))]


def place(path):
    """Where a file is, from the folder of the benchmarks."""
    return path.relative_to(BENCHMARKS).as_posix()


def dotted(path):
    return place(path).removesuffix(".py").replace("/", ".")


def files_imported(path):
    """Files of the benchmarks that one imports, by their dotted names."""
    names = imported_by(path)
    return (names | {name.rpartition(".")[0] for name in names}) & set(map(dotted, FILES))


def test_imports_go_one_way_and_nothing_imports_a_command():
    assert set(TopologicalSorter(ROOMS).static_order()) == set(ROOMS)
    for path in FILES:
        room, _, _ = place(path).rpartition("/")
        allowed = ROOMS[room] | {room} if room else set(ROOMS)
        imported = {name.partition(".")[0] for name in files_imported(path)}
        known = allowed | {name.removesuffix(".py") for name in NO_COMMANDS}
        assert imported <= known, f"{place(path)} may not import {imported - known}"
    graph = {dotted(path): files_imported(path) for path in FILES}
    # Against files that are here to stay.
    assert graph["protocol.evaluation"] >= {"data.datasets", "protocol.store"}
    assert list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("path", COMMANDS, ids=place)
def test_a_command_says_its_claim_how_to_run_it_and_how_long_it_takes(path):
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert said.startswith("Claim: ")
    assert f"\n    python benchmarks/{path.name}" in said
    assert re.search(r"\b(seconds|minutes|hours)\b", said)


def test_a_command_runs_as_a_script_from_any_folder(tmp_path):
    # Not as pytest imports it: a script's own folder is where Python looks for the rooms first.
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "mnist_tasks.py", "--methods", "none"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    names = ", ".join(NAMES)
    said = f"mnist_tasks.py: unknown method 'none'; valid names are {names}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_benchmarks_use_the_public_names_only():
    private = re.compile(r"^ *(?:from|import) sklearn_mmdinit\.", re.MULTILINE)
    found = [place(p) for p in FILES if private.search(p.read_text())]
    # What the paper counts is counted on the networks that a step draws, and rivals get our pairs.
    assert found == ["protocol/diagnostics.py", "rivals/self_supervised.py"]
