"""
The paper's objective at work
=============================

The paper asks that networks near the start give every probability equally often, for every row.
Here are the densities of one class's probability over 1,024 such networks, for four rows, before
and after, and the three terms of the loss on the way.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit.diagnostics import prediction_samples
from sklearn_mmdinit.display import LossCurveDisplay, PredictionDensityDisplay

X = StandardScaler().fit_transform(load_breast_cancer().data)
network = {"hidden_layer_sizes": (64, 64), "n_perturbations": 64, "random_state": 0}
fresh = MMDInitializer(max_iter=0, **network).fit(X)
learned = MMDInitializer(max_iter=20, window=20, **network).fit(X)

# %%
# The dotted line is the uniform law, which the second of each pair is nearer to.
before, after = (prediction_samples(init, X[:4], random_state=0) for init in (fresh, learned))
fig, axes = plt.subplots(1, 4, figsize=(10, 2.8), sharey=True, layout="constrained")
PredictionDensityDisplay.from_predictions(before, after, ax=axes, bins=25)
plt.show()

# %%
# What is minimised, as means over 20 steps each.
LossCurveDisplay.from_estimator(learned)
plt.show()
