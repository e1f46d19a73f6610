"""
No labels yet: which examples to label first
============================================

Ten labels are to be bought for 1,797 images of ten digits. Chosen at random they miss a third of
the digits. Nearest to the centres of ten clusters of pre-trained features they miss hardly one.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances_argmin

from sklearn_mmdinit import MMDInitializer

X, y = load_digits(return_X_y=True)
X = X / 16
init = MMDInitializer((64, 64), n_classes=10, coherence="auto", random_state=0)
features = init.fit_transform(X)  # no labels


# %%
# The nearest example to each centre is typical of its cluster.
def nearest_to_centres(rows, n, seed):
    centres = KMeans(n, random_state=seed).fit(rows).cluster_centers_
    return pairwise_distances_argmin(centres, rows)


def at_random(rows, n, seed):
    return np.random.default_rng(seed).permutation(len(rows))[:n]


choices = {"nearest to centres": nearest_to_centres, "at random": at_random}
fig, axes = plt.subplots(2, 10, figsize=(8, 2.2), layout="constrained")
for row, (name, choose) in zip(axes, choices.items(), strict=True):
    chosen = choose(features, 10, seed=0)
    for ax, number in zip(row, chosen[y[chosen].argsort()], strict=True):
        ax.imshow(X[number].reshape(8, 8), cmap="gray_r")
        ax.set(xticks=[], yticks=[], title=y[number])
    n_found = len(np.unique(y[chosen]))
    row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    print(f"{name}: {n_found} of 10 digits")
plt.show()

# %%
# The accuracy that their labels give, on the images without a label.
budgets = [10, 20, 50, 100]
fig, ax = plt.subplots(layout="constrained")
for name, choose in choices.items():
    accuracies = np.zeros((len(budgets), 5))
    for i, budget in enumerate(budgets):
        for seed in range(5):
            chosen = choose(features, budget, seed)
            clf = LogisticRegression(C=100).fit(features[chosen], y[chosen])
            others = np.setdiff1d(np.arange(len(y)), chosen)
            accuracies[i, seed] = clf.score(features[others], y[others])
    ax.plot(budgets, accuracies.mean(axis=1), "o-", label=name)
    print(f"{name}: {accuracies.mean(axis=1).round(2)}")
ax.set(xlabel="labels", ylabel="accuracy on the other images", xscale="log")
ax.set_xticks(budgets, budgets, minor=False)
ax.legend()
plt.show()
