"""
A pre-trained skorch net
========================

You have a skorch net with its callbacks and schedules, and want to change only its initial weights.
Pass ``init.to_module`` in place of the module's class. It makes a new module with the weights
theta0 for each fit.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from skorch import NeuralNetClassifier
from skorch.dataset import Dataset
from skorch.helper import predefined_split
from torch import nn

from sklearn_mmdinit import MMDInitializer

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)


class Net(nn.Sequential):
    def __init__(self, width=64):
        super().__init__(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


init = MMDInitializer(module=Net, coherence="auto", max_iter=30, random_state=0).fit(X)

# %%
# The history of skorch has the accuracy after each epoch of training on 100 digits. All others are
# its validation set.
fig, ax = plt.subplots(layout="constrained")
for name, module in {"random weights": Net, "init.to_module": init.to_module}.items():
    torch.manual_seed(0)
    net = NeuralNetClassifier(
        module, criterion=nn.CrossEntropyLoss, optimizer=torch.optim.Adam, lr=2e-3, max_epochs=40,
        batch_size=20, verbose=0,
        train_split=predefined_split(Dataset(X[100:], y[100:])),
    )  # fmt: skip
    net.fit(X[:100], y[:100])
    ax.plot(net.history[:, "valid_acc"], label=name)
ax.set(xlabel="epoch", ylabel="accuracy on the rest")
ax.legend()
plt.show()
