"""Claim: a start learned on random views of unlabelled photographs makes few labels go far.

Without a label ``mmd_init_`` learns the weights of a ResNet from two random views of each image of
CIFAR-10, or of another set. N labels of each class are then used by logistic regression and label
spreading on its features, by fine-tuning, and by FixMatch. Baselines have the same network and the
same seconds. Methods that take long run on the first draw and with some N alone.

Run the preset for a CPU (ten minutes, on a part of the images) or the one of an hour::

    pip install 'sklearn_mmdinit[bench]'
    python benchmarks/photographs.py --data-dir data
    python benchmarks/photographs.py --data-dir data --preset hour --methods 'views: *' 'NT-Xent: *'

Images of CIFAR-10 are in the folder's ``cifar-10/train/CLASS`` and ``cifar-10/test/CLASS``; else
OpenML is asked. Photographs of your own, all of one size, are in ``NAME/train/CLASS`` and
``NAME/test/CLASS``: pass ``--set NAME``.
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

import torch

from data.photographs import load_photographs
from protocol import command, photographed
from protocol.methods import select_names
from protocol.store import Log
from reporting.results import pack_draws
from reporting.tables import publish


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    add, many = parser.add_argument, [repr(name) for name in photographed.METHODS]
    add("--preset", choices=photographed.PRESETS, default="cpu", help="default: cpu")
    add("--set", default="cifar-10", help="cifar-10 or a folder of --data-dir; default: cifar-10")
    add("--methods", nargs="+", default=["*"], help=f"names or patterns of {' '.join(many)}")
    add("--n-labels", nargs="+", type=command.positive, metavar="N", help="labels of each class")
    add("--draws", type=command.positive, help="of labelled images")
    add("--long-n-labels", nargs="+", type=command.positive, default=(4, 25), metavar="N",
        help="those of N with which methods that take long run; default: 4 25")  # fmt: skip
    add("--long-draws", type=command.positive, default=1, help="default: 1")
    seconds = f"of each rival's training; default: those of the start {photographed.VIEWS!r}"
    add("--seconds", type=float, help=seconds)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--data-dir", type=Path, help="a folder with the images")
    sizes = [part.name for part in fields(photographed.Setting)]
    for name in sizes:
        option = f"--{name.replace('_', '-')}"
        add(option, type=command.positive, help="in place of the preset's")
    command.add_output_options(parser)
    parser.set_defaults(**photographed.PRESETS[parser.parse_args(argv).preset])
    options = parser.parse_args(argv)
    torch.backends.cudnn.benchmark = True  # shapes stay the same
    log, say = Log(options.output / "photographs.jsonl"), partial(command.say, options)
    with command.refusing(parser), command.resumable(parser):
        methods = select_names(options.methods, photographed.METHODS)
        bench = photographed.Bench(
            load_photographs(options.set, options.data_dir, say),
            photographed.Setting(**{name: getattr(options, name) for name in sizes}),
            log,
            **{name: getattr(options, name) for name in ("seed", "device", "seconds")},
            verbose=not options.quiet,
            report=say,
        )
        bench.labelled_rows(max(options.n_labels), 0)  # raises before anything is learned
        if bench.seconds is None:
            photographed.made_start(bench, photographed.VIEWS)
            views = photographed.start_key(bench, photographed.VIEWS)
            bench.seconds = float(log.records[views]["seconds"])
        cells = [
            (name, n, draw)
            for draw in range(options.draws)
            for n in options.n_labels
            for name in methods
            if not photographed.METHODS[name].is_long
            or (draw < options.long_draws and n in options.long_n_labels)
        ]
        for cell in cells:
            photographed.score(bench, *cell)
    once = [log.records.get(photographed.start_key(bench, start)) for start in photographed.STARTS]
    scores = [log.records[photographed.record_key(bench, *cell)] for cell in cells]
    results = {
        "settings": {"methods": methods},
        "source": bench.data.source,
        "digest": bench.data.digest,
        "once": [{k: v for k, v in each.items() if k != "key"} for each in once if each],
        **pack_draws(scores, range(options.draws), ("accuracy", "seconds")),
    }
    publish(parser, options, results, ["photographs", "photographs_starts"])


if __name__ == "__main__":
    main()
