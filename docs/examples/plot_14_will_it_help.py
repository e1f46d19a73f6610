"""
Will it help? Ask before you train
==================================

Coherence helps if neighbours share a label. ``neighbor_agreement`` checks this on a few labels, in
a second. It predicts held-out labels by random walks among all rows, and by a linear model.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn import datasets
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit.diagnostics import neighbor_agreement

sets = {
    name: getattr(datasets, f"load_{name}")(return_X_y=True)
    for name in ("digits", "iris", "wine", "breast_cancer")
}
sets["two moons"] = datasets.make_moons(600, noise=0.1, random_state=0)
# Two classes on the two sides of a plane, in a cloud without a gap.
rng = np.random.default_rng(0)
cloud = rng.normal(size=(600, 20))
sets["a cloud cut by a line"] = cloud, (cloud @ rng.normal(size=20) > 0).astype(int)

# %%
# Ask sixty labels of each set.
found = {}
for name, (X, y) in sets.items():
    known = np.random.default_rng(1).permutation(len(y)) < 60
    rows = StandardScaler().fit_transform(X)
    found[name] = neighbor_agreement(rows, np.where(known, y, -1), random_state=0)
    print(f"{name}: {found[name]}")

# %%
fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
places = np.arange(len(found))
shown = (("neighbors", "neighbours", -0.2), ("linear", "a linear model", 0.2))
for key, label, shift in shown:
    ax.barh(places + shift, [getattr(one, key) for one in found.values()], 0.38, label=label)
ax.set_yticks(places, found)
ax.invert_yaxis()
ax.set(xlabel="held-out labels predicted correctly", xlim=(0, 1))
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
plt.show()
