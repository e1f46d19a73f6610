"""Every table that is made of one file of results; and what a command prints and writes."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from protocol.store import digest_of, provenance, write_json
from reporting.few_label_tables import FEW_LABEL_TABLES
from reporting.layout import Table
from reporting.results import Results
from reporting.small_network_tables import SMALL_NETWORK_TABLES
from reporting.study_tables import STUDY_TABLES
from reporting.task_tables import TASK_TABLES
from reporting.time_tables import TIME_TABLES

TABLES: dict[str, Callable[[Results], Table]] = {
    **TASK_TABLES,
    **STUDY_TABLES,
    **TIME_TABLES,
    **FEW_LABEL_TABLES,
    **SMALL_NETWORK_TABLES,
}

IDLE_OPTIONS = {"output", "data_dir", "quiet", "jobs"}  # they change no figure


def build_table(kind: str, results: Results) -> Table:
    """One of ``TABLES``; a ValueError if there is none."""
    if kind not in TABLES:
        raise ValueError(f"unknown table {kind!r}; valid names are {sorted(TABLES)}")
    return TABLES[kind](results)


def text_of(results: Results, kinds: Sequence[str]) -> str:
    """The tables of these kinds as a terminal shows them, those without a row left out."""
    shown = [table for kind in kinds if (table := build_table(kind, results)).rows]
    return "\n\n".join(f"{table.title}\n{table.frame.to_string(index=False)}" for table in shown)


def _deciding(options: dict[str, Any]) -> dict[str, Any]:
    """The options that figures depend on; none of them is a path."""
    return {name: value for name, value in options.items() if name not in IDLE_OPTIONS}


def publish(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    measured: Results,
    kinds: Sequence[str],
) -> None:
    """Print and write what a command measured, below its claim, its settings and the machine.

    The file has the command's name and a digest of the options, so that no call overwrites what
    another one measured. ``measured["settings"]`` takes the place of options of the same name.
    """
    settings = _deciding(vars(options) | measured.pop("settings", {}))
    claim = (parser.description or "").splitlines()[0]
    results = {"claim": claim, "settings": settings} | provenance() | measured
    name = f"{Path(parser.prog).stem}-{digest_of(_deciding(vars(options)))[:8]}.json"
    path = options.output / name
    print(text_of(results, kinds), end="\n\n")
    write_json(path, results)
    print(f"{path} written")
