"""
What a start is
===============

What is near a start? Take it, change the last layer a little at random: predictions move. A label
then says something of those rows whose predictions move together with its own. Here are two moons
without any label. The star is a row that may get one; the colour of another row is how much its
predictions move with those of the star.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit.diagnostics import coherence_kernel

X = StandardScaler().fit_transform(make_moons(400, noise=0.06, random_state=0)[0])

# %%
# Three starts of one network: its random weights (no epoch), the paper's objective,
# and the paper's objective with coherence.
network = {"hidden_layer_sizes": (64, 64), "n_perturbations": 32, "random_state": 0}
starts = {
    "fresh weights": MMDInitializer(max_iter=0, **network),
    "the paper's objective": MMDInitializer(max_iter=20, **network),
    "with coherence": MMDInitializer(max_iter=200, coherence="auto", **network),
}

# %%
# From fresh weights the predictions of all rows move together: a label on one says the same of
# every other. The paper's objective changes little in that. With coherence it is the rows along
# the same stretch of a moon that go together. At the ends, which lie in the bend of the other moon,
# the network takes some rows there for its own.
anchors = [60, 200, 1, 10]
fig, axes = plt.subplots(3, 4, figsize=(9, 6.2), layout="constrained")
for (name, init), row in zip(starts.items(), axes, strict=True):
    C = coherence_kernel(init.fit(X), X)
    for ax, anchor in zip(row, anchors, strict=True):
        points = ax.scatter(*X.T, c=C[anchor], s=6, cmap="viridis", vmin=0, vmax=1)
        ax.plot(*X[anchor], "*", color="red", markersize=11, markeredgecolor="white")
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
fig.colorbar(points, ax=axes, label="predictions move together")
plt.show()
