"""
Save pre-trained weights and hand them on
=========================================

Pre-trained weights are arrays with a description. Save them in a safetensors file, and start from
them elsewhere.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from sklearn_mmdinit import MLPClassifier, MMDInitializer, Theta0

X, y = load_digits(return_X_y=True)
X /= 16
init = MMDInitializer((64, 64), n_classes=10, coherence="auto", max_iter=30, random_state=0)
init.fit(X)

# %%
# The file holds no code, so it is safe to open.
path = Path(tempfile.mkdtemp()) / "digits.safetensors"
init.theta0_.save(path)
print(f"{path.stat().st_size / 1024:.0f} KiB", Theta0.load(path), sep="\n")

# %%
# Later, or elsewhere: train a classifier from the file.
clf = MLPClassifier(warm_start_from=path, max_iter=30, random_state=0).fit(X[:100], y[:100])
print(clf.score(X[100:], y[100:]))

# %%
# The weights of 32 units of the first layer, one for each pixel: red is positive, blue negative.
fig, axes = plt.subplots(4, 8, figsize=(8, 4.2), layout="constrained")
for ax, weights in zip(axes.flat, init.coefs_[0].T, strict=False):
    limit = np.abs(weights).max()
    ax.imshow(weights.reshape(8, 8), cmap="coolwarm", vmin=-limit, vmax=limit)
    ax.axis("off")
plt.show()
