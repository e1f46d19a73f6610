"""
Before a training loop of your own
==================================

Use ``mmd_init_`` like the functions of ``torch.nn.init``: it changes the module in place. The
optimizer, the loop and the loss are your own.
"""

import copy

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

from sklearn_mmdinit import mmd_init_

X = torch.tensor(load_digits().data / 16, dtype=torch.float32)
y = torch.tensor(load_digits().target)
torch.manual_seed(0)
scratch = nn.Sequential(
    nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10)
)
pretrained = copy.deepcopy(scratch)
mmd_init_(pretrained, X, coherence="auto", max_iter=30, random_state=0)  # no labels

# %%
# The loop trains with Adam on the first fifty digits. After each step it measures the accuracy on
# all others.


def accuracies(net, n_steps=80):
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(n_steps):
        loss = nn.functional.cross_entropy(net(X[:50]), y[:50])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield float((net(X[50:]).argmax(1) == y[50:]).float().mean())


fig, ax = plt.subplots(layout="constrained")
for name, net in {"from random weights": scratch, "from pre-trained weights": pretrained}.items():
    ax.plot([*accuracies(net)], label=name)
ax.set(xlabel="steps of Adam on 50 labels", ylabel="accuracy on the rest", ylim=(0, 1))
ax.legend()
plt.show()
