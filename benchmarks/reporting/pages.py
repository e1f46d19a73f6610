"""The report as one Markdown document, made of the committed results and ``report.md.j2``.

The template has the order, the headings and the words; here are the values that it speaks of. What
was not measured yet is said in the words of ``runs.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

import runs
from protocol.methods import FEATURES_THETA0
from protocol.rivals import ALL_RIVALS, RIVALS
from reporting.comparison import APPENDIX, MAIN, draw_sentences, draw_table, runs_of
from reporting.findings import FIGURES
from reporting.layout import Table
from reporting.results import Library, Results, made_with
from reporting.statistics import complete, gains
from reporting.study_tables import shares_table
from reporting.tables import TABLES, as_markdown
from reporting.task_tables import (
    SCRATCH,
    accuracy_table,
    against_table,
    best_rival,
    claims_table,
    differences_table,
    kernels_table,
    paper_tasks,
    perceptron_differences,
    ranking_table,
    rivals_sentences,
    rivals_table,
    rows_of_all_files,
    standing_sentences,
    task_table,
    wide_of,
    with_perceptron,
)
from reporting.time_tables import budget_statement, time_sentences

INITS = {"Xavier": "xavier", "He": "he"}

# The row with coherence knows the images as they are; some rivals know more of them.
BESIDE_COHERENCE = {
    "scratch": (SCRATCH,),
    "the best of the rivals that see pixels alone": RIVALS,
    "the best rival of all on the same tasks": ALL_RIVALS,
}

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # of Markdown
)
TEMPLATES.filters["markdown"] = as_markdown


# What there is


def progress(run: runs.Run, results: Results | None) -> int:
    """How many parts of a measurement there are."""
    if results is None:
        return 0
    if run.methods:
        found = {(entry["method"], entry["run"]) for entry in results["scores"]}
        return sum((name, number) in found for name in run.methods for number in range(run.runs))
    if not run.key:
        return 1
    cells = pd.DataFrame(results["records"], columns=list(run.key))
    return len(cells.dropna(how="all").drop_duplicates())


def _state(run: runs.Run, library: Library) -> str:
    done = progress(run, library.results(run.file))
    if done >= run.parts:
        return "measured"
    return f"{done} of {run.parts} parts; the rest {run.not_run}" if done else run.not_run


def _states(library: Library) -> Table:
    rows = [[run.item, run.file, _state(run, library)] for run in runs.RUNS if run.section]
    frame = pd.DataFrame(rows, columns=["item", "file", "state"])
    return Table("What there is, and what is missing", frame)


def commands(library: Library) -> str:
    """A table of the files that are there and what wrote them."""
    rows: dict[str, list[str]] = {}
    for run in runs.RUNS:
        if library.results(run.file) is not None:
            picture = Path(run.file).with_suffix(".png").name
            names = (
                f"`{run.file}`, `.png`" if (library.folder / picture).is_file() else f"`{run.file}`"
            )
            how = f", {run.how}" if run.how else ""
            rows[run.file] = [names, f"`python benchmarks/{run.command}`{how}", run.time]
    frame = pd.DataFrame(rows.values(), columns=["file", "command", "about"])
    return as_markdown(Table("What wrote each file", frame))


def _made_with(library: Library) -> Table:
    files = [*(run.file for run in runs.RUNS if run.section), "mnist-diagnostics.json"]
    frame = made_with(library, files)
    letters = {v: chr(ord("a") + i) for i, v in enumerate(frame["versions"].unique())}
    named = "; ".join(f"{letter}: {versions}" for versions, letter in letters.items())
    title = f"What each file was made with (versions {named})" if named else "Nothing is measured"
    return Table(title, frame.assign(versions=frame["versions"].map(letters)))


# Parts of the report


def _main(library: Library) -> list[dict[str, Any]]:
    """Tables 1 and 2, each for both kinds of fresh weights."""
    wide = paper_tasks(library.results("mnist-full.json"))
    declared = dict(zip(INITS.values(), runs.of_section(runs.MAIN), strict=True))
    return [
        {
            "name": table.name,
            "halves": [
                {
                    "name": name,
                    "tallies": table.tallies(wide, init),
                    "table": table.table(wide, init, declared[init].not_run),
                    "claims": claims_table(wide, init) if table.kind == "accuracy" else None,
                    "runs": _runs_text(wide, init),
                }
                for name, init in INITS.items()
            ],
        }
        for table in MAIN
    ]


def _runs_text(wide: pd.DataFrame, init: str) -> str:
    """How many of the paper's runs there are, of ours and of the methods it stands beside."""
    own = wide[[row for row in wide if row.startswith(f"{init}/")]]
    ours, every = (runs_of(own.filter(items=rows)) for rows in ([f"{init}/fcn/ours"], list(own)))
    text = f"{len(ours)} of {runs.PAPER_RUNS} runs"
    return text if ours == every else f"{text} of ours, {len(every)} of others"


def _kernels(library: Library) -> list[Table | runs.Run]:
    """Tables of both readings of L_uni, or the runs that are missing in their place."""
    found: list[Table | runs.Run] = []
    for run in runs.of_section(runs.KERNELS):
        if run.key:
            results = library.results(run.file)
            found.append(run if results is None else shares_table(results))
        elif run.beside:
            both = {"sum": runs.run_of(run.beside), "mean": run}
            readings = {k: paper_tasks(library.results(r.file)) for k, r in both.items()}
            missing = [r for k, r in both.items() if readings[k].empty]
            results = library.results(run.file)
            if missing or results is None:
                found += missing
                continue
            settings = results["settings"]
            how = f"{settings['epochs']} passes with K = {settings['n_perturbations']}"
            found.append(kernels_table(readings, how))
    return found


def _standing(wide: pd.DataFrame) -> dict[str, Any]:
    """Where our rows stand against scratch and rivals, and the accuracy of all."""
    tables = [against_table(wide), accuracy_table(wide)]
    return {"said": standing_sentences(wide), "tables": tables}


def _convnet(wide: pd.DataFrame) -> dict[str, Any]:
    """The same of the convolutional network, and beside the perceptron."""
    own = wide.drop(
        columns=[row for row in (*runs.RECOMMENDED_CV,) if row in wide and row != SCRATCH]
    )
    tables = [accuracy_table(wide), against_table(own), perceptron_differences(wide)]
    return {"said": standing_sentences(own), "tables": tables}


def _part(run: runs.Run, library: Library) -> dict[str, Any]:
    """A file of tasks with coherence, and what it adds to another one."""
    results = library.results(run.file)
    words = f"{run.title}: accuracy by the number of labels"
    picture = library.picture(run.file.replace(".json", ".png"), words)
    part = {"run": run, "measured": results is not None, "picture": picture}
    if results is None:
        return part
    wide, beside = wide_of(results), wide_of(library.results(run.beside) if run.beside else None)
    if run.section == runs.CONVNETS:
        return part | {"minus": None} | _convnet(with_perceptron(wide, beside))
    minus = differences_table(run.minus, wide, beside) if run.minus else None
    return part | {"minus": minus} | _standing(wide)


def _coherence_points(library: Library) -> dict[str, str]:
    """Points of ours with coherence over what it is set beside, at each N by the best of those."""
    wide, found = rows_of_all_files(library), {}
    if FEATURES_THETA0 not in wide:
        return {}
    for words, rows in BESIDE_COHERENCE.items():
        said: dict[str, list[str]] = {}
        for n, name in best_rival(wide, FEATURES_THETA0, rows).items():
            pair = complete(wide[FEATURES_THETA0], wide[name]).to_frame()
            mean = gains(pair).mean[n].item()
            said.setdefault(name.removeprefix("rival/"), []).append(f"{mean:+.2f} at N = {n}")
        if said:
            found[words] = ", ".join(f"{', '.join(own)} ({name})" for name, own in said.items())
    return found


# Documents


def summary(library: Library) -> list[str]:
    """Five lines: the two tables, the appendix's tables, its figures, and what is ours."""
    text = TEMPLATES.get_template("summary.md.j2").render(
        main=_main(library),
        appendix=[(table.name, table.tallies(library)) for table in APPENDIX],
        figures=[(figure.title, figure.findings(library)) for figure in FIGURES],
        coherence=_coherence_points(library),
    )
    return [line for line in text.splitlines() if line]


def ranking(library: Library) -> str:
    """Every method that was measured on the paper's tasks, the best one first."""
    return as_markdown(ranking_table(rows_of_all_files(library)))


def report(library: Library) -> str:
    """The whole document.

    Parameters
    ----------
    library : Library
        The folder of results, where the document will stand too: its links are from there.
    """

    def read(file: str, make: Callable[[Results], Any]) -> Any:
        results = library.results(file)
        return None if results is None else make(results)

    def parts(section: str) -> list[dict[str, Any]]:
        return [_part(run, library) for run in runs.of_section(section)]

    balanced = read("mnist-balanced.json", lambda results: results)
    laws = {
        "uniform": paper_tasks(library.results("mnist-full.json")),
        "balanced": paper_tasks(balanced),
    }
    every = rows_of_all_files(library)
    text = TEMPLATES.get_template("report.md.j2").render(
        note=library.note,
        picture=library.picture,
        run_of=runs.run_of,
        summary=summary(library),
        states=_states(library),
        main=_main(library),
        draws=balanced and {"said": draw_sentences(laws), "table": draw_table(laws)},
        batch_norm=read("mnist-batch-norm.json", lambda results: task_table("gain", results)),
        kernels=_kernels(library),
        appendix=[(t, t.tallies(library), t.table(library), t.learned(library)) for t in APPENDIX],
        figures=[(figure, figure.findings(library)) for figure in FIGURES],
        rivals=None if every.empty else rivals_sentences(every),
        rivals_table=rivals_table(every, runs.run_of("mnist-rivals.json").not_run),
        tuning=read("tuned-scratch.json", lambda results: TABLES["tuning"](results, first=5)),
        sections=[
            ("Coherence, which is not the paper's", "", parts(runs.COHERENCE)),
            ("Coherence with augmentation", "augmentation", parts(runs.AUGMENTATION)),
            ("Coherence in two rounds", "rounds", parts(runs.ROUNDS)),
            ("Coherence with neighbours by gradients", "gradients", parts(runs.GRADIENTS)),
            ("A convolutional network", "", parts(runs.CONVNETS)),
        ],
        time=read(
            "coherence.json",
            lambda results: (time_sentences(results), TABLES["coherence_time"](results)),
        ),
        budget=read(
            "mnist-budget.json",
            lambda results: (budget_statement(results), TABLES["budget"](results)),
        ),
        made_with=_made_with(library),
    )
    return (
        "\n\n".join(block.strip("\n") for block in text.split("\n\n") if block.strip("\n")) + "\n"
    )
