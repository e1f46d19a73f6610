"""Each command's picture: it is drawn, or it is said why not."""

import pytest

import report
from reporting import pictures
from reporting.results import Library
from results_stand_in import records, task_results

COHERENCE = Library(report.RESULTS).results("coherence.json")
# Of one task and one N, the least there can be.
ONE_TASK = task_results(records({"a": [[0.5]], "b": [[0.6]]}))
DRAWN = {
    "accuracy": (pictures.draw_accuracy, ONE_TASK),
    "coherence": (pictures.draw_coherence, COHERENCE),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_drawn_without_a_window_system(name, tmp_path):
    draw, results = DRAWN[name]
    path = tmp_path / "x.png"
    assert draw(results, path) == f"{path} written"
    assert path.read_bytes().startswith(b"\x89PNG")


ABLATION = [theta0 for theta0 in COHERENCE["theta0"] if theta0["section"] == "ablation"]
NOT_TIMED = COHERENCE | {"theta0": ABLATION}


def test_where_there_is_nothing_to_draw_it_is_said_and_no_error(tmp_path):
    said = pictures.draw_coherence(NOT_TIMED, tmp_path / "x.png")
    assert said.startswith("x.png not drawn: nothing was measured against time")
    assert not list(tmp_path.iterdir())
