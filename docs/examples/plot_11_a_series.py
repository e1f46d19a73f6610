"""
A series: digits read line by line
==================================

Here a digit is a series of eight points in time with eight channels. The network has convolutions
along time. The augmentation suits a series: noise, and a small shift in time.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
from torch import nn

from sklearn_mmdinit import Coherence, MMDInitializer, NetClassifier

series = np.swapaxes(load_digits().images, 1, 2) / 16 - 0.3  # (1797, 8 channels, 8 times)
y = load_digits().target


def changed(rows):
    """Noise, and two of three series a step earlier or later."""
    shifted = torch.stack([row.roll(int(torch.randint(-1, 2, ())), dims=-1) for row in rows])
    return shifted + 0.05 * torch.randn_like(rows)


torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv1d(8, 32, 3, padding=1), nn.ReLU(), nn.Conv1d(32, 32, 3), nn.ReLU(), nn.MaxPool1d(2),
    nn.Flatten(), nn.Linear(96, 10),
)  # fmt: skip
init = MMDInitializer(
    module=net, coherence=Coherence(augmentation=changed), max_iter=30, random_state=0
).fit(series)

# %%
# Accuracy with fifty labels, which are chosen five times.
few = StratifiedShuffleSplit(5, train_size=50, random_state=0)
training = {"max_iter": 50, "validation_split": None, "random_state": 0}
scores = [
    cross_val_score(clf, series, y, cv=few)
    for clf in (NetClassifier(net, **training), NetClassifier(warm_start_from=init, **training))
]
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(series[0].T)
left.set(title="One example: eight channels", xlabel="time")
right.boxplot(scores, tick_labels=["random weights", "pre-trained weights"])
right.set(ylabel="accuracy on the rest", title="Fifty labels, chosen five times")
plt.show()
