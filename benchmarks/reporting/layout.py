"""A table is a title and a frame of strings, which a terminal and Markdown share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Table:
    """Text in rows and columns; the columns' names are its head."""

    title: str
    frame: pd.DataFrame

    @property
    def head(self) -> list[str]:
        return list(self.frame.columns)

    @property
    def rows(self) -> list[list[str]]:
        return self.frame.to_numpy().tolist()


def as_markdown(table: Table) -> str:
    """The table as GitHub reads it, its title above it where it has one."""
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    title = [f"{table.title}:", ""] if table.title else []
    return "\n".join([*title, *(f"| {' | '.join(line)} |" for line in lines)])


OF_N = "N = {}".format
"""The head of a column of so many labels."""


def mean_and_std(mean: float, std: float | None = None, digits: int = 2) -> str:
    """A single value has no std, and what is missing is a dash."""
    if pd.isna(mean):
        return "-"
    return f"{mean:.{digits}f}" + ("" if pd.isna(std) else f" ± {std:.{digits}f}")


def gain_text(
    mean: float, low: float | None = None, high: float | None = None, digits: int = 2
) -> str:
    """The mean with its sign, and the interval where there is one."""
    if pd.isna(mean):
        return "-"
    interval = "" if pd.isna(low) else f" [{low:+.{digits}f}, {high:+.{digits}f}]"
    return f"{mean:+.{digits}f}" + interval


def several(counts: Sequence[int], what: str) -> str:
    """The counts, from the least to the most, of what is called so."""
    least, most = min(counts), max(counts)
    shown = f"{most}" if least == most else f"{least} to {most}"
    return f"{shown} {what}{'' if most == 1 else 's'}"


def texts(form: Callable[..., str], *frames: pd.DataFrame) -> pd.DataFrame:
    """What ``form`` makes of the frames cell by cell; they are of one shape."""
    first = frames[0]
    if first.empty:
        return first.astype(object)
    made = np.vectorize(form, otypes=[object])(*(frame.to_numpy(object) for frame in frames))
    return pd.DataFrame(made, index=first.index, columns=first.columns)


def numbers(values: pd.DataFrame, form: str = "{:.1f}") -> pd.DataFrame:
    """Each number in this form, a dash where there is none."""
    return values.map(lambda value: "-" if pd.isna(value) else form.format(value))


def in_brackets(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Our figures, and the paper's in round brackets where it has one beside ours."""
    beside = paper.reindex_like(ours).astype(object).fillna("-")
    return ours.where((ours == "-") | (beside == "-"), ours + " (" + beside + ")")


def named_rows(title: str, cells: pd.DataFrame, *head: str) -> Table:
    """A table whose first columns are the names of the rows that say something."""
    kept = cells[(cells != "-").any(axis=1)] if len(cells.columns) else cells
    names = pd.DataFrame([*kept.index], columns=list(head), dtype=object)
    return Table(title, pd.concat([names, kept.reset_index(drop=True)], axis=1))


def template_environment() -> jinja2.Environment:
    """Where the templates of tables and pages are."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # of Markdown
    )
