"""What others train on random views of images: NT-Xent (SimCLR) and FixMatch, and a loop for both.

T. Chen, S. Kornblith, M. Norouzi and G. Hinton, "A Simple Framework for Contrastive Learning of
Visual Representations", ICML 2020. K. Sohn et al., "FixMatch: Simplifying Semi-Supervised Learning
with Consistency and Confidence", NeurIPS 2020.
"""

import math
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

_WARM_UP = 0.02  # share of a training in which the learning rate rises


def optimise(
    module: nn.Module,
    loss_of_batch: Callable[[], torch.Tensor],
    rate: float,
    *,
    steps: int = 0,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """AdamW for so many steps, or else seconds, its rate falling to 2 %; the number of steps."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, rate, weight_decay=1e-2)
    start, step, done = clock(), 0, 0.0
    while done < 1.0:
        factor = min(1.0, (done + 1e-3) / _WARM_UP) * (0.51 + 0.49 * math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate * factor
        loss = loss_of_batch()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
        done = step / steps if steps else (clock() - start) / seconds
    return step


def nt_xent(Z: torch.Tensor, temperature: float = 0.5) -> torch.Tensor:
    """Each view of Z (2 n, width), the first ones and then the second, is to find its other one."""
    # As of pytorch-metric-learning, which takes seconds for 256 pairs: a test compares the two.
    Z = normalize(Z.float(), dim=1)
    scores = (Z @ Z.T / temperature).fill_diagonal_(-math.inf)
    others = torch.arange(len(Z), device=Z.device).roll(len(Z) // 2)
    return cross_entropy(scores, others)


def fixmatch_loss(
    net: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    weak: torch.Tensor,
    strong: torch.Tensor,
    threshold: float = 0.95,
) -> torch.Tensor:
    """Cross-entropy on labelled x, and on strong views of what a weak view is sure about.

    Of the published recipe it leaves out the average of weights, since rates fall to nearly 0 here.
    """
    logits = net(torch.cat([x, weak, strong]))
    of_labelled, of_weak, of_strong = logits.split([len(x), len(weak), len(strong)])
    sure, guess = of_weak.detach().softmax(dim=1).max(dim=1)
    of_unlabelled = cross_entropy(of_strong, guess, reduction="none")
    return cross_entropy(of_labelled, y) + ((sure >= threshold) * of_unlabelled).mean()
