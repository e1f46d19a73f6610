"""Code of README and guide runs as it stands, and no document links to what is not there."""

import re
import sys
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.semi_supervised import LabelSpreading

import sklearn_mmdinit
from docs import links
from nets import Counting, fits
from sklearn_mmdinit import MLPClassifier, MMDInitializer, Theta0, mmd_init_
from test_public_api import OBJECTS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    str(path.relative_to(ROOT / "docs").with_suffix("")): path.read_text(encoding="utf-8")
    for path in sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/guide/*.md")])
}
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WITH_CODE = [name for name, text in PAGES.items() if BLOCK.search(text)]


class Short(Counting):
    """An initializer that counts its fits, which take a moment."""

    def fit(self, X, y=None):
        self.set_params(max_iter=1, n_perturbations=4)
        return super().fit(X, y)


Short.__name__ = "MMDInitializer"  # of which make_pipeline names a step


def run(text):
    """Run the blocks of a text as one program; what it leaves by name."""
    program, left = "\n".join(BLOCK.findall(text)), {}
    in_one_process = joblib.parallel_config("sequential")
    with sklearn.config_context(), torch.random.fork_rng(devices=[]), in_one_process:
        torch.manual_seed(0)
        exec(compile(program, "a page", "exec"), left)
    return left


def numbers(capsys):
    return [float(found) for found in re.findall(r"\b0\.\d+", capsys.readouterr().out)]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Pages write files to a folder of their own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def in_short(monkeypatch):
    """Initial weights are learned in a moment: the names and arguments of a page are tested."""
    fits.clear()
    monkeypatch.setattr("sklearn_mmdinit.MMDInitializer", Short)
    short = {"max_iter": 1, "n_perturbations": 4}
    monkeypatch.setattr(
        "sklearn_mmdinit.mmd_init_", lambda *args, **given: mmd_init_(*args, **given | short)
    )
    aeon = type("aeon", (), {"MiniRocket": lambda **given: "passthrough"})  # it is of an extra
    monkeypatch.setitem(sys.modules, "aeon.transformations.collection.convolution_based", aeon)


def test_the_first_examples_reach_the_accuracies_they_state(capsys, monkeypatch):
    assert len(README.splitlines()) <= 100
    assert len(BLOCK.findall(README)) == 1
    left = run(README)
    (accuracy,) = numbers(capsys)
    assert 0.94 < accuracy < 0.96
    settings = {"validation_split": None, "random_state": 0}
    fresh = [MLPClassifier((64, 64), max_iter=n, **settings) for n in (30, 300)]
    X, y, spread = left["X"] / 16, left["y"], []
    rivals = (*fresh, LogisticRegression())
    scores = [cross_val_score(rival, X, y, cv=left["few"]).mean() for rival in rivals]
    for train, test in left["few"].split(X, y):
        labels = np.full(len(y), -1)
        labels[train] = y[train]
        guessed = LabelSpreading(kernel="knn").fit(X, labels).transduction_
        spread.append((guessed == y)[test].mean())
    assert np.round([*scores, np.mean(spread)], 2).tolist() == [0.61, 0.85, 0.86, 0.92]

    # Five minutes are the same block, step by step: these weights are not learned again.
    learned = left["init"]
    monkeypatch.setattr(
        "sklearn_mmdinit.MMDInitializer.fit",
        lambda self, X: vars(self).update(vars(learned)) if repr(self) == repr(learned) else None,
    )
    left = run(PAGES["five_minutes"])
    started, fresh, *_ = numbers(capsys)
    assert started == accuracy
    assert fresh == pytest.approx(0.61, abs=0.01)
    theta0 = Theta0.load("digits.safetensors")
    assert left["again"].theta0_.architecture == theta0.architecture


def test_own_networks_beat_fresh_weights(capsys, monkeypatch):
    def soon(function, *args, max_iter=20, **given):
        return function(*args, max_iter=min(max_iter, 20), **given)

    def in_time(module, **given):
        return soon(MMDInitializer, module=module, **given)

    # A quarter of the page's epochs is enough for what is asked below.
    monkeypatch.setattr("sklearn_mmdinit.mmd_init_", partial(soon, mmd_init_))
    monkeypatch.setattr("sklearn_mmdinit.MMDInitializer", in_time)
    left = run(PAGES["guide/own_network"])
    in_a_loop, as_an_estimator = numbers(capsys)
    assert in_a_loop > 0.82  # from fresh weights 0.75 to 0.78
    assert as_an_estimator > 0.87  # from fresh weights 0.82 to 0.86
    kept = left["init"].theta0_.arrays["0.weight"]
    for net in (left["by_module"], clone(left["by_module"])):
        net.set_params(max_epochs=0).fit(left["images"].astype("float32"), left["y"])
        assert (net.module_[0].weight.detach().numpy() == kept).all()


def test_cross_validation_shows_that_it_worked(capsys):
    run(PAGES["guide/did_it_work"])
    pretrained, _, scratch, *_ = numbers(capsys)
    assert pretrained > scratch + 0.05


def test_a_loop_pays_for_leaving_out_the_linear_probe():
    """The table of the page, in percent."""
    first, in_a_loop = BLOCK.findall(PAGES["guide/own_network"])[:2]
    body, loop = in_a_loop.split("linear_probe_(net", 1)
    _, loop = loop.split("\n", 1)
    fresh = body.replace("mmd_init_(net", "(lambda *args, **given: None)(net")
    variants = {
        in_a_loop: 91,
        body + loop.replace("1e-4", "1e-3"): 88,
        fresh + loop.replace("1e-4", "1e-3"): 77,
        fresh + loop.replace("1e-4", "1e-3").replace("range(100)", "range(300)"): 81,
    }
    for program, accuracy in variants.items():
        with torch.random.fork_rng(devices=[]):
            left = {}
            exec(compile(first + program, "a page", "exec"), left)
        right = left["net"](left["images"][50:]).argmax(1) == left["labels"][50:]
        assert round(100 * float(right.float().mean())) == accuracy


MEASURED = ("five_minutes", "guide/own_network", "guide/did_it_work")


@pytest.mark.usefixtures("in_short")
@pytest.mark.parametrize("name", [n for n in WITH_CODE if n not in MEASURED])
def test_a_page_runs_from_its_top(name):
    left = run(PAGES[name])
    if name == "guide/images":
        assert isinstance(left["init"].embedding_, sklearn_mmdinit.OrientedGradients)
    if name == "guide/pipelines":
        # In each of the five folds the two candidates that differ in the classifier share a
        # pre-training with each of two weights.
        n = 4 * len(left["X"]) // 5
        assert len([rows for rows in fits if n <= rows <= n + 1]) == 2 * 5


@pytest.mark.parametrize("name", [n for n in [*PAGES, "README"] if n not in MEASURED])
def test_a_measurement_names_its_source(name):
    prose = re.sub(
        r"(?ms)^```.*?^```$|<!-- table.*?end of table -->", "", {**PAGES, "README": README}[name]
    )
    for section in re.split(r"\n(?=#)", prose):
        assert "results/" in section or not re.search(r"\d (%|points?\b)", section)


def anchors(document):
    """GitHub's names of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


DOCUMENTS = ["README", *(name.removesuffix(".md") for name in links.PAGES)]
DOCUMENTS += [f"docs/{name}" for name, text in PAGES.items() if "](" in text]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_to_files_of_the_project_are_not_broken(name):
    document = ROOT / f"{name}.md"
    found = LINK.findall(document.read_text(encoding="utf-8"))
    assert found
    own = [link for link in found if not link.startswith("https:")]
    for path, _, anchor in (link.partition("#") for link in own):
        target = document.parent / path if path else document
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("address", [None, "https://s/x"])
def test_links_of_the_description_are_absolute_or_left_out(address, tmp_path, monkeypatch):
    """On a package index a relative link has nothing that it is relative to."""
    urls = f"project_urls =\n    Home = https://h\n    Source = {address}/\n" if address else ""
    (tmp_path / "setup.cfg").write_text(f"[metadata]\nname = x\n{urls}")
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    monkeypatch.setattr(links, "ROOT", tmp_path)
    assert links.repository() == address
    text = links.description()
    found = LINK.findall(text)
    assert found
    assert all(link.startswith("https://") for link in found)
    assert any("://" not in link for link in LINK.findall(README))
    assert (f"]({address}/raw/HEAD/benchmarks/results/headline.png)" in text) == bool(address)
    assert (f"]({address}/blob/HEAD/CONTRIBUTING.md)" in text) == bool(address)
    assert "Contributing" in text
    assert BLOCK.findall(text) == BLOCK.findall(README)


def test_every_public_name_has_a_page_and_an_example():
    api = (ROOT / "docs/api.rst").read_text(encoding="utf-8")
    listed, module = set(), ""
    for line in api.splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line):
            listed.add(f"{module}.{line.strip()}".removeprefix("sklearn_mmdinit."))
    assert listed == {*OBJECTS}
    assert [name for name, thing in OBJECTS.items() if ">>> " not in thing.__doc__] == []
