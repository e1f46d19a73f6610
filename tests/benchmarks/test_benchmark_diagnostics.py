"""The appendix's figures of theta0: the script whole, on small digits, and what it refuses."""

import json
import re

import joblib
import numpy as np
import pytest

import diagnostics
import readme_tables
from data.datasets import load_digits_dataset, standardize
from protocol.pretrained import learn, theta0_digest
from protocol.tasks import diagnostics_seed
from reporting.diagnostics_tables import diagnostics_table
from reporting.table import as_text
from sklearn_mmdinit import MMDInitializer, save_theta0
from sklearn_mmdinit.diagnostics import dead_neuron_ratio, degenerate_softmax_ratio

X = standardize(load_digits_dataset())[0]


def _initializer(random_state=0, **changed):
    parameters = {"hidden_layer_sizes": (8, 6), "n_perturbations": 8, "max_iter": 1} | changed
    return MMDInitializer(**parameters, device="cpu", random_state=random_state)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of each kind, learned; one that is fresh, and one learned from other weights."""
    folder = tmp_path_factory.mktemp("theta0")
    learned = learn(_initializer(), X, name="ours", folder=folder, X_digest="").path
    learned.rename(folder / "ours.joblib")
    save_theta0(folder / "early.safetensors", _initializer().fit(X[:320]))
    save_theta0(folder / "unlearned.safetensors", _initializer(max_iter=0).fit(X[:2]))
    learn(_initializer(7), X, name="other", folder=folder, X_digest="").path.rename(
        folder / "other.joblib"
    )
    save_theta0(folder / "wide.safetensors", _initializer(hidden_layer_sizes=(9, 6)).fit(X[:64]))
    (folder / "broken.joblib").write_bytes(b"not a pickle")
    (folder / "broken.safetensors").write_bytes(b"not safetensors")
    joblib.dump({"initializer": _initializer()}, folder / "unfitted.joblib")
    return folder


def _arguments(output, *theta0, n_batches=3):
    arguments = ["--dataset", "digits", "--output", str(output), "--n-batches", str(n_batches)]
    return [*arguments, "--quiet", "--theta0", *theta0]


@pytest.fixture(scope="module")
def given(folder):
    names = {
        "late": "ours.joblib",
        "early": "early.safetensors",
        "unlearned": "unlearned.safetensors",
    }
    return [f"{name}={folder / file}" for name, file in names.items()]


@pytest.fixture(scope="module")
def results(tmp_path_factory, given):
    output = tmp_path_factory.mktemp("output")
    assert diagnostics.main(_arguments(output, *given)) == 0
    return json.loads((output / "digits_diagnostics.json").read_text())


def test_rows_stand_in_the_order_given_after_the_fresh_one(results):
    names = ["fresh", "late", "early", "unlearned"]
    assert [record["name"] for record in results["theta0"]] == names
    assert [row[0] for row in diagnostics_table(results).rows] == names


def test_values_are_percent(results):
    for record in results["theta0"]:
        figures = [record["degenerate_softmax_percent"], *record["dead_neurons_percent"]]
        assert len(figures) == 3
        assert all(0.0 <= figure["mean"] <= 100.0 for figure in figures)
        assert all(0.0 <= figure["std"] <= 100.0 for figure in figures)


def test_the_fresh_row_is_what_pre_training_began_from(results):
    fresh, late, early, unlearned = results["theta0"]
    left_out = {"name", "file"}
    assert {k: v for k, v in fresh.items() if k not in left_out} == {
        k: v for k, v in unlearned.items() if k not in left_out
    }
    assert len({record["digest"] for record in (fresh, late, early)}) == 3


def test_figures_are_the_package_s_own(results, folder):
    """Mean and std over mini-batches, with the divisor n - 1."""
    theta0 = joblib.load(folder / "ours.joblib")["initializer"].theta0_
    options = {"n_batches": 3, "random_state": diagnostics_seed(seed=0)}
    degenerate = 100 * degenerate_softmax_ratio(theta0, X, **options)
    dead = 100 * dead_neuron_ratio(theta0, X, **options)
    late = results["theta0"][1]
    assert late["digest"] == theta0_digest(theta0)
    assert late["degenerate_softmax_percent"] == pytest.approx(
        {"mean": degenerate.mean(), "std": degenerate.std(ddof=1)}
    )
    found = [(layer["mean"], layer["std"]) for layer in late["dead_neurons_percent"]]
    expected = np.stack([dead.mean(axis=0), dead.std(axis=0, ddof=1)], axis=1)
    np.testing.assert_allclose(found, expected)


def test_the_table_shows_what_the_json_holds(tmp_path, given, capsys):
    assert diagnostics.main(_arguments(tmp_path, *given[:1], n_batches=1)) == 0
    printed = capsys.readouterr().out
    results = json.loads((tmp_path / "digits_diagnostics.json").read_text())
    assert as_text(diagnostics_table(results)) in printed
    for record in results["theta0"]:
        figures = [record["degenerate_softmax_percent"], *record["dead_neurons_percent"]]
        assert [figure["std"] for figure in figures] == [None] * 3  # of one mini-batch
        cells = r"\s+".join(f"{figure['mean']:.2f}" for figure in figures)
        assert re.search(rf"^{record['name']}\s+{cells}$", printed, re.MULTILINE)


def test_results_say_what_they_were_made_with(results, folder):
    assert results["claim"].startswith("Claim:")
    assert results["settings"]["n_batches"] == 3
    assert results["settings"]["hidden_layer_sizes"] == [8, 6]
    assert {"versions", "hardware", "git_commit"} <= results.keys()
    files = [record["file"] for record in results["theta0"]]
    assert files == [None, "ours.joblib", "early.safetensors", "unlearned.safetensors"]
    assert str(folder) not in json.dumps(results)  # no paths of the machine it ran on


def test_the_readme_takes_it_and_has_the_paper_s_row_where_it_compares(results, tmp_path):
    marker = "<!-- table: figures.json diagnostics -->\n<!-- end of table -->"
    (tmp_path / "figures.json").write_text(json.dumps(results))
    text = readme_tables.rewrite(marker, tmp_path)
    assert "| fresh | " in text
    assert "the paper" not in text
    # Three layers of the paper's width, on its data.
    for record in results["theta0"]:
        record["dead_neurons_percent"].append({"mean": 0.0, "std": 0.0})
    results["dataset"]["name"] = "mnist"
    results["settings"]["hidden_layer_sizes"] = [392, 392, 392]
    (tmp_path / "figures.json").write_text(json.dumps(results))
    text = readme_tables.rewrite(marker, tmp_path)
    figures = "1.39 ± 0.62 | 3.75 ± 0.77 | 5.12 ± 1.20 | 0.02 ± 0.06 |"
    assert f"| the paper, after five passes | {figures}" in text


@pytest.mark.parametrize("value", ["no-equals-sign", "=a.safetensors", "name="])
def test_a_value_that_is_no_name_and_path_is_refused(tmp_path, value, capsys):
    with pytest.raises(SystemExit) as stopped:
        diagnostics.main(_arguments(tmp_path, value))
    assert stopped.value.code == 2
    assert f"must be NAME=PATH, got {value!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["a=absent.safetensors"], r"a: no file '.*absent\.safetensors'"),
        (["a=absent.joblib"], r"a: no file '.*absent\.joblib'"),
        (["a=broken.joblib"], r"broken\.joblib cannot be read"),
        (["a=broken.safetensors"], r"broken\.safetensors' is damaged"),
        (["a=unfitted.joblib"], r"a: '.*unfitted\.joblib' holds no fitted initializer"),
        (["a=ours.joblib", "a=early.safetensors"], "the name 'a' is taken"),
        (["fresh=ours.joblib"], "the name 'fresh' is taken"),
        (["a=ours.joblib", "b=other.joblib"], r"b: .*other fresh weights.*random_state=7"),
        (["a=ours.joblib", "b=wide.safetensors"], r"b: .*wide\.safetensors' has .*\(9, 6\)"),
    ],
)
def test_files_that_do_not_fit_are_refused(folder, tmp_path, files, message, capsys):
    values = [f"{name}={folder / file}" for name, file in (text.split("=") for text in files)]
    assert diagnostics.main(_arguments(tmp_path, *values)) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not list(tmp_path.iterdir())
