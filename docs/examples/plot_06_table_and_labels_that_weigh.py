"""
A table: labels give classifiers their weights
==============================================

Features that are learned without labels help much on some tables and not on others. Only labels can
show it. ``StackedStartsClassifier`` uses cross-validation on the labels to weight a classifier on
learned features and classifiers of other kinds. Rows without a label stay in the table, with the
label -1. They serve to learn features, to spread labels, and to train a student on pseudo-labels:
the predictions of the other classifiers.
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
# By default two initializers learn, for more epochs than this one.
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
# The weights by 60 labels of each table. Unless other weights are clearly better, all members
# except label spreading get nearly equal weights. The student has nearly a third in any case.
fig, ax = plt.subplots(figsize=(8, 2.8), layout="constrained")
left = np.zeros(len(weights))
for name, widths in zip(clf.names_, np.transpose([*weights.values()]), strict=True):
    ax.barh([*weights], widths, left=left, label=name)
    left += widths
ax.set(xlabel="weight in the prediction", xlim=(0, 1))
ax.legend(loc="lower center", bbox_to_anchor=(0.4, 1), ncols=2, fontsize="small")
plt.show()
