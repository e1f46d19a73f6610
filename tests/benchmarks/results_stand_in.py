"""Results made up for the tables, and what commands of the tests have written."""

import json

from protocol.store import write_json
from reporting.results import Library, pack_draws, pack_scores

HEAD = {
    "dataset": {"name": "mnist", "source": "nowhere"},
    "versions": {"python": "3", "torch": "2"},
    "hardware": {"cpu": "abacus", "cores": 1, "gpu": None},
    "git_commit": "0123456789",
    "git_changed": False,
}
SETTINGS = {"hidden_layer_sizes": (392, 392, 392), "seed": 0}
N_LABELS = (5, 10, 20, 40)


def records(table, n_labels=5):
    """Scores by method, then a list of accuracies a run."""
    return [
        {"method": method, "run": run, "task": task, "n_labels": n_labels, "accuracy": accuracy}
        for method, runs in table.items()
        for run, accuracies in enumerate(runs)
        for task, accuracy in enumerate(accuracies)
    ]


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
