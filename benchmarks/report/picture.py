"""A figure that asks for no window system, written in one step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.store import write_atomically

__all__ = ["draw_picture"]


def draw_picture(path: Path, size: tuple[float, float], paint: Callable[[Any], None]) -> str:
    """Let ``paint`` fill a figure, write it, and say what was done.

    Parameters
    ----------
    path : Path
        The PNG.
    size : (float, float)
        Width and height in inches.
    paint : callable
        Takes the matplotlib Figure.

    Returns
    -------
    str
        One line: that it was written, or why not. A missing picture must not cost the figures.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return f"{path.name} not drawn: matplotlib is missing, pip install matplotlib"
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    paint(figure)
    write_atomically(path, lambda part: figure.savefig(part, dpi=150))
    return f"{path} written"
