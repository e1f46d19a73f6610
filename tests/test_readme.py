"""The README's own code runs as it stands there, and no document links to what is not there."""

import re
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn
import skorch
import torch
from sklearn import (
    compose,
    frozen,
    impute,
    linear_model,
    model_selection,
    neighbors,
    pipeline,
    preprocessing,
)
from sklearn.datasets import load_digits
from torch import nn

import sklearn_mmdinit
from sklearn_mmdinit import MMDInitializer, OrientedGradients, initializers, load_theta0

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
X, Y = load_digits(return_X_y=True)
IMAGES = (X[:60].reshape(-1, 1, 8, 8) / 16 - 0.3).astype("float32")


class ConvNet(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Conv2d(1, width, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36 * width, 2))


def short(*args, **params):
    """An initializer that learns for a moment."""
    return MMDInitializer(*args, **{"max_iter": 1, "n_perturbations": 4, **params})


# What the examples take as known.
MODULES = (
    compose,
    impute,
    linear_model,
    model_selection,
    neighbors,
    preprocessing,
    skorch,
    skorch.callbacks,
)
KNOWN = {name: value for module in MODULES for name, value in vars(module).items()}
KNOWN |= vars(frozen) | vars(pipeline) | vars(sklearn_mmdinit) | {"MMDInitializer": short}
KNOWN |= {"np": np, "nn": nn, "torch": torch, "sklearn": sklearn, "ConvNet": ConvNet}
KNOWN |= {"X": X[:90] / 16, "y": Y[:90] % 2, "X_unlabelled": X[90:390] / 16, "images": IMAGES}
KNOWN |= {"is_known": np.arange(90) % 3 == 0}


def run(needle, **names):
    """What the example with the needle leaves."""
    (example,) = [example for example in EXAMPLES if needle in example]
    left = KNOWN | names
    in_one_process = joblib.parallel_config("sequential")
    with sklearn.config_context(), torch.random.fork_rng(devices=[]), in_one_process:
        torch.manual_seed(0)
        exec(compile(example, "README.md", "exec"), left)
    return left


def number(capsys):
    return float(re.search(r"0\.\d+", capsys.readouterr().out)[0])


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Files that examples write are of no other test's, and automatic starts are short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sklearn_mmdinit.stacking.MMDInitializer", short)


def test_examples_with_figures_are_better_than_fresh_weights(capsys):
    run("import MLPClassifier, MMDInitializer")
    assert 0.85 < number(capsys) < 1.0  # from fresh weights 0.51
    few = model_selection.StratifiedShuffleSplit(3, train_size=50, random_state=0)
    digits = {"X": X, "y": Y, "few": few, "MMDInitializer": MMDInitializer}
    small = run("mmd_init_(net", **digits)["small"]
    assert number(capsys) > 0.82  # from fresh weights 0.75 to 0.78
    run("import NetClassifier", **digits, small=small)
    assert number(capsys) > 0.88  # from fresh weights 0.82 to 0.86


@pytest.mark.parametrize(
    "example",
    [text for text in EXAMPLES if not re.search("print|memory=|embedding=|to_module", text)],
    ids=lambda text: text.partition("(")[0],
)
def test_every_example_without_a_test_of_its_own_runs(example):
    run(example)


def test_candidates_that_differ_in_the_classifier_share_a_pre_training(monkeypatch):
    fits, train = [], initializers.train
    monkeypatch.setattr(initializers, "train", lambda *args: [fits.append(0), train(*args)][1])
    run('memory="cache"')
    assert len(fits) == 2 * 5 + 1  # two in each of five folds, and the best one on all rows


def test_nets_of_one_s_own_start_at_theta0():
    left = run("init.to_module")
    kept = load_theta0("theta0.safetensors").arrays["0.weight"]
    for net in (left["net"].set_params(max_epochs=0), left["clf"].set_params(max_iter=0)):
        started = net.fit(IMAGES, Y[:60] % 2).module_[0].weight.detach().numpy()
        np.testing.assert_array_equal(started, kept)


def test_neighbours_are_looked_for_elsewhere():
    rows = KNOWN["X_unlabelled"]
    found = run("embedding=OrientedGradients()")["init"].embedding_.transform(rows)
    np.testing.assert_array_equal(found, OrientedGradients().fit_transform(rows))
    assert run("embedding=first")["init"].embedding_.transform(rows).shape == (300, 392)


def anchors(document):
    """GitHub's names of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "name", ["README", "benchmarks/results/README", "benchmarks/results/REPORT"]
)
def test_links_to_files_of_the_project_are_not_broken(name):
    document = ROOT / f"{name}.md"
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", document.read_text(encoding="utf-8"))
    assert links
    for path, _, anchor in (link.partition("#") for link in links):
        target = document.parent / path if path else document
        assert target.exists()
        assert not anchor or anchor in anchors(target)
