"""The theorems in numbers: the points against other ways to find them, and the script whole."""

import json
import math

import numpy as np
import pytest
from scipy import stats

import readme_tables
import theorems
from data.datasets import load_digits_dataset, standardize
from protocol.theorem_points import (
    FORMS,
    class_points,
    drawn_norms,
    jacobian_points,
    network_std,
    tail_points,
)
from reporting.theorem_figure import draw_theorems
from reporting.theorem_tables import theorems_table
from sklearn_mmdinit import Architecture
from sklearn_mmdinit.theory import perturbation_std

X = standardize(load_digits_dataset())[0]


# Theorem 1


@pytest.mark.parametrize(
    "std", [np.full(7, 0.3), perturbation_std(Architecture(6, (5,), 3))], ids=["equal", "network"]
)
def test_norms_have_the_law_of_norms_of_drawn_vectors(std):
    rng = np.random.default_rng(1)
    direct = np.linalg.norm(rng.standard_normal((20_000, std.size)) * std, axis=1)
    assert stats.ks_2samp(drawn_norms(std, 20_000, seed=0), direct).pvalue > 1e-3


@pytest.mark.parametrize("m", [1, 20])
def test_frequencies_are_those_of_the_chi_squared_law(m):
    found = tail_points(np.full(m, 0.5), n_draws=50_000, n_radii=6, seed=0)
    assert found["root_mean_square_norm"] == pytest.approx(0.5 * math.sqrt(m))
    one_percent = 0.5 * math.sqrt(stats.chi2.isf(0.01, m))
    assert found["radius_of_one_percent"] == pytest.approx(one_percent, rel=0.02)
    for form in FORMS:
        points = found["forms"][form]
        exact = stats.chi2.sf((np.array(points["radii"]) / 0.5) ** 2, m)
        noise = 5.0 * np.sqrt(exact * (1 - exact) / 50_000) + 1e-4
        assert (np.abs(points["frequencies"] - exact) < noise).all()
        assert all(points["holds"])


@pytest.mark.parametrize("form", FORMS)
def test_radii_span_what_the_bound_can_say(form):
    points = tail_points(network_std(8), n_draws=100, n_radii=8, seed=0)["forms"][form]
    bounds = np.array(points["bounds"])
    assert (np.diff(points["radii"]) > 0).all()
    assert bounds[0] == pytest.approx(0.99, abs=0.01)
    assert bounds[-1] == pytest.approx(1e-6, rel=0.2)


def test_a_bound_that_is_too_low_is_found_out(monkeypatch):
    """A thousandth of the bound lies below the frequencies."""
    from protocol import theorem_points

    bound = theorem_points.perturbation_norm_tail_bound
    monkeypatch.setattr(
        theorem_points,
        "perturbation_norm_tail_bound",
        lambda *args, **kwargs: 1e-3 * bound(*args, **kwargs),
    )
    found = tail_points(np.ones(3), n_draws=1000, n_radii=6, seed=0)
    assert not any(found["forms"]["sub_exponential"]["holds"][:3])


# Theorem 2


def _class_points(n_classes, **changed):
    parameters = {"squared_scales": (0.5, 8.0), "n_networks": 3, "seed": 0} | changed
    return class_points(X[:50], n_classes, **parameters)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_shares_of_a_network_add_up_and_the_bound_is_below_them(n_classes):
    found = _class_points(n_classes)
    shares = np.array(found["shares"]).reshape(-1, n_classes)
    assert len(shares) == 2 * 3  # scales, networks
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-5)  # there are no ties
    distances, bounds = np.array(found["distances"]), np.array(found["bounds"])
    expected = np.maximum(1.0 - math.sqrt(n_classes) * distances, 0.0)
    np.testing.assert_allclose(bounds, expected, atol=1e-5)
    assert (bounds <= np.array(found["shares"]) + 1e-6).all()
    assert all(found["holds"])


def test_only_long_perturbations_make_the_bound_speak():
    short = _class_points(3, squared_scales=(0.01,))
    long = _class_points(3, squared_scales=(20.0,), n_networks=20)
    assert max(short["bounds"]) == 0.0
    assert max(long["bounds"]) > 0.5


# Theorem 3


@pytest.mark.parametrize("seed", range(2))
def test_row_norms_of_he_networks_are_near_their_exact_moments(seed):
    found = jacobian_points(X, 16, n_networks=60, n_images=8, seed=seed)
    assert found["holds"] == [True]
    assert found["std"] == pytest.approx(found["expected_std"], rel=0.15)
    assert abs(found["mean"] - found["expected_mean"]) < 4 * found["standard_error"] < 0.1


def test_a_wrong_variance_of_the_weights_is_found_out(monkeypatch):
    """With Xavier's weights in the place of He's the norms are too short."""
    from protocol import theorem_points

    initializer = theorem_points.MMDInitializer
    monkeypatch.setattr(
        theorem_points,
        "MMDInitializer",
        lambda *args, **kwargs: initializer(*args, **kwargs | {"init": "xavier"}),
    )
    found = jacobian_points(X, 16, n_networks=60, n_images=8, seed=0)
    assert found["holds"] == [False]
    assert found["mean"] < 0.8 * found["expected_mean"]


# The script


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    output = tmp_path_factory.mktemp("theorems")
    assert theorems.main(["--quick", "--quiet", "--output", str(output)]) == 0
    return output


def _results(output):
    return json.loads((output / "theorems.json").read_text())


def test_the_script_measures_every_case_and_each_point_says_whether_it_holds(finished):
    results = _results(finished)
    assert [record["theorem"] for record in results["records"]] == [1] * 3 + [2] * 2 + [3] * 3
    assert {"claim", "versions", "hardware", "git_commit"} <= results.keys()
    assert "dataset" not in results
    table = theorems_table(results)
    assert len(table.rows) == 2 * 3 + 2 + 3  # two forms of the first bound
    assert {row[-1] for row in table.rows} == {"yes"}
    for record in results["records"]:
        if record["theorem"] == 1:
            for form in record["forms"].values():
                assert len({len(values) for values in form.values()}) == 1
        elif record["theorem"] == 2:
            n_points = len(record["holds"])
            assert n_points == 2 * 5 * record["n_classes"]
            assert [len(record[k]) for k in ("distances", "shares", "bounds")] == [n_points] * 3
    assert (finished / "theorems.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_seed_gives_the_same_points_and_an_interruption_keeps_them(
    finished, tmp_path, monkeypatch, capsys
):
    measure, calls = theorems.class_points, []

    def interrupted(*args, **kwargs):
        if calls:
            raise KeyboardInterrupt
        calls.append(args[1])
        return measure(*args, **kwargs)

    arguments = ["--quick", "--quiet", "--output", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(theorems, "class_points", interrupted)
        assert theorems.main(arguments) == 130
    printed = capsys.readouterr()
    assert "goes on from here" in printed.err
    assert "not drawn: not every theorem was measured yet" in printed.out
    assert len(_results(tmp_path)["records"]) == 4

    def counted(*args, **kwargs):
        calls.append(args[1])
        return measure(*args, **kwargs)

    monkeypatch.setattr(theorems, "class_points", counted)
    assert theorems.main(arguments) == 0
    assert calls == [2, 3]
    assert _results(tmp_path)["records"] == _results(finished)["records"]


def test_a_point_where_a_theorem_fails_is_counted_in_the_table(finished):
    results = _results(finished)
    first, second = (
        next(record for record in results["records"] if record["theorem"] == t) for t in (2, 3)
    )
    first["holds"][:2] = [False, False]
    second["holds"] = [False]
    said = {(row[0], row[1]): row[-1] for row in theorems_table(results).rows}
    assert said["2", first["case"]] == "not at 2"
    assert said["3", second["case"]] == "not at 1"


def test_the_readme_has_the_table(finished):
    text = "<!-- table: theorems.json theorems -->\n<!-- end of table -->"
    made = readme_tables.rewrite(text, finished)
    for row in theorems_table(_results(finished)).rows:
        assert "| " + " | ".join(row) + " |" in made


def test_a_part_is_not_drawn(finished, tmp_path):
    results = _results(finished)
    results["records"] = [record for record in results["records"] if record["theorem"] != 2]
    assert "not drawn" in draw_theorems(results, tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_bad_options_are_refused_by_the_parser(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        theorems.main(["--seed", "-1", "--output", str(tmp_path)])
    assert "must be 0 or more, got -1" in capsys.readouterr().err
