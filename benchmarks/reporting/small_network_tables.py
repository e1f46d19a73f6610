"""Tables of ``small_networks.py``: learned and fresh weights with few labels."""

from collections.abc import Callable, Collection

import pandas as pd

from protocol.own_networks import FRESH, HALVED, IMAGES, LEARNED, NETWORKS
from reporting.estimates import N, gains
from reporting.layout import Table, gain_text, mean_and_std
from reporting.results import Results

INTERVAL = "mean difference in points with its 95% t interval over the draws"


def _gain(differences: pd.Series) -> str:
    """Mean and interval over the entries."""
    gained = gains(pd.concat({0: differences.to_frame("gain")}, names=[N]))
    return gain_text(*(part.loc["gain", 0] for part in gained[:3]))


def _title(results: Results, part: str, where: str) -> str:
    task = results["settings"][part]
    return (
        f"Accuracy (%) {where} with {task['n_labels']} labels: mean ± standard deviation over "
        f"{task['draws']} draws of the labels; {INTERVAL}"
    )


def _networks(results: Results) -> Table:
    """A row a network, and their mean."""
    table, gained = _compared(results, "digits", "of the digits", {IMAGES, *HALVED})
    if len(gained) > 1:
        last = f"mean of {len(gained)} networks, interval over networks"
        table.frame.loc[len(gained)] = [last, *"---", _gain(pd.Series(gained)), "-"]
    return table


def _halved(results: Results) -> Table:
    """A row a network and kind of positive pairs."""
    where = f"on the test images of {results['settings']['dataset']} at half the side"
    return _compared(results, "halved", where, {IMAGES, *NETWORKS})[0]


def _compared(
    results: Results, part: str, where: str, without: Collection[str]
) -> tuple[Table, list[float]]:
    """A row a record whose task is not left out, and its gains over fresh weights."""
    rows, gained = [], []
    for record in (each for each in results["records"] if each["task"] not in without):
        draws = pd.DataFrame(record["accuracies"])
        difference = draws[LEARNED] - draws[draws[[*FRESH]].mean().idxmax()]
        gained.append(difference.mean())
        row = {"network": record["task"]}
        row |= {method: mean_and_std(draws[method].mean(), draws[method].std()) for method in draws}
        row["above the better fresh weights"] = _gain(difference)
        rows.append(row | {"seconds": f"{record['seconds']:.0f}"})
    title = (
        f"{_title(results, part, where)}, against the fresh weights with the better "
        "mean; seconds to learn the weights"
    )
    return Table(title, pd.DataFrame(rows)), gained


def _images(results: Results) -> Table:
    """A row a method."""
    rows = []
    for record in (each for each in results["records"] if each["task"] == IMAGES):
        draws, seconds = pd.DataFrame(record["accuracies"]), f"{record['seconds']:.0f}"
        for method in draws:
            accuracy = mean_and_std(draws[method].mean(), draws[method].std())
            above = _gain(draws[LEARNED] - draws[method])
            is_ours = method == LEARNED
            rows.append([method, accuracy, *(("-", seconds) if is_ours else (above, "-"))])
    title = f"{_title(results, IMAGES, 'on the test images')}; seconds to learn the weights"
    head = ["method", "accuracy", f"{LEARNED} minus it", "seconds"]
    return Table(title, pd.DataFrame(rows, columns=head))


SMALL_NETWORK_TABLES: dict[str, Callable[[Results], Table]] = {
    "small_networks": _networks,
    "halved_images": _halved,
    "few_images": _images,
}
