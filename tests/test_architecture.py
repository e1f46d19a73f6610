"""The shape of the code: imports go one way, as CONTRIBUTING.md shows, and a budget holds its size.

A budget only falls: a change that needs more room makes it elsewhere.
"""

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sklearn_mmdinit

ROOT = Path(__file__).resolve().parents[1]
NAME = "sklearn_mmdinit"
# It only names what is public, so no other file may import it.
PUBLIC = ROOT / NAME / "__init__.py"
FILES = sorted({*(ROOT / NAME).rglob("*.py")} - {PUBLIC})


def layers_of(text):
    """Places of the package, line by line, in the first fenced block that names a file."""
    place = r"[\w/]+(?:/|\.py)"
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        lines = re.findall(rf"^ *({place}(?:, *{place})*)", block, re.MULTILINE)
        if lines:
            return [re.split(", *", line) for line in lines]
    raise ValueError("no fenced block whose lines begin with a file or folder")


def imported_by(path):
    """Absolute names that a file imports, wherever in it."""
    package, names = path.relative_to(ROOT).parent.parts, set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{stem}.{alias.name}" for alias in node.names}
    return names


def file_of(name):
    """The file of the package that an imported name comes from, or None."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1) if parts[0] == NAME else ():
        place = ROOT.joinpath(*parts[:n])
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.exists():
                return path
    return None


def layer_of(path, layers):
    """Number of the line that a file is on, the longest name counting, and its place there."""
    name = path.relative_to(ROOT / NAME).as_posix()
    matches = [
        (len(place), number, place)
        for number, line in enumerate(layers)
        for place in line
        if name == place or (place.endswith("/") and name.startswith(place))
    ]
    assert matches, f"{name} is on no line of the picture in CONTRIBUTING.md"
    return max(matches)[1:]


def test_imports_go_one_way_down_the_picture_and_never_in_a_circle():
    layers = layers_of((ROOT / "CONTRIBUTING.md").read_text())
    for path in FILES:
        number, place = layer_of(path, layers)
        for name in imported_by(path):
            target, problem = file_of(name), f"{path.relative_to(ROOT)} may not import {name}"
            assert target != PUBLIC, problem
            if target is not None:
                other, where = layer_of(target, layers)
                assert other > number or where == place, problem
    places = [place for line in layers for place in line]
    assert len(set(places)) == len(places)
    assert all((ROOT / NAME / place).exists() for place in places), "a line names no file"
    imports = {path: {file_of(name) for name in imported_by(path)} - {None, path} for path in FILES}
    assert {*TopologicalSorter(imports).static_order()} >= {*FILES}  # a cycle raises an error


def test_a_file_name_is_used_once_and_is_not_of_the_standard_library():
    names = Counter(path.stem for path in FILES if path.stem != "__init__")
    assert [name for name, n in names.items() if n > 1] == []
    assert names.keys() & sys.stdlib_module_names == set()


def test_importing_the_package_is_quiet_and_loads_no_extras():
    code = f"import sys, {NAME}; print(sorted(sys.modules.keys() & set(sys.argv[1:])))"
    heavy = ["matplotlib", "numba", "polars", "pynndescent", "dask", "torch._dynamo"]
    command = [sys.executable, "-W", "error", "-c", code, *heavy]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_filters_of_warnings_are_left_alone():
    # They belong to the process: where threads overlap, what one of them restores is another's.
    changing = {path.stem for path in FILES if "catch_warnings" in path.read_text()}
    assert changing == {"cuda_graph"}, "on a GPU's synchronisations"


# The budget


def n_code_lines(path):
    """Lines of a file without blank ones, comments and docstrings."""
    text, of_docstrings = path.read_text(), set()
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node):
            of_docstrings |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    lines = enumerate(text.split("\n"), 1)
    return sum(bool(re.match(r"\s*[^\s#]", line)) and n not in of_docstrings for n, line in lines)


# Files and folders -> the most lines of code that they have together.
BUDGET = {
    "initializer.py": 310,
    "classifiers.py": 285,
    "fine_tuning": 373,
    "warm_start.py": 107,
    "embedding_classifier.py": 104,
    "coherence.py graph": 387,
    "objective.py losses": 408,
    "networks": 765,
    "training": 742,
    "theta0.py": 197,
    "mmd_init.py transforms.py": 361,
    "_base": 637,
}


@pytest.mark.parametrize("places", BUDGET)
def test_each_place_keeps_its_budget(places):
    found = [ROOT / NAME / place for place in places.split()]
    files = [
        file for place in found for file in ([place] if place.is_file() else [*place.rglob("*.py")])
    ]
    assert sum(map(n_code_lines, files)) <= BUDGET[places]


def test_the_whole_package_keeps_its_budget():
    files = [PUBLIC, *FILES]
    assert len(files) <= 45
    assert sum(map(n_code_lines, files)) <= 4704
    texts = [path.read_text() for path in files]
    assert sum(len(text.splitlines()) for text in texts) <= 8245
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    assert sum(isinstance(node, ast.Raise) for node in nodes) <= 82
    called = [getattr(f, "id", getattr(f, "attr", "")) for f in calls]
    assert called.count("warn") + called.count("warn_user") <= 11


def test_public_names_and_parameters_keep_their_budget():
    assert len(sklearn_mmdinit.__all__) <= 16
    most = {"MMDInitializer": 20, "Coherence": 8, "MLPClassifier": 12}
    for name, n in most.items():
        parameters = inspect.signature(getattr(sklearn_mmdinit, name)).parameters.values()
        assert sum(parameter.kind != parameter.VAR_KEYWORD for parameter in parameters) <= n, name
