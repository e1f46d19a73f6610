"""The shape of the code, read from its syntax trees: rooms, arrows one way, small files.

A room is a folder of the package, its door the folder's ``__init__.py``. Rooms import each
other by their doors alone. CONTRIBUTING.md has the picture.
"""

import ast
import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAME = "sklearn_mmdinit"
PACKAGE = ROOT / NAME

# Place -> the places it may import, all of which stand before it. A place is a room or a module
# that lies beside the rooms; a new one needs a line here and in CONTRIBUTING.md.
ARROWS = {
    "_compute": set(),
    "_network": set(),
    "_graph": set(),
    "_documentation": set(),
    "_images": {"_documentation"},
    "_export": {"_network"},
    "_sampling": {"_compute", "_network"},
    "_modules": {"_compute", "_network", "_sampling"},
    "_objective": {"_compute", "_modules", "_network", "_sampling"},
    "_pretraining": {"_compute", "_documentation", "_export", "_graph", "_network"},
    "_fine_tuning": {"_compute", "_documentation", "_export", "_modules", "_network"},
    "_subject": {"_compute", "_network"},
    "diagnostics": {"_compute", "_network", "_objective", "_sampling", "_subject"},
    "display": {"_compute", "diagnostics"},
    "theory": {"_network"},
    "_coherence": {"_documentation", "_graph", "_pretraining"},
    "_auto": {"_coherence", "_compute", "_network", "_pretraining"},
    "_nested_parameters": {"_coherence", "_modules", "_pretraining"},
    "_module_parameters": {
        "_coherence",
        "_modules",
        "_network",
        "_pretraining",
        "_sampling",
    },
    "_mmd_parameters": {"_coherence", "_compute", "_objective", "_pretraining", "_sampling"},
    "_mmd_objective": {
        "_coherence",
        "_compute",
        "_mmd_parameters",
        "_objective",
        "_pretraining",
        "_sampling",
    },
    "_embedding": {"_coherence", "_compute", "_graph", "_pretraining"},
    "_mmd_initializer": {
        "_auto",
        "_coherence",
        "_embedding",
        "_mmd_objective",
        "_mmd_parameters",
        "_module_parameters",
        "_nested_parameters",
        "_network",
        "_pretraining",
    },
    "_in_place": {"_coherence", "_compute", "_mmd_initializer", "_network", "_pretraining"},
    "_random_label_initializer": {"_objective", "_pretraining"},
    "_mlp_classifier": {"_export", "_fine_tuning", "_network"},
    "_net_classifier": {"_fine_tuning", "_modules", "_pretraining"},
}
# What the package itself hands on; nothing may import it from inside.
HANDED_ON = {
    "_coherence",
    "_fine_tuning",
    "_images",
    "_in_place",
    "_mlp_classifier",
    "_mmd_initializer",
    "_modules",
    "_net_classifier",
    "_network",
    "_random_label_initializer",
    "diagnostics",
    "display",
    "theory",
}

# Third-party package -> the only modules that may import it.
HOMES = {
    "matplotlib": {"display._drawing"},
    "safetensors": {"_network.files"},
    "numba": {"_graph.search"},
    "pynndescent": {"_graph.search"},
    "skorch": {"_fine_tuning.callbacks", "_fine_tuning.net", "_fine_tuning.start_callback"},
    "tqdm": {"_graph.search", "_pretraining.loop"},
}
# Place or module of pure mathematics -> the only third-party packages that it may import.
ONLY_THIRD_PARTY = {
    "_compute": {"numpy", "torch"},
    "_network": {"numpy", "safetensors", "torch"},
    "_modules": {"numpy", "torch"},
    "_network.architecture": set(),
    "_network.module_architecture": set(),
    "_network.theta0": {"numpy"},
    "_objective": {"torch"},
    "_sampling": {"torch"},
}

LONGEST = {NAME: 350, "benchmarks": 350, "tests": 600}


def module_name(path):
    """A file's dotted name inside the package; the empty string for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def path_of(module):
    folder = PACKAGE.joinpath(*module.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def source_of(module):
    return path_of(module).read_text()


MODULES = sorted(module_name(path) for path in PACKAGE.rglob("*.py"))
ROOMS = [place for place in ARROWS if (PACKAGE / place).is_dir()]


def place_of(module):
    return module.partition(".")[0]


# The reader


def imported_names(tree, package=()):
    """Absolute dotted names that a tree imports, wherever in the file.

    ``package`` holds the parts of the package that relative imports start from.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def imports_of(module, source):
    """What a module imports: pairs (module, name) of the package, and the top names of others.

    The name is empty where a module itself is imported.
    """
    parts = (NAME, *(module.split(".") if module else ()))
    package = parts if path_of(module).name == "__init__.py" else parts[:-1]
    inside, outside = set(), set()
    for full in imported_names(ast.parse(source), package):
        top, _, rest = full.partition(".")
        if top != NAME:
            outside.add(top)
        elif rest in MODULES:
            inside.add((rest, ""))
        else:
            stem, _, name = rest.rpartition(".")
            inside.add((stem, name))
    return inside, outside - set(sys.stdlib_module_names)


def names_of_all(source):
    """The list in ``__all__``, or None."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return None


def wrong_imports(module, source):
    """What a module of the package may not import, in words."""
    place = place_of(module)
    inside, outside = imports_of(module, source)
    for target, name in sorted(inside):
        other = place_of(target)
        if other == place:
            # A door is for the others: an inner file that used it would go round in a circle.
            if target == place and module != place:
                yield f"{module} imports the door of its own room"
        elif other not in ARROWS.get(place, set()):
            yield f"{place} may not import {other or 'the package itself'}"
        elif target != other or not name:
            yield f"{module} goes past the door of {other} to {target}"
        elif name not in names_of_all(source_of(other)):
            yield f"{other} does not hand out {name}"
    for package, homes in HOMES.items():
        if package in outside and module not in homes:
            yield f"{package} is not for {module}"
    for pure in {module, place} & ONLY_THIRD_PARTY.keys():
        if outside - ONLY_THIRD_PARTY[pure]:
            yield f"{pure} may not import {outside - ONLY_THIRD_PARTY[pure]}"


def wrong_door(room, source):
    """What is wrong with the ``__init__.py`` of a room, in words."""
    tree = ast.parse(source)
    if not ast.get_docstring(tree):
        yield "no docstring"
    imported = set()
    for node in tree.body[1:]:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            imported |= {alias.asname or alias.name for alias in node.names}
        elif not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"):
            yield f"more than imports from the room: {ast.unparse(node)}"
    listed = names_of_all(source)
    if listed is None or set(listed) != imported:
        yield f"__all__ is {listed}, imported are {sorted(imported)}"
    # Such a name would stand for the file or for what is in it, whichever comes later.
    files = {path.stem for path in (PACKAGE / room).glob("*.py")}
    if both := files & imported:
        yield f"{sorted(both)} are names of files too"


def order_in_room(arrows):
    """Modules of a room, each after those that it imports; a CycleError where there is none."""
    return list(TopologicalSorter(arrows).static_order())


# The package


def test_places_stand_in_order():
    listed = []
    for place, imports in ARROWS.items():
        assert imports <= set(listed), f"{place} stands before what it imports"
        listed.append(place)
    assert {place_of(module) for module in MODULES if module} == set(ARROWS)


@pytest.mark.parametrize("module", [module for module in MODULES if module])
def test_imports_go_one_way_and_by_the_doors(module):
    assert not list(wrong_imports(module, source_of(module)))


@pytest.mark.parametrize("place", ARROWS)
def test_no_arrow_is_allowed_in_vain(place):
    modules = [module for module in MODULES if place_of(module) == place]
    targets = {place_of(t) for m in modules for t, _ in imports_of(m, source_of(m))[0]}
    assert targets - {place} == ARROWS[place]


@pytest.mark.parametrize("room", ROOMS)
def test_doors_only_hand_out(room):
    assert not list(wrong_door(room, source_of(room)))
    assert len(ast.get_docstring(ast.parse(source_of(room))).splitlines()) <= 5 or room == "theory"


@pytest.mark.parametrize("room", [room for room in ROOMS if room.startswith("_")])
def test_doors_hand_out_what_others_use_and_no_more(room):
    used = {
        name
        for module in MODULES
        if place_of(module) != room
        for target, name in imports_of(module, source_of(module))[0]
        if target == room
    }
    assert used == set(names_of_all(source_of(room)))


@pytest.mark.parametrize("room", ROOMS)
def test_inside_a_room_there_is_no_cycle(room):
    inner = [module for module in MODULES if module.startswith(f"{room}.")]
    arrows = {m: {t for t, _ in imports_of(m, source_of(m))[0] if t in inner} for m in inner}
    assert set(order_in_room(arrows)) == set(inner)
    # One underscore on the way to a private file: the room's, or in a public room its own.
    for module in inner:
        assert module.rpartition(".")[2].startswith("_") != room.startswith("_"), module


def test_the_package_only_hands_names_on():
    source = (PACKAGE / "__init__.py").read_text()
    inside, outside = imports_of("", source)
    assert {target for target, _ in inside} == HANDED_ON
    assert not outside
    statements = ast.parse(source).body
    assert {type(node) for node in statements} <= {ast.Expr, ast.ImportFrom, ast.Assign}


def test_matplotlib_is_imported_inside_functions_only():
    for module in HOMES["matplotlib"]:
        body = ast.parse(source_of(module)).body
        top = ast.Module(
            [node for node in body if not isinstance(node, ast.FunctionDef | ast.ClassDef)], []
        )
        assert not any(name.startswith("matplotlib") for name in imported_names(top))


@pytest.mark.parametrize("folder", LONGEST)
def test_files_are_short(folder):
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in (ROOT / folder).rglob("*.py")
    }
    assert lengths
    long = {path: length for path, length in lengths.items() if length > LONGEST[folder]}
    assert not long


def test_each_room_has_a_folder_of_tests():
    for room in ROOMS:
        name = room.removeprefix("_")
        tests = [*(ROOT / "tests").glob(f"{name}/test_*.py"), ROOT / f"tests/test_{name}.py"]
        assert any(path.exists() for path in tests), room


def arrows_of_the_picture(text):
    """Place -> what its arrow points to, as CONTRIBUTING.md draws it."""
    found = re.findall(r"^ +([\w/.]+) .*?-> *(.*)$", text, re.MULTILINE)
    return {
        place.removesuffix(".py").removesuffix("/"): set(filter(None, targets.split(" ")))
        for place, targets in found
    }


def test_the_picture_shows_the_arrows():
    drawn = arrows_of_the_picture((ROOT / "CONTRIBUTING.md").read_text())
    assert drawn == ARROWS


# Whether a violation would be seen


def test_the_reader_of_imports_sees_every_form():
    source = """
import os.path
import numpy as np
from . import a
from .b import c
from ..d import e
def function():
    from sklearn_mmdinit._network import MLP
"""
    found = set(imported_names(ast.parse(source), (NAME, "sub")))
    assert found == {
        "os.path",
        "numpy",
        f"{NAME}.sub.a",
        f"{NAME}.sub.b.c",
        f"{NAME}.d.e",
        f"{NAME}._network.MLP",
    }
    # Against a file that is here to stay.
    inside, outside = imports_of("_network.theta0", source_of("_network.theta0"))
    assert inside == {
        ("_network.architecture", "Architecture"),
        ("_network.module_architecture", "ModuleArchitecture"),
    }
    assert outside == {"numpy"}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("_sampling.direct", "from .._network.mlp import MLP"),
        ("_sampling.direct", "from .._network import mlp"),
        ("_sampling.direct", "def f():\n    from .._network.mlp import MLP"),
        ("_sampling.direct", "import sklearn_mmdinit._network.mlp"),
        ("_sampling.direct", "from sklearn_mmdinit._network.mlp import MLP"),
        ("_sampling.direct", "from .._network import initialize_"),
        ("_sampling.direct", "from .. import _network"),
        ("_sampling.direct", "from .. import MMDInitializer"),
        ("_sampling.direct", "import sklearn_mmdinit"),
        ("_sampling.direct", "from . import Perturbation"),
        ("_sampling.direct", "from .._objective import MMDObjective"),
        ("_sampling.direct", "import numpy"),
        ("_network.theta0", "import torch"),
        ("_random_label_initializer", "from ._network import Theta0"),
        ("_mmd_initializer", "from ._pretraining.base import BaseInitializer"),
        ("_mmd_initializer", "from ._mlp_classifier import MLPClassifier"),
        ("diagnostics", "from .theory._checks import finite"),
        ("_pretraining.base", "import tqdm"),
        ("_new_room.file", "from .._compute import share"),
    ],
)
def test_a_wrong_import_is_seen(module, source):
    assert list(wrong_imports(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("_sampling.direct", "import math\nimport torch\nfrom .law import weight_std"),
        ("_sampling.direct", "from .._network import MLP\nfrom .._compute import share"),
        ("_sampling", "from .law import Perturbation"),
        ("_mmd_initializer", "from ._pretraining import BaseInitializer"),
    ],
)
def test_a_right_import_is_let_through(module, source):
    assert not list(wrong_imports(module, source))


DOOR = '"""What the room is for."""\nfrom .law import Perturbation\n__all__ = ["Perturbation"]'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""What the room is for."""', "0"),
        ('["Perturbation"]', "[]"),
        ('["Perturbation"]', '["Perturbation", "weight_std"]'),
        ("__all__", "names"),
        ("import Perturbation", "import Perturbation\nx = 1"),
        ("from .law", "from .._network"),
        ("import Perturbation", "import Perturbation\ndef f(): pass"),
        ("Perturbation", "direct"),
    ],
)
def test_a_wrong_door_is_seen(old, new):
    assert not list(wrong_door("_sampling", DOOR))
    assert old in DOOR
    assert list(wrong_door("_sampling", DOOR.replace(old, new)))


def test_a_cycle_in_a_room_is_seen():
    with pytest.raises(CycleError):
        order_in_room({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_a_wrong_picture_is_seen():
    picture = "    _a/       first\n              things  ->\n    _b.py     more  -> _a _c\n"
    assert arrows_of_the_picture(picture)["_b"] == {"_a", "_c"}
