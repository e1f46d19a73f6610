"""SetFit: the encoder itself is fine-tuned on pairs of labelled texts.

L. Tunstall et al., "Efficient Few-Shot Learning Without Prompts", arXiv 2209.11055, 2022. Pairs of
one class are pulled together and pairs of two classes are pushed apart; then a logistic regression
is fitted to the vectors of the labelled texts. It does not use texts without labels.
"""

from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

N_ITERATIONS = 20  # pairs of each kind for each labelled text, as in the paper
BATCH = 16


def setfit(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, n_classes: int, folder: Path, max_tokens: int
) -> np.ndarray:
    """The classes of test texts, by SetFit's own package.

    X and X_test are texts. The folder has the encoder, and gets what the package writes.
    """
    from datasets import Dataset, disable_progress_bars
    from sentence_transformers import SentenceTransformer, models
    from setfit import SetFitModel, Trainer, TrainingArguments

    disable_progress_bars()
    words = models.Transformer(str(folder), max_seq_length=max_tokens)
    pooling = models.Pooling(words.get_word_embedding_dimension())
    body = SentenceTransformer(modules=[words, pooling, models.Normalize()], device="cpu")
    model = SetFitModel(body, LogisticRegression(max_iter=1000), labels=[*range(n_classes)])
    arguments = TrainingArguments(
        output_dir=str(folder / "checkpoints"),
        batch_size=BATCH,
        num_epochs=1,
        num_iterations=N_ITERATIONS,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        show_progress_bar=False,
    )
    rows = Dataset.from_dict({"text": [*X], "label": y.tolist()})
    Trainer(model=model, args=arguments, train_dataset=rows).train()
    return np.asarray(model.predict([*X_test], batch_size=BATCH, show_progress_bar=False))
