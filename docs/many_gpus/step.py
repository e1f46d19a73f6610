"""What the three programs of this folder share: data, the loss as a module, the use of theta0."""

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn.functional import affine_grid, grid_sample

from sklearn_mmdinit import MMDInitializer, MMDObjective, NetClassifier
from sklearn_mmdinit.losses import coherence

X, y = load_digits(return_X_y=True)
IMAGES = torch.tensor(X / 16 - 0.3).float().view(-1, 1, 8, 8)


def new_net():
    """An MLP for images of 8 x 8 pixels and ten classes."""
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    return nn.Sequential(body, nn.Linear(64, 10))


class Step(nn.Module):
    """A step's loss as the output of ``forward``, which DistributedDataParallel needs."""

    def __init__(self, n_perturbations=16):
        super().__init__()
        self.net, self.generator = new_net(), torch.Generator()
        self.objective = MMDObjective(n_perturbations, generator=self.generator)

    def seed(self, epoch, rank):
        """Let all draws of an epoch follow from epoch and rank, so that a checkpoint has none."""
        self.generator.manual_seed(1_000_000 * epoch + rank)

    def augmented(self, x):
        """Images, each rotated, sheared and shifted a little."""
        moves = torch.eye(2, 3) + 0.1 * torch.randn(len(x), 2, 3, generator=self.generator)
        grid = affine_grid(moves.to(x), x.shape, align_corners=False)
        return grid_sample(x, grid, padding_mode="border", align_corners=False)

    def forward(self, x):
        """The paper's terms on 8 images, and the coherence of all: two augmentations are a pair."""
        hidden = self.net[0](torch.cat([self.augmented(x), self.augmented(x)]))
        return self.objective(self.net, x[:8]).total + 16 * coherence(hidden)


def hand_on(net):
    """Write theta0 to a file, and fine-tune a classifier from it on fifty labels."""
    at_theta0 = MMDInitializer(module=net.cpu(), max_iter=0).fit(IMAGES)
    at_theta0.theta0_.save("theta0.safetensors")
    for start in ("theta0.safetensors", None):
        clf = NetClassifier(
            new_net(), warm_start_from=start, max_iter=100, validation_split=None, random_state=0
        )
        clf.fit(IMAGES[:50], y[:50])
        print(f"accuracy from {start}: {clf.score(IMAGES[50:], y[50:]):.3f}")
    baseline = LogisticRegression(max_iter=1000).fit(X[:50] / 16, y[:50])
    print(f"accuracy of logistic regression: {baseline.score(X[50:] / 16, y[50:]):.3f}")
