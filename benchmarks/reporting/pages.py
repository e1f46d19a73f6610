"""The report as one Markdown document, made of the committed results and ``report.md.j2``.

The template has the order, the headings and the words, and calls what makes the tables; here is
what needs more than a call. What was not measured yet is said in the words of ``runs.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

import runs
from protocol.methods import FEATURES_THETA0
from protocol.rivals import ALL_RIVALS, RIVALS
from reporting import comparison, task_tables, time_tables
from reporting.findings import FIGURES
from reporting.layout import Table, as_markdown, template_environment
from reporting.results import Library, Results, made_with
from reporting.statistics import complete, gains
from reporting.tables import TABLES
from reporting.task_tables import SCRATCH, paper_tasks, rows_of_all_files, wide_of

# The row with coherence knows the images as they are; some rivals know more of them.
BESIDE_COHERENCE = {
    "scratch": (SCRATCH,),
    "the best of the rivals that see pixels alone": RIVALS,
    "the best rival of all on the same tasks": ALL_RIVALS,
}


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
    rows = [[run.name, run.file, _state(run, library)] for run in runs.RUNS if run.section]
    frame = pd.DataFrame(rows, columns=["item", "file", "state"])
    return Table("What there is, and what is missing", frame)


def commands(library: Library) -> str:
    """A table of the files that are there and what wrote them."""
    rows = {}
    for run in runs.RUNS:
        if library.results(run.file) is not None:
            picture = run.file.replace(".json", ".png")
            drawn = ", `.png`" if (library.folder / picture).is_file() else ""
            command = f"`python benchmarks/{run.command}`" + (f", {run.how}" if run.how else "")
            rows[run.file] = [f"`{run.file}`{drawn}", command, run.time]
    frame = pd.DataFrame(rows.values(), columns=["file", "command", "about"])
    return as_markdown(Table("What wrote each file", frame))


def _made_with(library: Library) -> Table:
    files = [*(run.file for run in runs.RUNS if run.section), "mnist-diagnostics.json"]
    frame = made_with(library, files)
    letters = {v: chr(ord("a") + i) for i, v in enumerate(frame["versions"].unique())}
    named = "; ".join(f"{letter}: {versions}" for versions, letter in letters.items())
    title = f"What each file was made with (versions {named})" if named else "Nothing is measured"
    return Table(title, frame.assign(versions=frame["versions"].map(letters)))


def _runs_text(wide: pd.DataFrame, init: str) -> str:
    """How many of the paper's runs there are, of ours and of the methods it stands beside."""
    own = wide[[row for row in wide if row.startswith(f"{init}/")]]
    ours = comparison.runs_of(own.filter(items=[f"{init}/fcn/ours"]))
    every = comparison.runs_of(own)
    text = f"{len(ours)} of {runs.PAPER_RUNS} runs"
    return text if ours == every else f"{text} of ours, {len(every)} of others"


def _readings(library: Library) -> Iterator[Table | runs.Run]:
    """Tables of both readings of L_uni, or the runs that are missing in their place."""
    for run in runs.of_section(runs.KERNELS):
        if run.beside:
            both = {"sum": runs.run_of(run.beside), "mean": run}
            readings = {k: paper_tasks(library.results(r.file)) for k, r in both.items()}
            missing = [r for k, r in both.items() if readings[k].empty]
            yield from missing
            if not missing:
                settings = (library.results(run.file) or {})["settings"]
                how = f"{settings['epochs']} passes with K = {settings['n_perturbations']}"
                yield task_tables.kernels_table(readings, how)


def _part(run: runs.Run, library: Library) -> dict[str, Any]:
    """A file of tasks with coherence: what it adds to another one, where it stands, accuracies."""
    results = library.results(run.file)
    if results is None:
        return {"run": run, "said": [], "tables": []}
    beside = wide_of(library.results(run.beside) if run.beside else None)
    wide, tables = wide_of(results), []
    if run.minus:
        tables.append(task_tables.differences_table(run.minus, wide, beside))
    own = wide
    if run.section == runs.CONVNETS:
        wide = task_tables.with_perceptron(wide, beside)
        own = wide.drop(columns=[name for name in runs.RECOMMENDED[:2] if name in wide])
    tables += [task_tables.against_table(own), task_tables.accuracy_table(wide)]
    if run.section == runs.CONVNETS:
        tables.append(task_tables.perceptron_differences(wide))
    return {"run": run, "said": task_tables.standing_sentences(own), "tables": tables}


def _points_of_coherence(every: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Points of ours with coherence over what it is set beside, at each N by the best of those."""
    if FEATURES_THETA0 not in every:
        return
    for words, rows in BESIDE_COHERENCE.items():
        said: dict[str, list[str]] = {}
        for n, name in task_tables.best_rival(every, FEATURES_THETA0, rows).items():
            pair = complete(every[FEATURES_THETA0], every[name]).to_frame()
            mean = gains(pair).mean[n].item()
            said.setdefault(name.removeprefix("rival/"), []).append(f"{mean:+.2f} at N = {n}")
        if said:
            yield words, ", ".join(f"{', '.join(own)} ({name})" for name, own in said.items())


TEMPLATES = template_environment()
TEMPLATES.filters["markdown"] = as_markdown
TEMPLATES.globals |= {
    "APPENDIX": comparison.APPENDIX,
    "FIGURES": FIGURES,
    "INITS": {"Xavier": "xavier", "He": "he"},
    "MAIN": comparison.MAIN,
    "TABLES": TABLES,
    "claims_table": task_tables.claims_table,
    "comparison": comparison,
    "made_with": _made_with,
    "paper_tasks": paper_tasks,
    "part_of": _part,
    "points_of_coherence": _points_of_coherence,
    "readings": _readings,
    "rows_of_all_files": rows_of_all_files,
    "runs": runs,
    "runs_text": _runs_text,
    "states": _states,
    "task_tables": task_tables,
    "time_tables": time_tables,
}


def _rendered(template: str, library: Library, **more: Any) -> list[str]:
    """The blocks of a document, between which an empty line stands."""
    wide = paper_tasks(library.results("mnist-full.json"))
    every = rows_of_all_files(library)
    text = TEMPLATES.get_template(template).render(library=library, wide=wide, every=every, **more)
    return [block.strip("\n") for block in text.split("\n\n") if block.strip("\n")]


def summary(library: Library) -> list[str]:
    """Five lines: the two tables, the appendix's tables, its figures, and what is ours."""
    return _rendered("summary.md.j2", library)


def ranking(library: Library) -> str:
    """Every method that was measured on the paper's tasks, the best one first."""
    return as_markdown(task_tables.ranking_table(rows_of_all_files(library)))


def report(library: Library) -> str:
    """The whole document; its links are from the library's folder, where it will stand too."""
    return "\n\n".join(_rendered("report.md.j2", library, summary=summary(library))) + "\n"
