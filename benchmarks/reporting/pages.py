"""What is made of several files: the report's appendices, and digests for pages by people.

An appendix is a loop over ``runs.py`` by ``appendix.md.j2``.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial

import pandas as pd

import runs
from reporting.claims import LIMITS, WORTH, choices_table, claims_table
from reporting.estimates import Estimates
from reporting.headline import headline_table
from reporting.layout import Table, as_markdown, template_environment
from reporting.paper import figures_that_agree
from reporting.results import Library, Results
from reporting.study_tables import ratios_by_setting, scale_figures
from reporting.tables import build_table
from reporting.task_tables import FIGURES, differences_table, task_estimates, wide_of


def commands(library: Library) -> Table:
    """The files and what wrote them."""
    rows = []
    for run in runs.RUNS:
        command = f"`python benchmarks/{run.command}`" + (f", {run.how}" if run.how else "")
        rows.append([f"`{run.file}`", command, run.time])
    return Table("What wrote each file", pd.DataFrame(rows, columns=["file", "command", "about"]))


# Name in this table, the paper's table, our file of it, and the rows that count.
AGREEMENT = (
    ("Table 1, accuracy, Xavier", "accuracy", "mnist-full.json", "^xavier/"),
    ("Table 1, accuracy, He", "accuracy", "mnist-full.json", "^he/"),
    ("Table 2, spread over tasks, Xavier", "task_std", "mnist-full.json", "^xavier/"),
    ("Table 2, spread over tasks, He", "task_std", "mnist-full.json", "^he/"),
    *(
        (f"{title}, {kernels} of the kernels", table, f"{stem}{end}.json", ".")
        for title, table, stem in (
            ("Degenerate softmax", "degenerate_softmax", "degeneracies"),
            ("Dead neurons", "dead_neurons", "degeneracies"),
            ("Scale s and weight lambda", "scale_and_weight", "scale-and-weight"),
        )
        for kernels, end in (("sum", ""), ("mean", "-mean-of-kernels"))
    ),
    ("Degenerate softmax, from He's weights", "degenerate_softmax", "degeneracies-he.json", "."),
    ("Dead neurons, from He's weights", "dead_neurons", "degeneracies-he.json", "."),
)


def _read(table: str, results: Results) -> Estimates:
    """Our figures of a table of the paper's."""
    if table in FIGURES:
        return task_estimates(table, wide_of(results))
    return scale_figures(results) if table == "scale_and_weight" else ratios_by_setting(results)


@cache
def agreement_table(library: Library) -> Table:
    """How many figures of ours agree with the paper's, by its tables."""
    rows = []
    for title, table, file, pattern in AGREEMENT:
        figures = _read(table, library.results(file))
        ours = Estimates(*(part.filter(regex=pattern, axis=0) for part in figures))
        rows.append([title, str(int(ours.n.max(axis=None))), *figures_that_agree(ours, table)])
    title = (
        "Figures of ours that agree with the paper's, and by how many points they may differ and "
        "still do so, the median; stars in the tables name the others"
    )
    return Table(title, pd.DataFrame(rows, columns=["table", "runs", "figures", "within"]))


# The appendices


def tables_of(run: runs.Run, library: Library) -> Iterator[Table]:
    """What an appendix shows of a run."""
    results = library.results(run.file)
    if run.beside:
        yield differences_table(run.minus, results, library.results(run.beside))
    for kind in run.tables:
        yield build_table(kind, results)


def appendix(library: Library, page: runs.Appendix) -> str:
    """One page; its links are from the folder ``report`` of the library's."""
    environment = template_environment()
    environment.filters["markdown"] = as_markdown
    text = environment.get_template("appendix.md.j2").render(
        page=page, library=library, runs=runs, tables_of=tables_of
    )
    # Where a block is left out, no gap stands.
    blocks = [block.strip("\n") for block in text.split("\n\n")]
    return "\n\n".join(filter(None, blocks)) + "\n"


DIGESTS: dict[str, Callable[[Library], Table]] = {
    "agreement": agreement_table,
    "headline": headline_table,
    "commands": commands,
    "worth": partial(claims_table, WORTH),
    "choices": partial(choices_table, WORTH[:2]),
    "limits": partial(claims_table, LIMITS),
}
