"""
A step of a pipeline, and a search of its parameters
====================================================

An initializer can be a step of a pipeline. It pre-trains on the training examples of the fold, and
gives features to the classifier after it. A search sets its parameters like any others. With
``memory``, candidates that differ only in the classifier share one pre-training.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import MMDInitializer

X, y = load_wine(return_X_y=True)
init = MMDInitializer((32,), n_classes=3, coherence="auto", max_iter=50, random_state=0)
grid = {
    "mmdinitializer__coherence__separation": [1.5, 3.0],
    "logisticregression__C": [0.1, 1.0, 100.0],
}
folds = StratifiedShuffleSplit(3, train_size=100, random_state=0)
with tempfile.TemporaryDirectory() as cache:
    steps = StandardScaler(), init, LogisticRegression(max_iter=1000)
    search = GridSearchCV(make_pipeline(*steps, memory=cache), grid, cv=folds).fit(X, y)

# %%
# Accuracy of all six candidates, as a mean over three folds.
found = search.cv_results_["mean_test_score"].reshape(3, 2)  # C by separation
fig, ax = plt.subplots(layout="constrained")
ax.imshow(found, cmap="Blues", vmin=found.min(), vmax=2 * found.max() - found.min())
for (i, j), accuracy in np.ndenumerate(found):
    ax.text(j, i, f"{accuracy:.3f}", ha="center", va="center")
ax.set_xticks(range(2), grid["mmdinitializer__coherence__separation"])
ax.set_yticks(range(3), grid["logisticregression__C"])
ax.set(xlabel="separation (pre-training)", ylabel="C (classifier)")
plt.show()
