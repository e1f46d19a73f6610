"""The frames of commands: what they refuse, what an interruption leaves, what a file says."""

import argparse
import json

import pytest

import backends
import budget
import coherence
import tune_scratch
from protocol.command import command_parser, run_command
from protocol.store import write_json
from protocol.study import Cell, Study, run_study
from reporting.library import Library
from reporting.made_with import made_with_table

DOC = "Claim: two is more than one.\n\nMore of it."


class Work:
    """Three cells that count how often they are measured; the second one may be interrupted."""

    def __init__(self):
        self.done = []
        self.interrupted = False

    def compute(self, number):
        if self.interrupted and number == 1:
            raise KeyboardInterrupt
        self.done.append(number)
        return {"value": 10 * number}

    def study(self, options, wanted=(0, 1, 2)):
        cells = tuple(
            Cell(f"cell {n}", {"number": n}, f"key{n}", lambda n=n: self.compute(n), n in wanted)
            for n in range(3)
        )
        return Study("counting", DOC, cells, {"seed": 0}, options)


@pytest.fixture
def work():
    return Work()


def run(work, folder, **changed):
    options = argparse.Namespace(output=folder, quiet=True)
    return run_study(
        command_parser(DOC),
        options,
        lambda options: work.study(options, **changed),
        lambda results: " ".join(str(record["value"]) for record in results["records"]),
        lambda results, path: f"{path.name}: {len(results['records'])}",
    )


def results(folder):
    return json.loads((folder / "counting.json").read_text())


def test_cells_are_measured_once_and_printed_drawn_and_written(work, tmp_path, capsys):
    assert run(work, tmp_path) == 0
    assert run(work, tmp_path) == 0
    assert work.done == [0, 1, 2]
    printed = capsys.readouterr()
    assert printed.out.startswith("0 10 20\n\ncounting.png: 3\n")
    assert printed.err == ""
    found = results(tmp_path)
    assert found["claim"] == "Claim: two is more than one."
    assert {"versions", "hardware", "git_commit", "git_changed"} <= found.keys()
    assert found["records"] == [{"number": n, "value": 10 * n} for n in range(3)]


def test_an_interrupted_study_publishes_what_there_is_and_goes_on(work, tmp_path, capsys):
    work.interrupted = True
    assert run(work, tmp_path) == 130
    assert "the same command goes on from here" in capsys.readouterr().err
    assert [record["number"] for record in results(tmp_path)["records"]] == [0]
    work.interrupted = False
    assert run(work, tmp_path) == 0
    assert work.done == [0, 1, 2]
    assert len(results(tmp_path)["records"]) == 3


def test_an_interruption_before_the_first_cell_is_no_error(work, tmp_path, capsys):
    work.interrupted = True
    assert run(work, tmp_path, wanted=(1,)) == 130
    assert results(tmp_path)["records"] == []
    assert results(tmp_path)["measured_on"] == []


def test_what_an_earlier_call_kept_is_shown_with_what_this_one_wants(work, tmp_path):
    assert run(work, tmp_path, wanted=(2,)) == 0
    assert run(work, tmp_path, wanted=(0,)) == 0
    assert work.done == [2, 0]
    assert [record["number"] for record in results(tmp_path)["records"]] == [0, 2]


def test_every_commit_and_machine_of_the_cells_is_named_once(work, tmp_path):
    study = work.study(argparse.Namespace(output=tmp_path, quiet=True))
    records = [
        {"key": "a", "value": 1, "commit": "one", "machine": {"cores": 2}},
        {"key": "b", "value": 2, "commit": "two", "machine": {"cores": 2}},
        {"key": "c", "value": 3, "commit": "one", "machine": {"cores": 4}},
    ]
    found = study.results(records)
    assert found["measured_at_commits"] == ["one", "two"]
    assert found["measured_on"] == [{"cores": 2}, {"cores": 4}]
    assert found["records"] == [{"value": 1}, {"value": 2}, {"value": 3}]
    write_json(tmp_path / "x.json", found)  # JSON can hold it


@pytest.mark.parametrize("error", [ValueError("bad value 7"), RuntimeError("bad file 7")])
def test_bad_input_is_said_in_a_line_before_any_work(error, capsys):
    def refuse(options):
        raise error

    def forbidden(*arguments):
        raise AssertionError("no work")

    parser = argparse.ArgumentParser(prog="command")
    assert run_command(parser, argparse.Namespace(), refuse, forbidden, forbidden) == 2
    assert capsys.readouterr().err == f"command: {error}\n"


def test_an_error_of_the_work_itself_is_not_hidden():
    def fail(job):
        raise ValueError("a mistake in the measurement")

    parser = argparse.ArgumentParser(prog="command")
    with pytest.raises(ValueError, match="a mistake"):
        run_command(parser, argparse.Namespace(), lambda options: None, fail, print)


def test_without_a_way_to_show_a_part_nothing_is_published(capsys):
    def stop(job):
        raise KeyboardInterrupt

    parser = argparse.ArgumentParser(prog="command")
    assert run_command(parser, argparse.Namespace(), lambda options: None, stop, print) == 130
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "command: stopped" in printed.err


def test_the_report_names_where_cells_were_measured_and_not_where_they_were_put_together(tmp_path):
    one = {"cpu": "A", "cores": 1, "gpu": None}
    two = {"cpu": "B", "cores": 2, "gpu": "C"}
    results = {"git_commit": "0123456789", "hardware": one, "versions": {}}
    portions = results | {"measured_at_commits": ["abcdefghij", "klmnopqrst"]}
    portions["measured_on"] = [one, two]
    for name, own in (("a", results), ("b", portions)):
        (tmp_path / f"{name}.json").write_text(json.dumps(own))
    rows = made_with_table(Library(tmp_path), ["a.json", "b.json"]).rows
    assert "0123456" in rows[0]
    assert "A, 1 core" in rows[0]
    assert "abcdefg, klmnopq" in rows[1]
    assert "A, 1 core; B, 2 cores, C" in rows[1]


@pytest.mark.parametrize("command", [backends, budget, coherence, tune_scratch])
def test_options_that_a_command_would_not_heed_are_refused(command, tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main(["--precision", "bfloat16", "--output", str(tmp_path)])
    assert "unrecognized arguments: --precision" in capsys.readouterr().err
