"""Buffers are reused where nothing alive is in them, and by one thread alone where it matters."""

import operator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from sklearn_mmdinit._compute import Workspace, fresh

LIKE = torch.zeros(1)


def same(a, b):
    return a.data_ptr() == b.data_ptr()


# Of what a thread's next part overwrites it is the very tensor that is handed out.
AGAIN = {"kept": same, "scratch": operator.is_}


@pytest.mark.parametrize("kind", ["kept", "scratch"])
def test_a_buffer_is_that_of_its_role_shape_dtype_and_place(kind):
    empty = getattr(Workspace(), kind)(1, 2)
    first = empty("normals", (2, 3), LIKE)
    assert first.shape == (2, 3)
    assert AGAIN[kind](empty("normals", (2, 3), LIKE), first)
    assert not same(empty("weights", (2, 3), LIKE), first)
    assert not same(empty("normals", (3, 2), LIKE), first)
    assert empty("normals", (2, 3), LIKE.double()).dtype == torch.float64


@pytest.mark.parametrize("kind", ["kept", "scratch"])
def test_places_and_workspaces_do_not_share(kind):
    workspace = Workspace()
    place = getattr(workspace, kind)
    first = place(0)("normals", (2,), LIKE)
    assert AGAIN[kind](place(0)("normals", (2,), LIKE), first)
    assert not same(place(1)("normals", (2,), LIKE), first)
    assert not same(getattr(Workspace(), kind)(0)("normals", (2,), LIKE), first)


def test_scratch_is_of_the_thread_that_uses_it():
    # Two stretches may be one thread's forwards and two threads' backwards. Were it the
    # thread that made the allocators, both would then write to one buffer at a time.
    workspace = Workspace()
    scratch, kept = workspace.scratch(), workspace.kept()
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(scratch, "gradient", (2,), LIKE).result()
        normals = other.submit(kept, "normals", (2,), LIKE).result()
    assert same(normals, kept("normals", (2,), LIKE))
    assert not same(scratch("gradient", (2,), LIKE), theirs)


def test_fresh_memory_is_never_the_same():
    first = fresh("normals", (2,), LIKE)
    assert not same(fresh("normals", (2,), LIKE), first)


def test_a_buffer_is_not_tied_to_the_graph_of_its_step():
    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, empty):
            return torch.mul(x, 2.0, out=empty("output", (2,), x))

        @staticmethod
        def backward(ctx, gradient):
            return 2.0 * gradient, None

    empty, x = Workspace().kept(), torch.ones(2, requires_grad=True)
    output = Writes.apply(x, empty)
    output.sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 2.0))
    assert same(empty("output", (2,), x), output)
    assert empty("output", (2,), x).grad_fn is None
