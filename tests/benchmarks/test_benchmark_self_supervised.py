"""Self-supervised baselines: their losses, their pairs, the command and its tables."""

import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss, SelfSupervisedLoss
from sklearn.datasets import load_digits

import report
import self_supervised
from reporting.estimates import mean_by
from reporting.results import Library
from reporting.tables import build_table
from reporting.task_tables import wide_of
from results_stand_in import records, status_of, task_results, written
from rivals.from_views import nt_xent
from rivals.self_supervised import PairLearner, vicreg
from sklearn_mmdinit import Coherence, MMDInitializer, OrientedGradients

TINY = ["--dataset=digits", "--jobs=1", "--quiet", "--hidden-layer-sizes", "20", "12"]
RIVALS = [*self_supervised.CHOSEN]


def test_vicreg_by_hand():
    alone = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    # The second output is constant, and lacks 1 - 0.01 of a deviation of 1.
    assert float(vicreg(alone.repeat(2, 1))) == pytest.approx(25.0 * 0.99 / 2)
    # Both outputs have a variance of 2, and so is their covariance, in both views.
    alike = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    covariances = 2 * (2.0**2 + 2.0**2) / 2
    loss = vicreg(torch.cat([alike, alike + 2.0]), covariance=3.0)
    assert float(loss) == pytest.approx(3.0 * covariances + 25.0 * 2.0**2)


@pytest.mark.parametrize("temperature", [0.1, 2.0])
def test_nt_xent_is_that_of_another_library(temperature):
    Z = torch.randn(24, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    ours = nt_xent(Z, temperature)
    theirs = SelfSupervisedLoss(NTXentLoss(temperature))(*Z.chunk(2))
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-5)
    torch.testing.assert_close(*(torch.autograd.grad(loss, Z)[0] for loss in (ours, theirs)))


@pytest.mark.parametrize("graph", [{"embedding": OrientedGradients()}, {"n_neighbors": 0}])
def test_a_rival_has_the_pairs_of_ours(graph):
    X, seen = load_digits().data.astype("float32")[:300] / 16, []

    def change(rows):
        seen.append(rows.clone())
        return rows + 0.1 * torch.randn_like(rows)

    coherence = Coherence(batch_size=100, augmentation=change, **graph)
    params = {"hidden_layer_sizes": (8,), "random_state": 3}
    ours = MMDInitializer(coherence=coherence, max_iter=2, **params).fit(X)
    of_ours, seen = seen[-12:], []  # the first ones are a check
    rival = PairLearner(coherence, steps=6, **params).fit(X)
    assert rival.n_iter_ == ours.n_iter_ == 2
    assert all(map(torch.equal, of_ours, seen))
    assert rival.transform(X).shape == ours.transform(X).shape


def test_the_command_goes_on_where_it_stopped(tmp_path):
    arguments = [*TINY, "--runs=1", "--tasks=2", "--n-labels", 1, 2, "--coherent-epochs=2"]
    arguments += ["--output", tmp_path]
    assert status_of(self_supervised, arguments) == 0
    first = written(tmp_path)
    assert first["settings"]["methods"] == [*self_supervised.METHODS]
    assert {record["steps"] for record in first["theta0"]} == {10}
    n_scores = sum(len(entry["accuracies"]) for entry in first["scores"])
    assert n_scores == 5 * 4  # of two draws at two N
    log = (tmp_path / "scores.jsonl").read_text()
    assert status_of(self_supervised, arguments) == 0
    assert written(tmp_path)["scores"] == first["scores"]
    assert (tmp_path / "scores.jsonl").read_text() == log


def test_the_best_settings_on_held_out_images_are_the_chosen_ones():
    wide = wide_of(Library(report.RESULTS).results("self-supervised-choice.json"))
    means = mean_by(wide, "n_labels").mean()
    for method, setting in self_supervised.CHOSEN.items():
        text = f"{method}; {setting.sharpness:g}; {setting.rate:g}; {setting.C:g}"
        assert means.filter(like=method).idxmax() == text


def test_tables_by_hand():
    ours, rival = "ours", RIVALS[0]
    scores = records({ours: [[0.9, 0.8], [0.7, 0.8]], rival: [[0.8, 0.6], [0.7, 0.7]]}, 1)
    scores += records({ours: [[0.9, 0.9], [0.9, 0.9]]}, 4)
    theta0 = [{"method": ours, "cpu_seconds": 11.6}, {"method": rival, "cpu_seconds": None}]
    results = task_results(scores, classes=10) | {"theta0": theta0}
    first, second = build_table("self_supervised", results).rows
    assert first == [ours, "80.00 ± 7.07; 8.16; 73.0", "90.00 ± 0.00; 0.00; 90.0", "12"]
    assert second == [rival, "70.00 ± 0.00; 8.16; 63.0", "-", "-"]
    [row] = build_table("above_rivals", results).rows
    # Differences of 10, 20, 0 and 10, of runs 15 and 5.
    assert row == [rival, "+10.00 [-2.99, +22.99], runs [-53.53, +73.53]", "-"]
