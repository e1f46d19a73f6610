"""Matplotlib, imported when something is drawn."""

from __future__ import annotations

from typing import Any


def pyplot() -> Any:
    """Matplotlib's pyplot; ImportError that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "drawing needs matplotlib, which the extra `plot` installs: "
            "pip install 'sklearn-mmdinit[plot]'"
        ) from error
    return plt


def new_axes(ax: Any) -> Any:
    """The axes to draw on: those given, or a new figure's."""
    plt = pyplot()
    return plt.subplots()[1] if ax is None else ax
