"""Public names import, and what their docstrings say of parameters is what the code does."""

import ast
import importlib
import importlib.metadata
import inspect
import math
import re
import types
from pathlib import Path

import pytest

import sklearn_mmdinit

ROOT = Path(__file__).resolve().parents[1]

SUBMODULES = [
    name
    for name in sklearn_mmdinit.__all__
    if isinstance(getattr(sklearn_mmdinit, name), types.ModuleType)
]
MODULES = {"": sklearn_mmdinit, **{name: getattr(sklearn_mmdinit, name) for name in SUBMODULES}}


def _public_objects():
    """Every public class and function once, by its shortest dotted name."""
    found = {}
    for prefix, module in MODULES.items():
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                found.setdefault(f"{prefix}.{name}".lstrip("."), thing)
    return found


def _public_methods():
    """Public methods written in this package: inherited ones are documented where they are."""
    for class_name, thing in OBJECTS.items():
        if not inspect.isclass(thing):
            continue
        for name, attribute in inspect.getmembers(thing):
            function = inspect.unwrap(getattr(attribute, "__func__", attribute))
            ours = getattr(function, "__module__", None) or ""
            if (
                not name.startswith("_")
                and inspect.isfunction(function)
                and ours.split(".")[0] == sklearn_mmdinit.__name__
            ):
                yield f"{class_name}.{name}", attribute


OBJECTS = _public_objects()
METHODS = dict(_public_methods())
ESTIMATORS = {name: thing for name, thing in OBJECTS.items() if hasattr(thing, "fit")}


def section(docstring, title):
    """Lines of a numpydoc section, or None where it is missing."""
    lines = inspect.cleandoc(docstring).splitlines()
    for start, line in enumerate(lines[:-1]):
        if line == title and re.fullmatch(r"-{3,}", lines[start + 1]):
            end = start + 2
            while end < len(lines) and not re.fullmatch(
                r"-{3,}", "".join(lines[end + 1 : end + 2])
            ):
                end += 1
            return lines[start + 2 : end]
    return None


def documented_parameters(docstring):
    """Name -> text after the colon, for each entry of the Parameters section, in its order."""
    entries = {}
    for line in section(docstring, "Parameters") or []:
        if line and not line.startswith(" "):
            names, _, kind = line.partition(" : ")
            for name in names.split(", "):
                entries[name.strip()] = kind
    return entries


def entries(docstring, title):
    """Name and type, as written -> the text under it, for each entry of a section."""
    found = {}
    for line in section(docstring, title):
        if line and not line.startswith(" "):
            found[line] = []
        else:
            found[[*found][-1]].append(line.strip())
    return {head: "\n".join(text).strip() for head, text in found.items()}


def stated_default(kind):
    """The text of ``default=...`` at the end of a type, or None."""
    match = re.search(r"\bdefault=(.+)$", kind)
    return match and match[1]


def signature_parameters(thing):
    """Name as a docstring writes it -> Parameter; self and cls are not among them."""
    parameters = inspect.signature(thing).parameters.values()
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return {
        stars.get(parameter.kind, "") + parameter.name: parameter
        for parameter in parameters
        if parameter.name != "self"
    }


def disagreements(thing):
    """What a docstring says of the parameters that the signature does not, in words."""
    documented, actual = documented_parameters(thing.__doc__), signature_parameters(thing)
    if list(documented) != list(actual):
        yield f"documented {list(documented)}, signature {list(actual)}"
        return
    for name, parameter in actual.items():
        stated = stated_default(documented[name])
        if parameter.default is inspect.Parameter.empty:
            if stated is not None:
                yield f"{name} has no default, the docstring says {stated}"
        elif stated is None:
            yield f"{name} has the default {parameter.default!r}, the docstring says none"
        elif not _same(_evaluate(stated), parameter.default):
            yield f"{name} has the default {parameter.default!r}, the docstring says {stated}"


def _evaluate(text):
    """The value of a stated default, which may be an expression such as 1/6 or math.sqrt(0.5)."""
    return eval(compile(ast.parse(text, mode="eval"), "default", "eval"), {"math": math})


def _same(stated, actual):
    return type(stated) is type(actual) and stated == actual


# The parser itself


def good(a, b=1, *args, c="x", d=1 / 6, **kw):
    """Say something.

    Parameters
    ----------
    a : int
        First: with a colon.
    b : int, default=1
        Second.
    *args : list
        More.
    c : {"x", "y"}, default="x"
        Third.

        With a paragraph.
    d : float, default=1/6
        Fourth.
    **kw : dict
        The rest.

    Returns
    -------
    None
    """


def test_the_parser_agrees_with_a_good_docstring():
    assert list(disagreements(good)) == []
    assert section(good.__doc__, "Returns") == ["None"]
    assert section(good.__doc__, "Raises") is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("default=1", "default=2"),
        ("default=1", "default=1.0"),
        (", default=1", ""),
        ('default="x"', 'default="y"'),
        ("1/6", "1/7"),
        ("a : int", "a : int, default=3"),
        ("a : int", "z : int"),
        ("    a : int\n        First: with a colon.\n", ""),
        ("    **kw : dict\n", "    e : dict\n        A fifth.\n    **kw : dict\n"),
        ("Parameters\n    ----------", "Inputs\n    ------"),
    ],
)
def test_the_parser_finds_a_wrong_docstring(old, new):
    wrong = types.FunctionType(good.__code__, {}, "wrong", good.__defaults__, good.__closure__)
    wrong.__kwdefaults__ = good.__kwdefaults__
    wrong.__doc__ = good.__doc__.replace(old, new)
    assert wrong.__doc__ != good.__doc__
    assert list(disagreements(wrong))


# The library


def test_version_is_that_of_the_metadata_and_of_the_changelog():
    version = sklearn_mmdinit.__version__
    newest = re.search(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == version
    try:
        installed = importlib.metadata.version("sklearn-mmdinit")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is on the path but not installed: no metadata to compare with")
    assert installed == version


@pytest.mark.parametrize("module", MODULES.values(), ids=lambda module: module.__name__)
def test_names_of_all_import(module):
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name, None) is not None, name
        assert not name.startswith("_") or name == "__version__"
    assert module.__doc__


def test_there_is_something_public():
    assert {"Architecture", "theory.perturbation_std", "display.LossCurveDisplay"} <= set(OBJECTS)
    assert "display.LossCurveDisplay.from_estimator" in METHODS


@pytest.mark.parametrize("name", OBJECTS)
def test_public_objects_are_documented_with_their_parameters(name):
    thing = OBJECTS[name]
    assert thing.__doc__
    assert thing.__doc__.strip().splitlines()[0].endswith(".")
    assert not list(disagreements(thing))
    if inspect.isfunction(thing):
        assert section(thing.__doc__, "Returns") or inspect.signature(thing).return_annotation in (
            None,
            "None",
        )


@pytest.mark.parametrize("name", METHODS)
def test_public_methods_are_documented_with_their_parameters(name):
    method = METHODS[name]
    assert method.__doc__
    # A method with one argument may do with a sentence, unless it lists parameters after all.
    if documented_parameters(method.__doc__) or len(signature_parameters(method)) > 1:
        assert not list(disagreements(method))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_list_what_they_learn(name):
    lines = section(ESTIMATORS[name].__doc__, "Attributes") or []
    listed = re.findall(r"^\w+_\b", "\n".join(lines), re.MULTILINE)
    assert "n_features_in_" in listed


def test_public_submodules_import_by_their_dotted_names():
    for name in SUBMODULES:
        assert importlib.import_module(f"sklearn_mmdinit.{name}") is MODULES[name]


# Entry that the two initializers share -> why its words differ.
OWN_WORDS = {
    "batch_norm": "only one of them has perturbed networks",
    "learning_rate_init": "one of them chooses it",
    "batch_size": "one of them may have more rows a step",
    "max_iter": "one of them chooses it",
    "window": "one of them chooses which parameters to keep",
    "random_state": "each names its own draws",
    "coefs_, intercepts_": "one of them learns modules too",
    "history_": "each has its own loss terms",
    "n_features_in_": "one of them learns modules too",
}


@pytest.mark.parametrize("title", ["Parameters", "Attributes"])
def test_what_the_initializers_share_is_said_in_the_same_words(title):
    ours, theirs = (
        entries(kind.__doc__, title)
        for kind in (sklearn_mmdinit.MMDInitializer, sklearn_mmdinit.RandomLabelInitializer)
    )
    names = [head.split(" : ")[0] for head in theirs]
    shared = [head.split(" : ")[0] for head in ours if head.split(" : ")[0] in names]
    assert shared == names, "all that the baseline has, in the same order"
    differ = {head.split(" : ")[0] for head in theirs if ours.get(head) != theirs[head]}
    assert differ == {name for name in OWN_WORDS if name in names}


def test_entries_of_a_section_are_read_with_their_text():
    read = entries(good.__doc__, "Parameters")
    assert read["a : int"] == "First: with a colon."
    assert read['c : {"x", "y"}, default="x"'] == "Third.\n\nWith a paragraph."
    assert len(read) == 6
