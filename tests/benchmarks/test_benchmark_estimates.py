"""Means, spreads, paired differences and what agrees with the paper: by hand and by scipy."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from reporting import estimates
from reporting.results import pack_scores, unpack_scores
from results_stand_in import records


def wide_of(table):
    return estimates.by_task(unpack_scores(pack_scores(records(table))))


def test_one_pair_and_one_run_have_no_spread():
    wide = wide_of({"ours": [[0.9]], "scratch": [[0.8]]})
    found = estimates.gains((wide["ours"] - wide["scratch"]).to_frame("d"))
    mean, low, high, n_pairs = (frame.loc["d", 5] for frame in found)
    assert (mean, n_pairs) == (pytest.approx(10.0), 1)
    assert np.isnan([low, high]).all()
    assert np.isnan(estimates.accuracy_over_runs(wide).std.loc["ours", 5])
    assert np.isnan(estimates.task_std_over_runs(wide).mean.loc["ours", 5])


def test_only_what_has_every_task_is_subtracted():
    wide = wide_of({"ours": [[0.9, 0.9]], "less": [[0.8]], "more": [[0.8, 0.8], [0.1, 0.1]]})
    assert estimates.complete(wide["ours"], wide["less"]).isna().all()
    assert estimates.complete(wide["ours"], wide["more"]).dropna().tolist() == pytest.approx(
        [10.0, 10.0]
    )


# Beside the paper


def estimate(mean, std, n):
    return estimates.Estimates(*(pd.DataFrame([[part]]) for part in (mean, std, n)))


def one(values):
    std = np.std(values, ddof=1) if len(values) > 1 else np.nan
    return estimate(np.mean(values), std, len(values))


def same(ours, paper, width=estimates.width_over_runs):
    return abs(ours.mean - paper.mean).to_numpy().item() <= width(ours, paper).item()


def test_one_run_agrees_where_a_fifth_run_of_the_paper_would_lie():
    paper = estimate(80.0, 1.0, 4)
    # t(3) at 97.5 % times sqrt(1 + 1/4).
    half = 3.182446 * math.sqrt(1.25)
    assert same(one([80.0 + 0.999 * half]), paper)
    assert not same(one([80.0 - 1.001 * half]), paper)


def test_several_runs_agree_as_in_welch_s_test():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(100):
        values = rng.normal(80.0, 1.0, size=4), rng.normal(81.5, 2.0, size=3)
        p = stats.ttest_ind(*values, equal_var=False).pvalue
        assert same(*map(one, values)) == (p > 0.05)
        seen.add(p > 0.05)
    assert seen == {True, False}


def test_figures_without_any_spread_agree_only_where_they_are_equal():
    equal, other = (estimate(mean, 0.0, 4) for mean in (1.0, 1.1))
    assert same(equal, equal)
    assert not same(equal, other)


def test_over_mini_batches_two_standard_deviations_are_close_however_noisy_ours_is():
    paper = estimate(5.0, 0.5, 1)
    for mean, std, close in ((5.99, 0.1, True), (6.01, 0.1, False), (6.01, 0.6, False)):
        assert same(estimate(mean, std, 1), paper, estimates.width_over_batches) == close
