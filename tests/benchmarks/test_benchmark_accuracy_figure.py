"""Which curves of the accuracy figure share axes."""

import pytest

from protocol.methods import PAPER_METHODS
from protocol.rivals import ALL_RIVALS
from reporting import accuracy_figure
from reporting.accuracy_figure import MOST_CURVES, draw_accuracy

OURS = ["xavier/fcn/ours+coherence", "features+logistic", "xavier/fcn/scratch"]


def panels_of(names, monkeypatch, tmp_path):
    """The names on each axes of a figure of two tasks and two N."""
    scores = [
        {"method": name, "n_labels": n, "accuracy": 0.5 + 0.1 * task}
        for name in names
        for n in (5, 10)
        for task in range(2)
    ]
    found, from_scores = [], accuracy_figure.TaskAccuracyDisplay.from_scores

    def seen(sizes, curves, *, ax):
        found.append(list(curves))
        return from_scores(sizes, curves, ax=ax)

    monkeypatch.setattr(accuracy_figure.TaskAccuracyDisplay, "from_scores", seen)
    assert draw_accuracy(scores, tmp_path / "a.png", title="a").endswith("written")
    return found


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([*OURS, *ALL_RIVALS[:6]], 1),
        ([*OURS, *ALL_RIVALS], 2),
        ([*PAPER_METHODS, *ALL_RIVALS], 3),
        ([*PAPER_METHODS, "features+logistic", "features+logistic-cv", *ALL_RIVALS], 4),
    ],
)
def test_every_curve_is_drawn_once_and_none_alone(names, expected, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    panels = panels_of(names, monkeypatch, tmp_path)
    assert len(panels) == expected
    assert sorted(name for panel in panels for name in panel) == sorted(names)
    assert min(map(len, panels)) > 1
    assert expected == 1 or len(names) > MOST_CURVES


@pytest.mark.parametrize("sizes", [{"a": (5, 10), "b": (20, 40)}, {}])
def test_curves_without_an_n_in_common_are_not_drawn_and_raise_nothing(sizes, tmp_path):
    scores = [
        {"method": name, "n_labels": n, "accuracy": 0.5}
        for name, own in sizes.items()
        for n in own
        for _ in range(2)
    ]
    said = draw_accuracy(scores, tmp_path / "a.png", title="a")
    assert said == "a.png not drawn: there is no N that every method was measured at"
    assert not (tmp_path / "a.png").exists()


def test_the_axis_counts_the_labels_of_every_method(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    axes, from_scores = [], accuracy_figure.TaskAccuracyDisplay.from_scores

    def seen(sizes, curves, *, ax):
        axes.append(ax)
        return from_scores(sizes, curves, ax=ax)

    monkeypatch.setattr(accuracy_figure.TaskAccuracyDisplay, "from_scores", seen)
    scores = [
        {"method": "a", "n_labels": n, "accuracy": 0.5 + 0.1 * task}
        for n in (5, 10)
        for task in range(2)
    ]
    draw_accuracy(scores, tmp_path / "a.png", title="a")
    assert axes[0].get_xlabel() == "N (12 N labels; networks validate on 2 N)"
