"""Each command's picture: it is drawn, or it is said why not."""

import pytest

from protocol.methods import PAPER_METHODS
from protocol.rivals import ALL_RIVALS
from reporting import pictures
from results_stand_in import (
    ABLATION,
    ON_SETS,
    few_labels,
    of_coherence,
    records,
    task_results,
)

OURS = ["xavier/fcn/ours+coherence", "features+logistic", "xavier/fcn/scratch"]


def two_tasks(names, sizes=(5, 10)):
    own = [score for n in sizes for score in records({m: [[0.5, 0.6]] for m in names}, n)]
    return task_results(own)


DRAWN = {
    "accuracy": (pictures.draw_accuracy, two_tasks(OURS)),
    "coherence": (pictures.draw_coherence, of_coherence(runs=(4, 5))),
    "ranks": (pictures.draw_ranks, few_labels(ON_SETS, (1, 5))),
    "scatter": (pictures.draw_scatter, few_labels(ON_SETS, (1, 5))),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_drawn_without_a_window_system(name, tmp_path):
    draw, results = DRAWN[name]
    path = tmp_path / "x.png"
    assert draw(results, path) == f"{path} written"
    assert path.read_bytes().startswith(b"\x89PNG")


OTHER_N = [s for n, m in ((5, "a"), (10, "a"), (20, "b")) for s in records({m: [[0.5, 0.6]]}, n)]
ONE_TASK = task_results([s for n in (5, 10) for s in records({"a": [[0.5]]}, n)])
NOT_TIMED = of_coherence(table=ABLATION)


@pytest.mark.parametrize(
    ("draw", "results", "why"),
    [
        (pictures.draw_accuracy, task_results(OTHER_N), "there are no two N"),
        (pictures.draw_accuracy, ONE_TASK, "an interval takes two tasks or more"),
        (pictures.draw_coherence, NOT_TIMED, "nothing was measured against time"),
        (pictures.draw_ranks, few_labels({"a": ON_SETS["a"]}), "ranks take two sets"),
        (pictures.draw_scatter, few_labels(ON_SETS, (1,)), "it takes N = 5 or 20"),
    ],
)
def test_where_there_is_nothing_to_draw_it_is_said_and_no_error(draw, results, why, tmp_path):
    assert draw(results, tmp_path / "x.png").startswith(f"x.png not drawn: {why}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("names", "expected"),
    [([*OURS, *ALL_RIVALS[:6]], 1), ([*OURS, *ALL_RIVALS], 2), ([*PAPER_METHODS, *ALL_RIVALS], 3)],
)
def test_every_curve_is_drawn_once_and_none_alone(names, expected):
    panels = pictures._panels(names)
    assert len(panels) == expected
    assert sorted(name for panel in panels for name in panel) == sorted(names)
    assert min(map(len, panels)) > 1
