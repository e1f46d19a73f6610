"""Claim: the whole public interface works, in the order in which a user meets it.

Each step prints a line with its figure and says whether what it shows holds; one that does not
ends the tour with status 1. The data are scikit-learn's 1,797 digits of 8 x 8 pixels. ``theory``
has a command of its own, ``theorems.py``.

Run it (about two minutes on one core; half a minute with ``--quick``, on 300 of the digits)::

    pip install 'sklearn_mmdinit[onnx,plot]' onnxruntime
    python benchmarks/tour.py
    python benchmarks/tour.py --quick

Pictures and files go to the output folder. Accuracies are of one theta0 and a few draws: see the
other commands for figures to rely on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from matplotlib import pyplot
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit, cross_val_score
from sklearn.neighbors import kneighbors_graph
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer
from skorch import NeuralNetClassifier
from torch import nn

import sklearn_mmdinit as mmd
from protocol.command import OUTPUT, command_parser
from protocol.networks import ConvNet
from sklearn_mmdinit import MLPClassifier, MMDInitializer, diagnostics, display

__all__ = ["main"]

HIDDEN = (64, 64)
SMALL: dict[str, Any] = {"n_perturbations": 8, "batch_size": 8, "random_state": 0}


class Tour:
    """The digits, of which `few` have labels, and whether all has held so far."""

    def __init__(self, folder: Path, quick: bool) -> None:
        X, self.y = load_digits(return_X_y=True)
        n = 300 if quick else len(X)
        self.X, self.y = (X[:n] / 16).astype(np.float32), self.y[:n]
        self.folder, self.quick = folder, quick
        self.images = (self.X - 0.3).reshape(n, 1, 8, 8)
        ((self.few, self.rest),) = self.draws(50, 1)
        self.n_steps, self.all_hold = 0, True

    def draws(self, n_labels: int, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Rows with labels and all others."""
        split = StratifiedShuffleSplit(n, train_size=n_labels, random_state=0)
        return list(split.split(self.X, self.y))

    def show(self, step: str, figure: str, holds: Any) -> None:
        """Print a step's line."""
        self.n_steps, self.all_hold = self.n_steps + 1, self.all_hold and bool(holds)
        print(f"{self.n_steps}. {step}: {figure}{'' if holds else ' DOES NOT HOLD'}", flush=True)

    def save(self, name: str, drawn: Any) -> None:
        """Write a picture, and close it."""
        drawn.figure_.savefig(self.folder / f"tour-{name}.png", bbox_inches="tight")
        pyplot.close(drawn.figure_)

    def coherent(self, max_iter: int = 60, **params: Any) -> MMDInitializer:
        """An initializer with coherence, for ten classes."""
        own: dict[str, Any] = {"coherence": "auto"}
        own |= {"max_iter": 4 if self.quick else max_iter, "random_state": 0}
        return MMDInitializer(HIDDEN, n_classes=10, **own | params)

    def classifier(self, start: Any, **params: Any) -> MLPClassifier:
        """A classifier with few epochs."""
        own: dict[str, Any] = {"max_iter": 4 if self.quick else 30, "random_state": 0}
        return MLPClassifier(HIDDEN, warm_start_from=start, **own | params)


def same(one: Any, other: Any) -> bool:
    """Whether two lists of arrays are equal, bit for bit."""
    return all(map(np.array_equal, one, other))


def paper(t: Tour) -> None:
    """The paper's objective, and what it changes."""
    few, window = (4, 9) if t.quick else (20, 50)
    init = MMDInitializer(HIDDEN, max_iter=few, window=window, random_state=0).fit(t.X)
    t.save("loss", display.LossCurveDisplay.from_estimator(init))
    figure = f"loss {init.loss_curve_[0]:.3f}, then {init.best_loss_:.3f}"
    t.show("MMDInitializer", figure, init.best_loss_ < init.loss_curve_[0])

    loss = mmd.RandomLabelInitializer(HIDDEN, max_iter=2, random_state=0).fit(t.X).best_loss_
    t.show("RandomLabelInitializer", f"loss {loss:.3f}", 0.5 < loss < 0.9)

    begun = MMDInitializer(HIDDEN, max_iter=0, random_state=0).fit(t.X)
    both = {"n_batches": 4 if t.quick else 32, "random_state": 0}
    ratios = [diagnostics.degenerate_softmax_ratio(i, t.X, **both).mean() for i in (begun, init)]
    dead = diagnostics.dead_neuron_ratio(init, t.X, **both).mean()
    samples = [diagnostics.prediction_samples(i, t.X[:4], random_state=0) for i in (begun, init)]
    t.save("densities", display.PredictionDensityDisplay.from_predictions(*samples))
    figure = f"degenerate softmax {ratios[0]:.0%}, then {ratios[1]:.0%}; {dead:.1%} of units dead"
    t.show("diagnostics", figure, ratios[1] <= ratios[0])

    terms = [float(mmd.losses.degeneracy(torch.from_numpy(P))) for P in samples]
    t.show("losses", "L_sd {:.3f}, then {:.3f}".format(*terms), min(terms) >= 0)


def coherence(t: Tour) -> MMDInitializer:
    """The fourth term, its neighbours and its augmentation."""
    init, alike = t.coherent().fit(t.X), t.y[:200, None] == t.y[None, :200]
    t.save("coherence", display.CoherenceDisplay.from_estimator(init, t.X[:200]))
    kernel = diagnostics.coherence_kernel(init, t.X[:200])
    within, between = kernel[alike & ~np.eye(200, dtype=bool)].mean(), kernel[~alike].mean()
    figure = f"kernel {within:.2f} within a digit, {between:.2f} between digits"
    t.show('coherence="auto"', figure, within > between)

    own = mmd.Coherence(embedding=mmd.OrientedGradients(), augmentation=mmd.RandomAffine(shift=1.0))
    first = t.coherent(output="hidden", coherence=own).fit(t.X)
    places = {"pixels": t.X, "activations": first.transform(t.X)}
    edges = {name: kneighbors_graph(rows, 10).toarray() > 0 for name, rows in places.items()}
    share = {name: float((t.y[:, None] == t.y)[graph].mean()) for name, graph in edges.items()}
    figure = ", ".join(f"{value:.1%} of {name}" for name, value in share.items())
    step = "Coherence(embedding=, augmentation=), neighbours of one digit"
    t.show(step, figure, t.quick or share["activations"] > share["pixels"])
    return init


def fine_tuning(t: Tour, init: MMDInitializer) -> None:
    """From theta0 to a classifier, as users of scikit-learn go there."""
    frozen, features = FrozenEstimator(init), FrozenEstimator(t.coherent(output="hidden").fit(t.X))
    linear = make_pipeline(features, Normalizer(), LogisticRegression(C=100, max_iter=1000))
    ways = {"scratch": t.classifier(None), "theta0": t.classifier(frozen), "features": linear}
    sizes = (30, 50)
    draws = [t.draws(n_labels, 2 if t.quick else 5) for n_labels in sizes]
    scores = {
        name: [cross_val_score(way, t.X, t.y, cv=cv) for cv in draws] for name, way in ways.items()
    }
    t.save("accuracy", display.TaskAccuracyDisplay.from_scores(sizes, scores))
    mean = {name: float(np.mean(own)) for name, own in scores.items()}
    figure = ", ".join(f"{name} {value:.3f}" for name, value in mean.items())
    t.show("MLPClassifier with few labels", figure, mean["scratch"] < min(list(mean.values())[1:]))

    pipeline = Pipeline([("init", t.coherent(10)), ("clf", t.classifier("pipeline"))])
    grid = {"init__coherence__walk_length": [5.0, 40.0]}
    best = GridSearchCV(pipeline, grid, cv=2).fit(t.X, t.y).best_estimator_
    chosen, coefs = best["init"].coherence.walk_length, best["clf"].theta0_.coefs
    t.show("GridSearchCV", f"walk_length {chosen:g}", same(best["init"].coefs_, coefs))

    y = np.where(np.isin(np.arange(len(t.y)), t.few), t.y, -1)
    among = t.classifier(t.coherent(20), unlabelled_label=-1).fit(t.X, y)
    figure = f"accuracy {among.score(t.X[t.rest], t.y[t.rest]):.3f}"
    t.show("unlabelled rows among the others", figure, -1 not in among.classes_)

    path = t.folder / "tour-theta0.safetensors"
    mmd.save_theta0(path, init)
    loaded = mmd.load_theta0(path)
    clf: Any = t.classifier(path).fit(t.X[t.few], t.y[t.few])
    holds = same(loaded.coefs, init.coefs_) and same(clf.theta0_.coefs, init.coefs_)
    t.show("save_theta0, load_theta0", f"{path.stat().st_size} bytes", holds)

    clf.to_onnx(t.folder / "tour.onnx")
    run = onnxruntime.InferenceSession(t.folder / "tour.onnx")
    (by_onnx,) = run.run(["probabilities"], {"X": t.X})
    apart = np.ptp([clf.predict_proba(t.X), clf.to_sklearn().predict_proba(t.X), by_onnx], 0).max()
    t.show("to_sklearn, to_onnx", f"probabilities {apart:.1e} apart", apart < 1e-5)


class Scale(nn.Module):
    """One weight for each feature: a layer that the library does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features, each times its weight."""
        return x * self.weight


def modules(t: Tour) -> None:
    """Any PyTorch module: as an estimator, in place, in skorch."""
    params = {"coherence": "auto", "max_iter": 4 if t.quick else 60, **SMALL}
    init = MMDInitializer(module=ConvNet, module__n_classes=10, **params).fit(t.images)
    common: dict[str, Any] = {"max_iter": 3 if t.quick else 100, "random_state": 0}
    score = []
    for start in (None, FrozenEstimator(init)):
        clf = mmd.NetClassifier(ConvNet, warm_start_from=start, **common)
        clf.fit(t.images[t.few], t.y[t.few])
        score.append(clf.score(t.images[t.rest], t.y[t.rest]))
    figure = "scratch {:.3f}, theta0 {:.3f}".format(*score)
    t.show("NetClassifier, a ConvNet", figure, t.quick or score[0] < score[1])

    net = mmd.MLP(64, HIDDEN, 10)
    before = [weight.detach().clone() for weight in net.parameters()]
    mmd.mmd_init_(net, torch.from_numpy(t.X), max_iter=1, **SMALL)
    moved = [not torch.equal(a, b) for a, b in zip(net.parameters(), before, strict=True)]
    t.show("mmd_init_, MLP", f"{sum(moved)} of {len(moved)} arrays moved", all(moved))

    own = {"criterion": nn.CrossEntropyLoss, "train_split": None, "verbose": 0}
    skorch = NeuralNetClassifier(
        ConvNet, module__n_classes=10, max_epochs=0, callbacks=[mmd.WarmStart(init)], **own
    ).fit(t.images[t.few], t.y[t.few])
    begun, arrays = skorch.module_.state_dict(), init.theta0_.arrays
    holds = all(np.array_equal(begun[name], array) for name, array in arrays.items())
    t.show("WarmStart, a callback of skorch's", f"{len(arrays)} arrays", holds)

    scaled = nn.Sequential(Scale(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2))
    unknown = MMDInitializer(module=scaled, max_iter=1, **SMALL).fit(t.X)
    mmd.register_layer(Scale, lambda layer, s: {"weight": s})  # one weight an output
    known = clone(unknown).fit(t.X)
    samplers = [sorted(set(each.samplers_.values())) for each in (unknown, known)]
    t.show("register_layer", "{}, then {}".format(*samplers), "functional" not in samplers[1])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if all that the steps show holds."""
    parser = command_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="little data and few steps")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    tour = Tour(options.output, options.quick)
    paper(tour)
    fine_tuning(tour, coherence(tour))
    modules(tour)
    return 0 if tour.all_hold else 1


if __name__ == "__main__":
    raise SystemExit(main())
