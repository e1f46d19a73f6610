"""Results measured in parts: together they are what one measurement would have given."""

import copy
import json
import random

import pytest

import combine
from reporting.results import made_with
from reporting.tables import build_table
from results_stand_in import (
    CELLS,
    detachment,
    like_the_paper,
    of_coherence,
    scales,
    task_results,
    write_all,
)

TASKS, COHERENCE, SCALES = combine.KINDS


def part_of(whole, wanted, keys):
    """A copy with the entries that are wanted."""
    part = copy.deepcopy(whole)
    for key in keys:
        part[key] = [entry for entry in part[key] if wanted(entry)]
    return part


def of_tasks(wanted):
    return part_of(task_results(like_the_paper()), wanted, ["scores"])


def halves():
    return [of_tasks(lambda e, i=i: e["method"].startswith(i)) for i in ("xavier", "he")]


def named(parts):
    return [(f"part {number}", part) for number, part in enumerate(parts)]


def without_parts(results):
    return {key: value for key, value in results.items() if key != "parts"}


PARTS = {
    "methods": (TASKS, task_results(like_the_paper()), halves()),
    "runs": (
        TASKS,
        task_results(like_the_paper()),
        [
            part_of(
                task_results(like_the_paper()), lambda e, r=r: e["run"] == r, ["scores", "theta0"]
            )
            for r in range(4)
        ],
    ),
    "coherence": (
        COHERENCE,
        of_coherence(runs=(4, 5)),
        [
            of_coherence(runs=(4,)),
            part_of(of_coherence(runs=(5,)), lambda e: "gain" not in str(e), ["scores", "theta0"]),
            # What comes later has the network from scratch, and the default, again.
            part_of(of_coherence(runs=(5,)), lambda e: "time" not in str(e), ["scores", "theta0"]),
        ],
    ),
    "cells": (SCALES, scales(runs=2), [scales(CELLS[:5], runs=2), scales(CELLS[5:], runs=2)]),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_the_whole_in_any_order_and_parts_of_parts_are_flat(name):
    kind, whole, parts = PARTS[name]
    expected = combine.combined(kind, [("whole", whole)])
    for key in kind.keys:
        assert len(expected[key]) == len(whole[key])
    for seed in range(3):
        mixed = random.Random(seed).sample(parts, len(parts))
        found = combine.combined(kind, named(mixed))
        assert {key: found[key] for key in kind.keys} == {key: expected[key] for key in kind.keys}
        assert len(found["parts"]) == len(parts)
        first, rest = mixed[:2], mixed[2:]
        again = combine.combined(
            kind, [("first", combine.combined(kind, named(first))), *named(rest)]
        )
        assert again == found
    settings, own = (results[kind.settings] for results in (found, expected))
    assert settings.get("runs") == own.get("runs")
    assert settings.get("first_run") == own.get("first_run")
    lists = {key for key, value in own.items() if isinstance(value, list)}
    assert all(sorted(map(str, settings[key])) == sorted(map(str, own[key])) for key in lists)


def test_what_is_put_together_has_the_tables_of_the_whole():
    found = combine.combined(TASKS, named(halves()))
    whole = task_results(like_the_paper())
    for kind in ("accuracy", "task_std", "gain"):
        assert sorted(build_table(kind, found).rows) == sorted(build_table(kind, whole).rows)


def test_what_each_part_was_made_with_is_kept(tmp_path):
    xavier, he = halves()
    he |= {"git_commit": "f" * 40, "hardware": {"cpu": "Other", "cores": 64, "gpu": None}}
    library = write_all(tmp_path, {"x.json": combine.combined(TASKS, named([xavier, he]))})
    frame = made_with(library, ["x.json"])
    assert frame["file"].tolist() == ["x.json, part 1", "x.json, part 2"]
    assert frame["machine"].tolist() == ["abacus, 1 core", "Other, 64 cores"]


def test_an_entry_that_two_parts_have_must_be_the_same():
    whole, again = task_results(like_the_paper()), of_tasks(lambda e: e["method"] == "he/fcn/ours")
    combine.combined(TASKS, named([whole, again]))
    again["theta0"][0]["seconds"] += 1.0  # of another machine
    combine.combined(TASKS, named([whole, again]))
    again["scores"][0]["accuracies"][0] += 0.01
    message = "part 0 and part 1 both have method=he/fcn/ours, run=0, n_labels=5, and not the same"
    with pytest.raises(combine.PartsDifferError, match=message):
        combine.combined(TASKS, named([whole, again]))
    other = scales(CELLS[:1], runs=1)
    other["records"][0]["steps"] = [1]
    with pytest.raises(combine.PartsDifferError, match=r"run=0, squared_scale=0\.2"):
        combine.combined(SCALES, named([scales(), other]))


def change(settings, dataset=None):
    def changed(results):
        results["settings" if "settings" in results else "plan"].update(settings)
        results["dataset"] = dataset or results["dataset"]
        return results

    return changed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (change({}, {"name": "digits"}), "part 1 has dataset='digits', and not 'mnist'"),
        (change({"epochs": 7}), "part 1 has epochs=7, and not None"),
        (change({"classes": 10}), "part 1 has classes=10, and not 2"),
        (change({"network": "convnet"}), "part 1 has network='convnet', and not 'mlp'"),
        (change({"augmentation": "digits"}), "part 1 has augmentation='digits', and not 'none'"),
        (change({"rounds": 2}), "part 1 has rounds=2, and not 1"),
        (change({"neighbors": "gradients"}), "part 1 has neighbors='gradients'"),
        (change({"separation": 4.0}), r"part 1 has separation=4\.0, and not 2\.0"),
        (change({"kernels": "mean"}), "part 1 has kernels='mean', and not 'sum'"),
    ],
)
def test_parts_of_other_measurements_are_refused(changed, message):
    xavier, he = halves()
    with pytest.raises(combine.PartsDifferError, match=message):
        combine.combined(TASKS, named([xavier, changed(he)]))
    # What says nothing of a figure may differ.
    combine.combined(TASKS, named([xavier, change({"device": "cuda"})(halves()[1])]))


def test_a_file_is_known_by_what_it_holds():
    for kind, whole, _ in PARTS.values():
        assert [own for own in combine.KINDS if own.holds(whole)] == [kind]
    assert not any(kind.holds(results) for kind in combine.KINDS for results in (detachment(), {}))


def test_parts_of_other_studies_are_refused():
    other = of_coherence(runs=(5,))
    other["plan"]["tasks"] = 20
    with pytest.raises(combine.PartsDifferError, match="part 1 has tasks=20, and not 2"):
        combine.combined(COHERENCE, named([of_coherence(), other]))
    other = change({"passes": 1})(scales(CELLS[1:]))
    with pytest.raises(combine.PartsDifferError, match="part 1 has passes=1, and not 5"):
        combine.combined(SCALES, named([scales(CELLS[:1]), other]))


@pytest.mark.parametrize("name", ["methods", "coherence", "cells"])
def test_the_command_writes_one_file_and_its_picture(name, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    parts = PARTS[name][2]
    write_all(tmp_path, {f"{name}.json": part for name, part in named(parts)})
    paths = [str(tmp_path / f"{name}.json") for name, _ in named(parts)]
    out = tmp_path / "whole.json"
    assert combine.main([*paths, "--output", str(out)]) == 0
    before = out.read_bytes()
    assert len(json.loads(before)["parts"]) == len(parts)
    assert out.with_suffix(".png").is_file() == (name != "cells")
    # Files of two commands are no parts of one, and some are of none.
    (tmp_path / "none.json").write_text("{}")
    for given in ([paths[0], str(tmp_path / "none.json")], [str(tmp_path / "missing.json")]):
        assert combine.main([*given, "--output", str(out)]) == 2
    assert "none.json are no parts of one of mnist_tasks.py" in capsys.readouterr().err
    assert out.read_bytes() == before
