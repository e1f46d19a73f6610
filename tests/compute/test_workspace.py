"""Buffers are reused where nothing alive is in them, and by one thread alone where it matters."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from sklearn_mmdinit._compute import Workspace, fresh

LIKE = torch.zeros(1)


@pytest.mark.parametrize("kind", ["kept", "scratch"])
def test_a_buffer_is_that_of_its_role_shape_dtype_and_place(kind):
    empty = getattr(Workspace(), kind)(1, 2)
    first = empty("normals", (2, 3), LIKE)
    assert first.shape == (2, 3)
    assert empty("normals", (2, 3), LIKE) is first
    assert empty("weights", (2, 3), LIKE) is not first
    assert empty("normals", (3, 2), LIKE) is not first
    assert empty("normals", (2, 3), LIKE.double()).dtype == torch.float64


@pytest.mark.parametrize("kind", ["kept", "scratch"])
def test_places_and_workspaces_do_not_share(kind):
    workspace = Workspace()
    place = getattr(workspace, kind)
    first = place(0)("normals", (2,), LIKE)
    assert place(0)("normals", (2,), LIKE) is first
    assert place(1)("normals", (2,), LIKE) is not first
    assert getattr(Workspace(), kind)(0)("normals", (2,), LIKE) is not first


def test_scratch_is_of_the_thread_that_uses_it():
    # Two stretches may be one thread's forwards and two threads' backwards. Were it the
    # thread that made the allocators, both would then write to one buffer at a time.
    workspace = Workspace()
    scratch, kept = workspace.scratch(), workspace.kept()
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(scratch, "gradient", (2,), LIKE).result()
        assert other.submit(kept, "normals", (2,), LIKE).result() is kept("normals", (2,), LIKE)
    assert scratch("gradient", (2,), LIKE) is not theirs


def test_fresh_memory_is_never_the_same():
    assert fresh("normals", (2,), LIKE) is not fresh("normals", (2,), LIKE)
