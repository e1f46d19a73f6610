"""Photographs with few labels: starts learned on views without labels, and what labels add.

A start is made once. A method predicts the classes of the test images from it, or trains a network
from fresh weights for as many seconds as the first start took.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from data.photographs import Photographs
from data.views import Pairs, RandomView, as_floats
from protocol.networks import ResNetBody
from protocol.sets import seed_of
from protocol.store import code_digest, deciding_versions, digest_of, write_atomically
from rivals import from_embeddings as rules
from rivals.from_views import fixmatch_loss, nt_xent, optimise
from rivals.wrappers import normalized_graph, symmetric_graph
from sklearn_mmdinit import Coherence, mmd_init_

# To be raised where what is measured changes otherwise than by a parameter.
FORM = 1
N_NEIGHBORS, N_VOTERS, N_AT_A_TIME = 10, 20, 1000
SEPARATION, START_RATE, LABEL_RATE = 8.0, 2e-3, 1e-3
SURE = 0.8  # share of the images whose pseudo-labels a student learns


@dataclass(frozen=True)
class Setting:
    """How much of the data, how large a network, and how long it trains."""

    images: int
    test_images: int
    width: int
    stride: int  # of the first convolution
    epochs: int  # of the starts; of the second stage half as many
    pairs: int  # a step
    perturbations: int  # K of the paper's terms, and their images a step
    steps: int  # of fine-tuning
    student_epochs: int

    def of_start(self) -> dict[str, int]:
        """What a start depends on."""
        idle = ("steps", "student_epochs")
        return {name: value for name, value in asdict(self).items() if name not in idle}


PRESETS = {
    "cpu": Setting(5_000, 2_000, 16, 2, 15, 128, 4, steps=120, student_epochs=4),
    "gpu": Setting(50_000, 10_000, 64, 1, 188, 512, 8, steps=300, student_epochs=8),
}
CELLS: dict[str, dict[str, Any]] = {
    "cpu": {"n_labels": (4, 25), "draws": 3},
    "gpu": {"n_labels": (1, 4, 25, 100, 400), "draws": 5},
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


@dataclass(frozen=True, eq=False)
class Bench:
    """A part of a set on a device, and what every start and method shares."""

    data: Photographs
    setting: Setting
    seed: int
    device: str
    folder: Path
    progress: bool = False
    seconds: float | None = None  # of what trains from fresh weights; None: as long as VIEWS
    records: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, whole: Photographs, setting: Setting, **arguments: Any) -> "Bench":
        """Of as many images as the setting says, drawn at random."""
        rng = np.random.default_rng(seed_of(arguments["seed"], whole.name))
        some = rng.permutation(len(whole.y))[: setting.images]
        test = rng.permutation(len(whole.y_test))[: setting.test_images]
        X, y, X_test, y_test = whole.X[some], whole.y[some], whole.X_test[test], whole.y_test[test]
        data = replace(whole, X=X, y=y, X_test=X_test, y_test=y_test)
        return cls(data, setting, **arguments)

    @cached_property
    def X(self) -> torch.Tensor:
        return torch.from_numpy(self.data.X).to(self.device)

    @cached_property
    def X_test(self) -> torch.Tensor:
        return torch.from_numpy(self.data.X_test).to(self.device)

    @cached_property
    def digest(self) -> str:
        return self.data.digest

    @cached_property
    def view(self) -> RandomView:
        return RandomView().to(self.device)

    def fresh_body(self) -> ResNetBody:
        torch.manual_seed(self.seed)
        body = ResNetBody(self.setting.width, self.setting.stride)
        return body.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def labelled_rows(self, n_labels: int, draw: int) -> np.ndarray:
        """Rows of N images of each class; fewer are part of more."""
        order = np.random.default_rng(seed_of(self.seed, draw)).permutation(len(self.data.y))
        of_classes = (order[self.data.y[order] == c][:n_labels] for c in range(self.data.n_classes))
        return np.concatenate([*of_classes])

    def clock(self) -> float:
        """Seconds: on a CPU those of all its cores that this process had."""
        return time.process_time() if self.device == "cpu" else time.perf_counter()

    def rival_seconds(self) -> float:
        """How long whatever is compared with VIEWS trains."""
        if self.seconds is not None:
            return self.seconds
        if (record := self.records.get(start_key(self, VIEWS))) is None:
            raise ValueError(
                f"what trains as long as the start {VIEWS!r} needs its seconds, and it was not "
                f"measured here: add a method of {VIEWS!r}, or pass --seconds"
            )
        return float(record["seconds"])


# Starts


def _module(body: ResNetBody, n_classes: int = 0) -> nn.Sequential:
    """A body with a head of two layers, and a last layer behind which is cut off with the head."""
    width = body.n_features // 2
    head = [nn.Linear(body.n_features, width), nn.BatchNorm1d(width), nn.ReLU()]
    last = [nn.Linear(width, n_classes)] if n_classes else []
    module = nn.Sequential(body, *head, nn.Linear(width, width), *last)
    return module.to(next(body.parameters()).device).train()


def _learn(bench: Bench, body: ResNetBody, **params: Any) -> None:
    """Coherence of two views of each image, without the paper's terms unless they are given."""
    neighbours = params.pop("neighbours", None)
    weights = dict.fromkeys(("uniformity_weight", "degeneracy_weight", "detachment_weight"), 0.0)
    pairs = Pairs(bench.X, bench.setting.pairs, neighbours)
    with warnings.catch_warnings():
        # The number of epochs is given: that the loss still falls is no news.
        warnings.simplefilter("ignore", ConvergenceWarning)
        mmd_init_(
            _module(body, bench.data.n_classes),
            DataLoader(pairs, batch_size=None),
            coherence=Coherence(separation=SEPARATION, augmentation=bench.view),
            learning_rate_init=START_RATE,
            random_state=bench.seed,
            verbose=int(bench.progress),
            **{"max_iter": bench.setting.epochs} | weights | params,
        )


def _views(bench: Bench) -> ResNetBody:
    body = bench.fresh_body()
    _learn(bench, body)
    return body


def _with_paper(bench: Bench) -> ResNetBody:
    """The paper's terms beside it, of few networks and images."""
    body, n = bench.fresh_body(), bench.setting.perturbations
    paper = {"uniformity_weight": 1.0, "degeneracy_weight": 0.4, "detachment_weight": 1.0}
    _learn(bench, body, n_perturbations=n, batch_size=n, **paper)
    return body


def _then_neighbours(bench: Bench) -> ResNetBody:
    """A second stage: half of the pairs are neighbours among the features of the first."""
    first = made_start(bench, VIEWS)
    epochs = max(bench.setting.epochs // 2, 1)
    _learn(bench, first.body, neighbours=first.neighbours, max_iter=epochs)
    return first.body


def _contrastive(bench: Bench) -> ResNetBody:
    """NT-Xent of the same views in the same seconds."""
    body = bench.fresh_body()
    module, batches = _module(body), _endless(Pairs(bench.X, bench.setting.pairs))

    def loss() -> torch.Tensor:
        first, second = next(batches)
        return nt_xent(module(torch.cat([bench.view(first), bench.view(second)])))

    optimise(module, loss, START_RATE, seconds=bench.rival_seconds(), clock=bench.clock)
    return body


def _endless(pairs: Pairs) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    while True:
        yield from pairs


VIEWS, NEIGHBOURS, CONTRASTIVE = "views", "views, then neighbours", "NT-Xent"
STARTS: dict[str, Callable[[Bench], ResNetBody]] = {
    VIEWS: _views,
    NEIGHBOURS: _then_neighbours,
    "views and the paper's terms": _with_paper,
    CONTRASTIVE: _contrastive,
}


def start_key(bench: Bench, start: str) -> str:
    """What stands for all that decides a start."""
    parts = [FORM, start, bench.digest, bench.setting.of_start(), bench.seed, bench.device]
    if start == CONTRASTIVE:
        parts.append(bench.seconds)
    return digest_of([*parts, code_digest(), deciding_versions()])


def needed_starts(start: str) -> list[str]:
    """What has to be made for a start, in order."""
    return [VIEWS, start] if start == NEIGHBOURS else [start]


def _path(bench: Bench, start: str) -> Path:
    return bench.folder / f"{bench.data.name}-{start_key(bench, start)}.pt"


def is_made(bench: Bench, start: str) -> bool:
    return start_key(bench, start) in bench.records and _path(bench, start).exists()


def make_start(bench: Bench, start: str) -> dict[str, Any]:
    """Learn a start and write its body; the record that says what it took and how good it is."""
    before = bench.clock()
    body = STARTS[start](bench)
    seconds = bench.clock() - before
    if start == NEIGHBOURS:
        seconds += bench.records[start_key(bench, VIEWS)]["seconds"]
    write_atomically(_path(bench, start), lambda part: torch.save(body.state_dict(), part))
    made = made_start(bench, start)
    y, y_test = bench.data.y, bench.data.y_test
    voters = nearest(made.X_test, made.X, N_VOTERS).cpu().numpy()
    votes = np.stack([(y[voters] == c).sum(axis=1) for c in range(bench.data.n_classes)], axis=1)
    same = y[made.neighbours.cpu().numpy()] == y[:, None]
    return {
        "key": start_key(bench, start),
        "set": bench.data.name,
        "once": start,
        "seconds": round(seconds, 2),
        "nearest": round(100.0 * float((votes.argmax(axis=1) == y_test).mean()), 2),
        "agreement": round(100.0 * float(same.mean()), 2),
    }


@torch.no_grad()
def _outputs(module: nn.Module, images: torch.Tensor) -> torch.Tensor:
    module.eval()
    return torch.cat([module(as_floats(part)) for part in torch.split(images, N_AT_A_TIME)])


def nearest(X: torch.Tensor, among: torch.Tensor, k: int) -> torch.Tensor:
    """The k rows (n, k) of ``among`` with the largest cosines; rows have a length of 1."""
    return torch.cat([(x @ among.T).topk(k, dim=1).indices for x in torch.split(X, N_AT_A_TIME)])


def made_start(bench: Bench, start: str) -> Made:
    """What was made, with its features computed anew."""
    body = bench.fresh_body()
    body.load_state_dict(torch.load(_path(bench, start), map_location=bench.device))
    X, X_test = _outputs(body, bench.X), _outputs(body, bench.X_test)
    mean = X.mean(dim=0)
    X, X_test = (nn.functional.normalize(rows - mean, dim=1) for rows in (X, X_test))
    # Without the image itself, which is the first.
    inside = nearest(X, X, N_NEIGHBORS + 1)[:, 1:]
    return Made(body, X, X_test, inside, nearest(X_test, X, N_NEIGHBORS))


# Methods

Predict = Callable[[Bench, Any, np.ndarray], np.ndarray]
"""``(bench, start, labelled rows)`` to the predicted classes of the test images."""


def _logistic(bench: Bench, made: Made, labelled: np.ndarray) -> np.ndarray:
    X, X_test = made.X.cpu().numpy(), made.X_test.cpu().numpy()
    y = bench.data.y[labelled]
    return rules.logistic(X[labelled], y, X, X_test, bench.data.n_classes)


def _spread(bench: Bench, made: Made, labelled: np.ndarray) -> np.ndarray:
    """Scores (n, n_classes) of the training images by label spreading, classes of equal mass."""
    alpha, n, y = 0.99, len(made.X), bench.data.y
    graph = normalized_graph(symmetric_graph(made.neighbours.cpu().numpy())).astype(np.float32)
    clamped = np.zeros((n, bench.data.n_classes), dtype=np.float32)
    clamped[labelled, y[labelled]] = 1.0
    scores = clamped
    for _ in range(60):
        scores = alpha * (graph @ scores) + (1.0 - alpha) * clamped
    return scores / scores.sum(axis=0)


def _label_spreading(bench: Bench, made: Made, labelled: np.ndarray) -> np.ndarray:
    scores = _spread(bench, made, labelled)
    return scores[made.test_neighbours.cpu().numpy()].sum(axis=1).argmax(axis=1)


def _classifier(body: ResNetBody, bench: Bench) -> nn.Sequential:
    torch.manual_seed(bench.seed)
    return nn.Sequential(body, nn.Linear(body.n_features, bench.data.n_classes)).to(bench.device)


def _predicted(net: nn.Module, bench: Bench) -> np.ndarray:
    return _outputs(net, bench.X_test).argmax(dim=1).cpu().numpy()


def _drawn(
    bench: Bench, rows: np.ndarray, y: np.ndarray, size: int
) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
    """A function that draws so many of the rows, as images from 0 to 1 and their labels."""
    rows_there, y_there = (torch.from_numpy(array).to(bench.device) for array in (rows, y))

    def draw() -> tuple[torch.Tensor, torch.Tensor]:
        some = torch.randint(len(rows_there), (size,), device=bench.device)
        return as_floats(bench.X[rows_there[some]]), y_there[some]

    return draw


def _trained(
    bench: Bench, body: ResNetBody, rows: np.ndarray, y: np.ndarray, **duration: Any
) -> nn.Module:
    """A network trained on random views of the rows; what duration names is optimise's."""
    net, size = _classifier(body, bench), bench.setting.pairs // 4
    draw, smoothing = _drawn(bench, rows, y, size), duration.pop("label_smoothing", 0.0)

    def loss() -> torch.Tensor:
        x, labels = draw()
        return cross_entropy(net(bench.view(x)), labels, label_smoothing=smoothing)

    optimise(net, loss, LABEL_RATE, clock=bench.clock, **duration)
    return net


def _fine_tuned(bench: Bench, made: Made, labelled: np.ndarray) -> np.ndarray:
    body = deepcopy(made.body).eval()  # few images have no statistics of their own
    net = _trained(bench, body, labelled, bench.data.y[labelled], steps=bench.setting.steps)
    return _predicted(net, bench)


def _student(bench: Bench, made: Made, labelled: np.ndarray) -> np.ndarray:
    """From the start, of the surest labels that label spreading gives."""
    scores = _spread(bench, made, labelled)
    scores = scores / np.maximum(scores.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    sure, y = scores.max(axis=1), scores.argmax(axis=1)
    y[labelled], sure[labelled] = bench.data.y[labelled], 1.0
    rows = np.flatnonzero(sure >= np.quantile(sure, 1.0 - SURE))
    steps = bench.setting.student_epochs * max(len(rows) // (bench.setting.pairs // 4), 1)
    body = deepcopy(made.body).train()
    net = _trained(bench, body, rows, y[rows], steps=steps, label_smoothing=0.1)
    return _predicted(net, bench)


def _fresh(bench: Bench, made: None, labelled: np.ndarray) -> np.ndarray:
    seconds = bench.rival_seconds()
    y = bench.data.y[labelled]
    return _predicted(_trained(bench, bench.fresh_body(), labelled, y, seconds=seconds), bench)


def _fixmatch(bench: Bench, made: None, labelled: np.ndarray) -> np.ndarray:
    """Seven unlabelled images for a labelled one; strong views have other colours and parts."""
    net, size = _classifier(bench.fresh_body(), bench), max(bench.setting.pairs // 8, 1)
    weak, strong = RandomView(0.7, colour=0.0, grey=0.0), RandomView(0.2, colour=0.8)
    weak, strong = weak.to(bench.device), strong.to(bench.device)
    draw = _drawn(bench, labelled, bench.data.y[labelled], size)
    batches = _endless(Pairs(bench.X, 7 * size))

    def loss() -> torch.Tensor:
        (x, y), (u, _) = draw(), next(batches)
        return fixmatch_loss(net, weak(x), y, weak(u), strong(u))

    optimise(net, loss, LABEL_RATE, seconds=bench.rival_seconds(), clock=bench.clock)
    return _predicted(net, bench)


@dataclass(frozen=True, eq=False)
class Method:
    """A rule, the start that it needs, and whether it takes long: then few draws have it."""

    predict: Predict
    start: str | None = None
    is_long: bool = False


_READERS = {
    "logistic": Method(_logistic),
    "label spreading": Method(_label_spreading),
    "fine-tuned": Method(_fine_tuned),
    "student": Method(_student, is_long=True),
}
METHODS = {
    f"{start}: {name}": replace(method, start=start)
    for start in STARTS
    for name, method in _READERS.items()
} | {
    "fresh weights, strong views": Method(_fresh, is_long=True),
    "FixMatch": Method(_fixmatch, is_long=True),
}


def record_key(bench: Bench, method: str, n_labels: int, draw: int) -> str:
    """What stands for all that decides a record."""
    # Whatever trains from fresh weights does so as long as VIEWS.
    start = start_key(bench, METHODS[method].start or VIEWS)
    seconds = None if METHODS[method].start else bench.seconds
    parts = [FORM, start, method, n_labels, draw, seconds, asdict(bench.setting)]
    return digest_of(parts)


def score(bench: Bench, made: Made | None, method: str, n_labels: int, draw: int) -> dict[str, Any]:
    """The record of a method on one draw."""
    labelled = bench.labelled_rows(n_labels, draw)
    before = bench.clock()
    guess = METHODS[method].predict(bench, made, labelled)
    seconds = bench.clock() - before
    record: dict[str, Any] = {"key": record_key(bench, method, n_labels, draw)}
    record |= {"set": bench.data.name} | {"n_labels": n_labels, "draw": draw, "method": method}
    accuracy = round(float((guess == bench.data.y_test).mean()), 6)
    return record | {"accuracy": accuracy, "seconds": round(seconds, 3)}
