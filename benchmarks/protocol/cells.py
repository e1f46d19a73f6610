"""Cells of sets with few labels, each measured once: what their commands share.

The methods are a module's: ``METHODS``; ``needed(methods)``, names of what is made once a set;
``make(name, data)``; ``once_key(name, data)`` and ``record_key(data, method, n_labels, draw)``,
which stand for all that decides a result; and ``score_cell``, records of one draw.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import joblib
from tqdm import tqdm

from protocol import command
from protocol.backends import Call, local_workers
from protocol.sets import Prepared, has_enough
from protocol.store import Log, write_atomically


def add_options(
    parser: argparse.ArgumentParser, methods: Mapping[str, Any], n_labels: Sequence[int], draws: int
) -> None:
    add, many = parser.add_argument, [repr(name) for name in methods]
    add("--methods", nargs="+", default=["*"], help=f"names or patterns of {' '.join(many)}")
    labels = f"labels of each class; default: {' '.join(map(str, n_labels))}"
    add("--n-labels", nargs="+", type=command.positive, default=n_labels, metavar="N", help=labels)
    add("--draws", type=command.positive, default=draws, help=f"default: {draws}")
    add("--data-dir", type=Path, help="a folder with the wheels, texts and images that there are")
    add("--jobs", type=int, default=-1, help="processes; default: one a core")
    command.add_output_options(parser)


def measure(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    room: Any,
    methods: Sequence[str],
    sets: Sequence[Prepared],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Records of what is made once, and of every cell; what the log has is not measured again."""
    log = Log(options.output / Path(parser.prog).with_suffix(".jsonl"))
    folder = log.path.with_suffix("")
    once = {
        (data, name): room.once_key(name, data) for data in sets for name in room.needed(methods)
    }
    # Draws are the outermost loop, and then N: what an interruption leaves has all sets alike.
    cells = [
        (data, n, draw, {name: room.record_key(data, name, n, draw) for name in methods})
        for draw in range(options.draws)
        for n in options.n_labels
        for data in sets
        if has_enough(data, n)
    ]

    def path(data: Prepared, name: str) -> Path:
        return folder / f"{data.name}-{name}-{once[data, name]}.joblib"

    workers = local_workers(options.jobs)
    with command.resumable(parser):
        missing = []
        for data, n, draw, keys in cells:
            wanted = {name: key for name, key in keys.items() if key not in log.records}
            missing += [(data, n, draw, wanted)] if wanted else []
        needed = dict.fromkeys(
            (data, name) for data, _, _, wanted in missing for name in room.needed(wanted)
        )
        calls: list[Call] = [
            ((room.make, name, once[data, name], path(data, name)), (data,))
            for data, name in needed
            if not (once[data, name] in log.records and path(data, name).exists())
        ]
        for record in workers.results(_make, calls):
            words = f"{record['set']}: {record['once']} made in {record['seconds']:.0f} s"
            command.say(options, words)
            log.append(record)
        made: dict[Prepared, dict[str, Any]] = {data: {} for data in sets}
        for data, name in needed:
            made[data][name] = joblib.load(path(data, name))
        calls = [((wanted, n, draw), (data, made[data])) for data, n, draw, wanted in missing]
        scored = workers.results(room.score_cell, calls)
        for records in tqdm(scored, total=len(calls), unit="cell", disable=options.quiet):
            for record in records:
                log.append(record)
    made_records = [log.records[key] for key in once.values() if key in log.records]
    without_key = [{k: v for k, v in record.items() if k != "key"} for record in made_records]
    return without_key, [log.records[key] for *_, keys in cells for key in keys.values()]


def _make(
    make: Callable[[str, Prepared], Any], name: str, key: str, path: Path, data: Prepared
) -> dict[str, Any]:
    """Write the file of what is made once a set; the record that says what it took."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        made = make(name, data)
        seconds = time.perf_counter() - start
    write_atomically(path, partial(joblib.dump, made))
    return {"key": key, "set": data.name, "once": name, "seconds": round(seconds, 2)}
