"""mmd_init_: what it learns is MMDInitializer's, where it ends is the module itself."""

import copy

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from module_zoo import Routed, Words, rows, seeded, tokens
from protocol.networks import ConvNet, flat_perceptron
from sklearn_mmdinit import Coherence, MMDInitializer, mmd_init_

SMALL = {"n_perturbations": 4, "max_iter": 2, "window": 2, "random_state": 0}


@pytest.fixture(scope="module")
def X():
    return (load_digits().data[:48] / 16 - 0.3).reshape(-1, 1, 8, 8).astype(np.float32)


def net():
    return seeded(lambda: ConvNet(2, 3, batch_norm=True))


def state_of(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_same_state(module, state):
    for name, value in module.state_dict().items():
        assert torch.equal(value, state[name]), name


class Counted(Dataset):
    """Examples one at a time, and how many were asked for between two mini-batches."""

    def __init__(self, X):
        self.X, self.asked = X, []

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        self.asked.append(i)
        return torch.from_numpy(self.X[i]), 0


def test_it_is_what_the_estimator_learns(X):
    module, init = net(), MMDInitializer(module=net(), batch_size=16, **SMALL).fit(X)
    returned = mmd_init_(module, X, batch_size=16, **SMALL)
    assert returned == init.history_
    assert_same_state(module, init.to_module().state_dict())
    other = net()
    mmd_init_(other, torch.from_numpy(X), batch_size=16, **SMALL)
    assert_same_state(other, module.state_dict())


@pytest.mark.parametrize("double", [False, True])
def test_what_is_not_learned_is_as_before(X, double):
    module = net().eval()
    module = module.double() if double else module
    module.drop.train()
    module.conv1.weight.requires_grad_(False)
    seen = []
    module.fc1.register_forward_hook(lambda *args: seen.append(args))
    module.fc1.weight.grad = torch.ones_like(module.fc1.weight)
    modes = [part.training for part in module.modules()]
    ids, before = [id(p) for p in module.parameters()], state_of(module)
    mmd_init_(module, X, batch_size=16, **SMALL)
    assert [part.training for part in module.modules()] == modes
    assert [id(p) for p in module.parameters()] == ids
    assert [p.requires_grad for p in module.parameters()].count(False) == 1
    assert all(p.dtype == (torch.float64 if double else torch.float32) for p in module.parameters())
    assert len(module.fc1._forward_hooks) == 1
    assert not any(len(p._forward_hooks) for p in module.modules() if p is not module.fc1)
    assert bool((module.fc1.weight.grad == 1).all())
    assert torch.equal(module.conv1.weight, before["conv1.weight"])
    changed = [n for n, value in module.state_dict().items() if not torch.equal(value, before[n])]
    assert {"fc2.weight", "norm1.running_mean", "norm1.num_batches_tracked"} <= set(changed)


@pytest.mark.parametrize("coherence", [None, Coherence(n_neighbors=3, batch_size=16)])
def test_statistics_of_a_frozen_normalisation_stay(coherence, X):
    module = net()
    module.norm1.eval().requires_grad_(False)
    before = state_of(module)
    mmd_init_(module, X, batch_size=16, coherence=coherence, **SMALL)
    after = module.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert not any(name.startswith("norm1.") for name in changed)
    assert {"conv1.weight", "norm2.running_mean", "norm2.running_var"} <= changed
    assert (module.training, module.norm1.training) == (True, False)


@pytest.mark.parametrize(
    ("data", "params", "kind"),
    [
        (np.full((8, 1, 8, 8), np.nan, np.float32), {}, ValueError),
        (np.zeros((8, 1, 5, 5), np.float32), {}, ValueError),
        (np.ones((8, 1, 8, 8), np.float32), {"learning_rate_init": 1e30}, ValueError),
        (DataLoader(["a", "b", "c"], 2), {}, TypeError),
    ],
)
def test_after_an_error_the_module_is_unchanged(data, params, kind):
    module = net()
    before = state_of(module)
    with pytest.raises(kind):
        mmd_init_(module, data, **(SMALL | params))
    assert_same_state(module, before)
    assert module.training
    assert not any(len(part._forward_hooks) for part in module.modules())


def loaders(X):
    data = TensorDataset(torch.from_numpy(X), torch.zeros(len(X)))
    yield data
    yield DataLoader(data, 16)
    yield DataLoader(torch.from_numpy(X), 16, shuffle=True)


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("coherence", [None, Coherence(batch_size=16, n_neighbors=5)])
def test_what_hands_out_examples_will_do(which, coherence, X):
    found, state = [], torch.random.get_rng_state()
    params = SMALL | {"coherence": coherence}
    for _ in range(2):
        data, module = list(loaders(X))[which], net()
        history = mmd_init_(module, data, **params)
        found.append((history, module))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert found[0][0] == found[1][0], "orders follow from the seed"
    assert_same_state(found[0][1], found[1][1].state_dict())
    steps = 2 * (len(X) // (32 if which == 0 and coherence is None else 16))
    assert found[0][0][-1]["step"] == 2 * (steps // 2)
    if which < 2 and coherence is not None:
        # All of them, in their order: the same as the array.
        module = net()
        assert mmd_init_(module, X, **params) == found[0][0]


def test_a_dataset_is_read_a_mini_batch_at_a_time(X):
    data = Counted(X)
    mmd_init_(net(), data, **(SMALL | {"batch_size": 16, "max_iter": 1}))
    assert sorted(data.asked) == list(range(48)), "each once: the look at the first ones counts"
    assert data.asked != list(range(48))


def test_smaller_mini_batches_are_left_out(X):
    history = mmd_init_(net(), DataLoader(torch.from_numpy(X), 20), **(SMALL | {"window": 1}))
    assert [record["step"] for record in history] == [1, 2, 3, 4]


class Stream(IterableDataset):
    def __init__(self, X):
        self.X = X

    def __iter__(self):
        yield from torch.from_numpy(self.X)


def test_a_stream_without_an_end_in_sight(X):
    module = net()
    history = mmd_init_(module, Stream(X), batch_size=16, **SMALL)
    assert history[-1]["step"] == 6
    again = mmd_init_(net(), DataLoader(Stream(X), 16), **SMALL)
    assert again == history
    with pytest.raises(ValueError, match=r"learning_rate='cosine' needs to know the steps"):
        mmd_init_(net(), Stream(X), batch_size=16, learning_rate="cosine", **SMALL)
    with pytest.raises(ValueError, match="Stream hands out no examples"):
        mmd_init_(net(), Stream(X[:0]), **SMALL)


def test_a_graph_of_ones_own_needs_the_order_of_its_rows(X):
    ring = csr_array(np.roll(np.eye(len(X)), 1, axis=1))
    params = SMALL | {"coherence": Coherence(graph=ring, batch_size=16)}
    data = torch.from_numpy(X)
    mmd_init_(net(), DataLoader(data, 16), **params)
    with pytest.raises(ValueError, match="sampler may have another"):
        mmd_init_(net(), DataLoader(data, 16, shuffle=True), **params)


def test_whole_numbers():
    module = seeded(Words)
    before = state_of(module)
    mmd_init_(module, torch.from_numpy(tokens(40)), **SMALL)
    assert not torch.equal(module.table.weight, before["table.weight"])
    mmd_init_(seeded(Words), TensorDataset(torch.from_numpy(tokens(40))), **SMALL)


@pytest.mark.parametrize(
    ("arguments", "params", "kind", "words"),
    [
        ((ConvNet, rows()), {}, TypeError, "an instance of nn.Module, got <class"),
        ((Routed(), rows()), {}, ValueError, "'body.router'"),
        ((nn.Linear(6, 2), rows()), {"module": 3}, TypeError, "multiple values for .*'module'"),
        ((nn.Linear(6, 2), rows()), {"no_such": 3}, TypeError, "unexpected parameter 'no_such'"),
        ((nn.Linear(6, 2), rows()), {"activation": "tanh"}, ValueError, "describes a perceptron"),
        (
            (nn.Linear(6, 2), DataLoader(torch.ones(4, 6), 2)),
            {"batch_size": 2},
            ValueError,
            "batch_size is the DataLoader's own",
        ),
        (
            (nn.Linear(6, 2), TensorDataset(torch.ones(4, 6))),
            {"batch_size": "auto"},
            TypeError,
            "batch_size must be an instance of int",
        ),
        (
            (nn.Linear(6, 2), DataLoader([{"x": torch.ones(6)}] * 4, 2)),
            {},
            TypeError,
            "must hand out tensors.*got dict",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, params, kind, words):
    with pytest.raises(kind, match=words):
        mmd_init_(*arguments, **(SMALL | params))


def test_a_plain_training_loop_starts_from_it(X):
    y = torch.from_numpy(load_digits().target[:48] % 2)
    module = seeded(lambda: flat_perceptron(2))
    mmd_init_(module, X, **SMALL)
    start = copy.deepcopy(module)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    for _ in range(30):
        loss = nn.functional.cross_entropy(module(torch.from_numpy(X)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1
    assert not torch.equal(start[1].weight, module[1].weight)


@pytest.mark.parametrize("how", ["shuffle", "sampler", "batch_sampler"])
def test_a_graph_of_ones_own_is_not_paired_with_rows_in_another_order(X, how):
    data = TensorDataset(torch.from_numpy(X))
    some = SubsetRandomSampler(range(len(X)))
    loader = {
        "shuffle": DataLoader(data, 8, shuffle=True),
        "sampler": DataLoader(data, 8, sampler=some),
        "batch_sampler": DataLoader(data, batch_sampler=BatchSampler(some, 8, drop_last=False)),
    }[how]
    ring = csr_array(np.roll(np.eye(len(X)), 1, axis=1))
    coherence = Coherence(graph=ring, batch_size=8)
    with pytest.raises(ValueError, match="a graph of your own needs the rows in its order"):
        mmd_init_(net(), loader, coherence=coherence, **SMALL)
    in_order = BatchSampler(SequentialSampler(range(len(X))), 8, drop_last=False)
    found = [
        mmd_init_(net(), each, coherence=coherence, **SMALL)
        for each in (data, DataLoader(data, 8), DataLoader(data, batch_sampler=in_order))
    ]
    assert found[0] == found[1] == found[2]


def test_a_tensor_of_bfloat16_is_learned_from(X):
    rounded = torch.from_numpy(X).bfloat16()
    assert mmd_init_(net(), rounded, **SMALL) == mmd_init_(net(), rounded.float(), **SMALL)


class Once(IterableDataset):
    """Its iterator is the same each time, so that it is soon at its end."""

    def __init__(self, X):
        self.left = iter(torch.from_numpy(X))

    def __iter__(self):
        return self.left


@pytest.mark.parametrize("n_rows", [16, 48])
def test_a_stream_that_does_not_begin_anew_is_refused(X, n_rows):
    module = net()
    before = state_of(module)
    words = "handed out 0 mini-batches in pass 1, none of 16 .* must begin anew"
    with pytest.raises(ValueError, match=words):
        mmd_init_(module, Once(X[:n_rows]), batch_size=16, **SMALL)
    assert_same_state(module, before)


def test_a_stream_that_cannot_begin_anew_is_whole_in_a_single_pass(X):
    params = SMALL | {"batch_size": 16, "max_iter": 1}
    module, again = net(), net()
    history = mmd_init_(module, Once(X), **params)
    assert mmd_init_(again, Stream(X), **params) == history
    assert_same_state(module, again.state_dict())


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_a_mini_batch_that_is_not_finite_is_named(X, value):
    wrong = X.astype(np.float64)
    wrong[40, 0, 2, 2] = value
    with pytest.raises(ValueError, match=r"NaN or infinity, .* in mini-batch 2"):
        mmd_init_(net(), DataLoader(torch.from_numpy(wrong), 16), **SMALL)


def test_examples_of_another_shape_than_before_are_named(X):
    data = [*torch.from_numpy(X[:32]), *torch.zeros(16, 1, 6, 6)]
    with pytest.raises(
        ValueError, match=r"shape \(1, 6, 6\) in mini-batch 2 .* \(1, 8, 8\) before"
    ):
        mmd_init_(net(), DataLoader(data, 16), **SMALL)
    coherence = Coherence(n_neighbors=3, batch_size=16)
    with pytest.raises(ValueError, match=r"shape \(1, 6, 6\), and of shape \(1, 8, 8\) before"):
        mmd_init_(net(), DataLoader(data, 16), coherence=coherence, **SMALL)


@pytest.mark.parametrize("coherence", [None, Coherence(batch_size=16)])
def test_a_dataset_of_nothing_is_refused(X, coherence):
    with pytest.raises(ValueError, match="TensorDataset hands out no examples"):
        mmd_init_(net(), TensorDataset(torch.zeros(0, 1, 8, 8)), coherence=coherence, **SMALL)


class Precise(nn.Module):
    """In double precision, with numbers that float32 has not."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor(16777217.0, dtype=torch.float64))
        self.layer, self.head = nn.Linear(6, 5), nn.Linear(5, 3)
        self.double()
        self.layer.weight.requires_grad_(False)[0, 0] = 0.1

    def forward(self, x):
        return self.head(self.layer(x).tanh())


def test_what_is_not_learned_is_not_rounded():
    module = seeded(Precise)
    before = state_of(module)
    init = MMDInitializer(module=seeded(Precise), **SMALL).fit(rows(40))
    mmd_init_(module, rows(40), **SMALL)
    for state in (module.state_dict(), init.to_module().state_dict()):
        assert torch.equal(state["count"], before["count"])
        assert torch.equal(state["layer.weight"], before["layer.weight"])
        assert not torch.equal(state["head.weight"], before["head.weight"])
        assert torch.equal(state["head.weight"].float().double(), state["head.weight"])


@pytest.mark.parametrize("coherence", [None, Coherence(n_neighbors=3, batch_size=16)])
def test_learning_has_gradients_wherever_it_is_called(X, coherence):
    params = SMALL | {"coherence": coherence}
    plain, module = net(), net()
    mmd_init_(plain, X, **params)
    with torch.no_grad():
        mmd_init_(module, X, **params)
        assert not torch.is_grad_enabled()
    assert_same_state(module, plain.state_dict())
    with torch.inference_mode(), pytest.raises(RuntimeError, match="inference_mode"):
        mmd_init_(net(), X, **params)


def test_a_default_of_double_precision_changes_nothing(X):
    data = X.astype(np.float64)
    plain, module = net(), net()
    mmd_init_(plain, data, **SMALL)
    torch.set_default_dtype(torch.float64)
    try:
        mmd_init_(module, data, **SMALL)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same_state(module, plain.state_dict())


# EmbeddingBag has the functional sampler, and PyTorch no fast form of it there.
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("make", [nn.Embedding, nn.EmbeddingBag])
def test_sparse_gradients_are_dense_while_it_learns(make):
    def words(sparse):
        table = make(7, 5, sparse=sparse)
        mean = nn.Identity() if make is nn.EmbeddingBag else nn.AvgPool2d((5, 1))
        return nn.Sequential(table, mean, nn.Flatten(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))

    found = []
    for sparse in (False, True):
        found.append(seeded(lambda own=sparse: words(own)))
        mmd_init_(found[-1], tokens(40), **SMALL)
        assert found[-1][0].sparse == sparse
    assert_same_state(found[0], found[1].state_dict())


def test_a_tensor_with_a_graph_is_learned_from(X):
    data = torch.from_numpy(X).requires_grad_()
    for given in (data, data.detach().bfloat16()):
        init = MMDInitializer(module=net(), **SMALL).fit(given)
        assert init.history_ == mmd_init_(net(), given, **SMALL)
