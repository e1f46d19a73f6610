"""Small networks of users' own, few images, first labels: the commands and their tables."""

import pandas as pd
import pytest
import torch

import first_labels
import small_networks
from protocol.own_networks import BY_LOOP, FRESH, IMAGES, LEARNED, NETWORKS
from reporting.few_label_tables import labels_at_random
from reporting.tables import build_table
from results_stand_in import run_again

TASKS = ["perceptron, layer normalization", "ResNet, two views"]
TINY = ["--max-iter=1", "--dataset=digits", "--jobs=1", "--tasks", *TASKS]


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_a_network_gives_ten_logits_of_each_digit(make):
    assert make()(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_what_was_measured_is_not_measured_again(tmp_path):
    first, again = (r["records"] for r in run_again(small_networks, tmp_path, *TINY))
    network, views = (record["accuracies"] for record in first)
    assert [record["task"] for record in first] == TASKS
    n_draws = {method: len(draws) for method, draws in network.items()}
    assert n_draws == dict.fromkeys([LEARNED, *FRESH], small_networks.DIGITS["draws"])
    assert {*network} == {*views} - {BY_LOOP}
    assert again[0] == first[0], "seconds too"
    assert again[1]["accuracies"] == views


def test_first_labels_are_chosen_by_each_rule_and_compared(tmp_path, monkeypatch):
    short = {"hidden_layer_sizes": (8,), "coherence": "auto", "max_iter": 2}
    monkeypatch.setitem(first_labels.NETWORKS, "digits", (short, 1))
    results = run_again(first_labels, tmp_path, "--sets", "digits", "--seeds", "2")
    first, again = (build_table("first_labels", each) for each in results)
    assert first.rows == again.rows
    assert {*first.head[2:]} == {*first_labels.CHOICES} - {"k-means of HOG features"}
    assert [row[1] for row in first.rows] == ["10", "20", "50"]
    curve = pd.Series([40.0, 50.0, 90.0], [10, 20, 40])
    assert [labels_at_random(curve, a) for a in (50.0, 70.0, 91.0)] == ["20", "28", "> 40"]


def test_learned_weights_are_compared_with_the_better_fresh_ones():
    """By hand; t(2) at 97.5 % is 4.302653, and t(1) is 12.7062."""
    short, long = FRESH
    of_network = {LEARNED: [90, 92, 94], short: [50, 99, 50], long: [80, 80, 80]}
    other = {LEARNED: [70, 70, 70], short: [80, 80, 80], long: [60, 60, 60]}
    of_images = of_network | {"label spreading": [94, 92, 90]}
    records = [
        {"task": name, "seconds": 12.3, "accuracies": values}
        for name, values in (("a", of_network), ("b", other), (IMAGES, of_images))
    ]
    task = {"n_labels": 50, "draws": 3}
    results = {"settings": {"digits": task, IMAGES: task}, "records": records}
    first, second, mean = build_table("small_networks", results).rows
    fresh = ["66.33 ± 28.29", "80.00 ± 0.00"]
    assert first == ["a", "92.00 ± 2.00", *fresh, "+12.00 [+7.03, +16.97]", "12"]
    assert second[-2] == "-10.00 [-10.00, -10.00]"
    # Gains of 12 and -10.
    assert mean[-2] == "+1.00 [-138.77, +140.77]"
    rows = build_table("few_images", results).rows
    assert rows[0] == [LEARNED, "92.00 ± 2.00", "-", "12"]
    assert rows[-1] == ["label spreading", "92.00 ± 2.00", "+0.00 [-9.94, +9.94]", "-"]
