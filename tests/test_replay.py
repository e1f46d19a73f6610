"""What a step on a GPU needs of the host: nothing. On the meta device, which every machine has."""

from contextlib import nullcontext

import pytest
import torch

from nets import Conv, digit_images
from sklearn_mmdinit import Coherence, MMDInitializer
from sklearn_mmdinit._core import train as training
from sklearn_mmdinit._core.objective import loss_terms
from sklearn_mmdinit._core.replay import _OnHost


class MetaRandom:
    """Draws without numbers, which no generator is for."""

    def __init__(self):
        self.generator = torch.Generator()

    def split(self, n_parts):
        return [self] * n_parts

    def normal(self, *shape, out=None):
        return torch.empty(shape, device="meta") if out is None else out.normal_()

    def simplex(self, n, d):
        return torch.empty((n, d), device="meta").exponential_()


VARIANTS = {
    "two classes": {},
    "three classes": {"n_classes": 3},
    "batch norm": {"batch_norm": True},
    "direct": {"sampler": "direct"},
    "coherence": {"coherence": Coherence(batch_size=16)},
    "coherence, on the grid": {"coherence": Coherence(batch_size=16), "n_perturbations": 140},
    "convolutions": {"module": Conv, "module__width": 4},
}


@pytest.mark.parametrize("params", VARIANTS.values(), ids=VARIANTS)
def test_a_step_elsewhere_reads_no_value_and_uses_nothing_of_the_host(params, monkeypatch):
    X, _ = digit_images(64, 2)
    if "module" not in params:
        X = X.reshape(len(X), -1)
        params = {"hidden_layer_sizes": (12, 8)} | params
    found = {}

    def noted(network, rows, random, config):
        found.update(config=config, rows=rows)
        return loss_terms(network, rows, random, config)

    monkeypatch.setattr(training, "loss_terms", noted)
    params = {"n_perturbations": 8, "max_iter": 1, "random_state": 0} | params
    init = MMDInitializer(**params).fit(X)
    network = init._profile.network(init.theta0_, "cpu")
    network.module.to("meta")
    # Autocast does not know this device.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: nullcontext())
    rows = found["rows"].to("meta")
    for _ in range(2):  # what is kept from the first one on is made on the host
        with _OnHost() as host:
            terms = loss_terms(network, rows, MetaRandom(), found["config"])
            torch.autograd.backward(terms[0])
    assert not host.seen
    assert all(p.grad.device.type == "meta" for p in network.module.parameters())


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda X: X * 2.0 + 1, False),
        (lambda X: X * torch.tensor(2.0), True),
        (lambda X: torch.eye(3).to(X), True),
    ],
)
def test_what_the_host_keeps_is_seen_and_a_number_is_not(use, expected):
    with _OnHost() as host:
        use(torch.empty(3, device="meta"))
    assert host.seen == expected
