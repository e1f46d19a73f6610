"""Every table that is made of one file of results, by kind."""

from collections.abc import Callable
from functools import partial

from reporting.data_tables import DATA_TABLES, agreement_table
from reporting.layout import Table
from reporting.results import Results
from reporting.study_tables import STUDY_TABLES
from reporting.task_tables import TITLES, against_table, choices_table, gain_table, task_table
from reporting.time_tables import TIME_TABLES

TABLES: dict[str, Callable[[Results], Table]] = {
    **{kind: partial(task_table, kind) for kind in TITLES},
    "gain": gain_table,
    "against": against_table,
    "choices": choices_table,
    **STUDY_TABLES,
    **TIME_TABLES,
    **DATA_TABLES,
    "agreement": agreement_table,
}
"""From what a command writes to a table of it."""


def build_table(kind: str, results: Results) -> Table:
    """One of ``TABLES``; a ValueError if there is none."""
    if kind not in TABLES:
        raise ValueError(f"unknown table {kind!r}; valid names are {sorted(TABLES)}")
    return TABLES[kind](results)


def text_of(*kinds: str) -> Callable[[Results], str]:
    """What makes all that a command prints: its tables, those without a row left out."""

    def text(results: Results) -> str:
        tables = [build_table(kind, results) for kind in kinds]
        shown = [table for table in tables if table.rows]
        return "\n\n".join(f"{own.title}\n{own.frame.to_string(index=False)}" for own in shown)

    return text
