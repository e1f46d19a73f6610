"""The objective in several processes, each with rows and draws of its own; two ranks on the CPU."""

import faulthandler
import os
import runpy
import signal
import sys
from contextlib import contextmanager, nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import torch
import torch.distributed as dist
from numpy.testing import assert_allclose
from safetensors.numpy import load_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn.parallel import DistributedDataParallel

from helpers import FORKSERVER, seeded
from sklearn_mmdinit import MLP, MMDInitializer, MMDObjective, mmd_init_
from sklearn_mmdinit.losses import coherence

PROGRAMS = Path(__file__).resolve().parents[1] / "docs/many_gpus"
N_RANKS = 2


def on_ranks(function, *args):
    """What a function returns in each of the processes that torchrun starts for it."""
    config = LaunchConfig(
        *(1, 1, N_RANKS),
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method=FORKSERVER.get_start_method(),
    )
    with kept_signal_handlers():
        returned = elastic_launch(config, not_too_long)(function, *args)
    return [returned[rank] for rank in range(N_RANKS)]


@contextmanager
def kept_signal_handlers():
    """Take back the handlers of torchrun: a pool that is forked with them may never end."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler not in (None, signal.getsignal(number)):  # None: not set by Python
                signal.signal(number, handler)


def not_too_long(function, *args):
    faulthandler.dump_traceback_later(120, exit=True)  # ranks that wait for each other
    return function(*args)


class Step(nn.Module):
    """A small network, and the loss as the output of ``forward``."""

    def __init__(self, body, sampler, rank):
        super().__init__()
        self.body, self.idle = body, nn.Linear(3, 3)
        self.net = nn.Sequential(body, nn.Linear(8, 3))
        generator = torch.Generator().manual_seed(rank)
        self.objective = MMDObjective(8, sampler=sampler, generator=generator)

    def forward(self, x):
        return self.objective(self.net, x[:8]).total + coherence(self.body(x))


def convolution():
    layers = nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2)
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten())


STEPS = {"gram": lambda: nn.Sequential(nn.Linear(16, 8), nn.ReLU()), "functional": convolution}


def step_of(name, rank, seed=0):
    return seeded(lambda: Step(STEPS[name](), name, rank), seed)


def rows(rank):
    """Two mini-batches of a rank."""
    generator = torch.Generator().manual_seed(10 + rank)
    return torch.randn(2, 16, 16, generator=generator)


def learn():
    """Accumulate the gradients of two mini-batches, then take a step; gradients and weights."""
    dist.init_process_group("gloo")
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (N_RANKS,))
    found = {}
    with pytest.warns(UserWarning, match="rank 1 trains alone") if rank else nullcontext():
        mmd_init_(MLP(4, (3,), 2), np.eye(4), max_iter=1)
    for name in STEPS:
        step = step_of(name, rank, seed=rank)  # rank 0's weights reach the other ranks
        ddp = DistributedDataParallel(step, find_unused_parameters=True)
        optimizer = torch.optim.Adam(step.parameters())
        first, second = rows(rank)
        with ddp.no_sync():
            ddp(first).backward()
        ddp(second).backward()
        slopes = {n: p.grad.clone() for n, p in step.named_parameters() if p.grad is not None}
        optimizer.step()
        weights = dict(step.named_parameters())
        sharded = fully_shard(step_of(name, rank), mesh=mesh)
        sharded(first).backward(), sharded(second).backward()
        shards = {n: sharded.get_parameter(n).grad.full_tensor() for n in slopes}
        found[name] = [
            {n: tensor.numpy(force=True) for n, tensor in tensors.items() if "idle" not in n}
            for tensors in (slopes, shards, weights)
        ]
        del ddp  # freeing it after the process group may deadlock (PyTorch 2.13)
    dist.destroy_process_group()
    return found


@pytest.fixture(scope="module")
def learned():
    """What each rank has returned."""
    return on_ranks(learn)


@pytest.mark.parametrize("name", STEPS)
def test_gradients_are_the_means_of_all_ranks_and_weights_stay_equal(learned, name):
    steps = [step_of(name, rank) for rank in range(N_RANKS)]
    for rank, step in enumerate(steps):
        sum(step(x) for x in rows(rank)).backward()
    for slopes, shards, weights in (found[name] for found in learned):
        for n in slopes:
            alone = [step.get_parameter(n).grad.numpy() for step in steps]
            assert np.abs(alone[0] - alone[1]).max() > 1e-3, "ranks have draws of their own"
            for averaged in (slopes[n], shards[n]):
                assert_allclose(averaged, np.mean(alone, axis=0), rtol=1e-5, atol=1e-6)
            assert np.array_equal(weights[n], learned[0][name][-1][n])


def test_a_wrapped_network_is_refused_with_what_to_write_instead():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(MLP(4, (3,), 2))
        with pytest.raises(TypeError, match=r"wrap it, and call wrapped\(X\)"):
            MMDObjective(4)(wrapped, torch.randn(8, 4))
        with pytest.raises(TypeError, match="not wrapped"):
            MMDInitializer(module=wrapped, max_iter=1).fit(np.eye(4))
        del wrapped
    finally:
        dist.destroy_process_group()


# The programs of the guide


def run(program, folder, n_epochs):
    """What a program of the guide prints, run as its command runs it."""
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    sys.argv, sys.path[:0] = [program.name, str(n_epochs)], [str(program.parent)]
    with redirect_stdout(StringIO()) as printed:
        runpy.run_path(str(program), run_name="__main__")
    return printed.getvalue()


@pytest.mark.parametrize("name", ["torchrun", "lightning", "accelerate"])
def test_a_program_resumes_to_the_same_weights(name, tmp_path):
    if name != "torchrun":
        pytest.importorskip(name)
    program, whole, in_parts = PROGRAMS / f"with_{name}.py", tmp_path / "1", tmp_path / "2"
    for folder, n_epochs in ((whole, 2), (in_parts, 1), (in_parts, 2)):
        printed = on_ranks(run, program, folder, n_epochs)
        assert ["accuracy from theta0" in text for text in printed] == [True, False]
    theta0, resumed = (load_file(folder / "theta0.safetensors") for folder in (whole, in_parts))
    assert all(np.array_equal(theta0[n], resumed[n]) for n in theta0)
