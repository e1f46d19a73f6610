"""Results measured in parts: together they are what one measurement would have given."""

import copy
import json

import pytest

import combine
from reporting.coherence_tables import COHERENCE_TABLES, points_of_results
from reporting.combined import PartsDifferError, combined
from reporting.combined_coherence import combined_coherence
from reporting.library import Library
from reporting.made_with import made_with_table
from reporting.paper import ACCURACY
from results_stand_in import HEAD, like_the_paper, task_results


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


# Of coherence.py

BOTH = {"section": "time", "name": "both", "passes": 1, "changes": {"coherence": "auto"}}
DEFAULT = {"section": "ablation", "name": "default", "passes": 6, "changes": {}}
GAIN = {"section": "ablation", "name": "gain=1", "passes": 6, "changes": {"gain": 1.0}}
# By method its accuracy at N = 5 in run 4; each run after it has 0.01 more.
COHERENT = {
    "xavier/fcn/scratch": (0.7, None),
    "time/both@1": (0.9, BOTH),
    "ablation/default@6": (0.8, DEFAULT),
    "ablation/gain=1@6": (0.6, GAIN),
}


def coherent(runs, methods=tuple(COHERENT)):
    """What coherence.py writes of some settings in some runs."""
    of = {method: COHERENT[method] for method in methods}
    settings = [setting for _, setting in of.values() if setting]
    return copy.deepcopy(
        {
            **HEAD,
            "dataset": {"name": "mnist"},
            "plan": {"settings": settings, "n_labels": [5], "tasks": 2, "seed": 0}
            | {"runs": len(runs), "first_run": runs[0]},
            "theta0": [s | {"run": r, "seconds": 10.0 + r} for r in runs for s in settings],
            "scores": [
                {"method": method, "run": run, "n_labels": 5, "tasks": [0, 1]}
                | {"accuracies": [accuracy + 0.01 * (run - 4) - step for step in (0.0, 0.02)]}
                for run in runs
                for method, (accuracy, _) in of.items()
            ],
        }
    )


def test_runs_and_settings_of_coherence_are_the_whole_in_any_order():
    whole = combined_coherence([("whole", coherent([4, 5]))])
    parts = [
        ("4", coherent([4])),
        ("5", coherent([5], ["xavier/fcn/scratch", "time/both@1", "ablation/default@6"])),
        # What comes later has the network from scratch again.
        ("5 again", coherent([5], ["xavier/fcn/scratch", "ablation/gain=1@6"])),
    ]
    for order in (parts, parts[::-1]):
        found = combined_coherence(order)
        assert cells(found) == cells(whole)
        by_setting = {(p["section"], p["setting"]): p for p in found["points"]}
        assert by_setting == {(p["section"], p["setting"]): p for p in whole["points"]}
        assert len(found["parts"]) == 3
        assert (found["plan"]["first_run"], found["plan"]["runs"]) == (4, 2)
    gain = by_setting["ablation", "gain=1"]
    assert (gain["runs"], gain["seconds"]) == (2, 14.0)
    assert gain["difference"][5]["mean"] == pytest.approx(-20.0)
    assert gain["difference"][5]["n_pairs"] == 4
    again = combined_coherence([("first two", combined_coherence(parts[:2])), parts[2]])
    assert again == combined_coherence(parts)


def test_tables_say_over_how_many_runs_each_section_is():
    more = coherent([5, 6], ["xavier/fcn/scratch", "time/both@1"])
    points = points_of_results(combined_coherence([("4", coherent([4])), ("5, 6", more)]))
    time, ablation = (build(points).title for build in COHERENCE_TABLES.values())
    assert time.endswith("; 3 runs")
    assert ablation.endswith("; 1 run")


def test_a_change_counts_beside_a_default_of_more_runs():
    only = coherent([4], ["xavier/fcn/scratch", "ablation/gain=1@6"])
    default = coherent([4, 5], ["xavier/fcn/scratch", "ablation/default@6"])
    _, gain = points_of_results(combined_coherence([("a", default), ("b", only)]))
    assert gain.difference[5].mean == pytest.approx(-20.0)
    # The other way round the default lacks a run, and no difference is of the same tasks.
    more = coherent([4, 5], ["xavier/fcn/scratch", "ablation/gain=1@6"])
    less = coherent([4], ["xavier/fcn/scratch", "ablation/default@6"])
    _, gain = points_of_results(combined_coherence([("a", less), ("b", more)]))
    assert gain.difference[5] is None


def test_parts_of_coherence_that_are_none_are_refused():
    first = coherent([4])
    with pytest.raises(PartsDifferError, match="a and b both have time/both@1 in run 4"):
        combined_coherence([("a", first), ("b", coherent([4], ["time/both@1"]))])
    other = coherent([5])
    other["plan"]["tasks"] = 20
    with pytest.raises(PartsDifferError, match="b has tasks=20, and not 2"):
        combined_coherence([("a", first), ("b", other)])
    other = coherent([5])
    other["dataset"]["name"] = "digits"
    with pytest.raises(PartsDifferError, match="b has dataset='digits', and not 'mnist'"):
        combined_coherence([("a", first), ("b", other)])


def test_the_command_for_coherence(whole, tmp_path, capsys):
    paths = [tmp_path / f"{run}.json" for run in (4, 5)]
    for run, path in zip((4, 5), paths, strict=True):
        path.write_text(json.dumps(coherent([run])))
    out = tmp_path / "coherence.json"
    assert combine.main([*map(str, paths), "--output", str(out)]) == 0
    rows = made_with_table(Library(tmp_path), [out.name]).rows
    assert [row[:3] for row in rows] == [
        ["coherence.json, part 1", "0", "4"],
        ["coherence.json, part 2", "0", "5"],
    ]
    assert out.with_suffix(".png").stat().st_size > 0
    tasks = tmp_path / "tasks.json"
    tasks.write_text(json.dumps(whole))
    assert combine.main([str(paths[0]), str(tasks), "--output", str(out)]) == 2
    assert "holds no results of coherence.py" in capsys.readouterr().err
