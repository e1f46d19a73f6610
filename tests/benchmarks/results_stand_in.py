"""Results made up for the report: the paper's own figures, so that all of it must agree."""

import json
import math

import numpy as np

from protocol.store import write_json
from reporting.paper import paper_table
from reporting.results import Library, pack_draws, pack_scores

HEAD = {
    "dataset": {"name": "mnist", "source": "nowhere"},
    "versions": {"python": "3", "torch": "2"},
    "hardware": {"cpu": "abacus", "cores": 1, "gpu": None},
    "git_commit": "0123456789",
    "git_changed": False,
}
SETTINGS = {"hidden_layer_sizes": (392, 392, 392), "seed": 0}
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


def like_the_paper(methods=PAPER_METHODS, runs=4):
    """Scores of two tasks a run whose tables are the paper's, digit for digit."""
    found = []
    for place, n in enumerate(N_LABELS):
        for method in methods:
            mean, std = paper_figure("accuracy", method, place)
            spread, spread_std = paper_figure("task_std", method, place)
            own = [
                [(mean + std * of + (spread + spread_std * of) * task) / 100 for task in OF_TASKS]
                for of in OF_RUNS[:runs]
            ]
            found += records({method: own}, n)
    return found


def flat(values):
    """Scores that are the same at every N: a method and its accuracy (%)."""
    table = {m: [[a / 100, (a + 1) / 100]] * 4 for m, a in values.items()}
    return [score for n in N_LABELS for score in records(table, n)]


def task_results(scores, **settings):
    runs = 1 + max((score["run"] for score in scores), default=0)
    methods = list(dict.fromkeys(score["method"] for score in scores))
    own = {"classes": 2, "runs": runs, "methods": methods, "epochs": 5, "n_perturbations": 256}
    own["n_labels"] = sorted({score["n_labels"] for score in scores})
    return {**HEAD, "settings": {**SETTINGS, **own, **settings}, "scores": pack_scores(scores)}


def ratios(softmax, dead):
    """Both as (mean, std), the latter a list of them."""
    softmax, *dead = ({"mean": mean, "std": std} for mean, std in (softmax, *dead))
    return {"degenerate_softmax_percent": softmax, "dead_neurons_percent": dead}


def degeneracies(settings=LOSSES):
    nothing = [(10.0, 1.0)] * 3
    fresh = {"degeneracy_weight": None, "detachment_weight": None}
    found = [fresh | ratios((11.0, 1.0), nothing)]
    for weight, detachment in settings:
        row = f"lambda = {weight:g}, xi = {detachment:g}"
        dead = nothing
        if row in paper_table("dead_neurons").mean.index:
            dead = [paper_figure("dead_neurons", row, layer) for layer in range(3)]
        record = {"degeneracy_weight": weight, "detachment_weight": detachment}
        record |= ratios(paper_figure("degenerate_softmax", row, 0), dead)
        found.append(record)
    return {**HEAD, "settings": {**SETTINGS, **LEARNED, **MEASURED}, "records": found}


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
            curve = {"uniformity": [0.5, 0.2 if weight == 1.0 else 0.01]}
            found.append(head | curve | ratios(own, [(0.0, 0.0), (worst, 0.1), (-9.0, 0.0)]))
    return {**HEAD, "settings": {**SETTINGS, **LEARNED, **MEASURED}, "records": found}


def write_all(folder, files):
    folder.mkdir(exist_ok=True)
    for name, results in files.items():
        write_json(folder / name, results)
    return Library(folder)


def status_of(command, arguments):
    """The status that a command ends with."""
    try:
        command.main([*map(str, arguments)])
    except SystemExit as end:
        return end.code
    return 0


def written(folder, **settings):
    """The only results in a folder that a command had with such settings."""
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    [own] = [results for results in found if settings.items() <= results["settings"].items()]
    return own


def few_labels(table, n_labels=(5,)):
    """What ``real_data.py`` writes: by set, then method, an accuracy (%) a draw; at each N."""
    cells = [
        {"set": name, "n_labels": n, "draw": draw, "method": method, "accuracy": value / 100}
        | {"log_loss": 0.5, "calibration_error": 0.1, "seconds": 2.0}
        for n in n_labels
        for name, methods in table.items()
        for method, values in methods.items()
        for draw, value in enumerate(values)
    ]
    shape = {"rows": 1200, "features": 7, "classes": 3}
    kinds = ["table", "series"] * len(table)
    described = [{"set": s, "kind": kind, **shape} for s, kind in zip(table, kinds, strict=False)]
    once = [{"set": name, "once": "starts", "seconds": 9.0} for name in table]
    scores = pack_draws(cells, range(max(cell["draw"] for cell in cells) + 1))
    return {"sets": described, "once": once, "scores": scores}


ON_SETS = {
    "a": {"stacked": [90, 90], "scratch": [80, 80], "svm": [84, 86]},
    "b": {"stacked": [70, 70], "scratch": [69, 71], "svm": [60, 60]},
    "c": {"stacked": [51, 49], "scratch": [52, 52], "svm": [56, 56]},
}
"""Three sets whose means over draws, ranks and differences are easy to find by hand."""
