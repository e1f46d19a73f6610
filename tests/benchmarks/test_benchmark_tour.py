"""The tour of the public interface: all of it runs, and every public name is on the way."""

import ast
from pathlib import Path

import pytest

import sklearn_mmdinit
import tour
from sklearn_mmdinit import diagnostics, display, theory
from sklearn_mmdinit._modules import registry

BENCHMARKS = Path(tour.__file__).parent
FILES = [BENCHMARKS / "tour.py", *sorted((BENCHMARKS / "tour_steps").glob("*.py"))]

PICTURES = {
    "tour-accuracy.png",
    "tour-coherence-images.png",
    "tour-coherence-map.png",
    "tour-densities.png",
    "tour-loss.png",
}


@pytest.fixture
def _layers_as_they_were(monkeypatch):
    """What a tour registers is forgotten."""
    monkeypatch.setattr(registry, "LAYER_TYPES", registry.LAYER_TYPES.copy())


@pytest.mark.usefixtures("_layers_as_they_were")
def test_every_claim_of_every_step_holds(tmp_path, capsys):
    assert tour.main(["--quick", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
    for number, step in enumerate(tour.STEPS, 1):
        assert f"{number}. {step.__doc__.splitlines()[0]}" in lines
    claims = [line for line in lines if line.startswith("  yes: ")]
    assert len(claims) >= 2 * len(tour.STEPS)
    assert not [line for line in lines if "NO: " in line]
    # Those that a reader would not see for themselves.
    for claim in (
        "it has the same probabilities",
        "onnxruntime has the same probabilities",
        "theta0 is the same, bit for bit",
        "the file is theta0",
        "skorch starts at theta0",
        "a registered one does not",
    ):
        assert f"  yes: {claim}" in claims
    written = {path.name for path in tmp_path.iterdir()}
    assert written == PICTURES | {"tour-theta0.safetensors", "tour.onnx"}
    for name in PICTURES:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_claim_that_does_not_hold_is_the_status(tmp_path, capsys, monkeypatch):
    def wrong(journey):
        """A step."""
        return {"two is three": False, "two is two": True}

    monkeypatch.setattr(tour, "STEPS", (wrong,))
    assert tour.main(["--quick", "--output", str(tmp_path)]) == 1
    assert "does not hold: wrong: two is three" in capsys.readouterr().out


def test_every_public_name_is_used_on_the_way():
    used = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name):
                used.add(node.id)
    rooms = {"diagnostics", "display", "theory"}  # their names are counted one by one
    for module in (sklearn_mmdinit, diagnostics, display, theory):
        assert set(module.__all__) - rooms <= used


def test_every_step_is_taken_once():
    written = {
        node.name
        for path in FILES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
        and node.returns
        and ast.unparse(node.returns) == "Claims"
    }
    taken = [step.__name__ for step in tour.STEPS]
    assert len(taken) == len(set(taken))
    assert set(taken) == written
