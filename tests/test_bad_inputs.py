"""A table of bad inputs: each call ends in a ValueError or TypeError that names the bad value."""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from scipy.sparse import csr_array
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, PredefinedSplit
from sklearn.neighbors import KNeighborsClassifier, KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from skorch.callbacks import EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, Dataset

import sklearn_mmdinit as mm
from nets import Pooled
from sklearn_mmdinit import diagnostics, losses, theory

NAN, INF, HUGE = float("nan"), float("inf"), 10**12
X, y = np.random.default_rng(0).normal(size=(24, 4)), np.arange(24) % 2
SMALL = {"hidden_layer_sizes": (3,), "n_perturbations": 4, "max_iter": 1, "random_state": 0}
OF_MODULE = {name: value for name, value in SMALL.items() if name != "hidden_layer_sizes"}
FITTED = mm.MMDInitializer(**SMALL, window=1).fit(X)
THETA0 = FITTED.theta0_
RNG = np.random.default_rng
P = np.full((5, 3, 2), 0.5)


class Does(nn.Module):
    """A layer, and then whatever a function makes of its outputs."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(4, 2), function

    def forward(self, x):
        return self.function(self.layer(x))


def dataset(item, n=8):
    own = {"__getitem__": lambda self, i: item(i), "__len__": lambda self: n}
    return type("Odd", (Dataset,), own if n else {"__getitem__": own["__getitem__"]})()


def initialized(**params):
    return mm.MMDInitializer(**(SMALL | params)).fit(X)


def coherent(**params):
    return initialized(coherence=mm.Coherence(**params))


def classified(**params):
    return mm.MLPClassifier(**{"hidden_layer_sizes": (3,), "max_iter": 1, **params}).fit(X, y)


def stacked(**params):
    own = {"estimator": mm.MLPClassifier((3,), max_iter=1), "starts": [None]}
    return mm.StackedStartsClassifier(**(own | params)).fit(X, y)


def of_module(module, **params):
    return mm.MMDInitializer(module=module, **OF_MODULE, **params).fit(X)


def trained(module, **params):
    return mm.NetClassifier(module, max_iter=1, **params).fit(X, y)


def gradients(X, **params):
    return mm.OrientedGradients(**params).fit(X)


def further(rows):
    clf = mm.MLPClassifier(warm_start_from=mm.MMDInitializer(**SMALL), max_iter=1)
    return clf.fit(X, y, X_unlabelled=rows)


def described(**fields):
    own = {"module": "a", "parameters": (), "input_shape": (3,), "n_classes": 2, "digest": "x"}
    return mm.Architecture(**(own | fields))


def loaded(**metadata):
    own = {"module": THETA0.architecture.to_json()} | metadata
    texts = {f"sklearn_mmdinit.{name}": text for name, text in own.items() if text}
    with TemporaryDirectory() as folder:
        save_file(THETA0.arrays, path := Path(folder, "a.safetensors"), texts)
        return mm.load_theta0(path)


ROWS = []


def row(call, *args, part=None, **kwargs):
    """One row; the part of the message is by default the bad value, that of the last argument."""
    said = part if part is not None else repr([*args, *kwargs.values()][-1])
    bad = ", ".join([*map(str, args), *(f"{n}={v}" for n, v in kwargs.items())]).split("\n")[0]
    bad = re.sub(r" at 0x\w+", "", bad)  # a name is the same in every process
    name = f"{getattr(call, '__qualname__', call)}({bad[:60]}) #{len(ROWS)}"
    ROWS.append(pytest.param(call, args, kwargs, said, id=name))


def each(call, names, values, **options):
    for name in names.split():
        for value in values:
            row(call, **{name: value}, **options)


# Numbers: of a wrong type, which a bool is, and out of bounds; every odd type at one of each kind.
NO_NUMBERS, NOT_FINITE = (True, "x"), (NAN, INF, -1)
each(initialized, "window perturbation_scale", (None, [1], {}, 1j))
WHOLE = "batch_size window max_iter n_classes n_perturbations"
REAL = "learning_rate_init perturbation_scale uniformity_weight degeneracy_weight detachment_weight"
each(initialized, WHOLE, (*NO_NUMBERS, 1.5, -1))
each(initialized, REAL, (*NO_NUMBERS, *NOT_FINITE))
each(initialized, "learning_rate_init perturbation_scale", (0,))
each(initialized, "hidden_layer_sizes", (True, 0, (3, -1), (1.5,), "x", None, ((3,),)))
each(initialized, "gain", (True, 0, -1, NAN, INF, "x", (1, 2), None))
each(initialized, "activation init sampler output coherence device batch_norm", (3, "x", [1]))
each(initialized, "gain", (["2", "3"], 1e300, 1e-300))
row(initialized, batch_norm=True, batch_size=1, part="batch_size of at least 2")
row(initialized, random_state="seed", part="seed")
row(initialized, gain=2.0, activation="tanh", part="would change the function")
row(initialized, coherence="auto", hidden_layer_sizes=(), part="coherence needs a hidden layer")
each(initialized, "checkpoint", (3, "training.pt"))
row(initialized, checkpoint="x.safetensors", random_state=None, part="needs a random_state")
row(initialized, uniformity_weight=0, degeneracy_weight=0, detachment_weight=0, part="above 0")
each(initialized, "verbose", ("loud", None), part="int")
each(initialized, "n_classes", (True, 1, "x"))
each(initialized, "activation init output device batch_norm hidden_layer_sizes", (NAN,))
each(coherent, "batch_size n_neighbors", (*NO_NUMBERS, 1.5, 0))
OF_TERM = "weight separation walk_length shared_neighbor_power"
each(coherent, OF_TERM, (*NO_NUMBERS, *NOT_FINITE))
each(coherent, "walk_length", (0.5, 1e9))
row(mm.Coherence().set_params, embedding__cell_size=2, part="embedding__cell_size is")
row(mm.Coherence(augmentation=abs).set_params, augmentation__shift=2, part="augmentation__shift is")
row(coherent, memory=Path("cache"), part="memory")
row(coherent, augmentation=mm.RandomAffine, part="RandomAffine")
row(coherent, embedding=PCA, part="embedding")
row(coherent, embedding=mm.MMDInitializer(coherence="auto"), part="use output='hidden'")
row(coherent, embedding=make_pipeline(PCA(2), mm.MMDInitializer()), part="output='passthrough'")
row(coherent, embedding=PCA(3), graph=csr_array(np.eye(24, k=1)), part="use one of the two")
CHANGES = {
    "got shape (": lambda rows, rng: rows[:-1],
    ", bool": lambda rows, rng: rows > 0,
    "got shape (), object": lambda rows, rng: None,
    "returned NaN or infinity": lambda rows, rng: rows * np.nan,
    "too large for float32": lambda rows, rng: np.full(rows.shape, 1e300),
}
for part, change in CHANGES.items():
    row(coherent, augmentation=change, part=part)
EMBEDDED = {
    "got (5, 2)": lambda X: np.ones((5, 2)),
    "got (24,)": lambda X: np.ones(24),
    "contains NaN": lambda X: np.full((24, 2), NAN),
    "1e+200": lambda X: np.geomspace(1, 1e200, 48).reshape(24, 2),
    "Only 1 of the 24 rows differ": lambda X: np.ones((24, 2)),
    "writes into the rows": lambda X: X.__imul__(2.0),
}
for part, embedding in EMBEDDED.items():
    row(coherent, embedding=FunctionTransformer(embedding), part=part)
GRAPHS = {
    "shape (24, 24), |got (24, 3)": csr_array(np.ones((24, 3))),
    "graph has no edge": csr_array(np.eye(24)),
    "could not convert": np.full((24, 24), "a", dtype=object),
    "Negative values": -np.eye(24, k=3),
    "NaN": np.eye(24, k=-3) * np.nan,
    "KNeighborsTransformer(): got 'knn'": "knn",
    "got <class ": KNeighborsTransformer,
    "masked array: give graph.filled": np.ma.masked_equal(np.eye(24, k=1), 0),
    "must give a sparse matrix: got ": StandardScaler(),
}
for part, graph in GRAPHS.items():
    row(coherent, graph=graph, part=part)
each(classified, "batch_size max_iter", (*NO_NUMBERS, 1.5, -1))
each(classified, "learning_rate_init", (*NO_NUMBERS, *NOT_FINITE, 0))
each(classified, "optimizer device activation batch_norm class_weight callbacks", ("x", 3))
each(classified, "validation_split", (True, 0, 1, 2.0, NAN, "x"))
each(classified, "hidden_layer_sizes warm_start_from", ("x", 0.5, True))
row(classified, warm_start_from=mm.MMDInitializer, part="pass an instance")
row(classified, warm_start_from=mm.MLPClassifier((3,)), part="pass its theta0_ to start")
row(mm.mmd_init_, X, nn.Linear(4, 2), part="an instance of Module, got a ndarray")
row(stacked, estimator=mm.MLPClassifier(unlabelled_label=-1), part="unlabelled_label=-1")
row(classified, criterion=nn.NLLLoss, part="modules return logits here")
row(classified, warm_start_from=FrozenEstimator(mm.MMDInitializer()), part="frozen")
row(mm.MLPClassifier().set_params, warm_start_from__scale=1, part="cannot be set")
for start, part in ((mm.MMDInitializer(), "'nonsense'"), (FrozenEstimator(FITTED), "frozen")):
    own = mm.MLPClassifier(warm_start_from=start)
    row(own.set_params, warm_start_from__nonsense=1, part=part)
each(classified, "criterion iterator_train", ("x",), part="x")
each(classified, "verbose", ("x",), part="str")
each(classified, "optimizer__foo criterion__foo iterator_train__foo", (1,), part="'foo'")
each(classified, "optimizer__weight_decay optimizer__lr", (-1,), part="-1")
each(classified, "unlabelled_label", ([1], np.array([-1])), part="unlabelled_label")
row(classified, unlabelled_label="-1", part="unlabelled_label='-1' cannot stand among")
row(mm.MLPClassifier(unlabelled_label=-1).fit, X, y - y - 1, part="no labelled rows: all 24 have")
row(mm.MLPClassifier(unlabelled_label=0).fit, X, y, part="at least two classes")
own = mm.MLPClassifier(unlabelled_label=-1, validation_split=PredefinedSplit([0, -1] * 12))
row(own.fit, X, y - 2 * (np.arange(24) > 9), part="names row 23, but only ")
for some in (np.where(y > 0, NAN, y), np.where(y > 0, None, y.astype(object))):
    row(mm.MLPClassifier().fit, X, some, part="in 12 rows, and ")
row(mm.StackedStartsClassifier().fit, FITTED.transform(X), y, part="in starts instead")
row(mm.MLPClassifier, module__width=1, part="MLPClassifier has no parameter 'module__width'")
row(mm.NetClassifier, width=1, part="NetClassifier has no parameter 'width'")
row(mm.NetClassifier().set_params, width=1, part="Invalid parameter")
for own, classes, part in (
    ({}, None, "classes must be passed on the first call"),
    ({}, [1, 1], "at least two, got [1]"),
    ({}, [0, 2], "that classes does not: [1]"),
    ({"unlabelled_label": 1}, [0, 1, 2], "unlabelled_label=1"),
    ({"class_weight": "balanced"}, [0, 1], "class_weight='balanced'"),
):
    row(mm.MLPClassifier((3,), **own).partial_fit, X, y, classes, part=part)
row(mm.MLPClassifier((3,)).partial_fit(X, y, [0, 1]).partial_fit, X, y, [0, 2], part="[0, 2]")
each(classified, "callbacks", ("disable", [3], [None], [("a", 3)], [int]))
each(classified, "predict_nonlinearity", (3, "x"))
each(classified, "dataset dataset__foo callbacks__print_log", (3,), part="__|'dataset'")
row(classified, callbacks__foo=3, part="callbacks__foo must be None or a skorch callback, got 3")
row(classified, callbacks__foo__bar=3, part="callbacks__foo__bar must be one of ['best_epoch'")
never = mm.MLPClassifier((3,), validation_split=None, callbacks=[EarlyStopping()])
row(never.fit, X, y, part="KeyError: |'train_loss_best'], valid_loss as well where fit")
row(classified, criterion__reduction="none", part="reduction='mean', got a loss of shape (20,)")
row(classified, criterion__weight=torch.ones(3), part="shape: [3]")
row(classified, class_weight=[1, 2, 3])
row(classified, class_weight={"zero": 2.0}, part="['zero']")
row(classified, class_weight={0: 0, 1: 0}, part="class_weight above 0")
VALIDATION = {
    "labels that y does not": (X, y + 77),
    "3 features": (X[:, 1:], y),
    "3 items": (X, y, y),
    "contains NaN": (X * NAN, y),
    "groups": GroupKFold(3),
}
for part, split in VALIDATION.items():
    row(classified, validation_split=split, part=part)
each(stacked, "cv min_advantage", (*NO_NUMBERS, -1))
each(stacked, "starts estimator", (3, "x"))
row(stacked, starts=[], part='starts must be "auto" or a list of at least one, got []')
row(stacked, starts=[None, "auto"], part="'auto' among them")
row(stacked, starts=[None, 3], part="warm_start_from must be ")
each(stacked, "estimator", (StandardScaler(), mm.MLPClassifier), part="estimator must be")
row(stacked, classifiers="forest", part='classifiers must be "auto" or a list of classifiers, got ')
each(stacked, "student", ("forest", SVC, KNeighborsClassifier(), SVC()), part="student must be")
row(stacked, classifiers=[StandardScaler()], part="or decision_function, got StandardScaler()")
pairs = SVC(decision_function_shape="ovo")
row(stacked, classifiers=[pairs], part='classifiers must have decision_function_shape="ovr"')
each(lambda **k: mm.RandomAffine(**k)(X, RNG(0)), "degrees shift scale shear", (True, NAN, -1, "x"))
each(lambda **k: mm.RandomAffine(**k)(X, RNG(0)), "degrees shift scale shear", (1e7,))
each(lambda **k: mm.RandomAffine(**k)(X, RNG(0)), "mirror", ("no", 1))
each(lambda **k: mm.RandomCorruption(**k)(X, RNG(0)), "p", (True, NAN, -1, "x", 1.1))
for change in (mm.RandomAffine(), mm.RandomCorruption()):
    row(change, X, np.random.RandomState(0), part="rng")
each(lambda **k: gradients(X, **k), "cell_size n_orientations floor", (True, -1))
IMAGES = np.zeros((3, 64))
for shape in ((8.0, 8.0), (-8, -8), (2, 2, 4, 4), (4, 4), 8, (64,)):
    row(gradients, IMAGES, image_shape=shape, part="does not fit rows of shape (64,)")
for change in (lambda X, **k: mm.RandomAffine(**k)(X, RNG(0)), gradients):
    row(change, np.zeros((3, 2, 1, 4, 8)), part="does not fit rows of shape")
    row(change, IMAGES[:, :63], part="does not fit rows of shape")
row(mm.RandomAffine(), IMAGES.astype(np.uint8), RNG(0), part="uint8")

for call in (diagnostics.degenerate_softmax_ratio, diagnostics.prediction_samples):
    for source in (None, "theta0", mm.MMDInitializer(), np.zeros(3)):
        row(call, source, X, part="expected a Theta0 or a fitted estimator")
    row(call, FITTED, X[:, :2], part="2 features|shape (2,)")
    row(call, FITTED, X[0], part="Expected 2D array")

row(diagnostics.neighbor_agreement, X[:3], [0, 1, -1], part="got array([0, 1])")
row(diagnostics.dead_neuron_ratio, initialized(activation="tanh"), X, part="in layers of nn.ReLU")
row(gradients(IMAGES.reshape(3, 1, 8, 8)).transform, np.zeros((3, 1, 8, 9)), part="(1, 8, 9)")

# Sizes beyond memory are refused before anything is allocated.
each(initialized, "n_classes n_perturbations", (HUGE,), part="GiB")
for call in (initialized, classified):
    each(call, "hidden_layer_sizes", ((10**9, 10**6), (10**12,)), part="GiB")
# Of logits that no linear layer returns.
soft = nn.Sequential(nn.Linear(4, 100_000), nn.Tanh())
row(of_module, soft, part="detachment term of 100000 classes")
row(theory.jacobian_row_norm_moments, HUGE, part="GiB")
for name in ("degenerate_softmax_ratio", "prediction_samples"):
    call = getattr(diagnostics, name)
    row(call, FITTED, X, n_perturbations=HUGE, part="GiB")
    each(lambda call=call, **k: call(FITTED, X, **k), "n_perturbations", (*NO_NUMBERS, 0))
    each(lambda call=call, **k: call(FITTED, X, **k), "perturbation_scale", (True, NAN, -1, "x"))
    for scale in (1e20, 1e30, 1e39):
        row(call, FITTED, X, perturbation_scale=scale, part=f"{scale} gives")

# Modules and what they return.
OUTPUTS = {
    "torch.sparse_coo": lambda H: H.to_sparse(),
    "meta": lambda H: H.to("meta"),
    "complex64": lambda H: H.to(torch.complex64),
    "NoneType": lambda H: None,
    "tuple": lambda H: (H,),
    "shape (4,)": lambda H: H.sum(1),
    "requires a gradient": lambda H: H.detach(),
}
for part, function in OUTPUTS.items():
    row(of_module, Does(function), part=part)
    row(mm.mmd_init_, Does(function), X, **OF_MODULE, part=part)
    row(trained, Does(function), part=part if "gradient" not in part else "nothing to train")
for call in (of_module, trained):
    for width in (-1, 0, "x", None, 1.5, True):
        row(call, Pooled, module__width=width, part=f"'width': {width!r}")
    row(call, Pooled, module__foo=3, part="foo")
    row(call, Pooled().to("meta"), part="meta")
    each(call, "module", (3, "x", int))
row(trained, nn.Identity(), part="nothing to train: Identity has no parameters")
spectral = nn.utils.spectral_norm(nn.Linear(4, 2))
spectral(torch.zeros(2, 4))
for call in (of_module, trained):
    row(call, spectral, part="Linear cannot be copied")
    row(call, nn.LazyLinear(2), part="'weight' of the module LazyLinear has no shape yet")
row(of_module, None, hidden_layer="fc", part="names a layer")
row(of_module, Pooled, activation="tanh", part="activation='tanh' describes a perceptron")
row(of_module, Pooled, module__n_classes=1, part="it returned torch.float32 of shape")
row(of_module, lambda: Pooled(), part="got <function")
for call in (of_module, trained):
    row(call, Pooled(), module__width=3, part="module__width|instance of Pooled")

# Rows.
ODD_ROWS = {
    "meta": torch.zeros(8, 4, device="meta"),
    "sparse_coo": torch.zeros(8, 4).to_sparse(),
    "NaN": np.full((8, 4), NAN),
    "infinity": np.full((8, 4), INF),
    "too large": np.full((8, 4), 1e39),
    "dim|(4, 1)": np.zeros((8, 4, 1)),
    "string": [["x"] * 4] * 8,
}
CALLS = (mm.MMDInitializer(**SMALL).fit, mm.MMDInitializer(**SMALL).partial_fit, FITTED.score)
CALLS += lambda X: mm.MLPClassifier((3,)).fit(X, y[:8]), classified().predict
for part, rows in ODD_ROWS.items():
    for call in CALLS:
        row(call, rows, part=part)
    if "dim" not in part:
        row(lambda rows: mm.mmd_init_(Pooled(), rows, **OF_MODULE), rows, part=part)
        row(lambda rows: diagnostics.dead_neuron_ratio(FITTED, rows), rows, part=part)
row(FITTED.score, np.where(X > 0, 3e38, -3e38), part="the loss of X is not finite")
FURTHER = {
    "X_unlabelled: X has 3 features": X[:, 1:],
    "X holds 1": X * 0 + 1e300,
    "0 sample": X[:0],
    "X_unlabelled: Expected 2D array": tuple(X),
    "X_unlabelled: X has examples of shape (24, 4)": [X],
    "X or X_unlabelled is sparse": csr_array(X),
}
for part, rows in FURTHER.items():
    row(further, rows, part=part)
row(classified().predict, csr_array(X * NAN), part="contains NaN")
lost = mm.MLPClassifier(warm_start_from=mm.MMDInitializer(**SMALL))
row(lost.fit, csr_array(X), y, part="sparse, and MMDInitializer learns from dense rows only")
row(losses.uniformity, torch.ones(5, 2, 3), torch.ones(5, 3), closed_form=True, part="got 3")
row(coherent(n_neighbors=5).score, X[:4], part="n_neighbors=5")
row(coherent, n_neighbors=5, shared_neighbor_power=999, part="shared_neighbor_power=999")
row(coherent, n_neighbors=24, part="Only 24 of the 24 rows differ: too few for n_neighbors=24")
ODD_SETS = {
    "no len()": dataset(lambda i: torch.zeros(4), n=None),
    "equal size": dataset(lambda i: torch.zeros(4 + i % 2)),
    "NoneType": dataset(lambda i: None),
    "meta": dataset(lambda i: torch.zeros(4, device="meta")),
    "division": dataset(lambda i: 1 / 0),
}
for part, odd in ODD_SETS.items():
    row(mm.mmd_init_, Pooled(), odd, **OF_MODULE, part=part)
    row(lambda odd: mm.mmd_init_(Pooled(), DataLoader(odd, 4), **OF_MODULE), odd, part=part)
for classes in ([[0, 1]], 3, "01", [0, None]):
    row(mm.MLPClassifier((3,)).partial_fit, X, y, classes, part=f"{classes}|label")
WEIGHTS = {"holds NaN": NAN, "NaN or inf": INF, "-1": -1, "(1,)": [1.0], "NaN": [NAN] * 24}
for part, weight in WEIGHTS.items():
    row(mm.MLPClassifier((3,)).fit, X, y, weight, part=part)
lost = make_pipeline(mm.MMDInitializer(**SMALL), StandardScaler(), mm.MLPClassifier((3,)))
row(lost.fit, X, y, part="carries no theta0")

# Theta0, its files and its architecture.
for field in ("module", "parameters", "input_shape", "n_classes", "digest", "last_layer", "chain"):
    each(described, field, (3.5, None, [1]))
for factors in ((2.0, 3.0), (1e39,)):
    row(THETA0.with_gain, factors, part=f"gain={factors}")
row(initialized(activation="tanh").theta0_.with_gain, (2.0,), part="must be 0 finite numbers")
row(classified().to_sklearn, hidden_layer_sizes=(4,), part="hidden_layer_sizes=(4,)")
row(classified().to_sklearn, nonsense=1, part="Invalid parameter 'nonsense'")
row(classified(activation="gelu").to_sklearn, part="activation='gelu'")
of_margins = classified(criterion=nn.MultiMarginLoss)
row(of_margins.to_sklearn, part="MultiMarginLoss")
for name in ("module_", "history_", "loss_curve_", "coefs_"):
    row(getattr, mm.MLPClassifier(), name, part="MLPClassifier instance is not fitted yet")
each(described, "input_shape", ((0,), (-3,), ("x",), (True,)), part="input_shape")
each(described, "parameters chain", (((3, 4),), ((("a", 3),),)), part="")
for call in (mm.MLP, mm.Architecture.of_perceptron):
    for args in ((0, (3,), 2), (4, (0,), 2), (4, "ab", 2), (4, (3,), -2), (True, (3,), 2)):
        row(call, *args, part="must be")
    row(call, 4, (3,), 2, "foo")
    row(call, 4, (3,), 2, "relu", "x")
row(mm.save_theta0, "x.safetensors", mm.MMDInitializer(), part="got MMDInitializer")
row(mm.Theta0, 3, {}, part="got 3")
row(mm.Theta0, THETA0.architecture, 3)
row(mm.Theta0, THETA0.architecture, THETA0.arrays, part="gain", gain=3)
for bad in (NAN, 0.0, -1.0, INF, "x"):
    row(mm.Theta0, THETA0.architecture, THETA0.arrays, (bad,))
NESTED = "[" * 5000 + "]" * 5000
DEEP = {"parameters": [["init", "(" * 5000 + ")" * 5000]]}
DEEP = json.dumps(json.loads(THETA0.architecture.to_json()) | DEEP)
for metadata in ({"module": NESTED}, {"gain": NESTED}, {"module": DEEP}, {"gain": "3"}):
    row(loaded, **metadata, part="damaged or no file of theta0")
for bad in (3, None, True, b"x.safetensors"):
    row(mm.load_theta0, bad, part=f"ends in '.safetensors', got {bad!r}")
    row(mm.save_theta0, bad, FITTED, part=f"ends in '.safetensors', got {bad!r}")
OURS = THETA0.architecture.to_json()
for text in (OURS.replace('"(3,)"', '"print(3)"'), OURS.replace("(3,)", "(5,)"), "x"):
    row(loaded, module=text, part="not the description of a module")
row(loaded, module="", part="the metadata has no 'sklearn_mmdinit.module'")
row(mm.Architecture.from_json, NESTED, part="not the description")

for name, array, part in (
    ("linears.0.bias", [1e300, 0, 0], "'linears.0.bias' holds NaN or infinity"),
    ("linears.0.bias", ["a", "b", "c"], "'linears.0.bias' must hold numbers"),
    ("linears.0.bias", [1j, 0, 0], "complex128"),
    ("linears.0.bias", [0.0], "names and shapes"),
    ("linears.2.bias", [0.0], "names and shapes"),
):
    row(mm.Theta0, THETA0.architecture, THETA0.arrays | {name: np.array(array)}, part=part)

# Theory and diagnostics.
row(theory.perturbation_std, 3)
row(theory.perturbation_std, described(), part="perceptron")
each(theory.jacobian_row_norm_moments, "n_in", (*NO_NUMBERS, 0, 10.5))
for bad in (*NO_NUMBERS, *NOT_FINITE, 0.0):
    row(theory.perturbation_std, THETA0.architecture, bad)
for bad in ("x", [NAN], None, [INF], [[1], [1, 2]]):
    row(theory.perturbation_norm_tail_bound, 2.0, bad, part="std")
    row(theory.mean_vertex_distances, bad, part="probabilities")
    row(theory.class_probability_lower_bound, bad, 2, part="mean_distance")
for bad in (*NO_NUMBERS, 1, 2.5):
    row(theory.class_probability_lower_bound, 0.1, bad)
TAIL, SHARES = theory.perturbation_norm_tail_bound, theory.mean_vertex_distances
row(TAIL, [1.0, 2.0], [0.1], form="paper", part="['sub_exponential', 'theorem'], got 'paper'")
row(TAIL, 1.0, [-0.5, 1.0], part="from -0.5 to 1.0")
row(TAIL, 1.0, [0.0, 0.0], part="not all zero")
row(TAIL, [9.0, 1.9], [0.0, 2.0], form="sub_exponential", part="radius=1.9 is too small")
row(SHARES, [0.5, 0.5], part="got (2,)")
row(SHARES, [[1.5, -0.5]], part="-0.5")
row(SHARES, [[0.5, 0.6]], part="1.1")
row(theory.class_probability_lower_bound, 1.5, 3, part="[0, sqrt(2)]")
row(theory.jacobian_row_norm_moments, 3, 0.0, part="weight_std must ")
ROW_NORMS = theory.relu_jacobian_row_norms
row(ROW_NORMS, np.ones((2, 3)), np.ones((5, 4)), part="(2, 3) and (5, 4)")
row(diagnostics.coherence_kernel, FITTED, csr_array(X), part="Sparse data")


@pytest.mark.parametrize(("call", "args", "kwargs", "part"), ROWS)
def test_a_bad_input_is_named(call, args, kwargs, part):
    with pytest.raises((ValueError, TypeError)) as told:
        call(*args, **kwargs)
    assert any(own in str(told.value) for own in part.split("|"))
