"""Claim: L_iod minimised at theta0 falls at networks close to it too, and not at those far away.

The appendix's figure "iodloss_nearby". The paper's third term L_iod, which is 0 where the rows of
the Jacobians of the logits have unit norm and 1 for a constant function, is minimised alone, and
measured along the way at theta0 and at theta0 + epsilon, with epsilon of the paper's law for
s^2 = 0.2, 0.5, 1 and 2::

    MMDInitializer(uniformity_weight=0, degeneracy_weight=0, n_perturbations=2, random_state=0)

The perturbed networks of the other two terms have no weight here: those terms are only part of
the history, so K is 2, the fewest there can be. Nor does s change what is learned, so one
pre-training serves the four panels, and the curve of theta0 itself is the same in each.

Run it (about a minute on one core), then in full (under ten minutes on two cores)::

    python benchmarks/detachment_nearby.py --quick
    python benchmarks/detachment_nearby.py

It measures at log-spaced steps on 1,024 of the images with four perturbations, the same at every
step; prints L_iod before, on the way and after; draws mean +- std against the steps; and writes
every number as JSON. The paper has no figures here, only its finding: L_iod nearby falls with that
of theta0 for s^2 = 0.2 and 0.5, and less and less for larger s. Values above 1 come from rows
longer than 2, and are no sign of a constant function. What was done is kept: the same command goes
on where it was stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from protocol.appendix_bench import Preset, add_appendix_options, prepare_appendix
from protocol.command import command_parser
from protocol.detachment_curve import CHANGES, DetachmentCurve
from protocol.options import positive, positive_number
from protocol.study import Study, run_study
from reporting.detachment_figure import draw_detachment
from reporting.detachment_tables import detachment_text

__all__ = ["main"]

SQUARED_SCALES = (0.2, 0.5, 1.0, 2.0)

FULL = Preset(n_perturbations=CHANGES["n_perturbations"])
QUICK = Preset(n_perturbations=CHANGES["n_perturbations"], steps=600, rows=6400)

# Images on which L_iod is measured.
N_ROWS, QUICK_ROWS = 1024, 128


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(__doc__)
    parser.add_argument(
        "--squared-scales",
        nargs="+",
        type=positive_number,
        metavar="S2",
        help="values of s squared, a panel each; default: the paper's 0.2 0.5 1 2",
    )
    parser.add_argument(
        "--draws", type=positive, default=4, help="perturbations; default: the paper's 4"
    )
    add_appendix_options(parser)
    return parser


def _prepare(options: argparse.Namespace) -> Study:
    bench = prepare_appendix(options, FULL, QUICK)
    curve = DetachmentCurve(
        bench,
        tuple(sorted(set(options.squared_scales or SQUARED_SCALES))),
        options.draws,
        QUICK_ROWS if options.quick else N_ROWS,
    )
    settings = bench.settings() | {
        "changes": CHANGES,
        "squared_scales": curve.squared_scales,
        "draws": curve.n_draws,
        "rows_measured": curve.n_rows,
    }
    return Study(
        bench.stem("detachment_nearby"), __doc__, curve.cells(), settings, options, bench.dataset
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the table was printed."""
    parser = _parser()
    options = parser.parse_args(argv)
    return run_study(parser, options, _prepare, detachment_text, draw_detachment)


if __name__ == "__main__":
    raise SystemExit(main())
