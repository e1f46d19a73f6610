"""A fitted classifier in an ONNX file: probabilities of rows, classes in the metadata."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .._network import check_folder_of, write_whole

__all__ = ["onnx_bytes", "write_onnx"]

_SUFFIX = ".onnx"
_INPUT, _OUTPUT, _CLASSES = "X", "probabilities", "classes"

# What torch.onnx needs beside itself.
_PACKAGES = ("onnx", "onnxscript")


def write_onnx(
    path: str | os.PathLike[str], module: nn.Module, example: np.ndarray, classes: np.ndarray
) -> None:
    """Write a module to an ONNX file, whole or not at all.

    Parameters
    ----------
    path : str or path-like
        Where to write; must end in ``.onnx``. An existing file is replaced.
    module : nn.Module
        Maps rows to probabilities; on the CPU, in evaluation mode.
    example : ndarray of shape (1, ...)
        A row, in the type that the module takes.
    classes : ndarray of shape (n_classes,)
        Labels, numbers or strings.

    Raises
    ------
    FileNotFoundError
        If there is no folder to write to.
    ImportError
        If a package of the extra ``onnx`` is missing.
    ValueError
        If `path` ends otherwise or is a folder, or the module fixes the number of rows.
    """
    target = Path(path)
    if target.suffix != _SUFFIX or target.is_dir():
        raise ValueError(f"path must be that of a file that ends in {_SUFFIX!r}, got {str(path)!r}")
    check_folder_of(target)
    write_whole(target, onnx_bytes(module, example, classes))


def onnx_bytes(module: nn.Module, example: np.ndarray, classes: np.ndarray) -> bytes:
    """The contents of such a file."""
    if missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
        raise ImportError(
            f"an ONNX file needs {' and '.join(missing)}: pip install 'sklearn-mmdinit[onnx]'"
        )
    # Two rows: with one the exporter would take its number for a constant.
    rows = torch.from_numpy(np.concatenate([example, example]))
    with _quietly():
        program: Any = torch.onnx.export(
            module,
            (rows,),
            dynamo=True,
            verbose=False,
            input_names=[_INPUT],
            output_names=[_OUTPUT],
            dynamic_shapes=({0: torch.export.Dim("n_samples")},),
        )
    if isinstance(program.model.graph.inputs[0].shape[0], int):
        # The exporter falls back on a program for just these rows.
        raise ValueError(
            "the module fixes the number of rows of the ONNX program, as len(x) does; write "
            "x.shape[0] in its place"
        )
    program.model.metadata_props[_CLASSES] = json.dumps(np.asarray(classes).tolist(), default=str)
    data: bytes = program.model_proto.SerializeToString()
    return data


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what the exporter says of packages that nothing here uses, and of its own code."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
