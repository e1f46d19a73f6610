"""
A step of a pipeline, and a search of its parameters
====================================================

An initializer can be a step of a pipeline. It learns initial weights from the training rows of the
fold, and the classifier after it starts from them. A search sets its parameters like any others.
With ``memory``, candidates that differ only in the classifier share one training of the
initializer.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import Coherence, MLPClassifier, MMDInitializer

X, y = load_wine(return_X_y=True)
init = MMDInitializer(
    (32,), n_classes=3, coherence=Coherence(), max_iter=50, n_perturbations=16, random_state=0
)
classifier = MLPClassifier(warm_start_from="pipeline", validation_split=None, random_state=0)
grid = {
    "init__coherence__walk_length": [2, 40],
    "clf__max_iter": [10, 30, 100],
}
folds = StratifiedShuffleSplit(3, train_size=100, random_state=0)
with tempfile.TemporaryDirectory() as cache:
    steps = [("scale", StandardScaler()), ("init", init), ("clf", classifier)]
    search = GridSearchCV(Pipeline(steps, memory=cache), grid, cv=folds).fit(X, y)

# %%
# Accuracy of all six candidates, as a mean over three folds.
found = search.cv_results_["mean_test_score"].reshape(3, 2)  # clf by init: in order of their names
fig, ax = plt.subplots(layout="constrained")
ax.imshow(found, cmap="Blues", vmin=found.min(), vmax=2 * found.max() - found.min())
for (i, j), accuracy in np.ndenumerate(found):
    ax.text(j, i, f"{accuracy:.3f}", ha="center", va="center")
ax.set_xticks(range(2), grid["init__coherence__walk_length"])
ax.set_yticks(range(3), grid["clf__max_iter"])
ax.set(xlabel="length of the walks (initializer)", ylabel="epochs (classifier)")
plt.show()
