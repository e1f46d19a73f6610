"""Results measured in parts: together they are what one measurement would have given."""

import copy
import json

import pytest

import combine
from reporting.combined import PartsDifferError, combined
from reporting.library import Library
from reporting.made_with import made_with_table
from reporting.paper import ACCURACY
from results_stand_in import like_the_paper, task_results


@pytest.fixture
def whole():
    return task_results(like_the_paper(ACCURACY))


def part_of(whole, wanted):
    part = copy.deepcopy(whole)
    part["scores"] = [entry for entry in whole["scores"] if wanted(entry)]
    return part


def halves(whole):
    return [
        part_of(whole, lambda e, init=init: e["method"].startswith(init))
        for init in ("xavier", "he")
    ]


def cells(results):
    return {(e["method"], e["run"], e["n_labels"]): e["accuracies"] for e in results["scores"]}


def test_parts_are_the_whole_in_any_order(whole):
    xavier, he = halves(whole)
    first = combined([("a", xavier), ("b", he)])
    assert cells(first) == cells(whole)
    assert combined([("b", he), ("a", xavier)])["summary"] == first["summary"]
    assert combined([("all", whole)])["summary"] == first["summary"]


def test_parts_of_parts_are_flat(whole):
    runs = [part_of(whole, lambda e, run=run: e["run"] == run) for run in range(3)]
    two = combined([("0", runs[0]), ("1", runs[1])])
    three = combined([("2", runs[2]), ("0 and 1", two)])
    assert cells(three) == cells(part_of(whole, lambda e: e["run"] < 3))
    assert len(three["parts"]) == 3
    assert (three["settings"]["first_run"], three["settings"]["runs"]) == (0, 3)


def test_what_each_part_was_made_with_is_in_the_report(whole, tmp_path):
    xavier, he = halves(whole)
    he["git_commit"] = "f" * 40
    he["hardware"] = {"cpu": "Other", "cores": 64, "gpu": None}
    (tmp_path / "x.json").write_text(json.dumps(combined([("a", xavier), ("b", he)])))
    rows = made_with_table(Library(tmp_path), ["x.json"]).rows
    assert [row[0] for row in rows] == ["x.json, part 1", "x.json, part 2"]
    assert "Other, 64 cores" in rows[1]
    assert "Other, 64 cores" not in rows[0]


def test_a_cell_in_two_parts_is_refused(whole):
    part = part_of(whole, lambda e: e["method"] == "he/fcn/ours")
    with pytest.raises(PartsDifferError, match=r"a and b both have he/fcn/ours at N = 5 in run 0"):
        combined([("a", whole), ("b", part)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["dataset"].update(name="digits"), "b is of digits, and not of mnist"),
        (lambda r: r["settings"].update(epochs=7), "b has epochs=7, and not"),
        (lambda r: r["settings"].update(classes=10), "b has classes=10, and not 2"),
        (lambda r: r["settings"].update(network="convnet"), "b has network='convnet'"),
        (lambda r: r["settings"].update(augmentation="digits"), "b has augmentation='digits'"),
        (lambda r: r["settings"].update(rounds=2), "b has rounds=2, and not 1"),
        (lambda r: r["settings"].update(neighbors="gradients"), "b has neighbors='gradients'"),
        (lambda r: r["settings"].update(separation=4.0), "b has separation=4.0, and not 2.0"),
        (lambda r: r["settings"].update(kernels="mean"), "b has kernels='mean', and not 'sum'"),
    ],
)
def test_parts_of_other_measurements_are_refused(whole, change, message):
    xavier, he = halves(whole)
    change(he)
    with pytest.raises(PartsDifferError, match=message):
        combined([("a", xavier), ("b", he)])


def test_precision_and_machine_may_differ(whole):
    xavier, he = halves(whole)
    he["settings"] |= {"precision": "bfloat16", "device": "cuda"}
    parts = combined([("a", xavier), ("b", he)])["parts"]
    assert [part["settings"].get("precision") for part in parts] == [None, "bfloat16"]


def test_the_command(whole, tmp_path, capsys):
    paths = []
    for number, half in enumerate(halves(whole)):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(half))
    out = tmp_path / "full.json"
    assert combine.main([*map(str, paths), "--output", str(out)]) == 0
    assert cells(json.loads(out.read_text())) == cells(whole)
    assert out.with_suffix(".png").stat().st_size > 0
    paths[1].write_text("{}")
    before = out.read_bytes()
    for given in ([str(paths[1])], [str(tmp_path / "none.json")]):
        assert combine.main([*given, "--output", str(out)]) == 2
    assert "holds no results of mnist_tasks.py" in capsys.readouterr().err
    assert out.read_bytes() == before
