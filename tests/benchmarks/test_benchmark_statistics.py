"""Means, spreads, paired differences and what agrees with the paper: by hand and by scipy."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from reporting.results import pack_scores, unpack_scores
from reporting.statistics import (
    Estimates,
    accuracy_over_runs,
    by_task,
    complete,
    gains,
    task_std_over_runs,
    tried_settings,
    width_over_batches,
    width_over_runs,
)
from results_stand_in import records

HAND = records(
    {
        "ours": [[0.80, 0.90], [0.70, 0.90]],
        "scratch": [[0.70, 0.80], [0.70, 0.70]],
    }
)


def wide_of(table):
    return by_task(unpack_scores(pack_scores(records(table))))


def gain_of(differences):
    index = pd.MultiIndex.from_product([[5], range(len(differences))], names=["n_labels", "task"])
    found = gains(pd.DataFrame({"d": differences}, index=index))
    return [frame.loc["d", 5] for frame in found]


def test_the_tables_of_a_case_worked_out_by_hand():
    wide = by_task(unpack_scores(pack_scores(HAND)))
    accuracy, spread = accuracy_over_runs(wide), task_std_over_runs(wide)
    # Means of the runs: 85 and 80. Their std: 5 / sqrt(2).
    assert accuracy.mean.loc["ours", 5] == pytest.approx(82.5)
    assert accuracy.std.loc["ours", 5] == pytest.approx(5 / math.sqrt(2))
    assert accuracy.n.loc["ours", 5] == 2
    # Std over tasks: 10 / sqrt(2) and 20 / sqrt(2); mean 15 / sqrt(2), std 5.
    assert spread.mean.loc["ours", 5] == pytest.approx(15 / math.sqrt(2))
    assert spread.std.loc["ours", 5] == pytest.approx(5.0)
    # Differences 10, 10, 0, 20: mean 10, variance 200 / 3; t(3) at 97.5 % is 3.182446.
    half = 3.182446 * math.sqrt(200 / 3 / 4)
    mean, low, high, n_pairs = gain_of(list(wide["ours"] - wide["scratch"]))
    assert [mean, low, high] == pytest.approx([10.0, 10.0 - half, 10.0 + half], rel=1e-6)
    assert n_pairs == 4


def test_one_pair_and_one_run_have_no_spread():
    wide = wide_of({"ours": [[0.9]], "scratch": [[0.8]]})
    mean, low, high, n_pairs = gain_of(list(wide["ours"] - wide["scratch"]))
    assert (mean, n_pairs) == (pytest.approx(10.0), 1)
    assert np.isnan([low, high]).all()
    assert np.isnan(accuracy_over_runs(wide).std.loc["ours", 5])
    assert np.isnan(task_std_over_runs(wide).mean.loc["ours", 5])


def test_only_what_has_every_task_is_subtracted():
    wide = wide_of({"ours": [[0.9, 0.9]], "less": [[0.8]], "more": [[0.8, 0.8], [0.1, 0.1]]})
    assert complete(wide["ours"], wide["less"]).isna().all()
    assert complete(wide["ours"], wide["more"]).dropna().tolist() == pytest.approx([10.0, 10.0])


def test_settings_stand_best_first_with_differences_of_means_over_n():
    scores = records({"a": [[0.80, 0.90]], "b": [[0.82, 0.94]]}, 5)
    scores += records({"a": [[0.90, 0.90]], "b": [[0.90, 0.90]]}, 20)
    best, reference = tried_settings(scores, "a")
    assert (best["setting"], reference["difference"]) == ("b", None)
    assert best["accuracy"] == pytest.approx({5: 88.0, 20: 90.0})
    # Over N the differences are 1 and 2: t(1) at 97.5 % is 12.7062.
    assert best["difference"]["mean"] == pytest.approx(1.5)
    assert best["difference"]["high"] == pytest.approx(1.5 + 12.7062 * 0.5, rel=1e-5)
    assert best["difference"]["n_pairs"] == 2


# Beside the paper


def estimates(figures, columns=("x",)):
    """Of {row: [(mean, std, n), ...]}."""
    parts = np.array(list(figures.values()), float)
    frames = (pd.DataFrame(parts[..., i], list(figures), list(columns)) for i in range(3))
    return Estimates(*frames)


def one(values):
    std = np.std(values, ddof=1) if len(values) > 1 else np.nan
    return estimates({"a": [(np.mean(values), std, len(values))]})


def same(ours, paper, width=width_over_runs):
    return abs(ours.mean - paper.mean).to_numpy().item() <= width(ours, paper).item()


def test_one_run_agrees_where_a_fifth_run_of_the_paper_would_lie():
    paper = estimates({"a": [(80.0, 1.0, 4)]})
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
    equal, other = (estimates({"a": [(mean, 0.0, 4)]}) for mean in (1.0, 1.1))
    assert same(equal, equal)
    assert not same(equal, other)
    with pytest.raises(ValueError, match="no std over runs"):
        width_over_runs(equal, one([1.0]))


def test_over_mini_batches_two_standard_deviations_are_close_however_noisy_ours_is():
    paper = estimates({"a": [(5.0, 0.5, 1)]})
    for mean, std, close in ((5.99, 0.1, True), (6.01, 0.1, False), (6.01, 0.6, False)):
        ours = estimates({"a": [(mean, std, 1)]})
        assert same(ours, paper, width_over_batches) == close
