"""Results made up for the report: the paper's own figures, so that all of it must agree."""

import math
import re

import numpy as np

import runs
from protocol.rivals import RIVALS
from protocol.store import write_json
from reporting.paper import paper_table
from reporting.results import Library, pack_scores

HEAD = {
    "dataset": {"name": "mnist", "source": "nowhere"},
    "versions": {"python": "3", "torch": "2"},
    "hardware": {"cpu": "abacus", "cores": 1, "gpu": None},
    "git_commit": "0123456789",
    "git_changed": False,
}
SETTINGS = {"hidden_layer_sizes": [392, 392, 392], "seed": 0}
LEARNED = {"passes": 5, "rows": 60000, "n_perturbations": 256}
MEASURED = {"n_batches": 128, "batch_size": 32, "networks_a_ratio": 256}

# Four numbers of mean 0 and std 1; two of std 1 (divisor n - 1).
OF_RUNS = np.array([-1.0, -1.0, 1.0, 1.0]) * math.sqrt(3) / 2
OF_TASKS = np.array([-1.0, 1.0]) / math.sqrt(2)

N_LABELS = (5, 10, 20, 40)
PAPER_METHODS = list(paper_table("accuracy").mean.index)
LOSSES = [(0.0, 0.0), (0.4, 0.0), (0.0, 1.0), (0.4, 1.0)]
CELLS = [(square, weight) for square in (0.2, 0.5, 1.0, 2.0) for weight in (0.2, 0.4, 1.0)]


def paper_figure(table, row, place):
    """(mean, std) of a cell."""
    return [part.loc[row].iloc[place] for part in paper_table(table)[:2]]


def records(table, n_labels=5):
    """Scores by method, then a list of accuracies a run."""
    return [
        {"method": method, "run": run, "task": task, "n_labels": n_labels, "accuracy": accuracy}
        for method, runs in table.items()
        for run, accuracies in enumerate(runs)
        for task, accuracy in enumerate(accuracies)
    ]


def like_the_paper(methods=PAPER_METHODS, runs=4, by=0.0):
    """Scores of two tasks a run whose tables are the paper's, digit for digit."""
    found = []
    for place, n in enumerate(N_LABELS):
        for method in methods:
            mean, std = paper_figure("accuracy", method, place)
            spread, spread_std = paper_figure("task_std", method, place)
            own = [
                [
                    (mean + std * OF_RUNS[run] + (spread + spread_std * OF_RUNS[run]) * of) / 100
                    + by
                    for of in OF_TASKS
                ]
                for run in range(runs)
            ]
            found += records({method: own}, n)
    return found


def flat(values, runs=4):
    """Scores that are the same at every N: a method and its accuracy (%)."""
    table = {m: [[a / 100, (a + 1) / 100]] * runs for m, a in values.items()}
    return [score for n in N_LABELS for score in records(table, n)]


def task_results(scores, **settings):
    runs = 1 + max((score["run"] for score in scores), default=0)
    learned = [{"method": "xavier/fcn/ours", "run": run, "seconds": 1800.0} for run in range(runs)]
    methods = list(dict.fromkeys(score["method"] for score in scores))
    own = {"classes": 2, "runs": runs, "first_run": 0, "methods": methods}
    own["n_labels"] = sorted({score["n_labels"] for score in scores})
    return {
        **HEAD,
        "settings": {**SETTINGS, **own, **settings},
        "seconds_of_this_call": 90.0,
        "theta0": learned,
        "scores": pack_scores(scores),
    }


def ratios(softmax, dead):
    """Both as (mean, std), the latter a list of them."""
    softmax, *dead = ({"mean": mean, "std": std} for mean, std in (softmax, *dead))
    return {"degenerate_softmax_percent": softmax, "dead_neurons_percent": dead}


def densities(uniform, wide):
    """Samples over perturbations, uniform or not, and over inputs, wide or not."""
    grid = np.linspace(0.0005, 0.9995, 100)
    return {
        "over_perturbations": [(grid if uniform else 0.4 + 0.2 * grid).tolist()] * 2,
        "over_inputs": [(grid if wide else 0.4 + 0.2 * grid).tolist()] * 2,
    }


def degeneracies(settings=LOSSES):
    nothing = [(10.0, 1.0)] * 3
    fresh = {"degeneracy_weight": None, "detachment_weight": None}
    found = [fresh | ratios((11.0, 1.0), nothing) | {"densities": densities(False, True)}]
    for weight, detachment in settings:
        row = f"lambda = {weight:g}, xi = {detachment:g}"
        dead = nothing
        if row in paper_table("dead_neurons").mean.index:
            dead = [paper_figure("dead_neurons", row, layer) for layer in range(3)]
        record = {"degeneracy_weight": weight, "detachment_weight": detachment}
        record |= ratios(paper_figure("degenerate_softmax", row, 0), dead)
        if (weight, detachment) == (0.0, 0.0):
            record["densities"] = densities(True, False)
        found.append(record)
    shown = {"shown": [list(setting) for setting in settings]}
    return {**HEAD, "settings": {**SETTINGS, **LEARNED, **MEASURED, **shown}, "records": found}


def scales(cells=CELLS, runs=4):
    found = []
    for run in range(runs):
        for square, weight in cells:
            row = f"s^2 = {square:g}, lambda = {weight:g}"
            (softmax, softmax_std), (dead, dead_std) = (
                paper_figure("scale_and_weight", row, place) for place in range(2)
            )
            worst = dead + dead_std * OF_RUNS[run]
            own = (softmax + softmax_std * OF_RUNS[run], 0.1)
            head = {"squared_scale": square, "degeneracy_weight": weight, "run": run}
            curve = {"steps": [100, 200], "uniformity": [0.5, 0.2 if weight == 1.0 else 0.01]}
            learned = {"theta0": {"seconds": 60.0}}
            found.append(
                head | ratios(own, [(0.0, 0.0), (worst, 0.1), (-9.0, 0.0)]) | curve | learned
            )
    squares, weights = (sorted(set(values)) for values in zip(*cells, strict=True))
    shown = {"squared_scales": squares, "weights": weights, "runs": runs}
    return {**HEAD, "settings": {**SETTINGS, **LEARNED, **MEASURED, **shown}, "records": found}


def averaged(results):
    """The same by averaged kernels."""
    return results | {"settings": results["settings"] | {"kernels": "mean"}}


def detachment(shares=(0.1, 0.3, 0.6, 0.9)):
    found = [
        {"step": 0, "at_theta0": 1.0, "nearby": [[1.0, 2.0]] * 4},
        {"step": 9, "at_theta0": 0.1, "nearby": [[s, 2 * s] for s in shares]},
    ]
    settings = {**SETTINGS, "squared_scales": [0.2, 0.5, 1.0, 2.0], "draws": 2}
    return {**HEAD, "settings": settings, "records": found}


def theorems(holds=True):
    tails = {"radii": [0.5, 1.0], "bounds": [1.0, 0.001], "frequencies": [0.5, 0.0]}
    found = [
        {"theorem": 1, "case": case, "root_mean_square_norm": 0.5, "radius_of_one_percent": 0.75}
        | {"forms": {"theorem": tails | {"holds": [True, holds]}}}
        for case in ("m = 1 equal", "784-8-8-8-2")
    ]
    points = {"bounds": [0.5, 0.0], "shares": [0.6, 0.0], "distances": [0.1, 0.9]}
    found.append({"theorem": 2, "case": "d = 2", "n_classes": 2, "holds": [True] * 2, **points})
    law = {"mean": 0.99, "std": 0.1, "expected_mean": 1.0, "expected_std": 0.1}
    found.append({"theorem": 3, "case": "n", "width": 4, "n_networks": 1024, "holds": [True]} | law)
    without = {key: value for key, value in HEAD.items() if key != "dataset"}
    return {**without, "settings": {"seed": 0}, "records": found}


OURS = "xavier/fcn/ours"
AVERAGED = {OURS: 80.0, "xavier/fcn/scratch": 77.5}
COHERENT = {
    "xavier/fcn/scratch": 75.0,
    "xavier/fcn/ours+coherence": 97.0,
    "features+logistic": 96.0,
}
CONVOLUTIONAL = {
    "convnet/ours": 85.0,
    "convnet/ours+coherence": 98.0,
    "convnet/features+logistic": 97.5,
    "convnet/scratch": 80.0,
}
OF_RIVALS = {name: 80.0 + place for place, name in enumerate(RIVALS)}
AUGMENTED = COHERENT | {
    "xavier/fcn/ours+coherence": 98.0,
    "features+logistic": 98.4,
    "rival/label-spreading": 83.0,
    "rival/augmented-svm": 89.0,
}
TWICE = AUGMENTED | {"xavier/fcn/ours+coherence": 98.3, "features+logistic": 98.6}
BY_GRADIENTS = AUGMENTED | {"features+logistic": 98.7, "rival/gradients-svm": 90.0}
NORMED = AVERAGED | {"xavier/fcn+bn/ours": 78.5, "xavier/fcn+bn/scratch": 74.0}


def of_coherence(runs=(4,), changes=("gain=1",), table=None):
    """What coherence.py writes of the paper's objective, both, the default and some changes."""
    table = table or {
        "xavier/fcn/scratch": 70.0,
        "time/paper@1": 80.0,
        "time/both@1": 95.0,
        "ablation/default@6": 80.0,
        **{f"ablation/{name}@6": 60.0 for name in changes},
    }
    names = [re.fullmatch(r"(\w+)/(.+)@(\d+)", name) for name in table]
    settings = [
        {"section": found[1], "name": found[2], "passes": int(found[3]), "changes": {}}
        for found in names
        if found
    ]
    seconds = {"paper": 100.0, "both": 20.0}
    learned = [
        s | {"run": run, "seconds": seconds.get(s["name"], 10.0) + run - 4}
        for run in runs
        for s in settings
    ]
    scores = [s | {"run": run} for run in runs for s in flat(table, runs=1)]
    plan = {"seed": 0, "runs": len(runs), "first_run": runs[0], "tasks": 2, "settings": settings}
    plan["n_labels"] = list(N_LABELS)
    return {**HEAD, "plan": plan, "theta0": learned, "scores": pack_scores(scores)}


OF_SECTION = {
    runs.COHERENCE: COHERENT | OF_RIVALS,
    runs.AUGMENTATION: AUGMENTED,
    runs.ROUNDS: TWICE,
    runs.GRADIENTS: BY_GRADIENTS,
    runs.CONVNETS: CONVOLUTIONAL,
}


def with_coherence(run):
    """A file of one of the report's sections on coherence."""
    own = CONVOLUTIONAL if "convnet" in run.file else OF_SECTION[run.section]
    penalty = {"features+logistic-cv": 98.5} if "features+logistic-cv" in run.methods else {}
    classes = 10 if "--classes 10" in run.command else 2
    results = task_results(flat(own | penalty, runs=run.runs), classes=classes)
    dataset = "fashion-mnist" if "fashion" in run.file else "mnist"
    return results | {"dataset": {"name": dataset, "source": "nowhere"}}


def complete():
    """Every file that the report reads."""
    short = {"epochs": 2, "n_perturbations": 64}
    return {
        **{run.file: with_coherence(run) for run in runs.RUNS if run.section in OF_SECTION},
        "mnist-full.json": task_results(like_the_paper()),
        "mnist-balanced.json": task_results(like_the_paper(), draw="balanced"),
        "mnist-batch-norm.json": task_results(flat(NORMED)),
        "mnist-mean-of-kernels.json": task_results(
            flat(AVERAGED), kernels="mean", epochs=5, n_perturbations=256
        ),
        "mnist-two-passes.json": task_results(flat(COHERENT | {OURS: 79.0}, runs=2), **short),
        "mnist-two-passes-mean-of-kernels.json": task_results(flat(AVERAGED, runs=2), **short),
        "degeneracies.json": degeneracies(),
        "degeneracies-mean-of-kernels.json": averaged(degeneracies()),
        "degeneracies-by-share.json": degeneracies(),
        "scale-and-weight.json": scales(),
        "scale-and-weight-mean-of-kernels.json": averaged(scales()),
        "detachment-nearby.json": detachment(),
        "theorems.json": theorems(),
        "mnist-rivals.json": task_results(flat(COHERENT | OF_RIVALS)),
        "coherence.json": of_coherence(),
    }


def partial_results():
    """Some files, some in part."""
    xavier = [name for name in PAPER_METHODS if name.startswith("xavier")]
    return {
        "mnist-full.json": task_results(like_the_paper(xavier, runs=1)),
        "degeneracies.json": degeneracies([(0.4, 1.0)]),
        "scale-and-weight.json": scales([(0.5, 0.4), (0.5, 1.0)], runs=1),
        "mnist-coherence.json": task_results(flat(COHERENT | {"rival/1-nn": 80.0})),
    }


def write_all(folder, files):
    folder.mkdir(exist_ok=True)
    for name, results in files.items():
        write_json(folder / name, results)
    return Library(folder)
