"""The shape of the code, read from its syntax trees: arrows one way, small files.

A new module needs a line in IMPORTS, after everything that it imports.
"""

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sklearn_mmdinit

ROOT = Path(__file__).resolve().parents[1]
NAME = "sklearn_mmdinit"
PACKAGE = ROOT / NAME
BENCHMARKS = ROOT / "benchmarks"

# Module -> the package's modules it may import. Names are relative to the package.
IMPORTS = {
    # what a network and its initial weights are
    "_theta0": set(),
    "_network": {"_theta0"},
    "_persistence": {"_theta0"},
    "_tagged": {"_theta0"},
    "_threads": {"_theta0"},
    "_validation": set(),
    # the objective
    "_random": set(),
    "_mmd": {"_threads"},
    "_workspace": set(),
    "_semidefinite": set(),
    "_sampling": {"_random", "_workspace"},
    "_direct": {"_sampling"},
    "_gram": {"_sampling", "_semidefinite"},
    "_parts": {"_threads", "_workspace"},
    "_perturbation": {
        "_direct",
        "_gram",
        "_network",
        "_parts",
        "_random",
        "_sampling",
        "_theta0",
        "_workspace",
    },
    "_mmd_interval": {"_mmd", "_threads"},
    "_objective": {
        "_mmd",
        "_mmd_interval",
        "_network",
        "_perturbation",
        "_random",
        "_theta0",
        "_workspace",
    },
    # pre-training
    "_steps": {"_network", "_random"},
    "_pretraining": {"_network", "_random", "_steps", "_theta0", "_threads"},
    "_pretrained_base": {
        "_network",
        "_pretraining",
        "_random",
        "_steps",
        "_tagged",
        "_theta0",
        "_threads",
    },
    "_initializer": {"_mmd", "_objective", "_perturbation", "_pretrained_base", "_workspace"},
    # fine-tuning
    "_batches": set(),
    "_labels": set(),
    "_fine_tuning": {"_batches", "_network", "_theta0", "_threads"},
    "_warm_start": {"_network", "_persistence", "_tagged", "_theta0", "_validation"},
    "_parameters": {"_fine_tuning", "_network", "_warm_start"},
    "_classifier": {
        "_batches",
        "_fine_tuning",
        "_labels",
        "_network",
        "_parameters",
        "_tagged",
        "_theta0",
        "_validation",
        "_warm_start",
    },
    # what looks at them
    "diagnostics": {"_network", "_objective", "_perturbation", "_random", "_theta0", "_threads"},
    "theory._checks": set(),
    "theory._perturbation_norm": {"_theta0", "theory._checks"},
    "theory._class_probability": {"theory._checks"},
    "theory._jacobian_norm": {"theory._checks"},
    "theory": {"theory._class_probability", "theory._jacobian_norm", "theory._perturbation_norm"},
    "display._drawing": set(),
    "display._loss_curve": {"display._drawing"},
    "display._prediction_density": {"display._drawing"},
    "display._task_accuracy": {"display._drawing"},
    "display": {"display._loss_curve", "display._prediction_density", "display._task_accuracy"},
}
# The package itself hands on names, and nothing may import it from inside.
HANDED_ON_BY_INIT = {
    "_classifier",
    "_initializer",
    "_persistence",
    "_theta0",
    "diagnostics",
    "display",
    "theory",
}

# Third-party package -> the only modules that may import it.
HOMES = {
    "matplotlib": {"display._drawing"},
    "safetensors": {"_persistence"},
    "skorch": {"_classifier", "_fine_tuning"},
    "tqdm": {"_initializer", "_pretraining"},
}
# Modules of pure mathematics -> the only third-party packages that they may import.
ONLY_THIRD_PARTY = {
    "_theta0": {"numpy"},
    "_network": {"torch"},
    "_mmd": {"torch"},
    "_mmd_interval": {"torch"},
    "_semidefinite": {"torch"},
    "_direct": {"torch"},
    "_gram": {"torch"},
    "_parts": {"torch"},
    "_perturbation": {"torch"},
    "_objective": {"torch"},
}

LONGEST = {"sklearn_mmdinit": 350, "benchmarks": 350, "tests": 600}


def module_name(path):
    """A file's dotted name inside the package; the empty string for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def path_of(module):
    folder = PACKAGE.joinpath(*module.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


MODULES = sorted(module_name(path) for path in PACKAGE.rglob("*.py"))
SCRIPTS = sorted(BENCHMARKS.glob("*.py"))


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


def imports_of(module):
    """The package's modules that a module imports, and the top names of all others."""
    path = path_of(module) if module else PACKAGE / "__init__.py"
    parts = (NAME, *(module.split(".") if module else ()))
    package = parts if path.name == "__init__.py" else parts[:-1]
    inside, outside = set(), set()
    for name in imported_names(ast.parse(path.read_text()), package):
        top, _, rest = name.partition(".")
        if top != NAME:
            outside.add(top)
        elif rest in MODULES:
            inside.add(rest)
        else:  # a name of a module: cut it off
            inside.add(rest.rpartition(".")[0])
    return inside, outside - set(sys.stdlib_module_names)


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
    # Against files that are here to stay.
    assert imports_of("_network") == ({"_theta0"}, {"torch"})
    assert imports_of("theory._perturbation_norm")[0] == {"_theta0", "theory._checks"}


def test_allowed_imports_have_no_cycle_and_stand_in_order():
    assert set(TopologicalSorter(IMPORTS).static_order()) == set(IMPORTS), "an unlisted module"
    listed = []
    for module, imports in IMPORTS.items():
        assert imports <= set(listed), f"{module} stands before what it imports"
        listed.append(module)


@pytest.mark.parametrize("module", [module for module in MODULES if module])
def test_arrows_go_one_way(module):
    assert module in IMPORTS, f"{module} is new: give it a line in IMPORTS"
    inside, _ = imports_of(module)
    assert inside <= IMPORTS[module], f"{module} may not import {inside - IMPORTS[module]}"


def test_the_package_only_hands_names_on():
    inside, outside = imports_of("")
    assert inside <= HANDED_ON_BY_INIT
    assert not outside
    statements = ast.parse((PACKAGE / "__init__.py").read_text()).body
    assert {type(node) for node in statements} <= {ast.Expr, ast.ImportFrom, ast.Assign}


@pytest.mark.parametrize("module", MODULES)
def test_third_party_packages_stay_in_their_homes(module):
    _, outside = imports_of(module)
    for package, homes in HOMES.items():
        assert package not in outside or module in homes, f"{package} is not for {module}"
    assert outside <= ONLY_THIRD_PARTY.get(module, outside)


def test_matplotlib_is_imported_inside_functions_only():
    for module in HOMES["matplotlib"]:
        body = ast.parse(path_of(module).read_text()).body
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


def private_uses(tree):
    """Names of the package that are not public, as a tree imports or reads them."""
    for name in imported_names(tree):
        top, *rest = name.split(".")
        if top != NAME or not rest:
            continue
        public = rest[0] in {*sklearn_mmdinit.__all__, "__version__"}
        if not public or any(part.startswith("_") for part in rest if part != "__version__"):
            yield name
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr.startswith("__"):
            continue
        name = ast.unparse(node)
        if name.startswith(f"{NAME}.") and node.attr.startswith("_"):
            yield name


# Benchmark -> why it may use private names.
USES_PRIVATE_NAMES = {
    "_library_step.py": "a loss on given noise and the parts of a step are not public",
}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_benchmarks_use_the_public_names_only(path):
    uses = list(private_uses(ast.parse(path.read_text())))
    # An exception that is no longer needed has to go.
    assert bool(uses) == (path.name in USES_PRIVATE_NAMES), uses


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
