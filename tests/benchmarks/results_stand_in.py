"""Results made up for the tables, and what commands of the tests have written."""

import json

from protocol.store import write_json
from reporting.results import Library, pack_draws, pack_scores

HEAD = {"dataset": {"name": "mnist", "source": "nowhere"}, "git_commit": "0123456789"}
HEAD |= {"versions": {"python": "3", "torch": "2"}, "git_changed": False}
HEAD |= {"hardware": {"cpu": "abacus", "cores": 1, "gpu": None}}
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


def draws_of(table):
    """Results of draws: a set and N, then a method and accuracies (%) of two seconds each."""
    scores = [
        {"set": name, "n_labels": n, "draw": draw, "method": method, "accuracy": value / 100}
        for (name, n), methods in table.items()
        for method, values in methods.items()
        for draw, value in enumerate(values)
    ]
    n_draws = 1 + max(score["draw"] for score in scores)
    more = {"seconds": 2.0, "found": 100.0}
    methods = [*dict.fromkeys(score["method"] for score in scores)]
    packed = pack_draws([score | more for score in scores], range(n_draws), ["accuracy", *more])
    return {"settings": {"methods": methods}, **packed}


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


def run_again(command, output, *arguments):
    """Results of a call, and of another after a kill has cut off the last record of its log."""
    found, log = [], output / f"{command.__name__}.jsonl"
    for _ in range(2):
        assert status_of(command, [*arguments, "--output", output, "--quiet"]) == 0
        found.append(written(output))
        log.write_text(log.read_text()[:-20])
    return found


def written(folder, **settings):
    """The only results in a folder that a command had with such settings."""
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    [own] = [results for results in found if settings.items() <= results["settings"].items()]
    return own
