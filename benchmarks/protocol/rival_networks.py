"""Rivals that are the paper's network: other starts, another fine-tuning, pseudo-labels.

Each is scratch with one thing changed: the same tasks, labelled images, order of the rows and
fine-tuning (but where that is what is changed), so a difference from scratch is a paired one.
Fresh weights that a rival keeps are those of scratch in the same fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from protocol.bench import Bench
from protocol.methods import Contender, NetworkSettings
from protocol.pretrained import Pretrained, data_digest, learn
from protocol.scratch import scratch_contender, variant
from protocol.tasks import pretraining_seed, shuffled_rows
from protocol.tuned_scratch import TUNED, fine_tuning_contender
from rivals.autoencoder import DenoisingAutoencoder
from rivals.fresh import Arrays, fresh_arrays, n_layers, weight_name
from rivals.lsuv import lsuv_arrays
from rivals.pca_layer import components_of, with_components
from rivals.self_training import SelfTrainedNetwork

__all__ = ["NETWORKS", "Given", "network_rivals"]

# A mini-batch large enough that the variance of a layer's outputs is that of all rows.
LSUV_ROWS = 256

# Twenty passes take minutes, as the pre-training with coherence does. The noise is chosen on eight
# tasks of run 4 at N = 5 and 20. Mean gain over scratch after five passes: masking 0.25, 0.5, 0.75
# and 0.9: +0.2, +1.8, +3.6, +3.8; Gaussian of std 0.5: -2.6. After twenty: 0.5: +2.5, 0.75: +4.1.
AUTOENCODER: dict[str, Any] = {
    "corruption": "masking",
    "corruption_level": 0.75,
    "learning_rate_init": 1e-3,
    "batch_size": 128,
    "max_iter": 20,
}

# A round fits the network anew on all rows that have a label by then: with 5,000 rows and three
# rounds that is four trainings of a thousand steps at most, some 20 seconds of one core; 60,000
# rows and scikit-learn's ten rounds would be half an hour for every score. The threshold is chosen
# on four tasks of run 4 at N = 5. Mean gain over scratch at 0.8, 0.95 and 0.99: +0.9, -0.1, -0.1.
SELF_TRAINING: dict[str, Any] = {"threshold": 0.8, "max_iter": 3}
SELF_TRAINING_ROWS = 5000


@dataclass(frozen=True)
class Given:
    """What a rival is built from.

    Parameters
    ----------
    scratch : Contender
        The network that it changes; its X has the unlabelled rows first.
    n_unlabelled : int
        How many those are.
    settings : NetworkSettings
        Widths and classes.
    seed : int
        Of the command.
    theta0 : Pretrained or None
        What was learned for it in this run, where anything is.
    """

    scratch: Contender
    n_unlabelled: int
    settings: NetworkSettings
    seed: int
    theta0: Pretrained | None = None

    @property
    def X_unlabelled(self) -> np.ndarray:
        return self.scratch.X[: self.n_unlabelled]

    @property
    def widths(self) -> tuple[int, ...]:
        sizes = self.settings.hidden_layer_sizes
        return (self.scratch.X.shape[1], *sizes, self.settings.classes)

    def fresh(self, pipeline: Pipeline) -> Arrays:
        """The weights that scratch starts from in this fit."""
        return fresh_arrays(pipeline[-1], self.widths[0], range(self.widths[-1]))


def _starting(pipeline: Pipeline, arrays: Arrays) -> Pipeline:
    return pipeline.set_params(mlpclassifier__warm_start_from=arrays)


def _lsuv(name: str, given: Given) -> Contender:
    def change(pipeline: Pipeline, random_state: int) -> Pipeline:
        rng = np.random.default_rng(random_state)
        arrays = lsuv_arrays(given.X_unlabelled, given.widths, rng, batch_size=LSUV_ROWS)
        return _starting(pipeline, arrays)

    return variant(given.scratch, name, change, {"start": "lsuv", "rows": LSUV_ROWS})


def _autoencoder(name: str, given: Given) -> Contender:
    assert given.theta0 is not None  # it is among LEARNED
    learned = dict(given.theta0.initializer.theta0_.arrays)
    last = n_layers(learned) - 1

    def change(pipeline: Pipeline, random_state: int) -> Pipeline:
        fresh = given.fresh(pipeline)
        own = {key: fresh[key] for key in (weight_name(last), f"linears.{last}.bias")}
        return _starting(pipeline, learned | own)

    return variant(given.scratch, name, change, {"encoder": given.theta0.digest})


def _pca_layer(name: str, given: Given) -> Contender:
    components = components_of(given.X_unlabelled, given.widths[1])

    def change(pipeline: Pipeline, random_state: int) -> Pipeline:
        return _starting(pipeline, with_components(given.fresh(pipeline), components))

    return variant(given.scratch, name, change, {"first layer": "components and negatives"})


def _self_training(name: str, given: Given) -> Contender:
    rows = shuffled_rows(given.n_unlabelled, "self_training", seed=given.seed)[:SELF_TRAINING_ROWS]
    X_unlabelled = given.X_unlabelled[np.sort(rows)]

    def change(pipeline: Pipeline, random_state: int) -> Pipeline:
        trained = SelfTrainedNetwork(pipeline[-1], X_unlabelled, **SELF_TRAINING)
        return Pipeline([("selftrainednetwork", trained)])

    return variant(
        given.scratch, name, change, SELF_TRAINING | {"unlabelled": data_digest(X_unlabelled)}
    )


def _tuned_scratch(name: str, given: Given) -> Contender:
    return fine_tuning_contender(given.scratch, name, TUNED)


NETWORKS: dict[str, Callable[[str, Given], Contender]] = {
    "rival/lsuv": _lsuv,
    "rival/autoencoder": _autoencoder,
    "rival/pca-layer": _pca_layer,
    "rival/self-training": _self_training,
    "rival/tuned-scratch": _tuned_scratch,
}
"""Rivals that are networks, in the order of the tables."""


def _denoising(settings: NetworkSettings, random_state: int, verbose: int) -> DenoisingAutoencoder:
    return DenoisingAutoencoder(
        tuple(settings.hidden_layer_sizes),
        settings.classes,
        **AUTOENCODER,
        random_state=random_state,
        verbose=verbose,
    )


# Rivals whose start takes minutes: learned once a run, as ours is, and kept.
LEARNED: dict[str, Callable[[NetworkSettings, int, int], Any]] = {"rival/autoencoder": _denoising}


def network_rivals(
    names: Sequence[str], bench: Bench, run: int
) -> tuple[list[Contender], list[dict[str, Any]]]:
    """The rivals of a run that are networks, and a record of each start that was learned.

    Parameters
    ----------
    names : sequence of str
        Keys of ``NETWORKS``.
    bench : Bench
        Data, network and options; learned starts are kept in the folder ``theta0`` of its output.
    run : int
        Seeds what is learned, as it seeds the theta0 of ours.
    """
    X, n_unlabelled = bench.X, len(bench.X_unlabelled)
    learned = {name: _learned(name, bench, run) for name in names if name in LEARNED}
    scratch = scratch_contender(X, bench.network)
    contenders = [
        NETWORKS[name](
            name,
            Given(scratch, n_unlabelled, bench.network, bench.options.seed, learned.get(name)),
        )
        for name in names
    ]
    return contenders, _records(learned, run)


def _learned(name: str, bench: Bench, run: int) -> Pretrained:
    options = bench.options
    random_state = pretraining_seed(run, seed=options.seed)
    initializer = LEARNED[name](bench.network, random_state, 0 if options.quiet else 1)
    bench.say(f"run {run}: learning {name}, passes: {initializer.max_iter}")
    return learn(
        initializer,
        bench.X_unlabelled,
        name=name,
        folder=options.output / "theta0",
        X_digest=data_digest(bench.X_unlabelled),
    )


def _records(learned: Mapping[str, Pretrained], run: int) -> list[dict[str, Any]]:
    return [{"method": name, "run": run} | found.record() for name, found in learned.items()]
