"""
Signals: neighbours by random kernels
=====================================

Two signals of one class rarely have their events at the same time, so that the distance between
them says little. Features of random convolutions do not depend on when something happens. Here they
take twenty lines; for your signals take MiniRocket of the package aeon, as the guide's page on
signals does.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import conv1d

from sklearn_mmdinit import EmbeddingClassifier

# %%
# Each signal has 300 points in time: noise, and somewhere in it one of five calls.
rng = np.random.default_rng(0)
time = np.linspace(0, 1, 50)
calls = {
    "rising": np.sin(2 * np.pi * (2 + 4 * time) * time),
    "falling": np.sin(2 * np.pi * (10 - 4 * time) * time),
    "even": np.sin(2 * np.pi * 9 * time),
    "pulses": np.sign(np.sin(2 * np.pi * 4 * time)),
    "fading": np.sin(2 * np.pi * 6 * time) * np.exp(-4 * time) * 2,
}
y = rng.integers(len(calls), size=500)
signals = 0.3 * rng.normal(size=(len(y), 300))
for signal, label in zip(signals, y, strict=True):
    begin = rng.integers(250)
    signal[begin : begin + 50] += rng.uniform(0.7, 1.3) * [*calls.values()][label]


# %%
# Random kernels, as in ROCKET: of each convolution the share of positive values, and the maximum.
# The leading components of these features are embeddings. Dividing each by a power of its standard
# deviation lets small components count.
def random_kernels(signals, n_kernels=100):
    torch.manual_seed(0)
    x, features = torch.tensor(signals, dtype=torch.float32)[:, None], []
    for dilation in (1, 2, 4, 8):
        weights = torch.randn(n_kernels, 1, 9)
        weights -= weights.mean(dim=2, keepdim=True)
        found = conv1d(x, weights, torch.randn(n_kernels), padding="same", dilation=dilation)
        features += [(found > 0).float().mean(dim=2), found.amax(dim=2)]
    return StandardScaler().fit_transform(torch.cat(features, dim=1).numpy())


kernels = random_kernels(signals)
components = PCA(50, random_state=0).fit_transform(kernels)
embeddings = components / components.std(axis=0) ** 0.8

# %%
# The nearest signals of three others. Those of another class are red.
fig, axes = plt.subplots(6, 4, figsize=(9, 7), sharex=True, sharey=True, layout="constrained")
for half, (name, rows) in enumerate({"distance": signals, "kernels": embeddings}.items()):
    nearest = NearestNeighbors(n_neighbors=4).fit(rows).kneighbors(return_distance=False)
    print(f"neighbours by {name} that share the class: {(y[nearest] == y[:, None]).mean():.0%}")
    for line, row in zip(axes[3 * half :], (0, 2, 4), strict=False):
        for ax, shown in zip(line, [row, *nearest[row, :3]], strict=True):
            ax.plot(signals[shown], color="C0" if y[shown] == y[row] else "C3", linewidth=0.8)
            ax.axis("off")
        line[0].set_title(f"{[*calls][y[row]]}; neighbours by {name}:", fontsize=9, loc="left")
plt.show()

# %%
# Few labels of each class, chosen ten times. The ridge sees the labelled signals alone. These calls
# form clusters; on most real signals the ridge is better from five labels of each class on.
numbers, n_draws = [1, 2, 5, 10], 10
accuracies = {
    name: [] for name in ("EmbeddingClassifier", "ridge", "nearest neighbour by distance")
}
for n in numbers:
    for draw in range(n_draws):
        order = np.random.default_rng(draw).permutation(len(y))
        labelled = np.concatenate([order[y[order] == label][:n] for label in range(len(calls))])
        few = np.full(len(y), -1)
        few[labelled] = y[labelled]
        one_hot = np.eye(len(calls))[y[labelled]]
        guesses = (
            EmbeddingClassifier().fit(embeddings, few).predict(embeddings),
            RidgeCV(np.logspace(-3, 3, 10))
            .fit(kernels[labelled], one_hot)
            .predict(kernels)
            .argmax(1),
            KNeighborsClassifier(1).fit(signals[labelled], y[labelled]).predict(signals),
        )
        for found, guess in zip(accuracies.values(), guesses, strict=True):
            found.append((guess == y)[few < 0].mean())

fig, ax = plt.subplots(layout="constrained")
for name, found in accuracies.items():
    means = np.reshape(found, (len(numbers), n_draws)).mean(axis=1)
    ax.plot(numbers, means, "o-", label=name)
    print(f"{name}: {means.round(2)}")
ax.set(xlabel="labels of each class", ylabel="accuracy on the others", xticks=numbers)
ax.legend()
plt.show()
