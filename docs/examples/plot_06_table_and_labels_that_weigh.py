"""
A table, and labels that weigh the starts
=========================================

Of some tables a coherent start is worth much, of others nothing, and only labels can tell.
``StackedStartsClassifier`` trains a network from each of several starts and lets the labels weigh
them and classifiers of other kinds. Rows without a label stay in the table, as -1: the starts learn
from them, labels are spread over them, and a student learns from what all others guess of them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import MLPClassifier, StackedStartsClassifier

network = MLPClassifier((32,), max_iter=40, validation_split=None)
weights = {}
for load in (load_breast_cancer, load_digits):
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X[:600])
    y = y[:600]
    rng = np.random.default_rng(0)
    known = rng.permutation(len(y)) < 60
    clf = StackedStartsClassifier(network, unlabelled_label=-1, cv=3, random_state=0)
    clf.fit(X, np.where(known, y, -1))
    name = load.__name__.removeprefix("load_").replace("_", " ")
    weights[f"{name}: accuracy {clf.score(X[~known], y[~known]):.2f}"] = clf.weights_

# %%
# What 60 labels of each table have to say. The same weight for fresh weights and each classifier
# without a start, spread labels aside, is what to fall back on: other weights have to be clearly
# ahead. The student has nearly a third in any case.
fig, ax = plt.subplots(figsize=(8, 2.8), layout="constrained")
left = np.zeros(len(weights))
starts = [
    "fresh weights",
    "coherence, long walks",
    "coherence, short walks, corrupted rows",
    "a random forest",
    "logistic regression, C = 0.01",
    "logistic regression, C = 1",
    "a Gaussian kernel",
    "labels spread over the graph",
    "the student of all these",
]
for start, widths in zip(starts, np.transpose([*weights.values()]), strict=True):
    ax.barh([*weights], widths, left=left, label=start)
    left += widths
ax.set(xlabel="weight in the prediction", xlim=(0, 1))
ax.legend(loc="lower center", bbox_to_anchor=(0.4, 1), ncols=2, fontsize="small")
plt.show()
