"""Photographs: their files, random views, what others train on them, and their benchmark."""

import math
from itertools import count

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

import photographs
from data.photographs import Pairs, load_photographs
from protocol import photographed
from protocol.methods import select_names
from protocol.store import Log
from reporting.results import unpack_draws
from results_stand_in import run_again, status_of
from rivals.from_views import fixmatch_loss, nt_xent, optimise

# Files


def test_a_folder_of_images_of_one_size_is_a_set(tmp_path):
    files = {"train/b/1": 3, "train/a/1": 1, "train/c/1": 5, "test/c/1": 2, "test/b/1": 4}
    for name, value in files.items():
        path = tmp_path / "mine" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), (value, 0, 0)).save(path)
    data = load_photographs("mine", tmp_path, print)
    assert data.X.shape == (3, 3, 4, 6)
    assert data.X[:, 0, 0, 0].tolist() == [1, 3, 5]
    assert data.y.tolist() == [0, 1, 2]
    # A class that the test images lack does not change the numbers of the others.
    assert data.X_test[:, 0, 0, 0].tolist() == [4, 2]
    assert data.y_test.tolist() == [1, 2]
    with pytest.raises(ValueError, match="more than the 3 images; pass a smaller --pairs"):
        photographed.Bench(data, SETTING, Log(tmp_path / "log"))
    path = tmp_path / "mine/test/d"
    path.mkdir()
    Image.new("RGB", (6, 4)).save(path / "1.png")
    with pytest.raises(RuntimeError, match=r"train has no images of the class d$"):
        load_photographs("mine", tmp_path, print)
    (path / "1.png").unlink()
    Image.new("RGB", (6, 5)).save(tmp_path / "mine/test/c/2.png")
    words = r"2\.png has 6 x 5 pixels, and others have 6 x 4; resize"
    with pytest.raises(RuntimeError, match=words):
        load_photographs("mine", tmp_path, print)
    words = "other: it is in no folder that was named; name a folder that holds other with --data"
    with pytest.raises(RuntimeError, match=words):
        load_photographs("other", tmp_path, print)


# Pairs


def test_a_pass_has_each_image_once_twice_in_a_pair():
    images = torch.arange(200, dtype=torch.uint8).view(200, 1, 1, 1)
    torch.manual_seed(0)
    pairs = Pairs(images, 64)
    passes = [[*pairs] for _ in range(2)]
    assert len(passes[0]) == len(pairs) == 3
    assert all(torch.equal(*pair) for pair in passes[0])
    assert len(torch.cat([first for first, _ in passes[0]]).unique()) == 192
    assert not torch.equal(passes[0][0][0], passes[1][0][0])


# Rivals


def test_nt_xent_is_its_definition():
    Z = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    cosine = torch.cosine_similarity(Z[:, None], Z[None], dim=2) / 0.5
    losses = []
    for i in range(6):
        others = [j for j in range(6) if j != i]
        losses.append(torch.logsumexp(cosine[i, others], dim=0) - cosine[i, (i + 3) % 6])
    torch.testing.assert_close(nt_xent(Z), torch.stack(losses).mean())


def test_fixmatch_learns_from_what_a_weak_view_is_sure_about():
    x, y = torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0])
    weak, strong = torch.tensor([[9.0, 0.0], [0.5, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 9.0]])
    strong.requires_grad_()
    loss = fixmatch_loss(torch.nn.Identity(), x, y, weak, strong)
    expected = cross_entropy(x, y) + cross_entropy(strong[:1], torch.tensor([0])) / 2
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert strong.grad[1].abs().max() == 0.0


@pytest.mark.parametrize(("limit", "n"), [({"steps": 7}, 7), ({"seconds": 2.5}, 3)])
def test_a_training_stops_after_its_steps_or_its_seconds(limit, n):
    layer, ticks = torch.nn.Linear(2, 1), count()  # a second passes at each look at the clock
    loss, before = lambda: layer(torch.ones(4, 2)).sum(), layer.bias.item()
    assert optimise(layer, loss, 0.1, clock=lambda: next(ticks), **limit) == n
    assert layer.bias.item() < before


# The benchmark

TINY = (
    "--images 120 --test-images 60 --width 4 --stride 2 --epochs 8 --pairs 30 "
    "--steps 4 --fixmatch-steps 2 --n-labels 1 2 --long-n-labels 2 "
    "--draws 2 --seconds 0.1 --device cpu"
)
SETTING = photographed.Setting(120, 60, 4, 1, 1, 40, 4, 1)
FEW = ["views: *", "*: logistic", "fresh*", "FixMatch"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three classes of stripes, which differ in their width and in no colour."""
    folder, rng = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    for part, n in (("train", 40), ("test", 20)):
        for name, period in (("broad", 16.0), ("narrow", 3.0), ("plain", math.inf)):
            place = folder / "cifar-10" / part / name
            place.mkdir(parents=True)
            for number in range(n):
                wave = np.sin(2 * np.pi * (np.arange(32) + rng.uniform(0, 16)) / period)
                colour = rng.uniform(60, 120, 3) if period < math.inf else rng.uniform(0, 1, 3)
                pixels = 128 + wave[None, :, None] * colour + rng.normal(0, 5, (32, 32, 3))
                image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
                image.save(place / f"{number}.png")
    return folder


def test_what_was_measured_is_not_measured_again(folder, tmp_path):
    arguments = [*TINY.split(), "--data-dir", folder, "--methods", *FEW]
    first, again = run_again(photographs, tmp_path, *arguments)
    frame, same = map(unpack_draws, (first, again))
    of_start = frame[frame["method"].str.startswith("views: ")]
    assert of_start.groupby("method").size().tolist() == [1, 4, 4, 4]
    assert set(frame["method"]) == {*select_names(FEW, photographed.METHODS)}
    assert [entry["once"] for entry in first["once"]] == [*photographed.STARTS]
    # Features that nobody told of stripes tell them apart; a third would be chance.
    assert first["once"][0]["nearest"] > 60.0
    assert again["once"] == first["once"], "no start is learned again"
    columns = ["method", "n_labels", "draw", "accuracy"]
    timed = ["FixMatch", "fresh weights, strong views"]
    frames = [own.loc[~own["method"].isin(timed), columns] for own in (frame, same)]
    pd.testing.assert_frame_equal(*frames)


def test_what_cannot_be_measured_is_refused(folder, tmp_path, capsys):
    arguments = TINY.replace("--n-labels 1 2", "--n-labels 41", 1).split()
    arguments += ["--methods", "FixMatch", "--data-dir", folder, "--output", tmp_path, "--quiet"]
    assert status_of(photographs, arguments) == 2
    assert "class 0 has 40 training images, and N is 41" in capsys.readouterr().err
