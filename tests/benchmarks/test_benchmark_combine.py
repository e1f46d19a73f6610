"""Results measured in parts: together they are what one measurement would have given."""

import copy
import json
import random

import pytest

import combine
from results_stand_in import (
    CELLS,
    like_the_paper,
    of_coherence,
    scales,
    task_results,
    write_all,
)


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
    return {f"part {number}": part for number, part in enumerate(parts)}


PARTS = {
    "methods": (task_results(like_the_paper()), halves()),
    "runs": (
        task_results(like_the_paper()),
        [
            part_of(
                task_results(like_the_paper()), lambda e, r=r: e["run"] == r, ["scores", "theta0"]
            )
            for r in range(4)
        ],
    ),
    "coherence": (
        of_coherence(runs=(4, 5)),
        [
            of_coherence(runs=(4,)),
            part_of(of_coherence(runs=(5,)), lambda e: "gain" not in str(e), ["scores", "theta0"]),
            # What comes later has the network from scratch, and the default, again.
            part_of(of_coherence(runs=(5,)), lambda e: "time" not in str(e), ["scores", "theta0"]),
        ],
    ),
    "cells": (scales(runs=2), [scales(CELLS[:5], runs=2), scales(CELLS[5:], runs=2)]),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_the_whole_in_any_order_and_parts_of_parts_are_flat(name):
    whole, parts = PARTS[name]
    expected, asked = combine.combined({"whole": whole}), "plan" if "plan" in whole else "settings"
    entries = whole.keys() & {"scores", "theta0", "records"}
    assert all(len(expected[key]) == len(whole[key]) for key in entries)
    for seed in range(3):
        mixed = random.Random(seed).sample(parts, len(parts))
        found = combine.combined(named(mixed))
        assert {key: found[key] for key in entries} == {key: expected[key] for key in entries}
        assert len(found["parts"]) == len(parts)
        first = combine.combined(named(mixed[:2]))
        assert combine.combined(named([first, *mixed[2:]])) == found
    for key, value in expected[asked].items():
        # Lists may be in the order of the parts.
        assert sorted(str(found[asked][key])) == sorted(str(value))


def test_an_entry_that_two_parts_have_must_be_the_same():
    whole, again = task_results(like_the_paper()), of_tasks(lambda e: e["method"] == "he/fcn/ours")
    combine.combined(named([whole, again]))
    again["theta0"][0]["seconds"] += 1.0  # of another machine
    combine.combined(named([whole, again]))
    again["scores"][0]["accuracies"][0] += 0.01
    message = "part 0 and part 1 both have method=he/fcn/ours, N=5, run=0, and not the same"
    with pytest.raises(combine.PartsDifferError, match=message):
        combine.combined(named([whole, again]))
    other = scales(CELLS[:1], runs=1)
    other["records"][0]["steps"] = [1]
    with pytest.raises(combine.PartsDifferError, match=r"run=0, squared_scale=0\.2"):
        combine.combined(named([scales(), other]))


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
        (change({"network": "convnet"}), "part 1 has network='convnet', and not 'mlp'"),
        (change({"separation": 4.0}), r"part 1 has separation=4\.0, and not 2\.0"),
    ],
)
def test_parts_of_other_measurements_are_refused(changed, message):
    xavier, he = halves()
    with pytest.raises(combine.PartsDifferError, match=message):
        combine.combined(named([xavier, changed(he)]))
    # What says nothing of a figure may differ.
    combine.combined(named([xavier, change({"device": "cuda"})(halves()[1])]))


def test_only_parts_of_one_command_are_put_together():
    wholes = [whole for whole, _ in PARTS.values()]
    for other in (wholes[2], wholes[3], {}):
        with pytest.raises(combine.PartsDifferError, match="part 1 has"):
            combine.combined(named([wholes[0], other]))
    with pytest.raises(combine.PartsDifferError, match="part 0 is of no command whose parts"):
        combine.combined(named([{}]))


@pytest.mark.parametrize("name", ["methods", "coherence", "cells"])
def test_the_command_writes_one_file_and_its_picture(name, tmp_path, capsys):
    parts = named(PARTS[name][1])
    write_all(tmp_path, {f"{name}.json": part for name, part in parts.items()})
    paths = [str(tmp_path / f"{name}.json") for name in parts]
    out = tmp_path / "whole.json"
    assert combine.main([*paths, "--output", str(out)]) == 0
    before = out.read_bytes()
    assert len(json.loads(before)["parts"]) == len(parts)
    assert out.with_suffix(".png").is_file() == (name != "cells")
    # Files of two commands are no parts of one, and some are of none.
    (tmp_path / "none.json").write_text("{}")
    for given in ([paths[0], str(tmp_path / "none.json")], [str(tmp_path / "missing.json")]):
        assert combine.main([*given, "--output", str(out)]) == 2
    assert "none.json has " in capsys.readouterr().err
    assert out.read_bytes() == before
