"""Photographs with few labels: starts learned on views without labels, and what labels add."""

import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader

from data.datasets import Report
from data.photographs import Pairs, Photographs, as_floats
from protocol.networks import ResNetBody
from protocol.store import Log, code_digest, deciding_versions, digest_of, write_atomically
from protocol.tasks import rows_of_classes, seed_of
from rivals import from_embeddings as rules
from rivals.from_views import fixmatch_loss, nt_xent, optimise
from rivals.wrappers import normalized_graph, spread_labels, symmetric_graph
from sklearn_mmdinit import Coherence, RandomView, linear_probe_, mmd_init_

# To be raised where what is measured changes otherwise than by a parameter.
FORM = 3
N_NEIGHBORS, N_VOTERS, N_AT_A_TIME = 10, 20, 1000
SEPARATION, START_RATE, LABEL_RATE, FINE_RATE = 8.0, 2e-3, 1e-3, 3e-4
LOGISTIC_C = 3.0  # of rows of length 1


@dataclass(frozen=True)
class Setting:
    """How much of the data, how large a network, and how long it trains."""

    images: int
    test_images: int
    width: int
    stride: int  # of the first convolution
    epochs: int  # of the starts
    pairs: int  # a step
    steps: int  # of fine-tuning
    fixmatch_steps: int  # of FixMatch from a start

    def of_start(self) -> dict[str, int]:
        """What a start depends on."""
        idle = ("steps", "fixmatch_steps")
        return {name: value for name, value in asdict(self).items() if name not in idle}


PRESETS: dict[str, dict[str, Any]] = {
    "cpu": asdict(Setting(5_000, 2_000, 16, 2, 15, 128, 120, fixmatch_steps=150))
    | {"n_labels": (4, 25), "draws": 3},
    "hour": asdict(Setting(50_000, 10_000, 16, 2, 24, 256, 200, fixmatch_steps=400))
    | {"n_labels": (1, 4, 25), "draws": 5},
}
"""What a preset measures unless the command line says otherwise."""


@dataclass(eq=False)
class Made:
    """The body of a start, its features in rows of length 1, and neighbours by them."""

    body: ResNetBody
    X: torch.Tensor
    X_test: torch.Tensor
    neighbours: torch.Tensor
    test_neighbours: torch.Tensor


@dataclass(eq=False)
class Bench:
    """A random part of a set on a device, what is known of it, and what its starts share.

    ``seconds`` are those of what trains from fresh weights: as many as VIEWS took.
    """

    data: Photographs
    setting: Setting
    log: Log
    seed: int = 0
    device: str = "cpu"
    seconds: float | None = None
    verbose: bool = False
    report: Report = print

    def __post_init__(self) -> None:
        rng, whole = np.random.default_rng(seed_of(self.seed, self.data.name)), self.data
        some = rng.permutation(len(whole.y))[: self.setting.images]
        test = rng.permutation(len(whole.y_test))[: self.setting.test_images]
        X, y, X_test, y_test = whole.X[some], whole.y[some], whole.X_test[test], whole.y_test[test]
        if len(X) < max(self.setting.pairs, 7):  # FixMatch has at least seven images a step
            raise ValueError(f"a step takes more than the {len(X)} images; pass a smaller --pairs")
        self.data = replace(whole, X=X, y=y, X_test=X_test, y_test=y_test)
        self.X, self.X_test = (torch.from_numpy(part).to(self.device) for part in (X, X_test))
        self.view = RandomView()

    def fresh_body(self) -> ResNetBody:
        torch.manual_seed(self.seed)
        body = ResNetBody(self.setting.width, self.setting.stride)
        return body.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def labelled_rows(self, n_labels: int, draw: int) -> np.ndarray:
        """Rows of N images of each class; fewer are part of more."""
        counts = np.bincount(self.data.y, minlength=int(self.data.y_test.max()) + 1)
        if (fewest := int(counts.min())) < n_labels:
            raise ValueError(
                f"class {counts.argmin()} has {fewest} training images, and N is {n_labels}; pass "
                "a smaller --n-labels"
            )
        return rows_of_classes(self.data.y, n_labels, seed_of(self.seed, draw))

    def clock(self) -> float:
        """Seconds: on a CPU those of all its cores that this process had."""
        return time.process_time() if self.device == "cpu" else time.perf_counter()

    def optimise(self, module: nn.Module, loss: Callable[[], Any], rate: float, steps: int) -> None:
        """Train for so many steps; with 0 for as many seconds as VIEWS took."""
        limit = {"steps": steps} if steps else {"seconds": self.seconds or 0.0}
        optimise(module, loss, rate, clock=self.clock, **limit)


# Starts


def _with_head(body: ResNetBody, n_classes: int = 0) -> nn.Module:
    """A body, a head of two layers, and a last layer; head and last layer are cut off later."""
    width = body.n_features // 2
    head = [nn.Linear(body.n_features, width), nn.BatchNorm1d(width), nn.ReLU()]
    last = [nn.Linear(width, n_classes)] if n_classes else []
    module = nn.Sequential(body, *head, nn.Linear(width, width), *last)
    return module.to(next(body.parameters()).device).train()


def _learn(bench: Bench) -> ResNetBody:
    """Coherence of two views of each image."""
    body = bench.fresh_body()
    with warnings.catch_warnings():
        # The number of epochs is given: that the loss still falls is no news.
        warnings.simplefilter("ignore", ConvergenceWarning)
        mmd_init_(
            _with_head(body, bench.data.n_classes),
            DataLoader(Pairs(bench.X, bench.setting.pairs), batch_size=None),
            views=2,
            coherence=Coherence(separation=SEPARATION, augmentation=bench.view),
            learning_rate_init=START_RATE,
            random_state=bench.seed,
            verbose=bench.verbose,
            max_iter=bench.setting.epochs,
        )
    return body


def _contrastive(bench: Bench) -> ResNetBody:
    """NT-Xent of the same views in the same seconds."""
    body = bench.fresh_body()
    module, batches = _with_head(body), _endless(bench, bench.setting.pairs)

    def loss() -> torch.Tensor:
        return nt_xent(module(torch.cat([bench.view(x) for x in next(batches)])))

    bench.optimise(module, loss, START_RATE, steps=0)
    return body


def _endless(bench: Bench, size: int) -> Any:
    return chain.from_iterable(repeat(Pairs(bench.X, size)))


VIEWS, CONTRASTIVE = "views", "NT-Xent"
STARTS: dict[str, Callable[[Bench], ResNetBody]] = {VIEWS: _learn, CONTRASTIVE: _contrastive}


def start_key(bench: Bench, start: str) -> str:
    """What stands for all that decides a start."""
    parts = [FORM, start, bench.data.digest, bench.setting.of_start(), bench.seed, bench.device]
    parts += [bench.seconds] if start == CONTRASTIVE else []
    return digest_of([*parts, code_digest(), deciding_versions()])


@cache
def made_start(bench: Bench, start: str) -> Made:
    """A start, learned where it was not yet, and its features."""
    key, records = start_key(bench, start), bench.log.records
    path = bench.log.path.parent / "photographs" / f"{bench.data.name}-{key}.pt"
    if key in records and path.exists():
        return _described(bench, torch.load(path, map_location=bench.device))
    bench.report(f"{start}: learning without labels")
    before = bench.clock()
    body = STARTS[start](bench)
    seconds = bench.clock() - before
    write_atomically(path, lambda part: torch.save(body.state_dict(), part))
    made, y = _described(bench, body.state_dict()), bench.data.y
    voters = _nearest(made.X_test, made.X, N_VOTERS).cpu().numpy()
    votes = np.stack([(y[voters] == c).sum(axis=1) for c in range(bench.data.n_classes)], axis=1)
    same = y[made.neighbours.cpu().numpy()] == y[:, None]
    nearest = float((votes.argmax(axis=1) == bench.data.y_test).mean())
    record = {"key": key, "set": bench.data.name, "once": start, "seconds": round(seconds, 2)}
    record |= {"nearest": round(100 * nearest, 2), "agreement": round(100 * float(same.mean()), 2)}
    bench.log.append(record)
    return made


def _described(bench: Bench, state: dict[str, torch.Tensor]) -> Made:
    body = bench.fresh_body()
    body.load_state_dict(state)
    X, X_test = _outputs(body, bench.X), _outputs(body, bench.X_test)
    X, X_test = (normalize(rows - X.mean(dim=0), dim=1) for rows in (X, X_test))
    # Without the image itself, which is the first.
    inside = _nearest(X, X, N_NEIGHBORS + 1)[:, 1:]
    return Made(body, X, X_test, inside, _nearest(X_test, X, N_NEIGHBORS))


@torch.no_grad()
def _outputs(module: nn.Module, images: torch.Tensor) -> torch.Tensor:
    module.eval()
    return torch.cat([module(as_floats(part)) for part in torch.split(images, N_AT_A_TIME)])


def _nearest(X: torch.Tensor, among: torch.Tensor, k: int) -> torch.Tensor:
    """The k rows (n, k) with the largest cosines; all rows have a length of 1."""
    parts = torch.split(X, N_AT_A_TIME)
    return torch.cat([(part @ among.T).topk(k, dim=1).indices for part in parts])


# Methods: of a bench, a start and labelled rows the predicted classes of the test images


def _logistic(bench: Bench, made: Made, labelled: np.ndarray) -> np.ndarray:
    X, X_test, y = made.X.cpu().numpy(), made.X_test.cpu().numpy(), bench.data.y[labelled]
    draw = rules.Draw(X[labelled], y, X, X_test, bench.data.n_classes)
    return rules.logistic(draw, LOGISTIC_C)


def _label_spreading(bench: Bench, made: Made, labelled: np.ndarray) -> np.ndarray:
    """Label spreading with classes of equal mass."""
    graph = normalized_graph(symmetric_graph(made.neighbours.cpu().numpy())).astype(np.float32)
    y, n_classes = bench.data.y[labelled], bench.data.n_classes
    scores = spread_labels(graph, labelled, y, n_classes, alpha=0.99, n_iter=60)
    scores = scores / scores.sum(axis=0)
    return scores[made.test_neighbours.cpu().numpy()].sum(axis=1).argmax(axis=1)


def _classifier(bench: Bench, body: ResNetBody) -> nn.Sequential:
    torch.manual_seed(bench.seed)
    return nn.Sequential(body, nn.Linear(body.n_features, bench.data.n_classes)).to(bench.device)


def _with_fitted_layer(bench: Bench, made: Made, labelled: np.ndarray) -> nn.Module:
    """A copy of a start with a last layer that a logistic regression has fitted."""
    net = _classifier(bench, deepcopy(made.body))
    images = bench.X[torch.from_numpy(labelled).to(bench.device)]
    return linear_probe_(net, as_floats(images), bench.data.y[labelled])


def _predicted(bench: Bench, net: nn.Module) -> np.ndarray:
    return _outputs(net, bench.X_test).argmax(dim=1).cpu().numpy()


def _draw(bench: Bench, rows: np.ndarray, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """So many of the rows as images from 0 to 1, and their classes."""
    some = torch.from_numpy(rows)[torch.randint(len(rows), (size,))]
    classes = torch.from_numpy(bench.data.y)[some].to(bench.device)
    return as_floats(bench.X[some.to(bench.device)]), classes


def _trained(
    bench: Bench, net: nn.Module, labelled: np.ndarray, rate: float = LABEL_RATE, steps: int = 0
) -> np.ndarray:
    """Classes of the test images by a network that learns random views of the labelled ones."""
    net.train()

    def loss() -> torch.Tensor:
        x, y = _draw(bench, labelled, bench.setting.pairs // 4)
        return cross_entropy(net(bench.view(x)), y)

    bench.optimise(net, loss, rate, steps)
    return _predicted(bench, net)


def _fine_tuned(bench: Bench, made: Made, labelled: np.ndarray) -> np.ndarray:
    """First the last layer, by a logistic regression, then all layers."""
    net = _with_fitted_layer(bench, made, labelled)
    return _trained(bench, net, labelled, FINE_RATE, bench.setting.steps)


def _fresh(bench: Bench, made: None, labelled: np.ndarray) -> np.ndarray:
    return _trained(bench, _classifier(bench, bench.fresh_body()), labelled)


def _fixmatch(bench: Bench, made: Made | None, labelled: np.ndarray) -> np.ndarray:
    """From fresh weights as long as VIEWS, or from a start.

    A step has seven unlabelled images for a labelled one.
    """
    steps, size = 0, max(bench.setting.pairs // 8, 1)
    net: nn.Module = _classifier(bench, bench.fresh_body())
    if made is not None:
        net, steps = _with_fitted_layer(bench, made, labelled), bench.setting.fixmatch_steps
    net.train()
    weak = RandomView(least_area=0.7, color=0.0, gray=0.0)
    strong = RandomView(color=0.8)
    batches = _endless(bench, 7 * size)

    def loss() -> torch.Tensor:
        (x, y), (u, _) = _draw(bench, labelled, size), next(batches)
        return fixmatch_loss(net, weak(x), y, weak(u), strong(u))

    bench.optimise(net, loss, LABEL_RATE, steps)
    return _predicted(bench, net)


@dataclass(frozen=True, eq=False)
class Method:
    """A rule, the start that it needs, and whether it takes long: then few draws have it."""

    predict: Callable[[Bench, Any, np.ndarray], np.ndarray]
    start: str | None = None
    is_long: bool = False


_OF_A_START = {
    "logistic": Method(_logistic),
    "label spreading": Method(_label_spreading),
    "fine-tuned": Method(_fine_tuned),
    "FixMatch": Method(_fixmatch, is_long=True),
}
METHODS = {
    f"{start}: {name}": replace(method, start=start)
    for start in STARTS
    for name, method in _OF_A_START.items()
} | {
    "fresh weights, strong views": Method(_fresh, is_long=True),
    "FixMatch": Method(_fixmatch, is_long=True),
}


def record_key(bench: Bench, method: str, n_labels: int, draw: int) -> str:
    """What stands for all that decides a record."""
    start = METHODS[method].start
    parts = [FORM, start_key(bench, start or VIEWS), method, n_labels, draw]
    parts += [] if start else [bench.seconds]
    return digest_of([*parts, asdict(bench.setting)])


def score(bench: Bench, method: str, n_labels: int, draw: int) -> None:
    """Add the record of a method on one draw, unless it is there."""
    key, start = record_key(bench, method, n_labels, draw), METHODS[method].start
    if key in bench.log.records:
        return
    made = made_start(bench, start) if start else None
    before = bench.clock()
    guess = METHODS[method].predict(bench, made, bench.labelled_rows(n_labels, draw))
    seconds = bench.clock() - before
    accuracy = float((guess == bench.data.y_test).mean())
    record: dict[str, Any] = {"key": key, "set": bench.data.name, "n_labels": n_labels}
    record |= {"draw": draw, "method": method, "accuracy": round(accuracy, 6)}
    bench.log.append(record | {"seconds": round(seconds, 3)})
    bench.report(f"{method}, N = {n_labels}, draw {draw}: {accuracy:.1%}")
