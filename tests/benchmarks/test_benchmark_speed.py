"""The figures of speed: what is compared agrees, what is counted is right. No time is asserted."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from reporting.speed_tables import SPEED_TABLES, build_speed_table

import readme_tables
import speed
from engines.threads import threads
from timing import agreement, fine_tuning, scaling
from timing.agreement import (
    DisagreementError,
    check_gradient_law,
    check_law,
    check_same_noise,
    random_rows,
    random_theta0,
)
from timing.clock import in_turns, ratio
from timing.floor import (
    LayerSize,
    Product,
    products_of_layers,
    products_of_step,
    products_runner,
    total_flops,
)
from timing.library_step import PARTS, step_parts
from timing.memory_probe import MemoryUse
from timing.module_step import (
    ConvSize,
    check_module_law,
    check_module_same_noise,
    layers_of,
)
from timing.step_forms import Size, initializer, library_measure
from timing.textbook import Setting, TextbookStep, draw_normals, network_from_arrays, textbook_loss

SMALL = Setting(n_perturbations=16, n_uniform_samples=20)
TINY = Size(n_features=12, hidden_layer_sizes=(8, 6), n_classes=2, n_perturbations=6, batch_size=4)


@pytest.fixture(autouse=True)
def _one_thread():
    with threads(1):
        yield


# What is compared agrees, and a difference is seen


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_library_and_both_textbook_forms_are_the_same_function(n_classes):
    errors = check_same_noise(SMALL, n_classes=n_classes)
    assert set(errors) == {"vmap loss", "vmap gradient", "library loss", "library gradient"}


@pytest.mark.parametrize(
    "wrong",
    [{"scale": 0.708}, {"degeneracy_weight": 0.4001}, {"detachment_weight": 1.0001}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_another_objective_is_noticed(wrong):
    with pytest.raises(DisagreementError, match="on the same noise"):
        check_same_noise(SMALL, library=replace(SMALL, **wrong))


def test_gradients_agree_in_law_and_a_wrong_scale_does_not():
    check_gradient_law(60)
    wrong = Setting(64, 64, scale=1.0)
    with pytest.raises(DisagreementError, match="in law"):
        check_gradient_law(60, library=wrong)


def test_outputs_agree_in_law_and_a_wrong_scale_does_not():
    check_law((12, 12), n_features=16, batch_size=6, n_networks=4000)
    with pytest.raises(DisagreementError, match="outputs differ in law"):
        check_law((12, 12), n_features=16, batch_size=6, n_networks=4000, scale=0.8)


def test_networks_that_differ_for_each_input_are_noticed(monkeypatch):
    """The law of every input alone is right here: only covariances across the batch tell."""

    def one_input_at_a_time(source, X, **options):
        seed = options.pop("random_state")
        parts = [
            _agreement_samples(source, X[i : i + 1], random_state=seed + i, **options)
            for i in range(len(X))
        ]
        return np.concatenate(parts, axis=1)

    _agreement_samples = agreement.prediction_samples
    monkeypatch.setattr(agreement, "prediction_samples", one_input_at_a_time)
    with pytest.raises(DisagreementError, match="outputs differ in law"):
        check_law((12, 12), n_features=16, batch_size=6, n_networks=1000)


def test_the_textbook_loss_of_a_case_worked_out_by_hand():
    """Without noise all networks agree: p = 1/2 everywhere, from weights that are 0."""
    network = network_from_arrays([np.zeros((3, 2))], [np.zeros(2)], dtype=torch.float64)
    normals = draw_normals(network, 4, torch.Generator().manual_seed(0))
    setting = Setting(4, 2, scale=0.0, degeneracy_weight=0.4, detachment_weight=1.0)
    U = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    X = torch.ones(5, 3, dtype=torch.float64)
    # Pairs: 6 at distance 0, 8 at 1/sqrt 2, 1 at sqrt 2; the median of 15 is the 8th.
    squares = (0.5 * 4.0 ** -np.arange(-4, 5)[:, None] * np.array([0, 0.5, 2]) / 0.5).T
    within_p, between, within_u = np.exp(-squares).sum(1)
    uniformity = within_p - 2 * between + within_u
    # Distances to both vertices are 1/sqrt 2, the threshold; Jacobian rows are 0.
    loss = float(textbook_loss(network, X, normals, U, setting).detach())
    assert loss == pytest.approx(uniformity + 0.4 * 0 + 1.0)


@pytest.mark.parametrize("form", ["direct", "vmap"])
def test_the_textbook_step_learns(form):
    theta0 = random_theta0(initializer(TINY), TINY.n_features)
    network = network_from_arrays(theta0.coefs, theta0.intercepts)
    step = TextbookStep(network, replace(SMALL, learning_rate=3e-3), form)
    X = torch.from_numpy(random_rows(8, TINY.n_features))
    losses = [step(X) for _ in range(40)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_classifiers_that_train_to_different_losses_are_noticed(monkeypatch):
    small = {"n_rows": 120, "n_seeds": 2, "hidden": (64,)}
    fine_tuning.check_training(**small)
    pair = fine_tuning._pair

    def fewer_epochs(*args):
        forms = pair(*args)
        return forms | {"ours": forms["ours"].set_params(max_iter=1)}

    monkeypatch.setattr(fine_tuning, "_pair", fewer_epochs)
    with pytest.raises(DisagreementError, match="different losses"):
        fine_tuning.check_training(**small)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_general_path_is_the_same_function_and_another_scale_is_noticed(n_classes):
    assert set(check_module_same_noise(n_classes)) == {"module loss", "module gradient"}
    with pytest.raises(DisagreementError, match="both paths differ on the same noise"):
        check_module_same_noise(n_classes, perturbation_scale=0.708)


def test_the_general_path_has_the_same_law_and_another_scale_is_noticed():
    size = Size(16, (12, 12), n_perturbations=8, batch_size=6)
    found = check_module_law(60, size, n_networks=2000)
    assert set(found) == {
        "mean loss",
        "mean gradient",
        "means",
        "covariances",
        "smallest p-value",
    }
    with pytest.raises(DisagreementError, match="in law"):
        check_module_law(60, size, n_networks=2000, perturbation_scale=1.0)


# What is counted and measured


def test_flops_of_a_case_worked_out_by_hand():
    # 5-3-2, B = 4, K = 7. First layer: W and its gradient 4x5x3, H H' 4x5x4, L Z 7x4x4x3.
    first = 60 + 80 + 7 * 48 + 60
    # Second, all for 7 networks: three by W 4x3x2; H H', inner H 4x3x4; L Z, G Z' 4x2x4; 4x4x4.
    second = 7 * (3 * 24 + 2 * 48 + 2 * 32 + 64)
    gram = products_of_step((5, 3, 2), 4, 7, (True, True))
    assert total_flops(gram) == 2 * (first + second)
    # The second by direct: W + E once forward, once to the inputs, and the gradient of W.
    mixed = products_of_step((5, 3, 2), 4, 7, (True, False))
    assert total_flops(mixed) == 2 * (first + 7 * 3 * 24)
    # The first by direct: no gradient to the inputs, which all share.
    direct = products_of_step((5, 3, 2), 4, 7, (False, False))
    assert total_flops(direct) == 2 * (7 * 60 + 60 + 7 * 3 * 24)
    assert Product("A B", 2, 3, 5, 7).flops == 2 * 2 * 3 * 5 * 7


def test_flops_of_convolutions_worked_out_by_hand():
    # 4 x 4 pixels, kernels of 3 x 3 with padding: 16 positions, then 4, then one row.
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Conv2d(2, 3, 3, padding=1),
        nn.Flatten(),
        nn.Linear(12, 2),
    )
    samplers = {"0": "direct", "2": "direct", "4": "gram"}
    layers = layers_of(module, torch.zeros(1, 1, 4, 4), samplers)
    assert layers == [
        LayerSize(9, 2, False, 16),
        LayerSize(18, 3, False, 4),
        LayerSize(12, 2, True, 1),
    ]
    # B = 5, K = 7. First: W + E for all, the gradient of W once. Second: W + E forward and
    # backward, and the gradient of W, at 20 rows a network.
    first = 7 * (80 * 9 * 2) + 80 * 9 * 2
    second = 7 * 3 * (20 * 18 * 3)
    third = 7 * (3 * 5 * 12 * 2 + 2 * 5 * 5 * 12 + 2 * 5 * 5 * 2 + 5**3)
    assert total_flops(products_of_layers(layers, 5, 7)) == 2 * (first + second + third)


def test_memory_of_the_general_path_is_measured_in_a_process_of_its_own():
    convnet = ConvSize(side=8, width=2, batch_size=4)
    records = scaling.measure_module_memory(TINY, convnet, (3,))
    assert [(r["form"], r["K"]) for r in records] == [("sequential", 3), ("convnet", 3)]
    assert all(0 <= record["peak"] < 200 << 20 for record in records)


def test_every_part_of_a_step_is_found_and_the_products_run():
    X = random_rows(4 * TINY.batch_size, TINY.n_features)
    parts = step_parts(lambda: initializer(TINY).partial_fit(X), 4)
    assert tuple(parts) == PARTS
    assert all(seconds > 0 for seconds in parts.values())
    for gram in ((True, True, True), (False, False, False)):
        assert products_runner(products_of_step(TINY.widths, 4, 6, gram), "cpu")() > 0


def test_a_step_is_what_a_longer_call_adds(monkeypatch):
    estimators = []

    class Counting:
        def partial_fit(self, X):
            self.calls = [*getattr(self, "calls", []), len(X)]

    def counting(size, device):
        estimators.append(Counting())
        return estimators[-1]

    def fake_timed(action, device):
        action()
        return 100.0 + 2.0 * estimators[-1].calls[-1] / TINY.batch_size

    monkeypatch.setattr("timing.step_forms.initializer", counting)
    monkeypatch.setattr("timing.step_forms.timed", fake_timed)
    assert library_measure(TINY, 5)() == pytest.approx(2.0)
    assert estimators[-1].calls[-2:] == [4, 24]


def test_measures_are_taken_in_turns():
    order = []

    def measure(name, seconds):
        return lambda: order.append(name) or next(seconds)

    times = in_turns({"a": measure("a", iter([2, 8, 6])), "b": measure("b", iter([1, 2, 3]))}, 3)
    assert order == ["a", "b"] * 3
    assert times["a"] == {"median": 6, "minimum": 2, "seconds": [2, 8, 6]}
    assert ratio(times, "a", "b") == {"median": 2, "of_minima": 2}


def test_memory_is_that_of_the_body_alone():
    before = np.ones(40 << 17)  # 40 MiB that are there already
    with MemoryUse() as memory:
        inside = np.ones(60 << 17)  # 60 MiB
        del inside
    assert before[0] == 1
    assert 50 << 20 < memory.grown["peak"] < 80 << 20


def test_points_of_the_scaling_change_one_number_each():
    points = scaling.sizes_to_scale(Size(), quick=False)
    assert {axis for axis, _, _ in points} == {"K", "B", "width", "depth", "d"}
    for axis, value, size in points:
        assert size.widths[0] == 784
        found = {
            "K": size.n_perturbations,
            "B": size.batch_size,
            "width": size.hidden_layer_sizes[0],
            "depth": len(size.hidden_layer_sizes),
            "d": size.n_classes,
        }
        standard = {"K": 256, "B": 32, "width": 392, "depth": 3, "d": 2}
        assert found == standard | {axis: value}


def test_rows_on_disk_are_measured_and_the_file_is_gone(monkeypatch, tmp_path):
    monkeypatch.setattr(scaling.tempfile, "tempdir", str(tmp_path))
    (record,) = scaling.measure_rows([3000], n_features=8)
    assert (record["rows"], record["bytes"]) == (3000, 4 * 8 * 3000)
    assert record["seconds"] > 0
    assert not list(tmp_path.iterdir())


def test_a_probe_that_fails_says_why():
    with pytest.raises(RuntimeError, match="KeyError"):
        scaling._probe(probe="no such probe")


# The report


@pytest.fixture
def tiny_run(monkeypatch, tmp_path):
    """A run of the script at a tiny size, and its results."""
    monkeypatch.setattr(speed, "QUICK", TINY)
    checked = {"all": {"error": 0.0}}
    monkeypatch.setattr(speed, "_agreement", lambda *args: checked)
    assert speed.main(["--quick", "--sections", "step", "--output", str(tmp_path)]) == 0
    return json.loads((tmp_path / "speed.json").read_text())


def test_the_script_writes_figures_with_their_origin(tiny_run, capsys):
    assert set(tiny_run["step"]["seconds"]) == {"floor", "products", "library", "direct", "vmap"}
    assert set(tiny_run["step"]["ratios"]) == {
        "library / floor",
        "library / products",
        "direct / library",
        "vmap / library",
    }
    assert tiny_run["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert {"hardware", "git_commit", "threads", "quick", "agreement"} <= set(tiny_run)


def test_the_section_of_modules_writes_its_figures(monkeypatch, tmp_path):
    monkeypatch.setattr(speed, "QUICK", TINY)
    convnets = [ConvSize(side=8, width=width, n_perturbations=3) for width in (2, 3)]
    monkeypatch.setattr(speed, "QUICK_CONVNETS", convnets)
    monkeypatch.setattr(speed, "_agreement", lambda *args: {})
    monkeypatch.setattr(speed, "measure_module_memory", lambda *args: MODULE_MEMORY)
    assert speed.main(["--quick", "--sections", "modules", "--output", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "speed.json").read_text())["modules"]
    floors = {"convnet 2": "convnet 2 floor", "convnet 3": "convnet 3 floor"}
    assert set(found["seconds"]) == {"perceptron", "sequential", *floors, *floors.values()}
    pairs = {f"{above} / {below}" for above, below in floors.items()}
    assert set(found["ratios"]) == {"sequential / perceptron", *pairs}
    assert [(own["side"], own["width"]) for own in found["convnets"]] == [(8, 2), (8, 3)]
    assert 0 < found["convnets"][0]["flops"] < found["convnets"][1]["flops"]


def test_nothing_is_timed_where_forms_disagree(monkeypatch, tmp_path, capsys):
    def disagree(*args, **kwargs):
        raise DisagreementError("they differ")

    monkeypatch.setattr(speed, "check_same_noise", disagree)
    monkeypatch.setattr(speed, "check_module_same_noise", disagree)
    for section in ("step", "modules"):
        assert speed.main(["--sections", section, "--output", str(tmp_path)]) == 1
    assert "they differ" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def _times(seconds):
    return {"median": seconds, "minimum": seconds / 2, "seconds": [seconds]}


MODULE_MEMORY = [
    {"form": form, "K": K, "peak": K << 20} for form in ("sequential", "convnet") for K in (64, 512)
]

RESULTS = {
    "threads": 2,
    "size": {"n_perturbations": 256, "batch_size": 32, "network": "784-2"},
    "step": {
        "seconds": {
            form: _times(seconds)
            for form, seconds in zip(
                ("direct", "vmap", "library", "products", "floor"),
                (5.0, 4.0, 0.12, 0.1, 0.08),
                strict=True,
            )
        },
        "sgemm_gflops": {"median": 220.4, "best": 230.0},
    },
    "breakdown": {"noise": 0.03, "products": 0.09},
    "memory": [{"form": "library", "peak": 250 << 20}],
    "scaling": [{"axis": "K", "value": 64, "seconds": 0.04, "peak": 1 << 30}],
    "rows": [{"rows": 1000000, "bytes": 3136000000, "seconds": 2.5, "peak": 9 << 20}],
    "fine_tuning": [
        {
            "rows": 60,
            "threads": 1,
            "seconds": {"ours": _times(0.1), "scikit-learn": _times(0.2)},
            "ours / scikit-learn": {"median": 0.5},
        }
    ],
    "cross_validation": {
        "folds": 40,
        "rows": 480,
        "seconds": {"1": _times(8.0), "2": _times(4.2)},
        "one job / two jobs": {"median": 1.9},
    },
    "modules": {
        "seconds": {
            form: _times(seconds)
            for form, seconds in zip(
                ("perceptron", "sequential", "convnet 8", "convnet 8 floor"),
                (0.1, 0.2, 0.3, 0.06),
                strict=True,
            )
        },
        "ratios": {
            "sequential / perceptron": {"median": 2.0},
            "convnet 8 / convnet 8 floor": {"median": 5.0},
        },
        "convnets": [{"n_perturbations": 64, "batch_size": 32, "side": 28, "width": 8}],
    },
    "module_memory": MODULE_MEMORY,
}


def test_every_kind_of_figure_has_its_table():
    rows = {kind: build_speed_table(kind, RESULTS).rows for kind in SPEED_TABLES}
    assert rows["step"][0][1:] == ["5 s", "2.5 s", "62.50"]
    assert rows["step"][2] == ["`MMDInitializer`", "120 ms", "60 ms", "1.50"]
    assert rows["breakdown"] == [["products", "90 ms", "75 %"], ["noise", "30 ms", "25 %"]]
    assert rows["memory"] == [["`MMDInitializer`", "250 MiB"]]
    assert rows["scaling"] == [["K = 64", "40 ms", "1024 MiB"]]
    assert rows["rows"] == [["1,000,000", "2991 MiB", "2.5 s", "-", "9 MiB"]]
    assert rows["fine_tuning"] == [["60", "1", "100 ms", "200 ms", "0.50"]]
    assert [row[1:] for row in rows["modules"]] == [
        ["100 ms", "50 ms", "1.00"],
        ["200 ms", "100 ms", "2.00"],
        ["300 ms", "150 ms", "5.00"],
        ["60 ms", "30 ms", "1.00"],
    ]
    assert [row[1:] for row in rows["module_memory"]] == [["64 MiB", "512 MiB"]] * 2
    assert rows["cross_validation"][1] == ["2", "4.2 s", "1.90"]


def test_the_readme_takes_a_table_of_speed(tmp_path):
    (tmp_path / "speed.json").write_text(json.dumps(RESULTS))
    text = "<!-- table: speed.json memory -->\n<!-- end of table -->\n"
    new = readme_tables.rewrite(text, tmp_path)
    assert "| `MMDInitializer` | 250 MiB |" in new
    assert readme_tables.rewrite(new, tmp_path) == new


def test_a_table_without_its_figures_is_an_error():
    with pytest.raises(ValueError, match=r"no 'step'; they hold \['memory'\]"):
        build_speed_table("step", {"memory": RESULTS["memory"]})
    with pytest.raises(ValueError, match="unknown table 'sped'"):
        build_speed_table("sped", RESULTS)
