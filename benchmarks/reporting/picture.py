"""A figure that asks for no window system, written in one step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.store import write_atomically

__all__ = ["draw_picture", "plain_log_ticks"]


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


def plain_log_ticks(axis: Any) -> None:
    """Name 1, 2, 5, 10, 20 and so on along a logarithmic axis that spans a few powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    # Powers of ten alone say little there, and names of all others run into each other.
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
