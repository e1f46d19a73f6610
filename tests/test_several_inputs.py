"""Modules of several inputs: a dict or a tuple of arrays, in whatever learns from rows."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from skorch.helper import SliceDict
from torch import nn
from torch.utils.data import DataLoader

from helpers import seeded
from nets import assert_same_arrays
from sklearn_mmdinit import Coherence, MLPClassifier, MMDInitializer, NetClassifier, mmd_init_

N = 80
DIGITS = load_digits()
IMAGES, Y = DIGITS.images[:N, None] / 16 - 0.3, DIGITS.target[:N] % 3
WORDS = (DIGITS.data[:N, 20:24] // 4).astype(int)
BOTH = {"words": WORDS, "image": IMAGES}
SHORT = {"n_perturbations": 8, "batch_size": 16, "max_iter": 2, "random_state": 0}


class Both(nn.Module):
    """An image and four words, which it takes by name."""

    def __init__(self):
        super().__init__()
        self.conv, self.table = nn.Conv2d(1, 4, 3), nn.Embedding(5, 6)
        self.last = nn.Linear(4 * 36 + 6, 3)

    def forward(self, image, words):
        seen = torch.relu(self.conv(image)).flatten(1)
        return self.last(torch.cat([seen, self.table(words).mean(dim=1)], dim=1))


class SideBySide(Both):
    """The same of one array, taken apart inside: the way around."""

    def forward(self, x):
        return super().forward(x[:, 4:].view(-1, 1, 8, 8), x[:, :4].long())


class ByPlace(Both):
    """The same of a tuple."""

    def forward(self, words, image):
        return super().forward(image, words)


class OneTuple(Both):
    """The same with the tuple as its one argument, as skorch hands it."""

    def forward(self, both):
        words, image = both
        return super().forward(image, words)


ONE = np.concatenate([WORDS, IMAGES.reshape(N, -1)], axis=1)


@pytest.mark.parametrize("coherence", [None, Coherence(n_neighbors=3, batch_size=16)])
@pytest.mark.parametrize("sampler", ["auto", "functional"])
def test_learned_is_what_one_array_taken_apart_inside_would_give(coherence, sampler):
    params = {**SHORT, "coherence": coherence, "sampler": sampler}
    want = MMDInitializer(module=seeded(SideBySide), **params).fit(ONE)
    init = MMDInitializer(module=seeded(Both), **params)
    init.fit({"words": WORDS, "image": torch.tensor(IMAGES)})
    assert_same_arrays(init.theta0_, want.theta0_)
    for kind in (ByPlace, OneTuple):
        by_place = MMDInitializer(module=seeded(kind), **params).fit((WORDS, IMAGES))
        assert_same_arrays(by_place.theta0_, want.theta0_)
    assert init.score(BOTH) == want.score(ONE)
    assert init.score(dict(reversed(BOTH.items()))) == want.score(ONE), "names count, not order"
    again = pickle.loads(pickle.dumps(init))
    hidden = again.set_params(output="hidden").transform(BOTH)
    assert np.array_equal(hidden, want.set_params(output="hidden").transform(ONE))


class Masked(nn.Module):
    """Attention to what a mask of truth values lets through."""

    def __init__(self):
        super().__init__()
        self.inputs, self.last = nn.Linear(3, 24), nn.Linear(8, 3)

    def forward(self, x, keep):
        q, k, v = self.inputs(x).chunk(3, dim=-1)
        mask = keep[:, None, :]
        seen = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.last(seen[:, 0])


def test_truth_values_stay_what_they_are():
    rng = np.random.default_rng(0)
    X = {"x": rng.normal(size=(N, 5, 3)), "keep": np.arange(5) <= rng.integers(5, size=(N, 1))}
    init = MMDInitializer(module=seeded(Masked), **SHORT, output="hidden").fit(X)
    clf = NetClassifier(warm_start_from=init, max_iter=1, random_state=0).fit(X, Y)
    by_hand = clf.module_.eval()(torch.tensor(X["x"]).float(), torch.tensor(X["keep"]))
    assert np.allclose(by_hand.softmax(1).detach(), clf.predict_proba(X), atol=1e-6)
    with pytest.raises(ValueError, match=r"X\['keep'\] must hold truth values, as it did in fit"):
        clf.predict(X | {"keep": X["keep"].astype(int)})


def test_a_module_in_place_and_one_handed_out_are_called_as_ever():
    net = seeded(Both)
    mmd_init_(net, BOTH, **SHORT)
    module = MMDInitializer(module=seeded(Both), **SHORT).fit(BOTH).to_module()
    for own in (net, module):
        assert not own._forward_pre_hooks
        assert own(torch.tensor(IMAGES).float(), torch.tensor(WORDS)).shape == (N, 3)
    assert torch.equal(net.last.weight, module.last.weight)


@pytest.mark.parametrize("coherence", [None, Coherence(n_neighbors=3, batch_size=16)])
def test_a_data_loader_hands_them_out(coherence):
    words, images = torch.tensor(WORDS), torch.tensor(IMAGES)
    by_name = [({"words": w, "image": i}, 0) for w, i in zip(words, images, strict=True)]
    by_place = [((w, i), 0) for w, i in zip(words, images, strict=True)]
    params = {**SHORT, "coherence": coherence}
    del params["batch_size"]
    want = mmd_init_(seeded(SideBySide), DataLoader(torch.tensor(ONE), 16), **params)
    for kind, data in ((Both, by_name), (ByPlace, by_place)):
        assert mmd_init_(seeded(kind), DataLoader(data, 16), **params) == want
    short = by_name[:40] + [({"words": words[0]}, 0)] * 16
    with pytest.raises(ValueError, match=r"fit saw the inputs 'words' \(4,\)|KeyError: 'image'"):
        mmd_init_(seeded(Both), DataLoader(short, 8), **params)


@pytest.mark.parametrize(("kind", "X"), [(Both, BOTH), (ByPlace, (WORDS, IMAGES))])
def test_a_classifier_takes_them_with_all_that_goes_with_it(kind, X):
    init = MMDInitializer(module=seeded(kind), **SHORT)
    clf = NetClassifier(warm_start_from=init, max_iter=2, validation_split=(X, Y), random_state=0)
    clf.fit(X, Y, X_unlabelled=BOTH if kind is Both else (X,))
    twice = np.concatenate([ONE, ONE])
    want = clone(init).set_params(module=seeded(SideBySide)).fit(twice, Y)
    assert_same_arrays(clf.theta0_, want.theta0_)
    proba = clf.predict_proba(X)
    by_name = {"words": torch.tensor(WORDS), "image": torch.tensor(IMAGES).float()}
    by_hand = clf.module_.eval()(**by_name)
    assert np.allclose(by_hand.softmax(1).detach(), proba, atol=1e-6)
    assert np.array_equal(pickle.loads(pickle.dumps(clf)).predict_proba(X), proba)
    assert clf.partial_fit(X, Y).n_iter_ == 3


def test_folds_of_a_slice_dict():
    clf = NetClassifier(seeded(Both), max_iter=1, random_state=0)
    X = SliceDict(image=IMAGES.astype("float32"), words=WORDS)
    assert cross_val_score(clf, X, Y, cv=2).shape == (2,)


def test_what_is_wrong_is_told_by_name():
    net = seeded(Both)
    for X, words in (
        ({}, "no inputs"),
        (BOTH | {"words": WORDS[1:]}, r"numbers of rows: .*'words': 79, 'image': 80"),
        (BOTH | {"words": WORDS + 2**25}, r"X\['words'\]: holds whole numbers beyond"),
        (BOTH | {"words": np.array(["a"] * N)}, r"X\['words'\]: must be numbers"),
        (BOTH | {"image": IMAGES * np.nan}, "NaN"),
        (BOTH | {"sound": IMAGES}, r"'sound' \(1, 8, 8\).*unexpected keyword argument 'sound'"),
    ):
        for call in (MMDInitializer(module=net, **SHORT).fit, NetClassifier(net).fit):
            with pytest.raises(ValueError, match=words):
                call(X, Y)
    init, clf = MMDInitializer(module=net, **SHORT).fit(BOTH), NetClassifier(net).fit(BOTH, Y)
    for call in (init.score, clf.predict):
        for X, words in (
            (ONE, "X is one array, fit saw the inputs 'words'"),
            ({"words": WORDS}, r"X has the inputs 'words' \(4,\), fit saw the inputs"),
            (BOTH | {"words": WORDS + 0.5}, r"X\['words'\] must hold whole numbers"),
        ):
            with pytest.raises(ValueError, match=words):
                call(X)
    with pytest.raises(ValueError, match="fit saw one array"):
        NetClassifier(seeded(SideBySide)).fit(ONE, Y).predict(BOTH)
    with pytest.raises(ValueError, match="a Pipeline hands one array on"):
        init.transform(BOTH)
    for kind in (MLPClassifier, MMDInitializer):
        with pytest.raises(ValueError, match="and a perceptron takes one"):
            kind((3,)).fit(BOTH, Y)
