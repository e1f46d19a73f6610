"""Products of rounded factors: exact where nothing is lost, near everywhere, and chosen by name."""

import numpy as np
import pytest
import torch

from helpers import as_a_team_of
from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit._compute import StepRandom, Workspace, native_precision, precision
from sklearn_mmdinit._network import MLP, Architecture
from sklearn_mmdinit._network.inits import initialize_
from sklearn_mmdinit._sampling import Perturbation, networks, perturbed_logits
from sklearn_mmdinit._sampling.direct import sample_direct
from sklearn_mmdinit._sampling.gram import sample_gram
from sklearn_mmdinit._sampling.layer import Sampling

SCALE = 0.5**0.5
# Of bfloat16: half the distance of two numbers that follow each other, as a share of them.
UNIT = 2.0**-8


def network(*widths, batch_norm=False):
    module = MLP(Architecture(widths[0], widths[1:-1], widths[-1], "relu", batch_norm))
    return initialize_(module, "he", torch.Generator().manual_seed(0))


def rows(n, n_features, seed=0):
    return torch.randn(n, n_features, generator=torch.Generator().manual_seed(seed))


def outputs(sample, H, weight, bias, rounding):
    how = Sampling(len(H), SCALE, StepRandom(5), rounding=rounding)
    tensors = [tensor.clone().requires_grad_() for tensor in (H, weight, bias)]
    out = sample(*tensors, how)
    # Whole numbers, so that rounding them loses nothing either.
    signs = torch.arange(out.numel()).reshape(out.shape) % 3 - 1.0
    return out, torch.autograd.grad((out * signs).sum(), tensors)


@pytest.mark.parametrize("sample", [sample_gram, sample_direct])
def test_small_whole_numbers_lose_nothing(sample):
    draws = torch.Generator().manual_seed(1)
    H = torch.randint(-3, 4, (4, 5, 7), generator=draws).float()
    weight = torch.randint(-3, 4, (6, 7), generator=draws).float()
    bias = torch.randn(6, generator=draws)
    plain, plain_gradients = outputs(sample, H, weight, bias, None)
    rounded, gradients = outputs(sample, H, weight, bias, torch.bfloat16)
    assert torch.equal(rounded, plain)
    for own, other in zip(gradients, plain_gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-6, atol=1e-6)


def test_error_of_a_product_is_that_of_its_factors():
    H, weight, bias = rows(4 * 5, 40).view(4, 5, 40), rows(6, 40, seed=1), torch.zeros(6)
    plain, _ = outputs(sample_gram, H, weight, bias, None)
    rounded, _ = outputs(sample_gram, H, weight, bias, torch.bfloat16)
    bound = 1.5 * UNIT * (H.abs() @ weight.abs().T) + 1e-5  # two factors and the result: each 1/2
    error = (rounded - plain).abs()
    assert torch.all(error <= bound)
    assert error.max() > 0.01 * bound.max()  # it is rounded at all


@pytest.mark.parametrize("sampler", ["gram", "direct", "auto"])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_gradients_are_near_those_of_float32(sampler, batch_norm):
    module, X = network(30, 40, 40, 2, batch_norm=batch_norm), rows(8, 30)
    gradients = []
    for name in ("float32", "bfloat16"):
        perturbation = Perturbation(64, SCALE, sampler, name)
        P = perturbed_logits(module, X, perturbation, StepRandom(0)).softmax(-1)
        loss = P.square().sum() / 64
        gradients.append(torch.autograd.grad(loss, list(module.parameters())))
    for own, other in zip(*gradients, strict=True):
        # A share of a gradient's length; a bias before batch normalisation has none but noise.
        assert (own - other).norm() <= 0.05 * other.norm() + 1e-4


@pytest.mark.parametrize("with_workspace", [False, True])
def test_parts_and_threads_change_nothing(monkeypatch, with_workspace):
    monkeypatch.setattr(networks, "_NUMBERS_A_PART", 100)
    module, X = network(7, 9, 8, 3), rows(5, 7)
    workspace = Workspace() if with_workspace else None
    results = []
    for n_threads in (1, 2, 3):
        with as_a_team_of(n_threads):
            perturbation = Perturbation(7, SCALE, "gram", "bfloat16")
            logits = perturbed_logits(module, X, perturbation, StepRandom(3), workspace)
            gradients = torch.autograd.grad(logits.square().sum(), list(module.parameters()))
        results.append((logits.detach().clone(), [g.clone() for g in gradients]))
    for logits, gradients in results[1:]:
        assert torch.equal(logits, results[0][0])
        for gradient, first in zip(gradients, results[0][1], strict=True):
            torch.testing.assert_close(gradient, first, rtol=1e-5, atol=1e-5)


# the parameter


def fitted(**params):
    X = np.random.default_rng(0).normal(size=(64, 6))
    own = {"n_perturbations": 8, "max_iter": 3, "random_state": 0, "window": 2}
    return MMDInitializer((9, 8), **own, **params).fit(X)


def test_training_differs_by_rounding_alone():
    plain, rounded = fitted(), fitted(precision="bfloat16")
    for own, other in zip(rounded.coefs_, plain.coefs_, strict=True):
        assert own.dtype == np.float32
        assert 0 < np.abs(own - other).max() < 0.01
    # The same perturbations: what is left of the difference is far below the loss's own noise.
    np.testing.assert_allclose(rounded.loss_curve_, plain.loss_curve_, atol=0.02)
    assert rounded.loss_curve_ != plain.loss_curve_


@pytest.mark.parametrize(
    ("capabilities", "name"),
    [
        ({"avx512_bf16": True}, "bfloat16"),
        ({"amx_bf16": True, "avx512_bf16": False}, "bfloat16"),
        ({"amx_bf16": False, "avx2": True}, "float32"),
        ({}, "float32"),
    ],
)
def test_auto_asks_the_processor(monkeypatch, capabilities, name):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    estimator = fitted(precision="auto", device="cpu")
    assert estimator.auto_params_["precision"] == name
    assert estimator.loss_curve_ == fitted(precision=name).loss_curve_
    assert estimator.get_params()["precision"] == "auto"


def test_auto_is_float32_where_nothing_is_known(monkeypatch):
    assert native_precision(torch.device("meta")) == "float32"
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert native_precision(torch.device("cpu")) == "float32"
    for version, name in (((7, 5), "float32"), ((8, 0), "bfloat16")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, v=version: v)
        assert native_precision(torch.device("cuda")) == name
    assert precision.PRECISIONS["float32"] is None


@pytest.mark.parametrize("value", ["float16", "bf16", None, torch.bfloat16])
def test_other_precisions_are_named(value):
    with pytest.raises(ValueError, match=r"precision must be one of .*'bfloat16', 'float32'"):
        fitted(precision=value)


def test_a_module_has_a_precision_of_its_own():
    module = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    with pytest.raises(ValueError, match="precision='bfloat16' describes a perceptron"):
        MMDInitializer(module=module, precision="bfloat16").fit(np.zeros((8, 6)))
