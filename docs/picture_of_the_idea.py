"""Draws ``_static/idea.png``, the picture in README: ``python docs/picture_of_the_idea.py``."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import TSNE
from sklearn.neighbors import kneighbors_graph

from sklearn_mmdinit import MMDInitializer

PATH = Path(__file__).parent / "_static" / "idea.png"
COLORS, GREY = plt.get_cmap("tab10").colors, "0.6"

X, y = load_digits(return_X_y=True)
X = X / 16
init = MMDInitializer((64, 64), n_classes=10, coherence="auto", random_state=0)
features = init.fit_transform(X)  # no labels
rng = np.random.default_rng(0)
labelled = [rng.choice(np.flatnonzero(y == digit)) for digit in range(10)]


def classes(rows):
    """The class of every example, by a label of each class."""
    return LogisticRegression(C=100).fit(rows[labelled], y[labelled]).predict(rows)


by_pixels, by_features = (100 * (classes(rows) == y).mean() for rows in (X, features))
print(f"accuracy with one label of each class: {by_features:.1f}, from pixels {by_pixels:.1f}")

flat, deep = (TSNE(init="pca", random_state=0).fit_transform(rows) for rows in (X, features))
fig, axes = plt.subplots(1, 3, figsize=(9.6, 3.4), layout="constrained")
links = np.argwhere(kneighbors_graph(X, 3))
axes[0].add_collection(LineCollection(flat[links], colors="0.8", linewidths=0.4, zorder=0))
axes[0].set_title("1. Images without labels;\nsimilar ones are linked", fontsize=11)
axes[1].set_title("2. Pre-training gives linked\nimages similar features", fontsize=11)
right = f"{by_features:.0f} % are\nright, with pixels as features {by_pixels:.0f} %"
axes[2].set_title(f"3. Ten labels classify all: {right}", fontsize=11)
for ax, points in zip(axes, (flat, deep, deep), strict=True):
    colors = [COLORS[digit] for digit in classes(features)] if ax is axes[2] else GREY
    ax.scatter(*points.T, c=colors, s=3)
    ax.set(xticks=[], yticks=[])
for digit, number in enumerate(labelled):
    axes[2].plot(*deep[number], "o", ms=11, mfc=COLORS[digit], mec="black")
    axes[2].text(
        *deep[number], str(digit), size=8, color="white", ha="center", va="center_baseline"
    )
fig.savefig(PATH, dpi=130)
