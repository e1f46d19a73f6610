"""Cells of the paper's appendix that were measured in parts are those of one measurement."""

import copy
import json

import pytest

import combine
from reporting.combined import PartsDifferError
from reporting.combined_study import combined_study, study_of
from reporting.library import Library
from reporting.made_with import made_with_table
from reporting.paper import DEGENERATE_SOFTMAX, SCALE_AND_WEIGHT
from results_stand_in import degeneracies, scales

CELLS, SETTINGS = list(SCALE_AND_WEIGHT), list(DEGENERATE_SOFTMAX)


def by_run(results, run):
    part = copy.deepcopy(results)
    part["records"] = [record for record in part["records"] if record["run"] == run]
    return part


def test_cells_and_runs_of_a_grid_are_the_whole_in_any_order():
    whole = scales(runs=2)
    parts = [("a", scales(CELLS[:5], runs=2)), ("b", scales(CELLS[5:], runs=2))]
    runs = [(str(run), by_run(whole, run)) for run in range(2)]
    for given in (parts, parts[::-1], runs, runs[::-1]):
        found = combined_study("scale_and_weight.py", given)
        assert found["records"] == sorted(
            whole["records"], key=lambda r: (r["run"], r["squared_scale"], r["degeneracy_weight"])
        )
        assert found["settings"]["squared_scales"] == [0.2, 0.5, 1.0, 2.0]
        assert found["settings"]["weights"] == [0.2, 0.4, 1.0]
        assert found["settings"]["runs"] == 2
        assert len(found["parts"]) == 2
    flat = combined_study("scale_and_weight.py", [("all", found)])
    assert flat["parts"] == found["parts"]


def test_fresh_weights_may_be_in_several_parts():
    parts = [(str(key), degeneracies([key])) for key in SETTINGS]
    found = combined_study("degeneracies.py", parts)
    records = {(r["degeneracy_weight"], r["detachment_weight"]): r for r in found["records"]}
    assert next(iter(records)) == (None, None)
    assert len(found["records"]) == 1 + len(SETTINGS)
    whole = degeneracies(SETTINGS)
    assert all(record in whole["records"] for record in found["records"])
    assert found["settings"]["shown"] == whole["settings"]["shown"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: None, "a and b both have run=0, squared_scale=0.2, degeneracy_weight=0.2"),
        (lambda r: r["settings"].update(passes=1), "b has passes=1, and not 5"),
        (lambda r: r["settings"].update(kernels="mean"), "b has kernels='mean', and not 'sum'"),
        (lambda r: r["dataset"].update(name="digits"), "b has dataset='digits', and not 'mnist'"),
    ],
)
def test_what_are_no_parts_of_one_measurement_are_refused(change, message):
    other = copy.deepcopy(scales(CELLS[:1], runs=1))
    change(other)
    with pytest.raises(PartsDifferError, match=message):
        combined_study("scale_and_weight.py", [("a", scales(CELLS[:1], runs=1)), ("b", other)])


def test_a_file_is_known_by_what_it_holds():
    assert study_of(scales()) == "scale_and_weight.py"
    assert study_of(degeneracies()) == "degeneracies.py"
    assert study_of({"settings": {"shown": []}}) is None
    assert study_of({"settings": {}, "records": []}) is None


@pytest.mark.parametrize(
    "parts",
    [
        (scales(CELLS[:3]), scales(CELLS[3:])),
        (degeneracies(SETTINGS[:1]), degeneracies([SETTINGS[3]])),
    ],
    ids=["scale_and_weight", "degeneracies"],
)
def test_the_command(parts, tmp_path, capsys):
    paths = [tmp_path / f"{number}.json" for number in range(2)]
    for path, part, commit in zip(paths, parts, "ab", strict=True):
        path.write_text(json.dumps(part | {"measured_at_commits": [commit * 9, "c" * 9]}))
    out = tmp_path / "whole.json"
    assert combine.main([*map(str, paths), "--output", str(out)]) == 0
    assert out.with_suffix(".png").stat().st_size > 0
    rows = made_with_table(Library(tmp_path), [out.name]).rows
    assert [row[0] for row in rows] == ["whole.json, part 1", "whole.json, part 2"]
    assert ["aaaaaaa, ccccccc" in row for row in rows] == [True, False]
    # Files of two commands are no parts of one.
    other = tmp_path / "other.json"
    other.write_text(json.dumps(parts[0] | {"settings": {"seed": 0}}))
    assert combine.main([str(paths[0]), str(other), "--output", str(out)]) == 2
    assert f"{other} holds no results of {study_of(parts[0])}" in capsys.readouterr().err
