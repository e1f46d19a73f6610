"""Tables of ``self_supervised.py``: ours beside what others learn from the same views."""

from collections.abc import Callable

import pandas as pd

from reporting.estimates import accuracy_over_runs, by_task, gains, mean_by
from reporting.layout import Table, gain_text, mean_and_std, named_rows, texts
from reporting.results import Results, unpack_scores

OF_N = "N = {}".format


def _wide(results: Results) -> pd.DataFrame:
    return by_task(unpack_scores(results["scores"]))


def _accuracy(results: Results) -> Table:
    """A row a method; single choices of labels of all runs are pooled."""
    wide = _wide(results)
    estimates, grouped = accuracy_over_runs(wide), wide.groupby("n_labels")
    single = texts("; {:.2f}; {:.1f}".format, grouped.std().T, grouped.quantile(0.1).T)
    cells = texts(mean_and_std, estimates.mean, estimates.std) + single.loc[wide.columns]
    cells = cells.where(estimates.mean.notna(), "-").rename(columns=OF_N)
    seconds = pd.DataFrame(results["theta0"]).groupby("method")["cpu_seconds"].mean()
    cells["seconds"] = seconds.reindex(cells.index).map("{:.0f}".format).replace("nan", "-")
    runs = wide.index.get_level_values("run").nunique()
    title = (
        f"Test accuracy (%): mean{' ± standard deviation over runs' if runs > 1 else ' of a run'}; "
        "standard deviation over single choices of labels; their worst decile. Seconds of "
        "a core for a pre-training"
    )
    return named_rows(title, cells, "method")


def _above(results: Results) -> Table:
    """Ours minus each rival on the choices that both have."""
    wide = _wide(results)
    ours, *others = wide
    differences = pd.DataFrame({name: wide[ours] - wide[name] for name in others})
    cells = texts(gain_text, *gains(differences)[:3])
    of_runs = gains(mean_by(differences, "n_labels", "run"))
    cells += texts(
        lambda low, high: "" if pd.isna(low) else f", runs [{low:+.2f}, {high:+.2f}]", *of_runs[1:3]
    )
    title = (
        "Ours minus it on the same labelled images (points): mean, its 95% interval over choices "
        "of labels, and over runs where there are several"
    )
    return named_rows(title, cells.rename(columns=OF_N), "method")


SELF_SUPERVISED_TABLES: dict[str, Callable[[Results], Table]] = {
    "self_supervised": _accuracy,
    "above_rivals": _above,
}
"""From the results of the command to a table of them, by kind."""
