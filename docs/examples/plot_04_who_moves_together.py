"""
Whose predictions move together
===============================

Coherence lets predictions of neighbouring rows move together. How much is a number for each pair
of rows, the kernel C, which can be looked at before any label is known: digits beside those that
would take their label, and those that would not.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit.display import CoherenceDisplay

X = load_digits().data / 16
init = MMDInitializer((64, 64), n_classes=10, coherence="auto", max_iter=30, random_state=0)
init.fit(X)

# %%
# Four digits drawn at random, the six that go with each of them most, and the six that do least.
CoherenceDisplay.from_estimator(init, X[:300], image_shape=(8, 8), random_state=2)
plt.show()

# %%
# The same kernel as a heat map, rows in an order that puts like beside like: the blocks are
# groups that the data has, found without a label. There are about ten.
CoherenceDisplay.from_estimator(init, X[:300])
plt.show()
