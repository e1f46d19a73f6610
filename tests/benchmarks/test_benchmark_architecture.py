"""The shape of the benchmarks, read from their syntax trees: commands at the top, rooms below.

A new file finds its room by what it does; a new room needs a line in ROOMS, after what it uses.
"""

import ast
import importlib
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sklearn_mmdinit

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
PACKAGE = "sklearn_mmdinit"

# Room -> the rooms it may import. The commands at the top may import every room, and nothing
# imports a command.
ROOMS = {
    "data": set(),
    "engines": set(),
    "rivals": set(),
    "protocol": {"data", "engines", "rivals"},
    "timing": {"engines", "protocol"},
    "reporting": {"protocol"},
    "tour_steps": {"protocol"},
}

# File -> why it may use private names of the package.
USES_PRIVATE_NAMES = {
    "neighbors.py": "the search of a graph is not public",
    "timing/library_step.py": "a loss on given noise and the parts of a step are not public",
}

LONGEST = 350

# What is no source: measurements that are committed, and those that are not.
NO_ROOMS = {"results", "output", "__pycache__"}

COMMANDS = sorted(BENCHMARKS.glob("*.py"))
IN_ROOMS = sorted(path for room in ROOMS for path in (BENCHMARKS / room).rglob("*.py"))
FILES = [*COMMANDS, *IN_ROOMS]


def place(path):
    """Where a file is, from the folder of the benchmarks."""
    return path.relative_to(BENCHMARKS).as_posix()


every_file = pytest.mark.parametrize("path", FILES, ids=place)
every_command = pytest.mark.parametrize("path", COMMANDS, ids=place)


def syntax_tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_names(tree):
    """Absolute dotted names that a tree imports, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "a room is named, also from inside"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files_imported(tree):
    """Files of the benchmarks that a tree imports, by their dotted names."""
    known = {place(path).removesuffix(".py").replace("/", ".") for path in FILES}
    names = set(imported_names(tree))
    return (names | {name.rpartition(".")[0] for name in names}) & known


def test_every_folder_is_a_room_that_says_what_it_is_for():
    folders = {path.name for path in BENCHMARKS.iterdir() if path.is_dir()} - NO_ROOMS
    assert folders == set(ROOMS)
    for room in ROOMS:
        statements = syntax_tree(BENCHMARKS / room / "__init__.py").body
        assert [type(node) for node in statements] == [ast.Expr]
        assert 2 <= len(ast.get_docstring(ast.Module(statements, [])).splitlines()) <= 5


def test_allowed_imports_have_no_cycle_and_stand_in_order():
    assert set(TopologicalSorter(ROOMS).static_order()) == set(ROOMS)
    listed = []
    for room, imports in ROOMS.items():
        assert imports <= set(listed), f"{room} stands before what it imports"
        listed.append(room)


def test_files_of_a_room_have_no_cycle_either():
    graph = {
        place(path).removesuffix(".py").replace("/", "."): files_imported(syntax_tree(path))
        for path in FILES
    }
    # Against files that are here to stay.
    assert graph["protocol.evaluation"] >= {"data.datasets", "protocol.store"}
    assert list(TopologicalSorter(graph).static_order())


@every_file
def test_arrows_among_rooms_go_one_way(path):
    room, _, _ = place(path).rpartition("/")
    allowed = ROOMS[room] | {room} if room else set(ROOMS)
    imported = {name.partition(".")[0] for name in files_imported(syntax_tree(path))}
    commands = imported & {command.stem for command in COMMANDS}
    assert not commands, f"{place(path)} imports a command"
    assert imported <= allowed, f"{place(path)} may not import {imported - allowed}"


@every_file
def test_files_are_short_and_say_what_they_do(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST
    assert ast.get_docstring(syntax_tree(path))
    assert not path.stem.startswith("_") or path.stem == "__init__"


# Commands


@every_command
def test_a_command_says_its_claim_how_to_run_it_and_how_long_it_takes(path):
    said = ast.get_docstring(syntax_tree(path))
    assert said.startswith("Claim: ")
    assert f"\n    python benchmarks/{path.name}" in said
    assert re.search(r"\b(seconds|minutes|hours)\b", said)
    assert 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")


@every_command
def test_help_says_the_claim(path, capsys):
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(path.stem).main(["--help"])
    assert "\n\nClaim: " in capsys.readouterr().out


def test_a_command_runs_as_a_script_from_any_folder(tmp_path):
    # Not as pytest imports it: a script's own folder is where Python looks for the rooms first.
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "readme_tables.py", "--check"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# Private names


def private_uses(tree):
    """Names of the package that are not public, as a tree imports or reads them."""
    for name in imported_names(tree):
        top, *rest = name.split(".")
        if top != PACKAGE or not rest:
            continue
        public = rest[0] in {*sklearn_mmdinit.__all__, "__version__"}
        if not public or any(part.startswith("_") for part in rest if part != "__version__"):
            yield name
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr.startswith("__"):
            continue
        name = ast.unparse(node)
        if name.startswith(f"{PACKAGE}.") and node.attr.startswith("_"):
            yield name


@every_file
def test_benchmarks_use_the_public_names_only(path):
    uses = list(private_uses(syntax_tree(path)))
    # An exception that is no longer needed has to go.
    assert bool(uses) == (place(path) in USES_PRIVATE_NAMES), uses


@pytest.mark.parametrize(
    "source",
    [
        "from sklearn_mmdinit._network import MLP",
        "from sklearn_mmdinit import _network",
        "from sklearn_mmdinit import no_such_name",
        "from sklearn_mmdinit.theory._checks import finite",
        "import sklearn_mmdinit._network",
        "import sklearn_mmdinit\nsklearn_mmdinit._network.MLP",
    ],
)
def test_private_uses_are_seen(source):
    assert list(private_uses(ast.parse(source)))
