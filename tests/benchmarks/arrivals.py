"""Something to share with workers that leaves a line where it arrives."""

import os
import time
from pathlib import Path


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
