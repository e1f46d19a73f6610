"""Five sets of labelled sentences, from the files that their authors published.

The name of a set is its reader's in :data:`READERS`.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import fetch_20newsgroups

from data.datasets import Report


@dataclass(frozen=True, eq=False)
class Labelled:
    """An array X of texts, or of files, and numbers y of their classes, the training ones first."""

    X: np.ndarray
    y: np.ndarray
    n_train: int
    n_test: int
    source: str
    digest: str


Found = tuple[Sequence[str], Any, str]
"""Texts, labels and their source."""


def _folder(data_dir: Path | None, name: str, where: str) -> Path:
    """A file or folder that no package brings."""
    if data_dir is None or not (path := data_dir.expanduser() / name).exists():
        raise FileNotFoundError(f"{name} is needed, of {where}")
    return path


def _newsgroups(data_dir: Path | None, report: Report) -> Found:
    """The texts with their headers."""
    report("20 newsgroups: asking fetch_20newsgroups, unless they are in its cache")
    bunch = fetch_20newsgroups(subset="all", shuffle=False)
    return bunch.data, bunch.target, "fetch_20newsgroups"


def _intents(data_dir: Path | None, report: Report) -> Found:
    """What somebody asks of an assistant: 150 intents."""
    path = _folder(data_dir, "data_full.json", "github.com/clinc/oos-eval (CLINC150)")
    whole = json.loads(path.read_text(encoding="utf-8"))
    pairs = [pair for part in ("train", "val", "test") for pair in whole[part]]
    return [text for text, _ in pairs], np.array([intent for _, intent in pairs]), path.name


def _banking(data_dir: Path | None, report: Report) -> Found:
    """What somebody asks of a bank: 77 intents."""
    folder = _folder(data_dir, "banking_data", "github.com/PolyAI-LDN/task-specific-datasets")
    parts = [pd.read_csv(folder / f"{part}.csv", dtype="str", keep_default_na=False)
             for part in ("train", "test")]  # fmt: skip
    frame = pd.concat(parts, ignore_index=True)
    return frame["text"].tolist(), frame["category"], "the original files"


def _home(data_dir: Path | None, report: Report) -> Found:
    """What somebody asks of an assistant at home: 64 intents, the first fold of the authors."""
    folder = _folder(data_dir, "NLU-Evaluation-Data", "github.com/xliuhw/NLU-Evaluation-Data")
    fold = next(folder.glob("CrossValidation/*/*/CrossValidation/KFold_1"))
    files = [file for part in ("trainset", "testset/csv")
             for file in sorted((fold / part).glob("*.csv"))]  # fmt: skip
    frames = [pd.read_csv(file, sep=";", dtype="str", keep_default_na=False) for file in files]
    texts = [text for frame in frames for text in frame["answer_from_user"]]
    intents = np.repeat([file.stem for file in files], [len(frame) for frame in frames])
    return texts, intents, "the original files"


def _questions(data_dir: Path | None, report: Report) -> Found:
    """Titles of programmers' questions, and which of 20 tags they have; every fifth is last."""
    folder = _folder(data_dir, "StackOverflow", "github.com/jacoxu/StackOverflow") / "rawText"
    titles, tags = (
        (folder / f"{name}_StackOverflow.txt").read_text(encoding="utf-8").splitlines()
        for name in ("title", "label")
    )
    order = np.argsort(np.arange(len(titles)) % 5 == 4, kind="stable")
    titles_in_order = np.array(titles, dtype=object)[order].tolist()
    return titles_in_order, np.array(tags)[order], "the original files"


READERS: dict[str, Callable[[Path | None, Report], Found]] = {
    "banking77": _banking,
    "20-newsgroups": _newsgroups,
    "clinc150": _intents,
    "hwu64": _home,
    "stackoverflow": _questions,
}

N_ROWS = {
    "banking77": (13_083, 10_003, 3_080),
    "20-newsgroups": (18_846, 11_314, 7_532),
    "clinc150": (22_500, 15_000, 4_500),
    "hwu64": (11_036, 9_960, 1_076),
    "stackoverflow": (20_000, 16_000, 4_000),
}
"""Texts of each set: all, the first ones for training, and the last ones to test.

Between the two CLINC150 has validation texts. Parts are as published, but every fifth text of
stackoverflow, which has none, is to test.
"""


def load_texts(name: str, data_dir: Path | None, report: Report) -> Labelled:
    """A set; RuntimeError where no source has it, ValueError where it is not as published."""
    try:
        texts, labels, source = READERS[name](data_dir, report)
    except OSError as error:
        raise RuntimeError(f"{name}: {error}; name a folder that has it with --data-dir") from error
    n, n_train, n_test = N_ROWS[name]
    if len(texts) != n:
        raise ValueError(f"{name} of {source} has {len(texts)} texts, expected {n}")
    _, y = np.unique(np.asarray(labels).astype(str), return_inverse=True)
    digest = hashlib.sha256(y.astype("<i8").tobytes() + "\0".join(texts).encode()).hexdigest()
    # NumPy's own strings all take the room of the longest.
    return Labelled(np.asarray(texts, dtype=object), y, n_train, n_test, source, digest)
