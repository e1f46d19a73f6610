"""skorch nets of a user's own, started at theta0."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_validate
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from torch import nn

from nets import Conv, digit_images
from sklearn_mmdinit import MMDInitializer, WarmStart, save_theta0


@pytest.fixture(scope="module")
def data():
    return digit_images(60, 3)


@pytest.fixture(scope="module")
def init(data):
    own = {"n_perturbations": 2, "max_iter": 1, "random_state": 0}
    return MMDInitializer(module=Conv, module__width=2, module__n_classes=3, **own).fit(data[0])


class Starts(Callback):
    """Keeps a weight of each training as it begins."""

    def on_train_begin(self, net, **kwargs):
        self.seen_ = [*getattr(self, "seen_", []), weight_of(net)]


def weight_of(net):
    return net.module_.head.weight.detach().numpy().copy()


def net_of(module=Conv, callbacks=(), **params):
    own = {"criterion": nn.CrossEntropyLoss, "max_epochs": 1, "verbose": 0, "train_split": None}
    if module is Conv:
        own |= {"module__width": 2, "module__n_classes": 3}
    return NeuralNetClassifier(module, callbacks=list(callbacks), **{**own, **params})


def seen_by(net):
    return dict(net.callbacks_)["Starts"].seen_


@pytest.fixture(autouse=True)
def private_randomness():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


# the callback


def test_a_net_starts_at_theta0(data, init, tmp_path):
    path = tmp_path / "theta0.safetensors"
    save_theta0(path, init)
    for source in (init, FrozenEstimator(init), init.theta0_, path, str(path)):
        net = net_of(callbacks=[WarmStart(source)], max_epochs=0).fit(*data)
        for name, value in net.module_.state_dict().items():
            np.testing.assert_array_equal(value.numpy(), init.theta0_.arrays[name])


@pytest.mark.parametrize("module", [Conv, Conv(3)], ids=["class", "instance"])
def test_each_fit_starts_again_and_partial_fit_goes_on(module, data, init):
    theta0 = init.theta0_.arrays["head.weight"]
    net = net_of(module, [WarmStart(init), Starts()])
    for _ in range(2):
        net.fit(*data)
        np.testing.assert_array_equal(seen_by(net)[-1], theta0)
    for _ in range(2):
        before = weight_of(net)
        assert not np.array_equal(before, theta0)
        net.partial_fit(*data)
        np.testing.assert_array_equal(seen_by(net)[-1], before)


def test_a_net_that_goes_on_by_itself_is_left_alone(data, init):
    net = net_of(callbacks=[WarmStart(init), Starts()], warm_start=True)
    net.fit(*data)
    before = weight_of(net)
    net.fit(*data)
    np.testing.assert_array_equal(seen_by(net)[-1], before)
    net.initialize().fit(*data)
    np.testing.assert_array_equal(seen_by(net)[-1], init.theta0_.arrays["head.weight"])


def test_parameters_of_callbacks_do_not_start_it_again(data, init):
    net = net_of(callbacks=[WarmStart(init), Starts()]).fit(*data)
    before = weight_of(net)
    net.set_params(callbacks__WarmStart__theta0=init)  # skorch makes all callbacks anew
    net.partial_fit(*data)
    np.testing.assert_array_equal(seen_by(net)[-1], before)


def test_clones_keep_what_was_learned(data, init):
    net = net_of(callbacks=[WarmStart(init)], max_epochs=0)
    assert clone(net).callbacks[0].theta0 is init
    found = cross_validate(net, *data, cv=2, return_estimator=True, error_score="raise")
    for one in found["estimator"]:
        np.testing.assert_array_equal(weight_of(one), init.theta0_.arrays["head.weight"])
