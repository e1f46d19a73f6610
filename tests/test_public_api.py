"""Public names import, and what their docstrings say of parameters is what the code does."""

import importlib.metadata
import inspect
import math
import re
import types
from pathlib import Path

import pytest

import sklearn_mmdinit

ROOT = Path(__file__).resolve().parents[1]
TOP = {name: getattr(sklearn_mmdinit, name) for name in sklearn_mmdinit.__all__}
MODULES = {n: thing for n, thing in TOP.items() if isinstance(thing, types.ModuleType)}
MODULES[""] = sklearn_mmdinit


def public_objects():
    """Every public class and function once, by its shortest dotted name."""
    found = {}
    for prefix in sorted(MODULES):
        for name in MODULES[prefix].__all__:
            thing = getattr(MODULES[prefix], name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                found.setdefault(f"{prefix}.{name}".lstrip("."), thing)
    return found


def public_methods():
    """Public methods written in this package: inherited ones are documented where they are."""
    for class_name, thing in OBJECTS.items():
        for name, attribute in inspect.getmembers(thing) if inspect.isclass(thing) else ():
            function = inspect.unwrap(getattr(attribute, "__func__", attribute))
            ours = (getattr(function, "__module__", None) or "").partition(".")[0]
            if name[0] != "_" and inspect.isfunction(function) and ours == "sklearn_mmdinit":
                yield f"{class_name}.{name}", attribute


OBJECTS = public_objects()
METHODS = dict(public_methods())


def section(docstring, title):
    """Lines of a numpydoc section, or None where it is missing."""
    lines = inspect.cleandoc(docstring).splitlines()
    heads = [i for i in range(len(lines) - 1) if re.fullmatch(r"-{3,}", lines[i + 1])]
    for start, end in zip(heads, [*heads[1:], len(lines)], strict=False):
        if lines[start] == title:
            return lines[start + 2 : end]
    return None


def documented_parameters(docstring):
    """Name -> type as written, for each entry of Parameters and Other Parameters, in its order."""
    found, titles = {}, ("Parameters", "Other Parameters")
    for line in (line for title in titles for line in section(docstring, title) or []):
        if line and not line.startswith(" "):
            names, _, kind = line.partition(" : ")
            found |= {name.strip(): kind for name in names.split(", ")}
    return found


def signature_parameters(thing):
    """Name as a docstring writes it -> Parameter; self and cls are not among them."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return {
        stars.get(parameter.kind, "") + parameter.name: parameter
        for parameter in inspect.signature(thing).parameters.values()
        if parameter.name != "self"
    }


def disagreements(thing):
    """What a docstring says of the parameters that the signature does not, in words."""
    documented, actual = documented_parameters(thing.__doc__), signature_parameters(thing)
    # What a method hands on may be one entry, "n_shown, ax", without types and defaults.
    handed_on = [name for name, kind in documented.items() if not kind]
    own = [name for name in actual if name not in handed_on]
    if [name for name in documented if documented[name]] != own or {*handed_on} - {*actual}:
        yield f"documented {list(documented)}, signature {list(actual)}"
        return
    for name, parameter in ((name, actual[name]) for name in own):
        stated = re.search(r"\bdefault=(.+)$", documented[name])
        # An expression, such as 1/6 or math.sqrt(0.5).
        value = eval(stated[1], {"math": math}) if stated else inspect.Parameter.empty
        if (type(value), value) != (type(parameter.default), parameter.default):
            yield f"{name} has the default {parameter.default!r}, the docstring says {stated}"


def test_the_version_and_metadata_are_the_same_everywhere():
    version = sklearn_mmdinit.__version__
    setup, citation, changes = (
        (ROOT / name).read_text() for name in ("setup.cfg", "CITATION.cff", "CHANGELOG.md")
    )
    assert re.search(r"^## \[(\d[^\]]*)\]", changes, re.MULTILINE)[1] == version
    assert f"\nversion: {version}\n" in citation
    (licence,) = re.findall(r"^license: (.*)$", citation, re.MULTILINE)
    assert f"\nlicense_expression = {licence}\n" in setup
    pythons = re.findall(r"Python :: 3\.(\d+)", setup)
    assert f"python_requires = >=3.{min(map(int, pythons))}\n" in setup
    try:
        installed = importlib.metadata.version("sklearn-mmdinit")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is on the path but not installed: no metadata to compare with")
    assert installed == version


@pytest.mark.parametrize("name", OBJECTS)
def test_public_objects_are_documented_with_their_parameters(name):
    thing = OBJECTS[name]
    assert thing.__doc__.strip().splitlines()[0].endswith(".")
    assert not list(disagreements(thing))
    if inspect.isfunction(thing):
        nothing = inspect.signature(thing).return_annotation in (None, "None")
        assert nothing or section(thing.__doc__, "Returns")
    if hasattr(thing, "fit"):
        learned = "\n".join(section(thing.__doc__, "Attributes"))
        assert re.search(r"^n_features_in_\b", learned, re.MULTILINE)


def test_public_methods_are_documented_with_their_parameters():
    for name, method in METHODS.items():
        assert method.__doc__, name
        # A method with one argument may do with a sentence, unless it lists parameters after all.
        if documented_parameters(method.__doc__) or len(signature_parameters(method)) > 1:
            assert not list(disagreements(method)), name
