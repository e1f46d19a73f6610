"""Fresh modules from an instance or a class, and those whose weights can be scaled."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from module_zoo import images, rows, seeded
from protocol.networks import MODULES, ConvNet, ResidualNet, flat_perceptron
from sklearn_mmdinit import MMDInitializer, NetClassifier
from sklearn_mmdinit._modules import ModuleSource, blueprint_of
from sklearn_mmdinit._modules.chain import chain_of
from sklearn_mmdinit._modules.hooks import pretraining_mode, step_by_step, unfused
from sklearn_mmdinit._modules.trace import trace


def test_copies_of_an_instance_are_alike_and_apart():
    module = seeded(lambda: ConvNet(3))
    module.fc1.weight.grad = torch.ones_like(module.fc1.weight)
    first, second = (ModuleSource(module).build() for _ in range(2))
    assert first is not second is not module
    for own, theirs in zip(first.parameters(), module.parameters(), strict=True):
        assert own is not theirs
        assert torch.equal(own, theirs)
        assert own.grad is None
    assert module.fc1.weight.grad is not None


def test_calls_of_a_class_are_alike_among_threads():
    alone = ModuleSource(ConvNet, {"n_classes": 3}, seed=5).build().state_dict()
    before, found = torch.random.get_rng_state(), {}

    def build(name):
        found[name] = ModuleSource(ConvNet, {"n_classes": 3}, seed=5).build().state_dict()

    threads = [threading.Thread(target=build, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for state in found.values():
        assert all(torch.equal(value, alone[name]) for name, value in state.items())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_settings_of_pytorch_come_back_when_the_last_one_leaves():
    before = torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()
    assert all(before)
    inside, leave = threading.Event(), threading.Event()

    def other():
        with unfused():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with step_by_step():
        thread.start()
        inside.wait(10)
    assert not torch.backends.mha.get_fastpath_enabled(), "the other one is still there"
    leave.set()
    thread.join()
    after = torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()
    assert after == before
    with pytest.raises(KeyError), unfused():
        raise KeyError
    assert torch.backends.mha.get_fastpath_enabled()


def test_the_blueprint_of_a_module_is_a_function_of_its_examples_shapes():
    module = seeded(lambda: MODULES["convnet"](3))
    first, second = (blueprint_of(ModuleSource(module), images(seed=seed)) for seed in (0, 1))
    assert first.trace == second.trace
    assert first.architecture == second.architecture
    two = blueprint_of(ModuleSource(module), images(n=2))
    assert two.trace == first.trace


# Scales


def shared():
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(6, 2))


def hooked():
    module = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    module[1].register_forward_hook(lambda layer, args, output: output + 1)
    return module


def frozen():
    module = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    module[0].weight.requires_grad_(False)
    return module


class Odd(nn.Linear):
    def forward(self, x):
        return super().forward(x) ** 2


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(self.a(x).relu() if bool((x < 100).all()) else self.a(x).tanh())


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 4), nn.Linear(4, 2), nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.b(self.a(x).relu() + self.c)


CHAINS = {
    "perceptron": (flat_perceptron, ("1", "3", "5")),
    "nested": (
        lambda: nn.Sequential(nn.Sequential(nn.Linear(6, 4), nn.ReLU()), nn.Linear(4, 2)),
        ("0.0", "1"),
    ),
    "batch norm": (lambda: flat_perceptron(batch_norm=True), ()),
    "tanh": (lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)), ()),
    "not a sequence": (ConvNet, ("conv1", "conv2", "fc1", "fc2")),
    "with batch norm": (lambda: ConvNet(batch_norm=True), ()),
    "residual": (ResidualNet, ()),
    "a sequence of its own": (
        lambda: type("Own", (nn.Sequential,), {})(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)),
        ("0", "2"),
    ),
    "cut off": (lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU6(), nn.Linear(4, 2)), ()),
    "softened": (lambda: nn.Sequential(nn.Linear(6, 4), nn.Softplus(), nn.Linear(4, 2)), ()),
    "normalised": (lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 2)), ()),
    "looks at values": (Branching, ()),
    "a parameter of another kind": (Scaled, ()),
    "a layer after the last": (
        lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2), nn.LeakyReLU()),
        (),
    ),
    "one layer": (lambda: nn.Linear(6, 2), ()),
    "a layer twice": (shared, ()),
    "hooks": (hooked, ()),
    "frozen": (frozen, ()),
    "subclass": (lambda: nn.Sequential(Odd(6, 4), nn.ReLU(), nn.Linear(4, 2)), ()),
    "reparametrised": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 2)), nn.ReLU()),
        (),
    ),
}


def chain_found(module, X):
    pretraining_mode(module)
    examples = torch.from_numpy(X[:4].astype(np.float32))
    return chain_of(module, trace(module, examples), examples)


@pytest.mark.parametrize("name", CHAINS)
def test_where_a_scale_is_handed_on(name):
    make, expected = CHAINS[name]
    module = make()
    state = {key: value.clone() for key, value in module.state_dict().items()}
    takes_rows = {tuple(p.shape) for p in module.parameters()} & {(4, 6), (6, 6), (2, 6)}
    X = rows() if takes_rows else images()
    assert chain_found(module, X) == expected
    for key, value in module.state_dict().items():
        assert torch.equal(value, state[key])


def test_a_scale_is_handed_on_indeed():
    module = nn.Sequential(nn.Linear(6, 5), nn.LeakyReLU(), nn.Linear(5, 4), nn.ReLU())
    module.append(nn.Linear(4, 3)).double()
    assert chain_found(module.float(), rows()) == ("0", "2", "4")
    module.double()
    X = torch.from_numpy(rows()).double()
    before = module(X)
    with torch.no_grad():
        for layer, factor, total in ((module[0], 2.0, 2.0), (module[2], 3.0, 6.0)):
            layer.weight *= factor
            layer.bias *= total
        module[4].weight /= 6.0
    torch.testing.assert_close(module(X), before)


# Modules that cannot be made or copied


def used_weight_norm():
    with pytest.warns(FutureWarning, match="weight_norm"):
        module = nn.utils.weight_norm(nn.Linear(6, 3))
    module(torch.zeros(2, 6))
    return module


def used_spectral_norm():
    module = nn.utils.spectral_norm(nn.Linear(6, 3))
    module(torch.zeros(2, 6))
    return module


def on_meta():
    return nn.Sequential(nn.Linear(6, 3, device="meta"))


WRONG = {
    "meta": (on_meta, "'0.weight' of the module Sequential is on the meta device"),
    "weight norm": (used_weight_norm, "Linear cannot be copied.*parametrizations"),
    "spectral norm": (used_spectral_norm, "Linear cannot be copied.*parametrizations"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_copied_is_refused_by_name(name):
    make, words = WRONG[name]
    module = make()
    for learn in (
        lambda: MMDInitializer(module=module).fit(rows(20)),
        lambda: NetClassifier(module).fit(rows(20), np.arange(20) % 3),
    ):
        with pytest.raises(ValueError, match=words):
            learn()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_compiled_script_is_refused():
    script = torch.jit.trace(nn.Linear(6, 3), torch.zeros(2, 6))
    for learner in (MMDInitializer(module=script), NetClassifier(script)):
        with pytest.raises(ValueError, match="module must be written in Python, got the TorchScr"):
            learner.fit(rows(20), np.arange(20) % 3)
