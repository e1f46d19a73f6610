"""The shape of the code: imports go one way, as the picture in CONTRIBUTING.md shows it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = "sklearn_mmdinit"
# The two doors only name what lies behind them.
DOORS = {ROOT / NAME / "__init__.py", ROOT / NAME / "_base/__init__.py"}
FILES = sorted({*(ROOT / NAME).rglob("*.py")} - DOORS)


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
    own = path.relative_to(ROOT / NAME).as_posix()
    found = [
        (len(place), number, place)
        for number, line in enumerate(layers)
        for place in line
        if own == place or (place.endswith("/") and own.startswith(place))
    ]
    assert found, f"{own} is on no line of the picture in CONTRIBUTING.md"
    return max(found)[1:]


def test_imports_go_one_way_down_the_picture():
    layers = layers_of((ROOT / "CONTRIBUTING.md").read_text())
    for path in FILES:
        number, place = layer_of(path, layers)
        for name in imported_by(path):
            target, said = file_of(name), f"{path.relative_to(ROOT)} may not import {name}"
            assert target not in DOORS, said
            if target is not None:
                other, where = layer_of(target, layers)
                assert other > number or where == place, said
    places = [place for line in layers for place in line]
    assert len(set(places)) == len(places)
    assert all((ROOT / NAME / place).exists() for place in places), "nothing is there in vain"


def test_importing_the_package_is_quiet_and_loads_no_extras():
    code = f"import sys, {NAME}; print(sorted(sys.modules.keys() & set(sys.argv[1:])))"
    heavy = ["matplotlib", "numba", "polars", "pynndescent", "ray", "dask"]
    command = [sys.executable, "-W", "error", "-c", code, *heavy]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
