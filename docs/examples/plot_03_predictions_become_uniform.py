"""
The paper's objective at work
=============================

The paper's first term asks that perturbed networks give every probability equally often, for every
example. The first figure shows the density of one class's probability over 1,024 perturbed
networks, for four examples, before and after pre-training. The second figure shows the three terms
of the loss.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import MMDInitializer

X = StandardScaler().fit_transform(load_breast_cancer().data)
network = {"hidden_layer_sizes": (64, 64), "n_perturbations": 32, "random_state": 0}
scratch = MMDInitializer(max_iter=0, **network).fit(X)
learned = MMDInitializer(max_iter=40, **network).fit(X)


# %%
# A perturbed network has Gaussian noise on each weight, with standard deviation s / sqrt(n_in), and
# on each bias, with s / sqrt(n_out). The paper's s is the square root of 0.5.
def perturbed_probabilities(init, rows, n_networks=1024):
    """Probabilities (n_networks, n_rows, 2) of networks around theta0."""
    network, generator = init.to_module(), torch.Generator().manual_seed(0)
    theta0 = [parameter.detach().clone() for parameter in network.parameters()]
    samples = []
    with torch.no_grad():
        for _ in range(n_networks):
            for parameter, value in zip(network.parameters(), theta0, strict=True):
                noise = torch.randn(value.shape, generator=generator)
                parameter.copy_(value + (0.5 / value.shape[-1]) ** 0.5 * noise)
            samples.append(network(torch.tensor(rows).float()).softmax(-1))
    return torch.stack(samples)


# %%
# The dotted line is the uniform density. Examples 0 to 2 come near it. Example 3 has three times
# the norm of most others, and its probabilities stay near 0 and 1.
groups = {"before": scratch, "after": learned}
samples = {name: perturbed_probabilities(init, X[:4]) for name, init in groups.items()}
fig, axes = plt.subplots(1, 4, figsize=(10, 2.8), sharey=True, layout="constrained")
for row, ax in enumerate(axes):
    for name, P in samples.items():
        ax.hist(P[:, row, 0], bins=25, range=(0, 1), density=True, histtype="step", label=name)
    ax.axhline(1.0, color="0.4", linestyle=":")
    ax.set(title=f"example {row}", xlabel="probability of class 0")
axes[0].set(ylabel="density")
axes[0].legend()
plt.show()

# %%
# The loss and its three terms, as means over epochs.
fig, ax = plt.subplots(layout="constrained")
for name in ("loss", "uniformity", "degeneracy", "detachment"):
    ax.plot([w["step"] for w in learned.history_], [w[name] for w in learned.history_], label=name)
ax.set(xlabel="step", ylabel="mean over an epoch")
ax.legend()
plt.show()
