"""
Features for any classifier
===========================

``transform`` of an initializer gives features: the last hidden activations, each example scaled to
unit norm. A logistic regression on them is often as good as training the whole network, and takes
a moment.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline

from sklearn_mmdinit import MMDInitializer

X, y = load_digits(return_X_y=True)
X /= 16
init = MMDInitializer((128, 128), n_classes=10, coherence="auto", max_iter=30, random_state=0)
init.fit(X)

# %%
# ``FrozenEstimator`` keeps the initializer from pre-training again in each fold.
few = StratifiedShuffleSplit(10, train_size=50, random_state=0)
logistic = LogisticRegression(C=100, max_iter=1000)
on_features = make_pipeline(FrozenEstimator(init), logistic)
scores = {
    "pixels": cross_val_score(logistic, X, y, cv=few).mean(),
    "features": cross_val_score(on_features, X, y, cv=few).mean(),
}

# %%
# The first two principal components of pixels and features. The colours are labels, which neither
# has used. The titles have the accuracy of the logistic regression.
features = init.transform(X)
fig, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
for ax, (name, rows) in zip(axes, {"pixels": X, "features": features}.items(), strict=True):
    plane = PCA(2).fit_transform(rows)
    points = ax.scatter(*plane.T, c=y, cmap="tab10", s=5)
    title = f"{name}: {scores[name]:.2f} with 50 labels"
    ax.set(title=title, xticks=[], yticks=[])
fig.colorbar(points, ax=axes, label="digit", ticks=range(10))
plt.show()
