"""
Fifty labels among 1,797 digits
===============================

This is the shortest use: pre-train on all digits without labels, then train on the few that have
labels. The same network is also trained from random weights.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score

from sklearn_mmdinit import MLPClassifier, MMDInitializer

X, y = load_digits(return_X_y=True)
X /= 16

# %%
# This step uses no labels. It runs once, and every training below starts from its weights.
init = MMDInitializer((64, 64), n_classes=10, coherence="auto", max_iter=30, random_state=0)
init.fit(X)

# %%
# The accuracy is on all other digits, with 20 to 200 labels, which are chosen three times.
sizes = [20, 50, 100, 200]
scratch = MLPClassifier((64, 64), max_iter=30, random_state=0)
pretrained = MLPClassifier(warm_start_from=init, max_iter=30, random_state=0)
scores = {"from random weights": scratch, "from pre-trained weights": pretrained}
for name, network in scores.items():
    scores[name] = np.array(
        [
            cross_val_score(
                network, X, y, cv=StratifiedShuffleSplit(3, train_size=n, random_state=0)
            )
            for n in sizes
        ]
    )

fig, ax = plt.subplots(layout="constrained")
for name, found in scores.items():
    ax.errorbar(sizes, found.mean(axis=1), found.std(axis=1), marker="o", capsize=3, label=name)
ax.set(xscale="log", xlabel="labels", ylabel="accuracy on the rest", title="Handwritten digits")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.legend()
plt.show()
