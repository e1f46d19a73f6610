"""An index that an embedding does not have is named; what else is out of range is not."""

import copy

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from module_zoo import seeded, tokens
from sklearn_mmdinit import MMDInitializer, NetClassifier, mmd_init_
from sklearn_mmdinit.diagnostics import degenerate_softmax_ratio, prediction_samples

EMBEDDINGS = {
    "embedding": lambda: [nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, 2)],
    "max_norm": lambda: [nn.Embedding(7, 3, max_norm=9.0), nn.Flatten(), nn.Linear(6, 2)],
    "bag": lambda: [nn.EmbeddingBag(7, 3), nn.Linear(3, 2)],
    "bag of maxima": lambda: [nn.EmbeddingBag(7, 3, mode="max"), nn.Linear(3, 2)],
}


# The functional sampler has no fast form of the others.
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("row", [0, -1])
@pytest.mark.parametrize("layers", EMBEDDINGS)
def test_an_index_that_an_embedding_does_not_have_is_named_wherever_rows_go(layers, row):
    net = seeded(lambda: nn.Sequential(*EMBEDDINGS[layers]()))
    X = tokens(40, length=2)
    wrong = X.copy()
    wrong[row, 0] = 7
    y = np.arange(40) % 2
    params = {"batch_size": 40, "output": "hidden", "detachment_weight": 0.0}
    init = MMDInitializer(module=net, n_perturbations=4, max_iter=1, random_state=0, **params)
    fitting = [
        lambda: clone(init).fit(wrong),
        lambda: mmd_init_(
            copy.deepcopy(net),
            TensorDataset(torch.from_numpy(wrong)),
            batch_size=40,
            n_perturbations=4,
            max_iter=1,
            detachment_weight=0.0,
        ),
        lambda: NetClassifier(net, max_iter=1, validation_split=None).fit(wrong, y),
    ]
    init.fit(X)
    before = init.theta0_.arrays["0.weight"].copy()
    clf = NetClassifier(net, max_iter=1, validation_split=None).fit(X, y)
    calls = [
        *fitting,
        lambda: init.partial_fit(wrong),
        lambda: init.score(wrong),
        lambda: init.transform(wrong),
        lambda: clf.predict(wrong),
        lambda: degenerate_softmax_ratio(init, wrong, n_batches=1, batch_size=40),
        lambda: prediction_samples(init, wrong, n_perturbations=2),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"an index .* do not have; they have '0' 0 to 6$"):
            call()
    np.testing.assert_array_equal(init.theta0_.arrays["0.weight"], before)


def test_other_index_errors_are_left_alone():
    class Careless(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(7, 3), nn.Linear(3, 2)

        def forward(self, x):
            return self.head(self.table(x[:, 0])) if (x < 6).all() else [][0]

    class Short(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, row):
            return X[:30].tolist()[row]

    X = tokens(40, length=1) % 6
    clf = NetClassifier(Careless(), max_iter=1, validation_split=None).fit(X, np.arange(40) % 2)
    with pytest.raises(IndexError, match="list index out of range"):
        clf.predict(np.full_like(X, 6))
    with pytest.raises(IndexError, match="list index out of range"):
        mmd_init_(Careless(), Short(), n_perturbations=4, max_iter=1, random_state=0)
