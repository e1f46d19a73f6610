"""Bad values, by estimator and function: the error has the right type and names the argument.

What a user's own module, dataset or callback raises keeps its type, and a note names the argument.
"""

import re
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import FunctionTransformer
from skorch.callbacks import EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import sklearn_mmdinit as mm
from nets import Pooled
from sklearn_mmdinit.losses import CoherenceLoss
from sklearn_mmdinit.theta0 import write_whole

NAN, INF = float("nan"), float("inf")
NOT_NUMBERS, NOT_INTEGERS = (True, "x", None, [1], 1j), (True, "x", 1.5, None, [1], {}, 1j)
NOT_CHOICES = (3, "x", [1], NAN)
EITHER = (ValueError, TypeError)
OF_TORCH = (RuntimeError, TypeError)

X, y = np.random.default_rng(0).normal(size=(24, 4)), np.arange(24) % 2
IMAGES = torch.zeros(3, 64)
PHOTOGRAPHS = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
SHORT = {"n_perturbations": 4, "max_iter": 1, "random_state": 0}
DATA = {"X", "y", "sample_weight"}


def learn(make, data=(("X", X),), **defaults):
    """A function of parameters and data, which learns."""

    def call(**given):
        estimator = make(**defaults | {n: v for n, v in given.items() if n not in DATA})
        before = {*vars(estimator)}
        try:
            rows = dict(data) | {n: given[n] for n in DATA & given.keys()}
            return estimator.fit(**rows)
        except Exception:
            assert {*vars(estimator)} == before, "it has learned something"
            raise

    call.__qualname__ = make.__name__
    return call


TWO = (("X", X), ("y", y))
initializer = learn(mm.MMDInitializer, hidden_layer_sizes=(3,), **SHORT)
of_module = learn(mm.MMDInitializer, **SHORT)
classifier = learn(mm.MLPClassifier, data=TWO, hidden_layer_sizes=(3,), max_iter=1)
net = learn(mm.NetClassifier, data=TWO, max_iter=1)


def coherence(**params):
    return initializer(coherence=mm.Coherence(**params))


def in_place(module=None, data=X):
    return mm.mmd_init_(Pooled() if module is None else module, data, **SHORT)


def terms(module, X):
    return mm.MMDObjective(4)(module, X)


def unfitted(name, kind=mm.MLPClassifier):
    return getattr(kind(), name)


def affine(images=IMAGES, **params):
    return mm.RandomAffine(**params)(images)


def view(images=PHOTOGRAPHS, **params):
    return mm.RandomView(**params)(images)


def gradients(X=IMAGES, **params):
    return mm.OrientedGradients(**params).fit(X)


FITTED = initializer()
THETA0 = FITTED.theta0_


def loaded(module):
    """theta0 from a file with this description of the module; without one if it is empty."""
    texts = {"sklearn_mmdinit.module": module} if module else {}
    with TemporaryDirectory() as folder:
        write_whole(path := Path(folder, "a.safetensors"), THETA0.arrays, texts)
        return mm.Theta0.load(path)


class Does(nn.Module):
    """A layer, and then whatever a function makes of its outputs."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(4, 2), function

    def forward(self, x):
        return self.function(self.layer(x))


def dataset(item, n=8):
    methods = {"__getitem__": lambda self, i: item(i)} | ({"__len__": lambda self: n} if n else {})
    return type("Odd", (Dataset,), methods)()


def numbers(names, *too_small_or_large, wrong=NOT_NUMBERS):
    """Rows of a table: what is no number, and numbers out of bounds."""
    return (names, wrong, TypeError), (names, too_small_or_large, ValueError)


CASES = []


def table(call, *rows, **valid):
    """Cases of a call, one bad argument at a time; `valid` are its other arguments.

    A row has names of arguments, the bad values of each, and the error. What follows are regular
    expressions that the message has, by default the argument's name and a short value's ``repr``,
    or other arguments of this row. Values in a dict have such an expression as their key.
    """
    title = getattr(call, "func", call).__qualname__
    for names, values, error, *more in rows:
        others = dict(pair for part in more if isinstance(part, dict) for pair in part.items())
        given = [part for part in more if isinstance(part, str)]
        by_word = values.items() if isinstance(values, dict) else ((None, v) for v in values)
        for name, (word, value) in product(names.split(), [*by_word]):
            words = given or [word or rf"(\b|_){name.split('__')[-1]}\b"]
            short = isinstance(value, bool | int | float | str)
            if short and not (given or word):
                words.append(re.escape(repr(value)))
            shown = str(value)[:20] if short else type(value).__name__
            case = call, valid | others | {name: value}, error, words
            CASES.append(pytest.param(*case, id=f"{title}-{name}={shown}"))


WEIGHTS = "uniformity_weight degeneracy_weight detachment_weight"
SIZES = (True, 0, (3, -1), (1.5,), "x", None, NAN, ((3,),))
table(
    initializer,
    *numbers("batch_size max_iter n_classes n_perturbations", -1, wrong=NOT_INTEGERS),
    ("n_classes", (1,), ValueError),
    *numbers(WEIGHTS, NAN, INF, -1),
    *numbers("learning_rate_init perturbation_scale", NAN, INF, -1, 0),
    ("detachment_weight", (0,), ValueError, "_weight", dict.fromkeys(WEIGHTS.split(), 0)),
    ("hidden_layer_sizes", SIZES, ValueError),
    (
        "hidden_layer_sizes",
        ((),),
        ValueError,
        "needs a trainable layer before",
        {"coherence": "auto"},
    ),
    ("activation init", NOT_CHOICES, ValueError),
    ("device", NOT_CHOICES, OF_TORCH, "device"),
    ("coherence", (3, "x", [1]), EITHER),
    ("verbose", ("loud", None), TypeError, "verbose"),
    ("random_state", ("seed",), ValueError, "seed"),
    ("checkpoint", (3,), ValueError),
    ("checkpoint", ("training.pt",), ValueError),
    ("random_state", (None,), ValueError, {"checkpoint": "x.safetensors"}),
    ("y", (y[:20],), ValueError, r"\[24, 20\]"),
)
table(mm.MMDInitializer().fit_transform, ("y", (y[:20],), ValueError, r"\[24, 20\]"), X=X)

EMBEDDED = {
    r"(?s)\[24, 5\].*embedding": lambda X: np.ones((5, 2)),
    "(?s)Expected 2D array.*embedding": lambda X: np.ones(24),
    "embedding.*NaN": lambda X: np.full((24, 2), NAN),
    r"rows of X are equal(?s:.*)output of embedding": lambda X: np.ones((24, 2)),
    "embedding.*read-only": lambda X: X.__imul__(2.0),
}
WITHOUT_GRAPH = {"n_neighbors": 0, "augmentation": nn.Dropout(0.5)}
RING, MISSING = csr_array(np.eye(24, k=1)), np.eye(24, k=-3) * np.nan
ALIKE = (nn.Flatten(), lambda rows: rows + 1)
table(
    coherence,
    *numbers("batch_size", 0, -1, wrong=NOT_INTEGERS),
    *numbers("n_neighbors n_components", -1, wrong=(1.5, [1])),
    *numbers("separation walk_length", NAN, INF, -1),
    ("walk_length", (0.5, 1e9), ValueError),
    ("embedding", (PCA(2),), ValueError, "leave out embedding", WITHOUT_GRAPH),
    ("graph", (RING,), ValueError, "leave out graph", WITHOUT_GRAPH),
    ("augmentation", (None, *ALIKE), ValueError, "gave the same twice", WITHOUT_GRAPH),
    ("augmentation", (mm.RandomAffine, lambda rows, rng: rows), TypeError, "augmentation=<"),
    ("embedding", ("pca",), TypeError),
    ("embedding", (PCA,), TypeError, "instead of a class"),
    ("embedding", (PCA(3),), ValueError, "leave out graph or embedding", {"graph": RING}),
    ("embedding", {word: FunctionTransformer(f) for word, f in EMBEDDED.items()}, ValueError),
    ("graph", (csr_array(np.ones((24, 3))), csr_array(np.eye(24)), -RING, MISSING), ValueError),
    ("graph", (np.full((24, 24), "a", dtype=object),), ValueError),
    ("graph", ("knn", PCA(2)), TypeError),
)

# Classifiers.
UNSET = mm.MMDInitializer((3,), **SHORT)
VALIDATION = ((X, y + 77), (X[:, 1:], y), (X, y, y))
NO_SPLIT = {"validation_split": None}
table(
    classifier,
    *numbers("batch_size max_iter", -1, wrong=NOT_INTEGERS),
    *numbers("learning_rate_init", NAN, INF, -1, 0),
    ("optimizer activation class_weight", ("x", 3), ValueError),
    ("device", ("x", 3), OF_TORCH, "device"),
    ("class_weight", ([1, 2, 3], {"zero": 2.0}, {0: 0, 1: 0}), ValueError),
    ("hidden_layer_sizes", ("x", 0.5, True), ValueError),
    ("callbacks", ([EarlyStopping()],), KeyError, "valid_loss", NO_SPLIT),
    ("validation_split", (True, 0, 1, 2.0, NAN, "x"), EITHER),
    ("validation_split", VALIDATION, ValueError),
    ("validation_split", ((X, y * 0),), ValueError, {"class_weight": {0: 0, 1: 1}}),
    ("warm_start_from", (0.5, True, "x", mm.MMDInitializer, mm.MLPClassifier((3,))), TypeError),
    ("warm_start_from", (FrozenEstimator(mm.MMDInitializer()), [{"loss": 1.0}]), TypeError),
    ("warm_start_from", (nn.Linear(4, 2),), TypeError, r"NetClassifier\(net, fine_tuning"),
    ("criterion__weight", (torch.ones(3),), RuntimeError, "weight tensor"),
    ("optimizer__foo criterion__foo iterator_train__foo", (1,), TypeError, "'foo'"),
    ("dataset dataset__foo", (3,), TypeError, "dataset"),
    ("y", (y - y - 1,), ValueError, "at least two classes"),
    ("X", (csr_array(X),), TypeError, {"warm_start_from": UNSET, "hidden_layer_sizes": None}),
)
table(mm.MLPClassifier, ("module__width", (1,), TypeError, "module__width"))
for start, word in ((mm.MMDInitializer(), "nonsense"), (FITTED, "is fitted")):
    clf = mm.MLPClassifier(warm_start_from=start)
    table(clf.set_params, ("warm_start_from__nonsense", (1,), ValueError, word))
FITTED_ONLY = ("module_", "history_", "loss_curve_", "coefs_")
table(unfitted, ("name", FITTED_ONLY, NotFittedError, "MLPClassifier"))
FRESH = mm.MMDInitializer()
table(unfitted, ("name", ("coefs_",), NotFittedError, "MMDInit", {"kind": mm.MMDInitializer}))
for method in (FRESH.transform, FRESH.score):
    table(method, ("X", (X,), NotFittedError, "MMDInitializer"))
table(FRESH.get_feature_names_out, ("input_features", (None,), NotFittedError, "MMDInitializer"))
table(of_module, ("learning_rate_init", (1e30,), ValueError, "NaN or infinite"))

table(
    learn(mm.EmbeddingClassifier, data=TWO),
    ("y", (-y,), ValueError, r"at least two classes, got \[0\]"),
    ("y", (y - y - 1,), ValueError, r"at least two classes, got \[\]"),
)

# Images and tables.
OTHER_SHAPES = (torch.zeros(3, 2, 1, 4, 8), IMAGES[:, :63])
table(
    affine,
    *numbers("degrees shift scale shear", NAN, -1, 1e7),
    ("images", (IMAGES.numpy(),), TypeError),
    ("images", OTHER_SHAPES, ValueError, "image_shape"),
)
NO_PHOTOGRAPHS = {
    r"shape \(4, 2, 8, 8\)": PHOTOGRAPHS[:, :2],
    r"shape \(4, 8, 8, 3\)": PHOTOGRAPHS.permute(0, 2, 3, 1),
    "torch.uint8.*divide bytes": PHOTOGRAPHS.byte(),
    "values from 0 to 1, got values from -.*standardize in the mod": PHOTOGRAPHS - 0.5,
    "divide bytes by 255": 255 * PHOTOGRAPHS,
    "from nan to nan": PHOTOGRAPHS * NAN,
}
table(
    view,
    ("least_area color gray", (-0.1, 1.5), ValueError),
    ("least_area", (0.0,), ValueError),
    ("images", (PHOTOGRAPHS.numpy(),), TypeError),
    ("images", NO_PHOTOGRAPHS, ValueError),
)
table(
    gradients,
    *numbers("cell_size n_orientations floor", -1),
    ("image_shape", ((8.0, 8.0), (-8, -8), (2, 2, 4, 4), (4, 4), 8, (64,)), ValueError),
    ("X", OTHER_SHAPES, ValueError, "image_shape"),
)
of_squares = mm.OrientedGradients().fit(np.zeros((3, 1, 8, 8)))
table(of_squares.transform, ("X", (np.zeros((3, 1, 8, 9)),), ValueError, r"\(1, 8, 9\)"))

# Modules, and what they return.
OUTPUTS = {
    "complex64": lambda H: H.to(torch.complex64),
    "tuple": lambda H: (H,),
    r"shape \(4,\)": lambda H: H.sum(1),
    "returns probabilities.* its own softmax": lambda H: H.softmax(1),
}
for call in (of_module, net, in_place):
    table(
        call,
        ("module", {word: Does(function) for word, function in OUTPUTS.items()}, ValueError),
        ("module", (Pooled().to("meta"),), NotImplementedError, "meta tensor"),
        ("module", (nn.LazyLinear(2),), ValueError, "LazyModule"),
        ("module", (nn.Linear(4, 2, dtype=torch.cfloat),), RuntimeError, "ComplexFloat"),
        ("module", (nn.DataParallel(Pooled()),), TypeError, "not wrapped"),
        ("module", (3, "x", int, lambda: Pooled(), np.ones(3)), TypeError, "module"),
    )
for call in (of_module, net):
    table(
        call,
        ("module__width", (-1,), RuntimeError),
        ("module__width", ("x",), TypeError),
        ("module__foo", (3,), TypeError, "foo"),
        ("module__width", (3,), ValueError, "module__width", {"module": Pooled()}),
        module=Pooled,
    )
table(net, ("module", (nn.Identity(),), ValueError, "Identity"))
NO_GRADIENTS = {
    "Does.*depend on no parameter that requires a gradient": Does(lambda H: H.detach()),
    "no parameter .* can be perturbed": nn.Linear(4, 2).requires_grad_(False),
}
for call in (of_module, in_place):
    table(call, ("module", NO_GRADIENTS, ValueError))
SHARED, NORMED = nn.Linear(4, 4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
NOT_TO_PROBE = (nn.Tanh(), nn.Sequential(SHARED, SHARED), nn.Sequential(nn.ReLU(), NORMED))
table(
    mm.linear_probe_,
    ("y", ([0, 1, 3, 1],), ValueError, r"from 0 to 2, .*got \[0, 1, 3\] of int64; sklearn's"),
    ("y", ([1] * 4, [*"abaa"]), ValueError, "at least two different ones"),
    ("module", NOT_TO_PROBE, ValueError, "neither shared nor parametrised"),
    **{"module": nn.Sequential(nn.ReLU(), nn.Linear(4, 3)), "X": torch.eye(4), "y": [0, 1, 0, 1]},
)
normed = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
table(of_module, ("batch_size", (1,), ValueError, "single row: .*batch_size", {"module": normed}))
table(
    of_module,
    ("activation", ("tanh",), ValueError, {"module": Pooled}),
    ("module__n_classes", (1,), ValueError, "Pooled", {"module": Pooled}),
)

# Losses and the objective.
table(
    mm.MMDObjective,
    ("n_perturbations", (2.5,), ValueError),
    ("uniformity_weight detachment_weight", (-1, "1"), ValueError),
    ("perturbation_scale sampler generator", (0,), ValueError),
)
table(CoherenceLoss, *numbers("separation", NAN, INF, -1))
NO_LOGITS = {
    r"must return logits.*it returned .*\(4, 1\)": nn.Linear(4, 1),
    "it returned tuple": nn.LSTM(4, 2),
    "remove its own softmax": Does(lambda H: H.softmax(1)),
}
table(
    terms,
    ("module", ("net",), TypeError, "module must be .*, got 'net'"),
    ("module", NO_LOGITS, ValueError),
    ("module", (Does(lambda H: {}["key"]),), KeyError, "the module .*Does was given examples of"),
    ("X", (X,), TypeError, "X must be .*, got a ndarray"),
    ("X", (torch.ones(0, 4),), ValueError, r"X must hold examples .*got shape \(0, 4\)"),
    ("X", (torch.ones(8, 5),), RuntimeError, r"given examples of shape \(5,\)"),
    **{"module": nn.Linear(4, 2), "X": torch.from_numpy(X).float()},
)

# Rows: what scikit-learn does not check. Its own errors are those of its own tests.
RAGGED = [torch.zeros(3), torch.zeros(4)]
ROWS = (
    ({"NaN": np.full((8, 4), NAN)}, ValueError),
    ({"too large for float32": np.full((8, 4), 1e39)}, FloatingPointError),
    ({"meta": torch.zeros(8, 4, device="meta")}, TypeError),
    ({"sparse_coo": torch.zeros(8, 4).to_sparse()}, TypeError),
    ({"got nested .pad it": torch.nested.nested_tensor(RAGGED, layout=torch.jagged)}, TypeError),
    ({"equal size(?s:.*)pad examples": RAGGED}, RuntimeError),
)
for call in (initializer, FITTED.score, classifier().predict):
    table(call, *(("X", *row) for row in ROWS))
    table(call, ("X", (TensorDataset(torch.zeros(8, 4)), iter(X)), TypeError, "Dataset"))
table(in_place, *(("data", *row) for row in ROWS))
LAST = np.zeros((8, 6, 6, 3), dtype=np.float32)
table(in_place, ("data", (LAST,), RuntimeError, "channels first"), module=nn.Conv2d(3, 2, 3))
for odd, error in (
    (dataset(lambda i: torch.zeros(4), n=None), ValueError),
    (dataset(lambda i: torch.zeros(4 + i % 2)), RuntimeError),
    (dataset(lambda i: None), TypeError),
    (dataset(lambda i: 1 / 0), ZeroDivisionError),
):
    table(in_place, ("data", (odd, DataLoader(odd, 4)), error, "data|Odd|DataLoader|on meta"))

# Theta0, its files and its architecture.
NO_PATHS = (3, None, True, b"x.safetensors")
table(
    mm.MLP,
    *numbers("n_features", 0),
    ("hidden_layer_sizes", ((0,), "ab"), ValueError),
    ("n_classes", (-2,), ValueError),
    ("activation", ("foo",), ValueError),
    **{"n_features": 4, "hidden_layer_sizes": (3,), "n_classes": 2},
)
ARRAYS = (
    (r"linears.0.bias', \(1,\)", "linears.0.bias", [0.0]),
    ("linears.2.bias", "linears.2.bias", [0.0]),
)
table(
    mm.Theta0,
    ("architecture arrays", (3,), TypeError),
    ("arrays", {w: THETA0.arrays | {n: np.array(a)} for w, n, a in ARRAYS}, ValueError),
    architecture=THETA0.architecture,
    arrays=THETA0.arrays,
)
table(mm.Theta0.load, ("path", NO_PATHS, ValueError))
table(THETA0.save, ("path", NO_PATHS, ValueError))
for call in (mm.Theta0.load, THETA0.save):
    table(call, ("path", ("none/a.safetensors",), FileNotFoundError, r"none/\.?a"))
table(loaded, ("module", ("{}", "[3]", "x"), ValueError, r"a\.safetensors"))
table(loaded, ("module", ("",), ValueError, r"a\.safetensors' holds no theta0"))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(("call", "arguments", "error", "words"), CASES)
def test_an_error_names_the_bad_argument(call, arguments, error, words):
    with pytest.raises(error) as caught:
        call(**arguments)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert all(re.search(word, told) for word in words)
