"""Many files, rows and fits: `pytest -m long tests/test_volume.py`, ten minutes."""

import pickle
import threading

import joblib
import numpy as np
import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from helpers import seeded
from nets import digits
from sklearn_mmdinit import Coherence, MLPClassifier, MMDInitializer, Theta0, mmd_init_

MIB = 2**20
X, Y = digits(400)
SMALL = {"n_perturbations": 4, "max_iter": 1, "random_state": 0}
MODULE = seeded(lambda: nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 3)))
NETWORKS = {
    "perceptron": lambda **own: MMDInitializer((8,), **SMALL, **own),
    "module": lambda **own: MMDInitializer(module=MODULE, **SMALL, **own),
}


class Peak:
    """The most memory of this process's own, mapped files aside, above what it had before."""

    def __enter__(self):
        self._over, self.mib = threading.Event(), 0.0
        self._before = self._now()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self._watch.join()

    def _now(self):
        memory = psutil.Process().memory_info()
        return (memory.rss - memory.shared) / MIB

    def _look(self):
        while not self._over.wait(0.01):
            self.mib = max(self.mib, self._now() - self._before)


def mutated(data, rng):
    """A file with a bit, a byte or a stretch changed, cut out, doubled or cut off."""
    start, stop = sorted(rng.integers(len(data) + 1, size=2))
    stop = min(stop, start + int(rng.integers(1, 17)))
    bit = bytes(byte ^ 1 << int(rng.integers(8)) for byte in data[start : start + 1])
    changed = {
        "bit": bit + data[start + 1 :],
        "bytes": rng.bytes(stop - start) + data[stop:],
        "digit": rng.choice([b"9", b"-", b"]", b'"', b"\0"]) + data[start + 1 :],
        "cut out": data[stop:],
        "doubled": data[start:stop] * 2 + data[stop:],
        "cut off": b"",
    }
    return data[:start] + changed[str(rng.choice(list(changed)))]


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("n", [200, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_changed_file_is_refused_or_loads_the_same(n, kind, tmp_path):
    path, rng = tmp_path / "a.safetensors", np.random.default_rng(n)
    NETWORKS[kind]().fit(X).theta0_.save(path)
    data, whole = path.read_bytes(), Theta0.load(path)
    expected, refusals = pickle.dumps(whole), []
    with Peak() as peak:
        for _ in range(n):
            path.write_bytes(mutated(data, rng))
            try:
                found = Theta0.load(path)
            except ValueError as error:
                refusals.append(str(error))
            else:
                assert pickle.dumps(found) == expected
    assert len(refusals) > 0.9 * n
    assert all(str(path) in refusal for refusal in refusals)
    assert peak.mib < 50


@pytest.mark.long
def test_memory_does_not_grow_with_memmapped_rows(tmp_path):
    path, shape = tmp_path / "rows", (200_000, 784)
    rows = np.memmap(path, np.float32, "w+", shape=shape)
    for start in range(0, len(rows), 20_000):
        rows[start : start + 20_000] = np.random.default_rng(start).random((20_000, 784), "f")
    rows.flush()
    rows = np.memmap(path, np.float32, "r", shape=shape)
    peaks = []
    for n in (2_000, 20_000, 200_000):
        with Peak() as peak:
            MMDInitializer((16,), **SMALL).fit(rows[:n])
        peaks.append(peak.mib)
    assert peaks[2] < peaks[1] + 32, peaks


class Rows(IterableDataset):
    """Mini-batches of random images, or of two views of each."""

    def __init__(self, n, n_views):
        self.n, self.n_views = n, n_views

    def __len__(self):
        return -(-self.n // 512)

    def __iter__(self):
        for start in range(0, self.n, 512):
            images = torch.rand(min(512, self.n - start), 3, 32, 32)
            yield (images, 1 - images)[: self.n_views]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Pre-training has not converged")
@pytest.mark.parametrize(
    ("n_views", "coherence"),
    [(1, None), (2, Coherence()), (1, Coherence(n_neighbors=0, augmentation=nn.Dropout(0.1)))],
    ids=["one view", "two views", "one view twice"],
)
def test_memory_does_not_grow_with_a_stream(n_views, coherence):
    layers = [nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 10)]
    params = {"batch_size": 512, "n_perturbations": 2, "max_iter": 1, "random_state": 0}
    params |= {"detachment_weight": 0, "coherence": coherence}
    peaks = []
    for n in (2_000, 1_000_000):
        with Peak() as peak:
            loader = DataLoader(Rows(n, n_views), batch_size=None)
            mmd_init_(nn.Sequential(*layers), loader, **params)
        peaks.append(peak.mib)
    assert peaks[1] < peaks[0] + 200, peaks


def learned(seed, kind):
    init = NETWORKS[kind]().set_params(random_state=seed).fit(X)
    clf = MLPClassifier((8,), max_iter=2, random_state=seed).fit(X, Y)
    return joblib.hash((init.theta0_.arrays, init.loss_curve_, clf.coefs_))


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("backend", [pytest.param("loky", marks=pytest.mark.long), "threading"])
def test_eight_fits_at_once_equal_eight_in_turn(backend, kind):
    alone = [learned(seed, kind) for seed in range(8)]
    parallel = joblib.Parallel(n_jobs=8, backend=backend, timeout=300)
    for _ in range(2):
        assert parallel(joblib.delayed(learned)(seed, kind) for seed in range(8)) == alone


def test_a_fitted_estimator_does_not_grow_with_the_rows(window):
    window(10_000)
    few, many = np.arange(50), np.tile(np.arange(400), 20)
    for made in (NETWORKS["perceptron"](), MLPClassifier((8,), max_iter=3)):
        sizes = [len(pickle.dumps(made.fit(X[rows], Y[rows] % 2))) for rows in (few, many)]
        assert sizes[1] < sizes[0] + 200
