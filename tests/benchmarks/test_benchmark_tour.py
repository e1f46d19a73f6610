"""The tour of the public interface: all of it runs, and every public name is on the way."""

import ast
from pathlib import Path

import sklearn_mmdinit
import tour
from sklearn_mmdinit import diagnostics, display


def test_all_that_the_steps_show_holds(tmp_path, capsys):
    assert tour.main(["--quick", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "DOES NOT HOLD" not in printed.out
    assert len(printed.out.splitlines()) >= 14
    pictures = {f"tour-{name}.png" for name in ("accuracy", "coherence", "densities", "loss")}
    assert {path.name for path in tmp_path.iterdir()} == pictures | {
        "tour-theta0.safetensors",
        "tour.onnx",
    }
    for name in pictures:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_step_that_does_not_hold_is_the_status(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tour, "coherence", lambda t: t.show("two", "is three", False))
    for name in ("paper", "fine_tuning", "modules"):
        monkeypatch.setattr(tour, name, lambda *args: None)
    assert tour.main(["--quick", "--output", str(tmp_path)]) == 1
    assert "1. two: is three DOES NOT HOLD" in capsys.readouterr().out


def test_every_public_name_is_used_on_the_way():
    nodes = list(ast.walk(ast.parse(Path(tour.__file__).read_text(encoding="utf-8"))))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    # What others return, and what theorems.py uses.
    used |= {"Architecture", "Theta0", "theory"}
    for module in (sklearn_mmdinit, diagnostics, display):
        assert set(module.__all__) <= used
