"""
Whose features are similar
==========================

Coherence gives neighbours similar features, without labels. C is the similarity of two examples:
the cosine of the angle between their features. The first figure shows digits beside those with the
largest C, which would get the same label, and those with the smallest C, which would not.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.datasets import load_digits

from sklearn_mmdinit import MMDInitializer

X = load_digits().data / 16
init = MMDInitializer((64, 64), n_classes=10, coherence="auto", max_iter=30, random_state=0)
images = X[:300].reshape(-1, 8, 8)
features = init.fit(X).transform(X[:300])  # of unit norm
C = features @ features.T

# %%
# Four digits are drawn at random. Beside each are the six digits with the largest C and the six
# with the smallest, with C above them.
anchors = np.random.default_rng(2).choice(len(C), 4, replace=False)
fig, rows = plt.subplots(4, 13, figsize=(9.5, 3.6), layout="constrained")
for axes, anchor in zip(rows, anchors, strict=True):
    others = np.argsort(-C[anchor])
    others = others[others != anchor]
    for ax, shown in zip(axes, [anchor, *others[:6], *others[-6:]], strict=True):
        ax.imshow(images[shown], cmap="gray_r")
        ax.set_axis_off()
        if shown != anchor:
            ax.set_title(f"{C[anchor, shown]:.2f}", fontsize="small")
plt.show()

# %%
# The heat map shows C of all pairs, ordered by hierarchical clustering: similar examples are beside
# each other. The blocks are groups of the data, found without labels. There are about ten.
tree = linkage(squareform(1 - C, checks=False), "average", optimal_ordering=True)
order = leaves_list(tree)
fig, ax = plt.subplots(layout="constrained")
drawn = ax.imshow(C[np.ix_(order, order)], vmax=1, cmap="magma")
fig.colorbar(drawn, label="C")
ax.set(xlabel="examples, in groups", ylabel="examples, in groups")
plt.show()
