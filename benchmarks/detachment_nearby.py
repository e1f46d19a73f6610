"""Claim: where L_iod is minimised it falls nearby too, and less and less the farther away.

The appendix's figure "iodloss_nearby". The paper's third term L_iod, which is 0 where the rows of
the Jacobians of the logits have unit norm and 1 for a constant function, is minimised alone, and
measured along the way at theta0 and at theta0 + epsilon, with epsilon of the paper's law for
s^2 = 0.2, 0.5, 1 and 2. The other terms have no weight, so one training serves the four panels.

Run it (under ten minutes on two cores each)::

    python benchmarks/detachment_nearby.py --init he
    python benchmarks/detachment_nearby.py

The paper has no figures here, only its finding: L_iod nearby falls with that of theta0 for
s^2 = 0.2 and 0.5, and less and less for larger s. Here it does so from He's weights, and from
Xavier's for s^2 = 0.2 alone. Values above 1 come from rows longer than 2, and are no sign of a
constant function.
"""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn

from protocol import command, studies
from protocol.store import commit, digest_of
from protocol.tasks import diagnostics_seed, shuffled_rows
from protocol.theta0s import fit_key
from reporting.tables import publish
from sklearn_mmdinit import MMDObjective

SQUARED_SCALES = (0.2, 0.5, 1.0, 2.0)

# The loss is L_iod alone. The objective draws two networks at least.
ALONE: dict[str, Any] = {"uniformity_weight": 0.0, "degeneracy_weight": 0.0, "n_perturbations": 2}
LEARNING_RATE = 2e-4

# Images on which L_iod is measured, and perturbations, as many as the paper has.
N_ROWS, N_DRAWS = 1024, 4


def log_spaced_steps(last: int) -> list[int]:
    """Whole numbers from 1 to the last, six a decade, wider below 10."""
    n = math.ceil(6 * math.log10(last))
    return sorted({*(round(10 ** (i / 6)) for i in range(n)), last})


def mini_batches(n: int, epochs: int, seed: int) -> Iterator[np.ndarray]:
    """Numbers of the rows of each step; every epoch has its own order."""
    for epoch in range(epochs):
        order = shuffled_rows(n, "passes", 0, epoch, seed=seed)
        for start in range(0, n - studies.BATCH_SIZE + 1, studies.BATCH_SIZE):
            yield order[start : start + studies.BATCH_SIZE]


@torch.no_grad()
def perturbed(network: nn.Module, noise: np.ndarray, perturbation_scale: float) -> nn.Module:
    """A network plus a perturbation of the paper's standard deviations.

    ``noise`` (m,) is standard normal, one number a parameter, in the order of the parameters. The
    last axis of a weight has n_in values, that of a bias n_out.
    """
    other, rest = deepcopy(network), torch.from_numpy(noise)
    for parameter in other.parameters():
        part, rest = rest[: parameter.numel()], rest[parameter.numel() :]
        parameter.add_(
            part.view_as(parameter), alpha=perturbation_scale / parameter.shape[-1] ** 0.5
        )
    return other


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    studies.add_appendix_options(parser)
    options = parser.parse_args(argv)
    with command.refusing(parser):
        appendix = studies.prepare_appendix(options)
    seed, rows, epochs = options.seed, torch.from_numpy(appendix.X), appendix.network.epochs
    steps = log_spaced_steps(len(rows) // studies.BATCH_SIZE * epochs)
    batches = mini_batches(len(rows), epochs, seed)
    network = appendix.fresh().to_module()
    objective = MMDObjective(**ALONE, generator=torch.Generator().manual_seed(seed))
    weights = [*network.parameters()]
    optimizer = torch.optim.Adam(weights, LEARNING_RATE)
    yardstick = rows[shuffled_rows(len(rows), "yardstick", seed=seed)[:N_ROWS]]
    # The same noise at each step, and for each s the same up to its length.
    rng, m = np.random.default_rng(diagnostics_seed(seed=seed)), sum(map(torch.numel, weights))
    noises = [rng.standard_normal(m, dtype=np.float32) for _ in range(N_DRAWS)]

    def loss(module: nn.Module) -> float:
        return float(objective(module, yardstick).total.detach())

    log, keys, done = appendix.log("detachment_nearby"), [], 0
    identity = [fit_key(appendix.initializer(ALONE), appendix.X_digest), seed, LEARNING_RATE]
    with command.resumable(parser):
        for step in (0, *steps):
            keys.append(digest_of([*identity, step, SQUARED_SCALES, N_DRAWS, N_ROWS]))
            if keys[-1] in log.records:
                continue
            appendix.say(f"L_iod near theta0 after {step} steps")
            for batch in islice(batches, step - done):
                optimizer.zero_grad()
                objective(network, rows[batch]).total.backward()
                optimizer.step()
            done = step
            nearby = [
                [loss(perturbed(network, noise, math.sqrt(square))) for noise in noises]
                for square in SQUARED_SCALES
            ]
            record = {"key": keys[-1], "step": step, "at_theta0": loss(network), "nearby": nearby}
            log.append(record | {"commit": commit()})
    settings = {"changes": ALONE, "squared_scales": SQUARED_SCALES, "draws": N_DRAWS}
    results = appendix.results(log, keys, rows_measured=N_ROWS, **settings)
    publish(parser, options, results, ["detachment"])


if __name__ == "__main__":
    main()
