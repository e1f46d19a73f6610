"""mmd_init_ on a stream: an epoch is a pass over a loader, and no row is kept."""

import itertools
import random
import re
import weakref

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils import check_random_state
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from helpers import seeded, threads
from nets import Conv, digit_images
from sklearn_mmdinit import Coherence, mmd_init_
from sklearn_mmdinit._base.random_streams import permutation
from test_checkpoint import at_most

SMALL = {"n_perturbations": 4, "batch_size": 16, "max_iter": 2, "random_state": 0}
# Coherence alone, for training that is quick.
ALONE = {"random_state": 0}
X, Y = digit_images(64)
IMAGES = torch.from_numpy(X)
TWO = TensorDataset(IMAGES, IMAGES)


@pytest.fixture(autouse=True)
def windows_of_six_steps(window):
    window(6)  # two in a training with coherence would be judged


def net():
    return seeded(lambda: Conv(n_classes=3, width=4))


def perceptron():
    return seeded(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    )


def learned(data, module=None, **params):
    module = net() if module is None else module
    history = mmd_init_(module, data, **(SMALL | params))
    return history, {name: value.clone() for name, value in module.state_dict().items()}


def assert_same(a, b):
    assert a[0] == b[0]
    torch.testing.assert_close(a[1], b[1], rtol=0, atol=0)


class Stream(IterableDataset):
    """What a function of the number of the pass gives, of so many items at most."""

    def __init__(self, examples, n_items=64):
        self.examples, self.n_items, self.n_passes = examples, n_items, 0

    def __len__(self):
        return self.n_items

    def __iter__(self):
        self.n_passes += 1
        yield from self.examples(self.n_passes - 1)


class Unsized(Stream):
    __len__ = None


def noisy(x):
    return x + 0.2 * torch.randn(x.shape)


class Views(Dataset):
    """Two noisy views of each image, with its label."""

    def __init__(self, images=IMAGES, labels=Y):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return noisy(self.images[i]), noisy(self.images[i]), self.labels[i]


class Drawing(Dataset):
    """Images with noise from every generator that a user may draw from."""

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        noise = random.random() + np.random.random() + float(torch.rand(()))  # noqa: NPY002
        return IMAGES[i] + noise, 0


def test_a_loader_in_the_order_of_fit_is_the_same_training():
    seed = int(check_random_state(0).randint(np.iinfo(np.int32).max))
    stream = Stream(lambda epoch: IMAGES[permutation(seed, epoch, len(X))])
    assert_same(learned(DataLoader(stream, 32)), learned(X))
    assert stream.n_passes == 2, "the pass that describes the data is the first epoch"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    "options",
    [{}, {"generator": torch.Generator()}, {"num_workers": 2}],
    ids=["plain", "own generator", "workers"],
)
@pytest.mark.parametrize("data", [Drawing(), Views()], ids=["one view", "two views"])
def test_one_seed_gives_the_same_weights_and_leaves_generators_alone(data, options):
    params = {"coherence": Coherence(), "views": 2} if isinstance(data, Views) else {}
    loader = DataLoader(data, 16, shuffle=True, **options)
    own = options.get("generator", torch.default_generator)
    found = []
    for seed in (0, 0, 1):
        torch.rand(1), random.random(), np.random.random()  # noqa: NPY002
        before = torch.get_rng_state(), random.getstate(), own.get_state()
        found.append(learned(loader, **params, random_state=seed))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]
        assert torch.equal(own.get_state(), before[2])
    assert_same(*found[:2])
    assert found[1][0] != found[2][0]


WALKS = Coherence(n_neighbors=3, batch_size=16)
RING = Coherence(graph=csr_array(np.roll(np.eye(len(X)), 1, axis=1)), batch_size=16)


def test_what_hands_out_examples_is_read_as_an_array_where_a_graph_needs_it():
    data, stream = TensorDataset(IMAGES, torch.zeros(64)), Stream(lambda epoch: IMAGES)
    expected = learned(X, coherence=WALKS)
    for same in (data, DataLoader(data, 20), stream, DataLoader(stream, 16)):
        assert_same(learned(same, coherence=WALKS), expected)
    for params in ({}, {"coherence": RING}):
        assert_same(learned(data, **params), learned(X, **params))
    drawn, _, before = learned(Drawing()), torch.rand(1), torch.get_rng_state()
    assert_same(learned(Drawing()), drawn)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_stream_with_a_length_is_the_same_training_as_its_dataset():
    data = TensorDataset(*[noisy(IMAGES[:60]) for _ in range(2)])
    params = {"coherence": Coherence(), "views": 2, "max_iter": 4}
    whole = learned(DataLoader(data, 16), **params)
    assert whole[0][-1]["step"] == 12, "the fourth mini-batch is incomplete"
    assert_same(learned(DataLoader(Stream(lambda epoch: iter(data)), 16), **params), whole)


def test_passes_may_differ_in_length(window):
    window(1)
    stream = Stream(lambda epoch: IMAGES[: 64 - 16 * (epoch == 1)])
    assert learned(DataLoader(stream, 16), max_iter=3)[0][-1]["step"] == 11
    window(3)  # epochs of one step, then of four
    stream = Stream(lambda epoch: IMAGES[: 64 if epoch else 16])
    assert [r["step"] for r in learned(DataLoader(stream, 16), max_iter=3)[0]] == [1, 6, 9]


def endless(epoch):
    while True:
        x = IMAGES[torch.randint(len(X), (8,))]
        yield noisy(x), noisy(x)


@pytest.mark.filterwarnings("ignore:Pre-training has not converged")
@pytest.mark.parametrize(
    "params",
    [{}, {"coherence": Coherence(), "views": 2}, {"coherence": WALKS, "max_iter": "auto"}],
    ids=["the paper's objective", "a number of epochs", "a graph"],
)
def test_a_stream_without_end_is_refused_where_training_would_never_return(params):
    with pytest.raises(
        ValueError, match="may never end; let its dataset or sampler define __len__"
    ):
        learned(DataLoader(Unsized(endless), batch_size=None), **params)


def test_a_stream_without_end_is_learned_from_until_coherence_stops_falling(window):
    window(50)
    params = ALONE | {"coherence": "auto", "views": 2, "max_iter": "auto"}
    data = DataLoader(Unsized(endless), batch_size=None)
    # More epochs would not make a longer training of a stream whose first one never ends.
    with pytest.warns(ConvergenceWarning, match="try max_iter=1 and a loader with a __len__ of"):
        assert learned(data, perceptron(), **params)[0][-1]["step"] >= 2900


def test_no_more_rows_are_kept_than_describe_the_data():
    alive, most = weakref.WeakSet(), []

    def batches(epoch):
        for number in range(60):
            alive.add(batch := torch.randn(128, 1, 8, 8))
            most.append((number, len(alive)))
            yield batch

    params = {"batch_size": 128, "detachment_weight": 0, "max_iter": 1}
    learned(DataLoader(Stream(batches, 60), batch_size=None), **params)
    assert max(n for number, n in most) <= 2048 // 128 + 3
    assert max(n for number, n in most if number > 20) <= 4


@pytest.mark.filterwarnings("ignore:Pre-training has not converged")
def test_two_views_teach_what_is_alike_without_a_graph(window):
    window(9)
    images, labels = digit_images(600)
    loader = DataLoader(Views(torch.from_numpy(images), labels), 64, shuffle=True)
    body = (module := perceptron())[:3]
    history = mmd_init_(module, loader, views=2, coherence=Coherence(), max_iter=30, **ALONE)
    assert history[-1]["coherence"] < 0.6 * history[0]["coherence"]
    accuracies = []
    for features in (perceptron()[:3], body):
        H = features(torch.from_numpy(images)).detach().numpy()
        few = KNeighborsClassifier(1).fit(H[:30], labels[:30])
        accuracies.append(few.score(H[30:], labels[30:]))
    assert accuracies[1] > accuracies[0] + 0.03


def test_what_follows_the_examples_or_views_is_not_used():
    a, b = (noisy(IMAGES) for _ in range(2))
    coherent = {"coherence": Coherence(n_neighbors=3), "views": 2}
    expected, one = learned(DataLoader(TensorDataset(a, b), 16), **coherent), learned(a)
    graph = learned(a, coherence=Coherence(n_neighbors=3))
    assert expected[0] != graph[0]
    for others in ([torch.zeros(64)], [torch.zeros(64, 1, 8, 8)], [b, torch.zeros(64).long()]):
        loader = DataLoader(TensorDataset(a, b, *others), 16)
        assert_same(learned(loader, **coherent), expected)
        nested = [((x, y), *rest) for x, y, *rest in TensorDataset(a, b, *others)]
        assert_same(learned(DataLoader(nested, 16), **coherent), expected)
        loader = DataLoader(TensorDataset(a, *others), 16)
        assert_same(learned(loader, coherence=Coherence(n_neighbors=3)), graph)
        assert_same(learned(TensorDataset(a, *others)), one)


def test_augmentations_change_both_views_and_without_a_graph_pair_an_example_with_itself():
    two, one = Coherence(augmentation=noisy), Coherence(n_neighbors=0, batch_size=16)
    pairs = DataLoader(TWO, 16)
    expected = learned(pairs, coherence=two, views=2)
    assert_same(learned(pairs, coherence=two, views=2), expected)
    assert learned(pairs, coherence=Coherence(), views=2)[0] != expected[0]
    params = {"coherence": one.set_params(augmentation=noisy)}
    labelled = DataLoader(TensorDataset(IMAGES, torch.zeros(64)), 16)
    assert_same(learned(labelled, **params), expected)
    assert_same(learned(TensorDataset(IMAGES), **params), learned(X, **params))


def test_a_module_keeps_its_precision_its_layout_and_its_mode():
    loader = DataLoader(IMAGES, 16)
    expected = learned(loader)
    last = net().to(memory_format=torch.channels_last).double().eval()
    last.drop.train()
    history, weights = learned(loader, last)
    assert [part.training for part in last.modules()] == [False, False, False, True, False]
    assert last.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert history[-1]["loss"] == pytest.approx(expected[0][-1]["loss"], rel=1e-4)
    for name, value in expected[1].items():
        torch.testing.assert_close(weights[name], value.double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("make", [perceptron, net])
@pytest.mark.parametrize(
    ("data", "views"), [(IMAGES, 1), (DataLoader(TensorDataset(IMAGES, noisy(IMAGES)), 16), 2)]
)
def test_under_autocast_passes_have_its_precision_and_losses_and_weights_their_own(
    make, data, views
):
    params = {"views": views} | {"coherence": Coherence(augmentation=noisy, batch_size=16)}
    (before, expected), module, seen = learned(data, make(), **params), make(), set()
    first = next(part for part in module.modules() if isinstance(part, nn.Linear | nn.Conv2d))
    first.register_forward_hook(lambda layer, args, output: seen.add(output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        history, weights = learned(data, module, **params)
        assert torch.is_autocast_enabled("cpu"), "the caller's setting stays"
    assert torch.bfloat16 in seen
    assert history[-1]["loss"] != before[-1]["loss"]
    for means, means_before in zip(history, before, strict=True):
        for name in ("loss", "coherence"):
            assert means[name] == pytest.approx(means_before[name], rel=0.03)
    for name, value in expected.items():
        assert weights[name].dtype == value.dtype


def test_under_autocast_threads_have_the_precision_of_the_caller(window):
    window(1)
    params = {"n_perturbations": 256, "batch_size": 32, "max_iter": 1}
    data, found = DataLoader(IMAGES, 32), []

    def wide():  # gram serves it, and one of its layers has few inputs
        layers = nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 2000), nn.ReLU()
        return nn.Sequential(*layers, nn.Linear(2000, 10))

    for n_threads in (1, 2):
        with threads(n_threads), torch.autocast("cpu", torch.bfloat16):
            found.append(learned(data, seeded(wide), **params)[0][0]["loss"])
    assert found[1] == pytest.approx(found[0], rel=1e-3)
    assert found[0] != learned(data, seeded(wide), **params)[0][0]["loss"]


def test_a_pass_in_the_same_block_of_autocast_has_the_learned_weights():
    module = perceptron()
    with torch.autocast("cpu", torch.bfloat16):
        before = module(IMAGES[:4])
        mmd_init_(module, IMAGES, **SMALL)
        inside = module(IMAGES[:4])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(module(IMAGES[:4]), inside)
    assert not torch.equal(before, inside)


def test_autocast_with_float16_is_refused():
    match = r"float16.*write torch.autocast\('cpu', torch.bfloat16\)"
    with torch.autocast("cpu", torch.float16), pytest.raises(ValueError, match=match):
        mmd_init_(perceptron(), IMAGES, **SMALL)


class Interrupted(TensorDataset):
    """Pairs; Ctrl-C comes when so many examples have been read."""

    left = 10**9

    def __getitem__(self, i):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return tuple(map(noisy, super().__getitem__(i)))


@pytest.mark.parametrize("shuffled", [True, False])
def test_a_checkpoint_goes_on_inside_a_pass(shuffled, tmp_path, window):
    # More rows than are read before training. The last mini-batch of each pass is incomplete.
    rows = torch.randn(2, 2200, 4, generator=torch.Generator().manual_seed(0))
    pairs = Interrupted(*rows)

    def loader():
        in_order = Stream(lambda epoch: (pairs[i] for i in range(len(pairs))), len(pairs))
        return DataLoader(pairs, 1000, shuffle=True) if shuffled else DataLoader(in_order, 1000)

    def module():
        return seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))

    window(3)  # of six steps
    params = ALONE | {"coherence": Coherence(), "views": 2, "max_iter": 3}
    expected = learned(loader(), module(), **params)
    params["checkpoint"], pairs.left = tmp_path / "a.safetensors", 2 * 2200 + 1
    with pytest.raises(KeyboardInterrupt):
        learned(loader(), module(), **params)
    pairs.left = 10**9
    with at_most(3):
        assert_same(learned(loader(), module(), **params), expected)


def test_a_checkpoint_of_one_view_is_not_one_of_two(tmp_path):
    params = {"coherence": Coherence(n_neighbors=0, augmentation=noisy), "max_iter": 1}
    params["checkpoint"], pairs = tmp_path / "a.safetensors", DataLoader(TWO, 16)
    learned(pairs, **params)
    with pytest.raises(ValueError, match="of another training"):
        learned(pairs, views=2, **params)


PAIRS, PCA_GRAPH = {"coherence": "auto", "views": 2}, Coherence(embedding=PCA(2))
NO_STREAM = {
    "a DataLoader, got a generator": (x for x in IMAGES.split(16)),
    "or a DataLoader, got a _Single": iter(DataLoader(IMAGES, 16)),
    r"dict_values;.* DataLoader\(dataset, batch_size=None": {0: IMAGES[:16]}.values(),
    r"got {'image': 'torch.float32 \[1, 1, 8, 8\]'}.*collate_fn returns": DataLoader(
        [{"image": IMAGES[0]}]
    ),
    r"got \[{'image': 'torch.float32 .*'}, 'torch.int64": DataLoader([({"image": IMAGES[0]}, 0)]),
    "got a dict; wrap a loader of another kind": {"image": IMAGES},
    "got NoneType.*collate_fn": DataLoader(IMAGES, 16, collate_fn=lambda items: None),
}
LEFT = iter(IMAGES)
NO_EXAMPLES = {
    "ran out .*epoch 2 .*let __iter__ .* return a new iterator": DataLoader(
        Stream(lambda epoch: LEFT), 16
    ),
    "gives no examples": DataLoader(Stream(lambda _: []), 16),
    "Stream cannot be read": Stream(lambda _: []),
    "TensorDataset cannot be read": TensorDataset(IMAGES[:0]),
    "mini-batches of one example.*DataLoader": DataLoader(IMAGES),
    "no examples; with drop_last=True .*fewer than": DataLoader(IMAGES, 100, drop_last=True),
    "Input X contains infinity": DataLoader(IMAGES / 0, 16),
}
NESTED = DataLoader([(((IMAGES[0], IMAGES[0]), 0), 0)], 1)
OF_TWO_SIZES = DataLoader(TensorDataset(IMAGES, IMAGES[..., 1:]), 16)
REFUSED = [
    *((data, {}, TypeError, words) for words, data in NO_STREAM.items()),
    *((data, {}, ValueError, words) for words, data in NO_EXAMPLES.items()),
    (Stream(None), {"max_iter": -1}, ValueError, "max_iter"),  # and not after a long reading
    (DataLoader(IMAGES, 16), {"coherence": RING}, ValueError, "pass its Dataset"),
    (NESTED, PAIRS, TypeError, r"must give \(a, b, ...\).*got \[\['torch.float32 \[1, 1, 8, 8\]"),
    (OF_TWO_SIZES, PAIRS, TypeError, r"dtype, got .*\[16, 1, 8, 8\].*\[16, 1, 8, 7\]"),
    (DataLoader(IMAGES, 16), PAIRS, TypeError, r"\(a, b, ...\).*got torch.float32 \[16, 1"),
    (
        DataLoader(TWO, 16),
        {"views": 3},
        ValueError,
        r"views must be an int in the range \[1, 2\], got 3",
    ),
    (DataLoader(TWO, 16), {"views": 2}, ValueError, "coherence='auto'"),
    (TWO, PAIRS, ValueError, r"DataLoader\(dataset, 256, shuffle=True"),
    (DataLoader(TWO, 16), PAIRS | {"coherence": PCA_GRAPH}, ValueError, "leave out embedding"),
]


@pytest.mark.parametrize(("data", "params", "kind", "words"), REFUSED)
def test_what_is_no_stream_is_named(data, params, kind, words):
    with pytest.raises(kind) as caught:
        learned(data, **params)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert re.search(f"(?s){words}", told)


@pytest.mark.parametrize("params", [{}, {"coherence": Coherence(n_neighbors=3), "max_iter": 2}])
def test_a_pass_ends_with_the_length_that_the_loader_names(params):
    data = Stream(lambda number: itertools.cycle(IMAGES))
    history, _ = learned(DataLoader(data, 16), perceptron(), **params)
    assert history[-1]["step"] <= 8


def test_a_short_first_mini_batch_does_not_set_the_size_of_all():
    def batches(number):
        yield IMAGES[:3]
        yield from IMAGES[3:].split(16)

    history, _ = learned(DataLoader(Stream(batches), batch_size=None), max_iter=1)
    assert history[-1]["step"] == 3
