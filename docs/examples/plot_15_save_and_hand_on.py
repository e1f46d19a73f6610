"""
Save initial weights and hand them on
=====================================

Initial weights are arrays with a description. Save them in a safetensors file, and read them as
what you need elsewhere: scikit-learn's own classifier, a PyTorch module, or arrays.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier as PlainClassifier

from sklearn_mmdinit import MLPClassifier, MMDInitializer, load_theta0, save_theta0

X, y = load_digits(return_X_y=True)
X /= 16
init = MMDInitializer((64, 64), n_classes=10, coherence="auto", max_iter=30, random_state=0)
init.fit(X)

# %%
# The file holds no code, so it is safe to open.
path = Path(tempfile.mkdtemp()) / "digits.safetensors"
save_theta0(path, init)
print(f"{path.stat().st_size / 1024:.0f} KiB", load_theta0(path).architecture, sep="\n")

# %%
# Later, or elsewhere: train a classifier from the file. With its weights scikit-learn's own
# classifier has the same probabilities, and does not need this package. A step of ``partial_fit``
# sets its other attributes.
clf = MLPClassifier(warm_start_from=path, max_iter=30, random_state=0).fit(X[:100], y[:100])
plain = PlainClassifier((64, 64)).partial_fit(X[:1], y[:1], classes=clf.classes_)
plain.coefs_, plain.intercepts_ = clf.coefs_, clf.intercepts_
print(type(plain), np.abs(plain.predict_proba(X) - clf.predict_proba(X)).max())

# %%
# Initial weights of 32 units of the first layer, one for each pixel: red is positive, blue
# negative.
fig, axes = plt.subplots(4, 8, figsize=(8, 4.2), layout="constrained")
for ax, weights in zip(axes.flat, init.coefs_[0].T, strict=False):
    limit = np.abs(weights).max()
    ax.imshow(weights.reshape(8, 8), cmap="coolwarm", vmin=-limit, vmax=limit)
    ax.axis("off")
plt.show()
