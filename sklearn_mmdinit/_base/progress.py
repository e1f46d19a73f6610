"""The progress bar: how far a long computation is, and the time to go."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import warnings
from typing import Any

from .validation import is_auto

with warnings.catch_warnings():
    # A notebook without ipywidgets shows the bar as text, which is no news for a user.
    warnings.simplefilter("ignore")
    from tqdm.auto import tqdm

# What is over before needs no bar.
_SECONDS = 3.0


def bar(verbose: Any, **options: Any) -> Any:
    """A bar of tqdm's; where `verbose` is "auto" after some seconds, and if somebody may look.

    That is a notebook or a terminal, and neither one of several workers, whose bars would be
    written over each other.
    """
    if not is_auto(verbose):
        return tqdm(disable=verbose <= 0, **options)
    first = threading.current_thread() is threading.main_thread()
    alone = first and multiprocessing.parent_process() is None
    watched = "ipykernel" in sys.modules or getattr(sys.stderr, "isatty", bool)()
    options["leave"] = False  # as many as a search makes would fill the screen
    return tqdm(disable=not (alone and watched), delay=_SECONDS, **options)
