"""What tests of engines share: a small command, and cells that tell where they ran."""

import json
import os
import time
from pathlib import Path

from reporting.task_tables import unpack_scores

TINY = [
    *("--dataset", "digits", "--hidden-layer-sizes", "8", "--tasks", "3"),
    *("--epochs", "1", "--n-perturbations", "4", "--n-labels", "5", "10"),
    *("--methods", "xavier/fcn/ours", "*/fcn/scratch", "--quiet"),
]
N_FITS = 3 * 3 * 2


def figures(output):
    """Every score, and what stands for every theta0 byte for byte."""
    results = json.loads((output / "digits_tasks.json").read_text())
    return unpack_scores(results["scores"]), [theta0["digest"] for theta0 in results["theta0"]]


class Parcel:
    """Unpickled in a process it writes that process's number into a folder."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def __reduce__(self):
        return arrived, (str(self.folder),)

    def arrivals(self):
        """How often it was unpickled, by the number of the process."""
        return {
            int(path.stem): len(path.read_text().splitlines()) for path in self.folder.iterdir()
        }


def arrived(folder):
    with (Path(folder) / f"{os.getpid()}.txt").open("a") as file:
        file.write("here\n")
    return Parcel(folder)


def where(number, seconds, parcel):
    """A cell that says which process it ran in, long enough for others to take some too."""
    time.sleep(seconds)
    return number, os.getpid()


def failing(number, parcel):
    raise ZeroDivisionError(f"cell {number}")


class Unreadable:
    """What no worker can unpickle, for want of a module."""

    def __reduce__(self):
        return not_found, ("nowhere",)


def not_found(name):
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
