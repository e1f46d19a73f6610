"""
What learned initial weights are
================================

Change the last layer of a network a little at random, and its predictions change. If the
predictions of two rows change together, a label of one row also says something about the other.
Here are two moons without labels. The star is a row that may get a label. The colour of each other
row shows how much its predictions change together with those of the star: this is the cosine of
the angle between the features of the two rows.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import MMDInitializer

X = StandardScaler().fit_transform(make_moons(400, noise=0.06, random_state=0)[0])

# %%
# One network has three kinds of initial weights: random (no epoch), learned by the paper's
# objective, and learned by the paper's objective with coherence.
network = {"hidden_layer_sizes": (64, 64), "n_perturbations": 32, "random_state": 0}
network["output"] = "hidden"  # transform gives the features
starts = {
    "fresh weights": MMDInitializer(max_iter=0, **network),
    "the paper's objective": MMDInitializer(max_iter=20, **network),
    "with coherence": MMDInitializer(max_iter=200, coherence="auto", **network),
}

# %%
# With fresh weights the predictions of all rows change together to some degree, more so the nearer
# they are, in whichever moon. The paper's objective hardly changes this. With coherence,
# predictions change together along the same part of a moon. The ends of a moon lie in the bend of
# the other moon; there some rows of the other moon change with them.
anchors = [60, 200, 1, 10]
fig, axes = plt.subplots(3, 4, figsize=(9, 6.2), layout="constrained")
for (name, init), row in zip(starts.items(), axes, strict=True):
    C = cosine_similarity(init.fit_transform(X))
    for ax, anchor in zip(row, anchors, strict=True):
        points = ax.scatter(*X.T, c=C[anchor], s=6, cmap="viridis", vmin=0, vmax=1)
        ax.plot(*X[anchor], "*", color="red", markersize=11, markeredgecolor="white")
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
fig.colorbar(points, ax=axes, label="predictions change together")
plt.show()
