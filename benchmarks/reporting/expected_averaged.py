"""What there is to measure of the other reading of L_uni, with its kernels averaged."""

from __future__ import annotations

from reporting.item import Expected, measured_once, records_in, runs_of, settings_in

__all__ = [
    "AVERAGED",
    "DEGENERACIES_AVERAGED",
    "SCALE_AVERAGED",
    "SHARES",
    "SHORT",
    "SHORT_AVERAGED",
]

TASKS = "python benchmarks/mnist_tasks.py"
METHODS = ("xavier/fcn/ours", "xavier/fcn/scratch")
AVERAGED = Expected(
    "Table 1, Xavier, with the mean of the kernels of L_uni in place of their sum, four runs",
    "mnist-mean-of-kernels.json",
    f"{TASKS} --preset paper --kernels mean --methods {' '.join(METHODS)}",
    "two hours on 2 cores",
    8,
    runs_of(METHODS, 4),
)
SHORT = Expected(
    "Table 1, Xavier, two short pre-trainings for runs of their own",
    "mnist-two-passes.json",
    f"{TASKS} --first-run 4 --runs 2 --n-labels 5 10 20 40 --methods {' '.join(METHODS)}",
    "ten minutes on 2 cores",
    1,
    measured_once,
)
SHORT_AVERAGED = Expected(
    "These short pre-trainings with the mean of the kernels of L_uni in place of their sum",
    "mnist-two-passes-mean-of-kernels.json",
    f"{SHORT.command} --kernels mean",
    SHORT.time,
    1,
    measured_once,
)
SHARES = Expected(
    "Degenerate softmax and dead neurons by the weight of L_uni, one pass with K = 64",
    "degeneracies-by-share.json",
    "python benchmarks/degeneracies.py --settings 0.4,1 1.2,3 3.6,9 10.8,27 --n-perturbations 64 "
    "--epochs 1",
    "ten minutes on one core",
    4,
    settings_in,
)
DEGENERACIES_AVERAGED = Expected(
    "The same with the mean of the kernels of L_uni in place of their sum",
    "degeneracies-mean-of-kernels.json",
    "python benchmarks/degeneracies.py --kernels mean",
    "two hours on 2 cores",
    4,
    settings_in,
)
SCALE_AVERAGED = Expected(
    "The same with the mean of the kernels of L_uni in place of their sum, one run",
    "scale-and-weight-mean-of-kernels.json",
    "python benchmarks/scale_and_weight.py --kernels mean",
    "three hours on 2 cores",
    12,
    records_in,
)
