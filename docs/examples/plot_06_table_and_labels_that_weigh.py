"""
A table, and labels that weigh classifiers
==========================================

On some tables features that are learned without labels are worth much, on others nothing, and only
labels can tell. ``StackedStartsClassifier`` lets the labels weigh a classifier on learned features
beside classifiers of other kinds. Rows without a label stay in the table, as -1: features are
learned from them, labels are spread over them, and a student learns from what the others predict
for them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import (
    LearnedFeatures,
    MLPClassifier,
    MMDInitializer,
    StackedStartsClassifier,
)

network = MLPClassifier((32,), max_iter=40, validation_split=None)
# By default two initializers learn, and for longer.
short = MMDInitializer((32,), coherence="auto", n_perturbations=8, max_iter=60)
features = LearnedFeatures([short])
weights = {}
for load in (load_breast_cancer, load_digits):
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X[:600])
    y = y[:600]
    rng = np.random.default_rng(0)
    known = rng.permutation(len(y)) < 60
    clf = StackedStartsClassifier(
        network, features=features, unlabelled_label=-1, cv=3, random_state=0
    )
    clf.fit(X, np.where(known, y, -1))
    name = load.__name__.removeprefix("load_").replace("_", " ")
    weights[f"{name}: accuracy {clf.score(X[~known], y[~known]):.2f}"] = clf.weights_

# %%
# What 60 labels of each table say. Equal weights of all members but spread labels are what to fall
# back on: other weights have to be clearly better. The student has nearly a third in any case.
fig, ax = plt.subplots(figsize=(8, 2.8), layout="constrained")
left = np.zeros(len(weights))
for name, widths in zip(clf.names_, np.transpose([*weights.values()]), strict=True):
    ax.barh([*weights], widths, left=left, label=name)
    left += widths
ax.set(xlabel="weight in the prediction", xlim=(0, 1))
ax.legend(loc="lower center", bbox_to_anchor=(0.4, 1), ncols=2, fontsize="small")
plt.show()
