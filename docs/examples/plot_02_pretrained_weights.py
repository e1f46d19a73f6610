"""
What pre-training does
======================

Two examples with similar features get similar predictions, so that a label of one also says
something about the other. Here are two moons without labels. The star is an example that may get a
label. The colour of each other example shows the similarity of its features to those of the star:
the cosine of the angle between them.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import MMDInitializer

X = StandardScaler().fit_transform(make_moons(400, noise=0.06, random_state=0)[0])

# %%
# One network with three kinds of weights: random (no epoch), pre-trained by the paper's objective,
# and pre-trained by coherence.
network = {"hidden_layer_sizes": (64, 64), "random_state": 0}
initializers = {
    "random weights": MMDInitializer(max_iter=0, **network),
    "the paper's objective": MMDInitializer(max_iter=20, n_perturbations=32, **network),
    "coherence": MMDInitializer(max_iter=200, coherence="auto", **network),
}

# %%
# With random weights all features are similar to some degree, more so the nearer the examples are,
# in whichever moon. The paper's objective hardly changes this. With coherence, features are similar
# along the same part of a moon. The ends of a moon lie in the bend of the other moon; some examples
# there have features similar to theirs.
anchors = [60, 200, 1, 10]
fig, axes = plt.subplots(3, 4, figsize=(9, 6.2), layout="constrained")
for (name, init), row in zip(initializers.items(), axes, strict=True):
    features = init.fit_transform(X)  # of unit norm
    C = features @ features.T
    for ax, anchor in zip(row, anchors, strict=True):
        points = ax.scatter(*X.T, c=C[anchor], s=6, cmap="viridis", vmin=0, vmax=1)
        ax.plot(*X[anchor], "*", color="red", markersize=11, markeredgecolor="white")
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
fig.colorbar(points, ax=axes, label="similarity of features")
plt.show()
