"""The methods on a convolutional network: names, pipelines, and the command end to end."""

import json

import numpy as np
import pytest
import torch
from sklearn.base import clone

import mnist_tasks
from data.datasets import load_digits_dataset, standardize
from protocol.convnet_methods import (
    CONVNET_FEATURES,
    CONVNET_FEATURES_THETA0,
    CONVNET_METHODS,
    CONVNET_NAMES,
    CONVNET_SCRATCH,
    convnet_contender,
    convnet_initializer,
    images,
)
from protocol.features import features_contender
from protocol.methods import NAMES, LastRowsSplit, NetworkSettings
from protocol.network_kinds import NETWORK_KINDS
from protocol.networks import ConvNet
from protocol.pretrained import fit_key
from protocol.rivals import RIVALS, scratch_of
from protocol.task_plan import plan_of
from reporting.task_tables import unpack_scores
from sklearn_mmdinit import MMDInitializer, NetClassifier

SMALL = NetworkSettings(epochs=1, n_perturbations=4, coherent_epochs=1)

TINY = [
    "--network=convnet",
    "--dataset=digits",
    "--epochs=1",
    "--coherent-epochs=1",
    "--n-perturbations=4",
    "--tasks=2",
    *("--n-labels", "5"),
    "--jobs=1",
    "--quiet",
]


@pytest.fixture(scope="module")
def digits():
    """A few images of the digits, scaled, and their classes."""
    dataset = load_digits_dataset()
    X, _ = standardize(dataset)
    return images(X)[:160], dataset.y_train[:160]


# Names


def test_the_names_are_no_others_names_and_each_has_its_scratch():
    assert len({*NAMES, *CONVNET_NAMES, *RIVALS}) == len(NAMES) + len(CONVNET_NAMES) + len(RIVALS)
    assert {CONVNET_FEATURES, *CONVNET_METHODS} == set(CONVNET_NAMES)
    assert [scratch_of(name) for name in CONVNET_METHODS] == [CONVNET_SCRATCH] * 3
    assert scratch_of(CONVNET_FEATURES) is None
    kind = NETWORK_KINDS["convnet"]
    assert kind.theta0_of(CONVNET_FEATURES) == CONVNET_FEATURES_THETA0
    assert kind.theta0_of("convnet/ours") == "convnet/ours"


def test_list_methods_lists_those_of_the_network(capsys):
    assert mnist_tasks.main(["--list-methods"]) == 0
    assert capsys.readouterr().out.split() == list(NAMES)
    assert mnist_tasks.main(["--network", "convnet", "--list-methods"]) == 0
    assert capsys.readouterr().out.split() == list(CONVNET_NAMES)


def test_plans_of_the_convolutional_network():
    def plan(*argv):
        return plan_of(mnist_tasks._parser().parse_args(["--network", "convnet", *argv]))

    assert plan("--preset", "paper").methods == CONVNET_NAMES
    assert (plan("--preset", "paper").epochs, plan("--preset", "paper").n_perturbations) == (5, 256)
    assert (plan().epochs, plan().n_perturbations, plan().coherent_passes) == (1, 32, 4)
    assert plan("--methods", "convnet/ours*").methods == CONVNET_NAMES[:2]
    with pytest.raises(ValueError, match="unknown method 'xavier/fcn/ours'; valid names are conv"):
        plan("--methods", "xavier/fcn/ours")
    # The perceptron's plans know nothing of it.
    assert plan_of(mnist_tasks._parser().parse_args([])).network == "mlp"


# Images and pipelines


def test_rows_become_images_without_a_copy():
    rows = np.arange(3 * 64.0).reshape(3, 64)
    own = images(rows)
    assert own.shape == (3, 1, 8, 8)
    assert np.array_equal(own[1, 0, 2], rows[1, 16:24])
    assert np.shares_memory(own, rows)


@pytest.mark.parametrize("n_pixels", [60, 36, 49])
def test_rows_that_are_no_images_are_refused(n_pixels):
    with pytest.raises(ValueError, match=rf"multiple of 4; rows of {n_pixels} pixels are none"):
        images(np.zeros((2, n_pixels)))


def test_ours_is_the_paper_s_objective_and_coherence_takes_its_own_settings():
    settings = NetworkSettings(epochs=7, n_perturbations=9, classes=10)
    module = {"module": ConvNet, "module__n_classes": 10, "module__side": 28, "module__width": 8}
    common = {"n_classes": 10, "random_state": 3, **module}
    expected = {
        "convnet/ours": MMDInitializer(max_iter=7, n_perturbations=9, **common),
        "convnet/ours+coherence": MMDInitializer(coherence="auto", **common),
    }
    for name, own in expected.items():
        found = convnet_initializer(name, settings, side=28, random_state=3)
        assert found.get_params() == own.get_params()
    assert convnet_initializer(CONVNET_SCRATCH, settings, side=28, random_state=3) is None


def test_what_a_theta0_is_kept_under_depends_on_the_network_and_on_what_is_learned():
    def key(name="convnet/ours+coherence", side=8, **changed):
        settings = NetworkSettings(**changed)
        return fit_key(convnet_initializer(name, settings, side=side, random_state=0), "data")

    keys = [key(), key("convnet/ours"), key(side=28), key(classes=10), key(coherent_epochs=2)]
    assert len({*keys}) == len(keys)
    assert key() == keys[0]


def test_a_pipeline_starts_from_its_theta0_and_validates_with_the_last_rows(digits):
    X, y = digits
    fitted = convnet_initializer("convnet/ours", SMALL, side=8, random_state=0).fit(X[:64])
    contender = convnet_contender("convnet/ours", SMALL, X=X, initializer=fitted, theta0_digest="x")
    classifier = clone(contender.make(0)).fit(X[:60], y[:60] > 4)[-1]
    assert isinstance(classifier, NetClassifier)
    for name, array in fitted.theta0_.arrays.items():
        assert np.array_equal(classifier.theta0_.arrays[name], array)
    assert isinstance(classifier.validation_split, LastRowsSplit)
    assert classifier.n_iter_ == 10
    assert contender.identity["network"]["pretraining"] == "ours"
    ten_way = convnet_contender(
        CONVNET_SCRATCH, NetworkSettings(classes=10), X=X, initializer=None, theta0_digest=None
    )
    assert ten_way.make(0)[-1].validation_split is None
    assert ten_way.identity != contender.identity


def test_features_are_what_enters_the_last_layer(digits):
    X, y = digits
    fitted = convnet_initializer(CONVNET_FEATURES_THETA0, SMALL, side=8, random_state=0)
    fitted.fit(X[:64])
    contender = features_contender(
        X=X, initializer=fitted, theta0_digest="x", name=CONVNET_FEATURES
    )
    assert contender.name == CONVNET_FEATURES
    pipeline = clone(contender.make(0)).fit(X[:60], y[:60] > 4)
    module, seen = fitted.to_module().eval(), []
    module.fc2.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    module(torch.from_numpy(X[:5]).float())
    np.testing.assert_allclose(pipeline[0].transform(X[:5]), seen[0].detach(), rtol=1e-5, atol=1e-5)
    assert np.allclose(np.linalg.norm(pipeline[:2].transform(X), axis=1), 1.0, atol=1e-5)


def test_coherence_works_on_the_digits(digits):
    """Its features beat those of fresh weights at few labels; the gain of such a module is 1."""
    X, y = digits
    few = np.concatenate([np.flatnonzero(y == digit)[:3] for digit in range(10)])
    rest = np.setdiff1d(np.arange(len(y)), few)
    accuracy = {}
    for passes in (0, 40):
        settings = NetworkSettings(coherent_epochs=passes, classes=10)
        fitted = convnet_initializer(CONVNET_FEATURES_THETA0, settings, side=8, random_state=0)
        contender = features_contender(X=X, initializer=fitted.fit(X), theta0_digest="x")
        pipeline = contender.make(0).fit(X[few], y[few])
        accuracy[passes] = pipeline.score(X[rest], y[rest])
    # ReLU and pooling hand a scale on, and the rule finds a gain without being told.
    assert len(fitted.gain_) == 3
    assert all(factor > 1 for factor in fitted.gain_)
    assert accuracy[40] > accuracy[0]


# The command


def test_the_command_writes_tables_and_files_that_name_the_network(tmp_path, capsys):
    assert mnist_tasks.main([*TINY, "--rivals", "1-nn", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert all(name in printed.out for name in (*CONVNET_NAMES, "rival/1-nn"))
    results = json.loads((tmp_path / "digits_convnet_tasks.json").read_text())
    assert results["settings"]["network"] == "convnet"
    assert results["settings"]["module"] == {
        "class": "ConvNet",
        "n_classes": 2,
        "side": 8,
        "width": 8,
    }
    assert [record["method"] for record in results["theta0"]] == list(CONVNET_NAMES[:2])
    scores = unpack_scores(results["scores"])
    assert {s["method"] for s in scores} == {*CONVNET_NAMES, "rival/1-nn"}
    assert {d["role"] for d in results["against"]} == {CONVNET_SCRATCH, "best rival"}
    assert (tmp_path / "digits_convnet_tasks.png").exists()
    # Again: all of it is kept.
    assert mnist_tasks.main([*TINY, "--rivals", "1-nn", "--output", str(tmp_path)]) == 0
    again = json.loads((tmp_path / "digits_convnet_tasks.json").read_text())
    assert again["scores"] == results["scores"]
    assert [t["digest"] for t in again["theta0"]] == [t["digest"] for t in results["theta0"]]


def test_the_ten_classes(tmp_path):
    ten_way = ("--classes", "10", "--n-labels", "3", "--methods", CONVNET_FEATURES, CONVNET_SCRATCH)
    assert mnist_tasks.main([*TINY, *ten_way, "--output", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "digits_convnet_ten_way.json").read_text())
    assert results["settings"]["module"]["n_classes"] == 10
    features = [
        s["accuracy"] for s in unpack_scores(results["scores"]) if s["method"] == CONVNET_FEATURES
    ]
    assert min(features) > 0.5
