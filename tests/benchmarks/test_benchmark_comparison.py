"""Our figures beside the paper's: what may be of one law, and which orderings hold, by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from reporting.estimate import SPREADS, Estimate, estimate_of, within_runs
from reporting.grid import (
    Ordering,
    Ours,
    Tally,
    agreement,
    holding,
    orderings,
    side_by_side,
)

# Estimates


def test_one_run_agrees_where_a_fifth_run_of_the_paper_would_lie():
    paper = Estimate(80.0, 1.0, 4)
    # t(3) at 97.5 % times sqrt(1 + 1/4).
    half = 3.182446 * math.sqrt(1.25)
    assert within_runs(Estimate(80.0 + 0.999 * half, None, 1), paper)
    assert not within_runs(Estimate(80.0 - 1.001 * half, None, 1), paper)


def test_several_runs_agree_as_in_welch_s_test():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(200):
        values = rng.normal(80.0, 1.0, size=4).tolist(), rng.normal(81.5, 2.0, size=3).tolist()
        ours, paper = (estimate_of(v) for v in values)
        p = stats.ttest_ind(*values, equal_var=False).pvalue
        assert within_runs(ours, paper) == (p > 0.05)
        seen.add(p > 0.05)
    assert seen == {True, False}


@pytest.mark.parametrize("runs", [1, 4])
def test_figures_of_one_law_agree_nineteen_times_in_twenty(runs):
    rng = np.random.default_rng(runs)
    agree = [
        within_runs(estimate_of(list(rng.normal(size=runs))), estimate_of(list(rng.normal(size=4))))
        for _ in range(2000)
    ]
    # Three standard deviations of a binomial; Welch's is a little careful with few runs.
    assert 0.935 < np.mean(agree) < 0.975


def test_figures_without_any_spread_agree_only_where_they_are_equal():
    same, other = Estimate(1.0, 0.0, 4), Estimate(1.1, 0.0, 4)
    assert within_runs(same, same)
    assert not within_runs(same, other)
    with pytest.raises(ValueError, match=r"figure 1\.00 has no std over runs"):
        within_runs(same, Estimate(1.0, None, 1))


def test_over_mini_batches_two_standard_deviations_are_close():
    close = SPREADS["mini-batches"].same
    paper = Estimate(5.0, 0.5, 1)
    assert close(Estimate(5.99, 0.1, 1), paper)
    assert not close(Estimate(6.01, 0.1, 1), paper)
    # Ours does not agree the better the noisier it was measured.
    assert not close(Estimate(6.01, 0.6, 1), paper)


# Grids

PAPER = {"x": {"a": Estimate(9.0, 0.1, 4), "b": Estimate(5.0, 0.1, 4), "c": Estimate(5.0, 1.0, 4)}}
OURS = {"x": {"a": Estimate(6.0, None, 1), "b": Estimate(5.1, None, 1)}}


def test_what_agrees_and_what_does_not_is_counted_and_named():
    tally = agreement(OURS, PAPER, SPREADS["runs"])
    assert tally.short == "1 of 2 figures not different from the paper's at 95 % (Welch)"
    assert tally.sentence.endswith("; not: a, x (6.00, the paper 9.00 ± 0.10).")
    table = side_by_side("T", "row", [Ours(OURS, "no")], PAPER, SPREADS["runs"])
    assert table.title == "T (* different from the paper's at 95 % (Welch))"
    assert agreement({}, PAPER, SPREADS["runs"]).total == 0


def test_only_orderings_beyond_the_paper_s_spread_count():
    whole = {"x": {**OURS["x"], "c": Estimate(7.0, None, 1)}}
    found = orderings(whole, PAPER, SPREADS["runs"])
    assert [(o.above, o.below) for o in found] == [("a", "b"), ("a", "c")]
    assert [o.holds for o in found] == [True, False]
    assert holding(found, "orderings hold").sentence == (
        "1 of 2 orderings hold; not: a above c, x (-1.00)."
    )
    assert len(orderings(whole, PAPER, None)) == 3
    assert orderings(OURS, PAPER, SPREADS["runs"]) == [Ordering("x", "a", "b", 6.0 - 5.1)]


def test_many_exceptions_are_counted_and_not_all_named():
    tally = Tally(1, "things", tuple("abcdefgh"))
    assert tally.sentence == "1 of 9 things; not: a; b; c; d; e; f; and 2 more."
    assert Tally(2, "things", ()).sentence == "2 of 2 things."


def test_side_by_side_marks_and_says_what_is_missing():
    other = Ours({"x": {"b": Estimate(5.1, None, 1)}}, "not run yet: y", "there")
    none = Ours({}, "not run yet: z", "nowhere")
    ours = [Ours(OURS, "not run yet: x", here={"a": "1 run"}), other, none]
    table = side_by_side("T", "row", ours, PAPER, SPREADS["runs"])
    assert table.head == ["row", "", "x"]
    assert table.rows == [
        ["a", "the paper", "9.00 ± 0.10"],
        ["", "1 run", "6.00 *"],
        ["b", "the paper", "5.00 ± 0.10"],
        ["", "here", "5.10"],
        ["", "there", "5.10"],
        ["c", "the paper", "5.00 ± 1.00"],
        ["the others", "here", "not run yet: x"],
        ["the others", "there", "not run yet: y"],
        ["all", "nowhere", "not run yet: z"],
    ]
