"""A table is a title, a head and rows of strings; a terminal's printer and Markdown's share it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Table", "as_markdown", "as_text", "mean_and_std"]


@dataclass(frozen=True)
class Table:
    title: str
    head: list[str]
    rows: list[list[str]]


def mean_and_std(mean: float, std: float | None) -> str:
    """Two digits of each; the std of a single value is None."""
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def as_text(table: Table) -> str:
    """The table with aligned columns, for a terminal."""
    lines = [table.head, *table.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.head))]
    body = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([table.title, body[0], "-" * len(max(body, key=len)), *body[1:]])


def as_markdown(table: Table) -> str:
    """The table as GitHub reads it."""
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    return "\n".join([f"{table.title}:", "", *("| " + " | ".join(x) + " |" for x in lines)])
