"""The README's own code runs as it stands there, and no document links to what is not there."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
from skorch import NeuralNetClassifier

from protocol.networks import ConvNet
from sklearn_mmdinit import (
    Coherence,
    MMDInitializer,
    NetClassifier,
    OrientedGradients,
    RandomAffine,
    WarmStart,
    load_theta0,
    save_theta0,
)

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
EXAMPLE = EXAMPLES[0]


def test_first_example_runs(capsys):
    exec(compile(EXAMPLE, "README.md", "exec"), {"__name__": "readme"})
    accuracy = float(capsys.readouterr().out)
    # Ten classes: chance is 0.1.
    assert 0.85 < accuracy < 1.0


def test_first_example_is_about_ten_lines():
    assert len([line for line in EXAMPLE.splitlines() if line.strip()]) <= 10


def example_with(needle):
    (found,) = [example for example in EXAMPLES if needle in example]
    return found


def test_a_training_loop_starts_from_mmd_init(capsys):
    X, y = load_digits(return_X_y=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exec(compile(example_with("mmd_init_"), "README.md", "exec"), {"X": X, "y": y})
    # From fresh weights 0.75 to 0.78.
    assert float(re.search(r"0\.\d+", capsys.readouterr().out)[0]) > 0.82


def test_any_module_is_an_estimator(capsys):
    X, y = load_digits(return_X_y=True)
    names = {"X": X, "y": y, "nn": torch.nn, "MMDInitializer": MMDInitializer}
    names["few"] = StratifiedShuffleSplit(3, train_size=50, random_state=0)
    names["cross_val_score"] = cross_val_score
    (names["small"],) = re.findall(r"^small = (.*)$", README, re.MULTILINE)
    names["small"] = ast.literal_eval(names["small"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exec(compile(example_with("import NetClassifier"), "README.md", "exec"), names)
    # From fresh weights 0.82 to 0.86.
    assert float(capsys.readouterr().out) > 0.88


def test_parameters_of_a_class_and_nets_of_skorch_s(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images, y = load_digits(return_X_y=True)
    images = (images[:60].reshape(-1, 1, 8, 8) / 16 - 0.3).astype("float32")

    def short(**params):
        own = {"max_iter": 1, "n_perturbations": 2, "random_state": 0}
        return MMDInitializer(**params, **own)

    made = []

    def net_of(*arguments, **params):
        made.append(NeuralNetClassifier(*arguments, **params, max_epochs=0, train_split=None))
        return made[-1]

    names = {"MMDInitializer": short, "ConvNet": ConvNet, "images": images, "nn": torch.nn}
    names |= {"NetClassifier": NetClassifier, "WarmStart": WarmStart}
    names |= {"NeuralNetClassifier": net_of, "save_theta0": save_theta0}
    exec(compile(example_with("init.to_module"), "README.md", "exec"), names)
    kept = load_theta0("theta0.safetensors").arrays["conv1.weight"]
    assert kept.shape == (16, 1, 3, 3)
    assert len(made) == 2
    for net in (*made, names["clf"].set_params(max_iter=0)):
        started = net.fit(images, y[:60] % 2).module_.conv1.weight.detach().numpy()
        np.testing.assert_array_equal(started, kept)


def test_augmentations_change_images_and_nothing_else_of_them():
    names = {"Coherence": Coherence, "MMDInitializer": MMDInitializer, "RandomAffine": RandomAffine}
    exec(compile(example_with("RandomAffine(degrees"), "README.md", "exec"), names)
    X, rng = load_digits().data[:20], np.random.default_rng(0)
    terms = (names["digits"].coherence, names["animals"].coherence, names["noisy"])
    for change in (term.augmentation for term in terms):
        changed = change(X, rng)
        assert changed.shape == X.shape
        assert (changed != X).any(axis=1).all()
        assert np.corrcoef(changed.ravel(), X.ravel())[0, 1] > 0.2


def with_neighbours_elsewhere(needle):
    """What the example with the needle leaves, learned for a moment from a few digits."""

    def short(**params):
        own = {"max_iter": 1, "n_perturbations": 2, "hidden_layer_sizes": (8,), "random_state": 0}
        return MMDInitializer(**params, **own)

    X = load_digits().data[:300] / 16
    names = {"Coherence": Coherence, "MMDInitializer": short, "X_unlabelled": X}
    names |= {"OrientedGradients": OrientedGradients, "RandomAffine": RandomAffine}
    exec(compile(example_with(needle), "README.md", "exec"), names)
    return X, names


def test_neighbours_are_looked_for_among_gradients():
    X, names = with_neighbours_elsewhere("embedding=OrientedGradients()")
    init = names["init"]
    gradients = OrientedGradients().fit_transform(X)
    np.testing.assert_array_equal(init.embedding_.transform(X), gradients)
    assert init.n_features_in_ == 64


def test_a_second_round_looks_among_the_activations_of_the_first():
    X, names = with_neighbours_elsewhere("embedding=first")
    first, init = names["first"], names["init"]
    assert not hasattr(first, "theta0_"), "a clone of it was fitted"
    assert init.embedding_.transform(X).shape == (300, 8)
    assert init.output == "passthrough"


@pytest.mark.parametrize("needle", ["mnist_tasks.py", "pytest"])
def test_two_complete_commands(needle):
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    (command,) = [block for block in blocks if needle in block]
    assert command.count("\n") == 1
    assert command.startswith("python3.11 -m venv")
    assert "-c constraints.txt" in command


def _anchors(document):
    """GitHub's names of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "document", ["README.md", "benchmarks/results/README.md", "benchmarks/results/REPORT.md"]
)
def test_links_to_files_of_the_project_are_not_broken(document):
    document = ROOT / document
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", document.read_text(encoding="utf-8"))
    targets = [link.partition("#") for link in links]
    assert targets
    missing = [path for path, _, _ in targets if not (document.parent / path).exists()]
    assert not missing
    for path, _, anchor in targets:
        assert not anchor or anchor in _anchors(document.parent / path if path else document)
