"""Steps in a row: what a recorder repeats is what would have been done, and none waits."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from sklearn_mmdinit import MMDInitializer, RandomLabelInitializer
from sklearn_mmdinit._compute import StepRandom
from sklearn_mmdinit._network import MLP, Architecture
from sklearn_mmdinit._network.inits import initialize_
from sklearn_mmdinit._pretraining.recording import RecordedSteps
from sklearn_mmdinit._pretraining.steps import Steps

KINDS = pytest.mark.parametrize(
    "kind", [MMDInitializer, RandomLabelInitializer], ids=lambda kind: kind.__name__
)


class PythonRecorder:
    """Stands in for a CUDA graph: repeats the function itself, on the memory it was given."""

    def __init__(self):
        self.recorded = self.repeated = self.turns = 0
        self.in_turn = False

    @contextmanager
    def turn(self):
        self.turns += 1
        self.in_turn = True
        yield
        self.in_turn = False

    def record(self, function):
        assert self.in_turn
        self.recorded += 1

        def repeat():
            assert self.in_turn
            self.repeated += 1
            function()

        return repeat


RATES = np.linspace(3e-2, 1e-3, 7).tolist()


def learn(kind, recorder=None, rates=None, on_device=False):
    """Sums of the terms over three windows, and the weights after them."""
    architecture = Architecture(6, (5, 4), 2)
    module = initialize_(MLP(architecture), "xavier", torch.Generator().manual_seed(0)).train()
    params = {"n_perturbations": 8} if kind is MMDInitializer else {}
    objective = kind((5, 4), **params)._objective()
    # As on a GPU, where a recorded step reads the rate from memory.
    rate = torch.tensor(1e-2) if on_device else 1e-2
    optimizer = torch.optim.Adam(module.parameters(), lr=rate, fused=True)
    random = StepRandom(3)
    steps = Steps(module, objective, optimizer, random)
    if recorder is not None:
        steps = RecordedSteps(module, objective, optimizer, random, recorder)
    X = torch.randn(7, 4, 6, generator=torch.Generator().manual_seed(1))
    advanced, sums = [], []
    for start, stop in ((0, 2), (2, 5), (5, 7)):
        own = None if rates is None else rates[start:stop]
        sums.append(steps.run(X[start:stop], start, lambda: advanced.append(None), own))
    assert len(advanced) == 7
    if on_device:
        assert all(group["lr"] is rate for group in optimizer.param_groups)
    return sums, [parameter.detach().clone() for parameter in module.parameters()]


@KINDS
def test_recorded_steps_are_those_that_would_have_been_taken(kind):
    recorder = PythonRecorder()
    sums, weights = learn(kind, recorder)
    expected_sums, expected_weights = learn(kind)
    np.testing.assert_array_equal(sums, expected_sums)
    assert all(map(torch.equal, weights, expected_weights))
    # Three steps as they come, and one recorded for the other four.
    assert (recorder.recorded, recorder.repeated, recorder.turns) == (1, 4, 3)


@pytest.mark.parametrize("on_device", [False, True])
def test_each_step_has_its_own_learning_rate(on_device):
    sums, weights = learn(MMDInitializer, rates=RATES, on_device=on_device)
    recorder = PythonRecorder()
    recorded_sums, recorded = learn(MMDInitializer, recorder, RATES, on_device=on_device)
    np.testing.assert_array_equal(recorded_sums, sums)
    assert all(map(torch.equal, recorded, weights))
    # Rates that are all the same are the optimiser's own, others are not.
    _, constant = learn(MMDInitializer)
    _, same = learn(MMDInitializer, rates=[1e-2] * 7)
    assert all(map(torch.equal, same, constant))
    assert not any(map(torch.equal, weights, constant))


@KINDS
def test_a_step_that_cannot_be_recorded_is_taken_as_it_comes(kind):
    class Refusing(PythonRecorder):
        def record(self, function):
            self.recorded += 1
            raise RuntimeError("operation not permitted")

    recorder = Refusing()
    with pytest.warns(RuntimeWarning, match=r"cpu \(operation not permitted\)"):
        sums, weights = learn(kind, recorder)
    expected_sums, expected_weights = learn(kind)
    np.testing.assert_array_equal(sums, expected_sums)
    assert all(map(torch.equal, weights, expected_weights))
    assert recorder.recorded == 1, "it is tried once"


@KINDS
def test_sums_are_those_of_the_single_steps(kind):
    sums, _ = learn(kind)
    assert all(window.dtype == np.float64 and np.isfinite(window).all() for window in sums)
    if kind is MMDInitializer:
        # The loss is the weighted sum of its terms; a sum of two steps is twice a mean.
        loss, uniformity, degeneracy, detachment = np.sum(sums, axis=0)
        init = MMDInitializer()
        expected = uniformity + init.degeneracy_weight * degeneracy
        expected += init.detachment_weight * detachment
        assert loss == pytest.approx(expected, rel=1e-5)


# Tensors of the device "meta" have no values: a step that works on them asks for none.


class NoValues(StepRandom):
    """Draws that have a shape alone."""

    def __init__(self):
        self.device, self.dtype = torch.device("meta"), torch.float32

    def split(self, n_parts):
        return [self] * n_parts

    def normal(self, *shape, out=None):
        return torch.empty(shape, device=self.device) if out is None else out

    def simplex(self, n_samples, n_classes):
        return torch.empty(n_samples, n_classes, device=self.device)

    def labels(self, n_samples, n_classes):
        return torch.empty(n_samples, device=self.device, dtype=torch.int64)


VARIANTS = {
    "default": {},
    "three classes": {"n_classes": 3},
    "batch norm": {"batch_norm": True},
    "gelu": {"activation": "gelu"},
    "gram": {"sampler": "gram"},
    "direct": {"sampler": "direct"},
    "closed form": {"reference": "closed_form"},
    "few references": {"n_uniform_samples": 5},
    "biased": {"mmd_estimator": "biased"},
    "coherence": {"coherence": "auto"},
    "coherence, batch norm": {"coherence": "auto", "batch_norm": True},
}


@pytest.mark.parametrize("params", VARIANTS.values(), ids=VARIANTS)
def test_a_step_of_another_device_waits_for_no_value(params):
    init = MMDInitializer((16, 12), n_perturbations=24, **params)
    architecture = Architecture(20, (16, 12), init.n_classes, init.activation, init.batch_norm)
    module = MLP(architecture).to("meta").train()
    X = torch.empty(8, 20, device="meta")
    terms = init._objective()(module, X, NoValues())
    torch.autograd.backward(terms[0])
    assert terms.shape == (4 if init.coherence is None else 5,)
    assert all(parameter.grad.device.type == "meta" for parameter in module.parameters())


def test_meta_tensors_do_catch_a_wait():
    with pytest.raises(RuntimeError, match="meta"):
        float(torch.empty(1, device="meta"))
