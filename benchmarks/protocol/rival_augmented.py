"""Rivals that get the changes of images that coherence gets, on the labelled rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import SVC

from protocol.augmentations import AUGMENTATIONS
from protocol.bench import Bench
from protocol.methods import Contender
from protocol.rival_classifiers import principal_components
from protocol.scratch import scratch_contender, variant
from rivals.augmented import AugmentedClassifier
from sklearn_mmdinit import RandomAffine

__all__ = ["AUGMENTED", "augmented_rivals", "augmented_svm"]

# Of each labelled row.
N_COPIES = 20


def _change(bench: Bench) -> RandomAffine:
    change = AUGMENTATIONS[bench.network.augmentation]
    assert change is not None  # else these rivals cannot be asked for
    return change


def _identity(bench: Bench) -> dict[str, object]:
    return {"n_copies": N_COPIES, "augmentation": repr(_change(bench))}


def augmented_svm(name: str, bench: Bench, *features: Any) -> Contender:
    """An RBF-SVM on features of the pixels, with changed copies of the labelled rows.

    Parameters
    ----------
    name : str
        Its row in the tables.
    bench : Bench
        With an augmentation.
    *features : transformer
        Fitted, one after the other; the last are principal components.
    """
    svm = make_pipeline(*map(FrozenEstimator, features), SVC(C=10.0))
    trained = AugmentedClassifier(svm, _change(bench), N_COPIES)
    seed, n_train = bench.options.seed, len(bench.X_unlabelled)
    identity = {"seed": seed, "n_train": n_train, "n_components": features[-1].n_components}
    return Contender(
        name,
        bench.X,
        lambda random_state: clone(trained).set_params(random_state=random_state),
        identity | {"C": 10.0, "changes": "of each task"} | _identity(bench),
    )


def _svm(name: str, bench: Bench) -> Contender:
    return augmented_svm(name, bench, principal_components(bench.X_unlabelled, bench.options.seed))


def _scratch(name: str, bench: Bench) -> Contender:
    def augmented(pipeline: Pipeline, random_state: int) -> Pipeline:
        trained = AugmentedClassifier(pipeline, _change(bench), N_COPIES, random_state)
        return make_pipeline(trained)

    scratch = scratch_contender(bench.X, bench.network)
    return variant(scratch, name, augmented, _identity(bench))


AUGMENTED: dict[str, Callable[[str, Bench], Contender]] = {
    "rival/augmented-svm": _svm,
    "rival/augmented-scratch": _scratch,
}
"""In the order of the tables; they are there with ``--augmentation`` alone."""


def augmented_rivals(names: Sequence[str], bench: Bench) -> list[Contender]:
    """Those of AUGMENTED that are among the names."""
    return [AUGMENTED[name](name, bench) for name in names if name in AUGMENTED]
