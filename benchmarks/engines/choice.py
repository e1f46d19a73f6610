"""The engines by name."""

from __future__ import annotations

import argparse
import importlib

import joblib

from engines.engine import Engine
from engines.loky import Loky

__all__ = ["ENGINES", "add_engine_options", "engine_of"]

# Where the engines of other packages are, which are extras of the same names.
CLUSTERS = {"dask": ("engines.dask_cluster", "Dask"), "ray": ("engines.ray_cluster", "Ray")}

ENGINES = ("loky", *CLUSTERS)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add where the cells are to be computed."""
    add = parser.add_argument
    add(
        "--backend",
        choices=ENGINES,
        default="loky",
        help="loky: processes on this machine; dask, ray: a cluster; default: loky",
    )
    add(
        "--address",
        help="of the scheduler of a running cluster, such as tcp://HOST:8786 (dask) or HOST:6379 "
        "(ray); default: a cluster of this machine's own, with one worker for each of --jobs",
    )


def engine_of(name: str, address: str | None, jobs: int) -> Engine:
    """The engine of a name, not yet entered.

    Parameters
    ----------
    name : str
        One of ENGINES.
    address : str or None
        Of a running cluster.
    jobs : int
        Processes on this machine, as joblib counts them, where there is no address.

    Raises
    ------
    ValueError
        If loky is given an address, or the package of a cluster is not installed.
    """
    n_jobs = joblib.effective_n_jobs(jobs)
    if name not in CLUSTERS:
        if address is not None:
            raise ValueError(
                f"--address {address}: {name} has this machine's processes alone; an address is "
                f"for --backend {' or '.join(CLUSTERS)}"
            )
        return Loky(n_jobs)
    module, cluster = CLUSTERS[name]
    try:
        made: Engine = getattr(importlib.import_module(module), cluster)(address, n_jobs)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--backend {name} needs the package {error.name}, which is not installed: "
            f"pip install 'sklearn-mmdinit[{name}]'"
        ) from error
    return made
