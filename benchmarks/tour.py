"""Claim: the whole public interface works, in the order in which a user meets it.

Theta0 by the paper's objective and with coherence, diagnostics and theorems; pipelines, searches
and rows without labels; files, scikit-learn and ONNX; any PyTorch module, in place and in skorch.
Each step prints a few lines and checks what it says; a claim that does not hold ends the tour with
status 1. It needs no download: the data are scikit-learn's 1,797 digits of 8 x 8 pixels.

Run it (about two minutes on one core; some seconds with ``--quick``, on 300 of the digits)::

    python benchmarks/tour.py
    python benchmarks/tour.py --quick

Pictures and files go to the output folder. Accuracies are of one theta0 and a few draws: see the
other commands for figures to rely on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from protocol.command import command_parser
from tour_steps.elsewhere import files, onnx, scikit_learn
from tour_steps.fine_tuning import features, few_labels, routed, search, stream, unlabelled
from tour_steps.journey import Claims, Journey
from tour_steps.modules import convolutions, in_place, own_layer, skorch
from tour_steps.pretraining import (
    augmentation,
    baseline,
    coherence,
    diagnose,
    paper,
    second_round,
    theorems,
)

__all__ = ["STEPS", "main"]

OUTPUT = Path(__file__).resolve().parent / "output"

STEPS: tuple[Callable[[Journey], Claims], ...] = (
    paper,
    coherence,
    augmentation,
    second_round,
    diagnose,
    theorems,
    few_labels,
    search,
    stream,
    files,
    baseline,
    features,
    unlabelled,
    routed,
    scikit_learn,
    onnx,
    convolutions,
    in_place,
    skorch,
    own_layer,
)
"""In order: some need what an earlier one learned."""


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="little data and few steps")
    parser.add_argument(
        "--output", type=Path, default=OUTPUT, help="folder (default: benchmarks/output)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if every claim holds."""
    options = _parser().parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    journey, started = Journey(options.output, options.quick), time.perf_counter()
    broken = []
    for number, step in enumerate(STEPS, 1):
        print(f"{number}. {(step.__doc__ or '').splitlines()[0]}", flush=True)
        for claim, holds in step(journey).items():
            print(f"  {'yes' if holds else 'NO'}: {claim}", flush=True)
            if not holds:
                broken.append(f"{step.__name__}: {claim}")
    print(f"{len(STEPS)} steps, {time.perf_counter() - started:.0f} s; {options.output}")
    for claim in broken:
        print(f"does not hold: {claim}")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
