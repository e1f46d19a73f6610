"""The objectives: the weighted sum of the terms, and random labels."""

import math

import pytest
import torch

from helpers import network, normal
from sklearn_mmdinit._compute import StepRandom
from sklearn_mmdinit._objective import MMDObjective, RandomLabelObjective
from sklearn_mmdinit._objective.detachment import detachment
from sklearn_mmdinit._sampling import Perturbation


@pytest.mark.parametrize("n_classes", [2, 3])
def test_loss_is_the_weighted_sum_of_its_terms(n_classes):
    module, X = network(4, 5, n_classes).float(), normal(6, 4).float()
    objective = MMDObjective(Perturbation(16, 0.7), 12, 0.4, 2.0, "unbiased", "sampled")
    terms = objective(module, X, StepRandom(0))
    assert objective.term_names == ("loss", "uniformity", "degeneracy", "detachment")
    loss, *parts = terms.tolist()
    assert loss == pytest.approx(parts[0] + 0.4 * parts[1] + 2.0 * parts[2], rel=1e-5)
    assert parts[2] == pytest.approx(float(detachment(module, X).detach()), rel=1e-5)


def test_gradient_of_the_sum_reaches_every_parameter():
    module, X = network(4, 5, 3, 2).float(), normal(6, 4).float()
    objective = MMDObjective(Perturbation(16, 0.7), 16, 0.4, 1.0, "unbiased", "sampled")
    objective(module, X, StepRandom(0))[0].backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name


def test_random_labels_are_drawn_for_each_step():
    module, X = network(4, 5, 2).float(), normal(6, 4).float()
    objective, random = RandomLabelObjective(), StepRandom(0)
    first, second = (float(objective(module, X, random.at(step)).detach()) for step in (0, 1))
    assert first != second
    assert first == float(objective(module, X, random.at(0)).detach())
    # log(2) is the cross entropy of a network that ignores its input.
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        loss = float(objective(module, X, random.at(0)))
    assert loss == pytest.approx(math.log(2), rel=1e-6)
