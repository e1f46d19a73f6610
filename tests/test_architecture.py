"""The shape of the code: imports go one way, as the picture in CONTRIBUTING.md shows it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAME = "sklearn_mmdinit"
# The two doors only name what lies behind them.
DOORS = {ROOT / NAME / "__init__.py", ROOT / NAME / "_core/__init__.py"}
FILES = sorted({*(ROOT / NAME).rglob("*.py")} - DOORS)


def layers_of(text):
    """Places of the package, from top to bottom, in the first fenced block that names one.

    A line of it begins with a file or folder, such as ``_core/train.py`` or ``losses/``. Those
    that do not know each other may share a line, with commas between them.
    """
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        lines = [
            re.match(r" *([\w/]+(?:/|\.py)(?:, *[\w/]+(?:/|\.py))*)", line)
            for line in block.splitlines()
        ]
        if layers := [re.split(", *", line[1]) for line in lines if line]:
            return layers
    raise ValueError("no fenced block whose lines begin with a file or folder")


def imported_by(path, source=None):
    """Absolute names that a file imports, wherever in it."""
    package, names = path.relative_to(ROOT).parent.parts, set()
    for node in ast.walk(ast.parse(path.read_text() if source is None else source)):
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
    if parts[0] != NAME:
        return None
    for n in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:n])
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.exists():
                return path
    return None


def layer_of(path, layers):
    """Number of the line that a file is on, the longest name counting, and its place there."""
    own = path.relative_to(ROOT / NAME).as_posix()
    found = [
        (len(place), number, place)
        for number, line in enumerate(layers)
        for place in line
        if own == place or (place.endswith("/") and own.startswith(place))
    ]
    if not found:
        raise ValueError(f"{own} is on no line of the picture in CONTRIBUTING.md")
    return max(found)[1:]


def upward(path, layers, source=None):
    """What a file imports from its own line or above it, in words."""
    number, place = layer_of(path, layers)
    for name in sorted(imported_by(path, source)):
        target = file_of(name)
        if target in DOORS:
            yield f"{path.relative_to(ROOT)} imports {name}, which knows everything"
        if target is None or target in DOORS:
            continue
        other, where = layer_of(target, layers)
        if other < number or (other == number and where != place):
            yield f"{path.relative_to(ROOT)} imports {name}, which is not below it"


@pytest.fixture(scope="module")
def layers():
    return layers_of((ROOT / "CONTRIBUTING.md").read_text())


def test_imports_go_one_way_down_the_picture(layers):
    assert [words for path in FILES for words in upward(path, layers)] == []
    places = [place for line in layers for place in line]
    assert len(set(places)) == len(places)
    assert all((ROOT / NAME / place).exists() for place in places), "nothing is there in vain"


def test_importing_the_package_is_quiet_and_loads_no_extras():
    code = f"import sys, {NAME}.display; print(sorted(sys.modules.keys() & set(sys.argv[1:])))"
    heavy = ["matplotlib", "numba", "onnx", "polars", "pynndescent", "ray", "dask"]
    command = [sys.executable, "-W", "error", "-c", code, *heavy]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_wrong_import_and_a_wrong_picture_are_seen():
    picture = "```\nls\n```\n```\ntheta0.py, theory.py  what\n  _core/train.py\n_core/\n```"
    layers, package = layers_of(picture), ROOT / NAME
    assert not list(upward(package / "_core/train.py", layers, "from .config import Config"))
    for file, source in (
        ("_core/config.py", "def f():\n    from .train import State"),
        ("_core/train.py", f"import {NAME}.theta0"),
        ("theta0.py", "from .theory import x"),
    ):
        assert list(upward(package / file, layers, source))
    with pytest.raises(ValueError, match="is on no line"):
        layer_of(package / "export.py", layers)
