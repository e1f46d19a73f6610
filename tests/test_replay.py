"""What a step on a GPU needs of the host: nothing. On the meta device, which every machine has."""

from contextlib import nullcontext

import pytest
import torch

from helpers import Unknown, normalized_mlp
from nets import Conv, digit_images
from sklearn_mmdinit import Coherence, MMDInitializer
from sklearn_mmdinit._base.random_streams import StepRandom
from sklearn_mmdinit.training.config import PAPER_WEIGHTS
from sklearn_mmdinit.training.cuda_graph import _OnHost
from sklearn_mmdinit.training.loop import loss_terms


class NoValues(StepRandom):  # draws that have a shape alone
    def __init__(self):
        self.device = torch.device("meta")

    def split(self, n_parts):
        return [self] * n_parts

    def normal(self, *shape):
        return torch.empty(shape, device=self.device)

    def simplex(self, n_samples, n_classes):
        return self.normal(n_samples, n_classes)


OF_UNKNOWN = {"module": Unknown, "module__hidden_layer_sizes": (12, 8)}
ON_THE_GRID = {"n_perturbations": 140, **dict.fromkeys(PAPER_WEIGHTS, 1.0)}
VARIANTS = {
    "gelu": {"activation": "gelu", "init": "he"},
    "tanh, functional": OF_UNKNOWN | {"module__activation": "tanh"},
    "batch norm": {"module": normalized_mlp(64, 12, 8, 3)},
    "no hidden layer": {"hidden_layer_sizes": ()},
    "module": {"module": Conv, "module__width": 4},
    "coherence": {"coherence": Coherence()},
    "coherence beside the paper's terms, on the grid": {"coherence": Coherence(), **ON_THE_GRID},
}


@pytest.mark.parametrize("params", VARIANTS.values(), ids=VARIANTS)
def test_a_step_elsewhere_reads_no_value_and_uses_nothing_of_the_host(params, monkeypatch):
    X, sizes = digit_images(64, 2)[0], {"hidden_layer_sizes": (12, 8)}
    X = X if params.get("module") is Conv else X.reshape(len(X), -1)
    params = params if "module" in params else sizes | params
    params = {"n_perturbations": 8, "max_iter": 0, "random_state": 0} | params
    init = MMDInitializer(**params).fit(X)
    # Autocast does not know this device.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device: False)
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: nullcontext())
    network = init._builder.network_at(init.theta0_, "meta")
    batch = torch.empty(32, *X.shape[1:], device="meta")
    for _ in range(2):  # what is kept from the first one on is made on the host
        with _OnHost() as host:
            random, info = NoValues(), init._builder.info
            terms = loss_terms(network, info, batch, random, init.config_)
            torch.autograd.backward(terms[0])
    assert not host.seen
    learned = [p for p in network.parameters() if p.grad is not None]
    assert len(learned) >= 2
    assert {p.grad.device.type for p in learned} == {"meta"}
    with pytest.raises(RuntimeError, match="meta"):
        float(terms[0].detach())


def test_what_the_host_keeps_is_seen_and_a_number_is_not():
    for factor, expected in ((2.0, False), (torch.tensor(2.0), True)):
        with _OnHost() as host:
            torch.empty(3, device="meta").mul(factor)
        assert host.seen == expected
