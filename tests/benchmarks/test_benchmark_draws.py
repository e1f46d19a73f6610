"""Both laws of labelled images beside the paper: what agrees, by hand."""

from reporting.draw_report import draw_sentences, draw_table
from reporting.expected import SCRATCH_NETWORKS
from reporting.paper import ACCURACY
from reporting.reproduction import reproduction_report
from results_stand_in import like_the_paper, others, task_results, write_all


def scores(methods, runs=4, by=0.0):
    found = like_the_paper(methods, runs=runs)
    return [score | {"accuracy": score["accuracy"] + by} for score in found]


def test_the_law_that_gives_the_paper_s_figures_has_all_of_them():
    found = {"uniform": scores(ACCURACY, by=-0.09), "balanced": scores(ACCURACY)}
    said = draw_sentences(found)
    assert said[0].startswith("10 N images of any digits (uniform), mean accuracy: 0 of 16 figures")
    assert said[2].startswith("exactly N of each digit (balanced), mean accuracy: 16 of 16 figures")
    rows = draw_table(found).rows
    assert [row[0] for row in rows if row[0]] == list(SCRATCH_NETWORKS)
    assert [row[1] for row in rows[:3]] == [
        "the paper, 4 runs",
        "uniform, 4 runs",
        "balanced, 4 runs",
    ]
    assert all(text.endswith(" *") for text in rows[1][2:])
    assert not any("*" in text for text in rows[2][2:])


def test_only_networks_from_scratch_are_looked_at():
    found = {"balanced": scores(["xavier/fcn/ours"], runs=1)}
    assert draw_sentences(found)[0].split(": ")[1].startswith("0 of 0")
    assert len(draw_table(found).rows) == len(SCRATCH_NETWORKS)


def test_a_law_in_part_has_a_line_for_what_there_is(tmp_path):
    whole = {"mnist-full.json": task_results(like_the_paper(ACCURACY, runs=1)), **others()}
    text = reproduction_report(write_all(tmp_path, whole))
    section = text[text.index("## How labelled images are drawn") :]
    assert "| uniform, 1 run |" in section
    assert "| balanced, 4 runs |" in section
    del whole["mnist-balanced.json"]
    for path in tmp_path.iterdir():
        path.unlink()
    text = reproduction_report(write_all(tmp_path, whole))
    assert "Not run yet: `python benchmarks/mnist_tasks.py --preset paper --draw balanced" in text
