"""What belongs to a user's module and is not learned: copied, kept as it was, and allowed for."""

import numpy as np
import pytest
import torch
from torch import nn

from module_zoo import rows, tokens
from sklearn_mmdinit import Coherence, MMDInitializer, NetClassifier
from sklearn_mmdinit.diagnostics import coherence_kernel


def small(module, **params):
    defaults = {"n_perturbations": 4, "batch_size": 8, "max_iter": 2, "window": 3}
    return MMDInitializer(module=module, **{**defaults, "random_state": 0, **params})


class Head(nn.Module):
    """A backbone that somebody else has made."""

    def __init__(self, backbone, shift, n_classes=2):
        super().__init__()
        self.backbone = backbone
        self.register_buffer("shift", shift)
        self.last = nn.Linear(8, n_classes)

    def forward(self, x):
        self.shift += 1
        return self.last(self.backbone(x).relu() + 0 * self.shift)


def test_what_a_class_is_called_with_is_copied():
    X = rows(16)
    backbone, shift = nn.Linear(6, 8), torch.zeros(1)
    before = backbone.weight.detach().clone()
    init = small(module=Head, module__backbone=backbone, module__shift=shift).fit(X)
    clf = NetClassifier(Head, module__backbone=backbone, module__shift=shift, random_state=0)
    clf.fit(X, np.arange(16) % 2)
    assert torch.equal(backbone.weight, before)
    assert not shift.any()
    own = clf.module_.backbone, init.to_module().backbone, init.to_module().backbone, backbone
    assert len({id(part) for part in own}) == 4


def test_later_changes_of_an_instance_change_nothing():
    X = rows(16)
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    net[1].eval()
    init = small(module=net).fit(X)
    score = init.score(X)
    net.eval().requires_grad_(False)
    net[3] = nn.Linear(5, 3)
    assert init.score(X) == score
    assert all(parameter.requires_grad for parameter in init.to_module().parameters())


@pytest.mark.parametrize("frozen", ["embedding", "backbone"])
def test_layers_that_are_not_learned_have_jacobians_too(frozen):
    if frozen == "embedding":
        X = tokens()
        net = nn.Sequential(
            nn.Embedding(20, 4), nn.Flatten(), nn.Linear(4 * X.shape[1], 5), nn.Linear(5, 2)
        )
        net[0].requires_grad_(False)
    else:
        X = rows(16)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.backbone, self.last = nn.Linear(6, 5), nn.Linear(5, 2)

            def forward(self, x):
                with torch.no_grad():
                    z = self.backbone(x)
                return self.last(z)

        net = Net()
    # Behind a backbone without gradients no layer is left before the last one.
    weights = {} if frozen == "embedding" else {"detachment_weight": 0.0}
    history = small(module=net, **weights).fit(X).history_
    assert all(np.isfinite(value) for record in history for value in record.values())


def test_coherence_without_a_bias_is_that_of_the_weights():
    X = rows(16)
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2, bias=False))
    init = small(module=net, coherence=Coherence(batch_size=8, n_neighbors=3)).fit(X)
    H = init.set_params(output="hidden").transform(X)
    expected = H @ H.T / np.outer(*[np.linalg.norm(H, axis=1)] * 2)
    np.testing.assert_allclose(coherence_kernel(init, X), expected, atol=1e-4)


def test_a_module_in_half_precision_is_learned_in_single():
    X = rows(16)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)).bfloat16()
    whole = small(module=net, max_iter=2).fit(X)
    parts = small(module=net, max_iter=2).partial_fit(X).partial_fit(X)
    for name, array in whole.theta0_.arrays.items():
        np.testing.assert_array_equal(array, parts.theta0_.arrays[name])


def test_what_is_not_learned_may_be_infinite():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 2)
            self.mask = nn.Parameter(torch.tensor([0.0] * 5 + [-torch.inf]), requires_grad=False)

        def forward(self, x):
            return self.linear(x * self.mask.exp())

    X = rows(16)
    init = small(module=Masked).fit(X)
    NetClassifier(warm_start_from=init, max_iter=1).fit(X, np.arange(16) % 2)


def test_a_learned_shift_between_layers_is_no_chain():
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    net[1].eval()
    with pytest.raises(ValueError, match="would change the function"):
        small(module=net, gain=2.0).fit(rows(16))
