"""
Are the initial weights healthy?
================================

The paper warns of two faults, and both can be counted. Perturbed networks may never predict one of
the classes; the second term of the loss prevents this. Hidden units may be zero for every row; the
third term prevents this.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit.diagnostics import dead_neuron_ratio, degenerate_softmax_ratio

X = load_digits().data[:500] / 16 - 0.3
network = {"hidden_layer_sizes": (64, 64, 64), "n_perturbations": 32, "random_state": 0}
starts = {
    "fresh weights": MMDInitializer(max_iter=0, **network),
    "first term alone": MMDInitializer(
        degeneracy_weight=0, detachment_weight=0, max_iter=15, **network
    ),
    "all three terms": MMDInitializer(max_iter=15, **network),
    "and coherence": MMDInitializer(coherence="auto", max_iter=60, **network),
}

# %%
degenerate, dead = {}, {}
for name, init in starts.items():
    init.fit(X)
    found = degenerate_softmax_ratio(init, X, n_batches=20, random_state=0)
    degenerate[name] = found.mean()
    dead[name] = dead_neuron_ratio(init, X).mean()

fig, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
axes[0].barh([*degenerate], [*degenerate.values()])
axes[0].set(title="networks that never predict some class", xlim=(0, 1), xlabel="share")
axes[1].barh([*dead], [*dead.values()], color="C1")
axes[1].set(title="hidden units that are always zero", xlim=(0, 1), xlabel="share")
axes[0].invert_yaxis()
plt.show()
