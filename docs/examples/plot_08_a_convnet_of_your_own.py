"""
A convolutional network of your own
===================================

Any PyTorch module that returns logits can be pre-trained. ``NetClassifier`` trains it as a
scikit-learn classifier, and takes X of any shape that the module takes.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split
from torch import nn

from sklearn_mmdinit import MMDInitializer, NetClassifier

images = load_digits().images[:, None] / 16 - 0.3  # (1797, 1, 8, 8)
y = load_digits().target
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip

# %%
# Pre-train on all images, without labels.
init = MMDInitializer(module=net, coherence="auto", max_iter=30, random_state=0)
init.fit(images)

# %%
# Train on fifty labelled images.
train, test, y_train, y_test = train_test_split(
    images, y, train_size=50, stratify=y, random_state=0
)
training = {"max_iter": 60, "validation_split": None, "random_state": 0}
classifiers = {
    "from random weights": NetClassifier(net, **training),
    "from pre-trained weights": NetClassifier(warm_start_from=init, **training),
}
fig, axes = plt.subplots(1, 2, figsize=(9, 5.2), layout="constrained")
for ax, (name, clf) in zip(axes, classifiers.items(), strict=True):
    clf.fit(train, y_train)
    ConfusionMatrixDisplay.from_estimator(clf, test, y_test, ax=ax, colorbar=False, cmap="Blues")
    ax.set_title(f"{name}: {clf.score(test, y_test):.3f}")
plt.show()
