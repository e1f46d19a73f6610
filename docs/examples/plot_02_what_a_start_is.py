"""
What a start is
===============

A start is good if whatever you will ask of the network is near it. So take a start, change its
weights a little at random, and look at the functions that come out. Each small picture shows
one: the probability of the first class, over the plane of two moons that have no labels yet.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit.diagnostics import prediction_samples

X = StandardScaler().fit_transform(make_moons(400, noise=0.08, random_state=0)[0])

# %%
# Three starts of one network: its random weights (no pass over the rows), the paper's objective,
# and the paper's objective with coherence.
network = {"hidden_layer_sizes": (64, 64), "n_perturbations": 32, "random_state": 0}
starts = {
    "fresh weights": MMDInitializer(max_iter=0, **network),
    "the paper's objective": MMDInitializer(max_iter=60, **network),
    "with coherence": MMDInitializer(max_iter=120, coherence="auto", **network),
}

# %%
# With coherence a function hardly changes along a moon, and often changes from one to the other:
# a single label on each then says the rest.
steps = np.linspace(-2.2, 2.2, 60)
plane = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
fig, axes = plt.subplots(3, 5, figsize=(9, 5.8), layout="constrained")
for (name, init), row in zip(starts.items(), axes, strict=True):
    init.fit(X)
    functions = prediction_samples(init, plane, n_perturbations=5, random_state=3)[..., 0]
    for ax, function in zip(row, functions, strict=True):
        ax.imshow(
            function.reshape(60, 60), origin="lower", extent=(-2.2, 2.2, -2.2, 2.2),
            cmap="coolwarm", vmin=0, vmax=1,
        )  # fmt: skip
        ax.scatter(*X.T, s=1, color="black")
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
fig.suptitle("Five functions near each start")
plt.show()
