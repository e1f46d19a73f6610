"""
Text: one label of each class
=============================

Each text is the description of a SciPy function, and the class is its subpackage. Here TF-IDF and
its leading components turn a text into an embedding. For texts of your own a pre-trained sentence
encoder does better: ``SentenceTransformer("all-MiniLM-L6-v2").encode(texts)``.
"""

import importlib
import inspect

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_mmdinit import EmbeddingClassifier

names = ["fft", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "special"]
names += ["stats"]
texts, y = [], []
for label, name in enumerate(names):
    package = importlib.import_module(f"scipy.{name}")
    descriptions = {inspect.getdoc(getattr(package, member)) or "" for member in package.__all__}
    beginnings = [" ".join(text.lower().split()[:100]) for text in sorted(descriptions)]
    long_enough = [text for text in beginnings if text.count(" ") >= 29]
    texts += long_enough
    y += [label] * len(long_enough)
y = np.array(y)
print(f"{len(texts)} texts, for example:\n{texts[200][:80]}...")

# %%
# The embeddings need no labels.
encoder = make_pipeline(
    TfidfVectorizer(sublinear_tf=True, stop_words="english"), TruncatedSVD(60, random_state=0)
)
X = encoder.fit_transform(texts)


# %%
# Label a few texts of each class. -1 stands for a text without a label.
def draw_labels(n_of_each_class, seed):
    rng, few = np.random.default_rng(seed), np.full(len(y), -1)
    for label in range(len(names)):
        rows = rng.choice(np.flatnonzero(y == label), n_of_each_class, replace=False)
        few[rows] = label
    return few


# %%
# The baseline is a logistic regression on the labelled texts. With few labels the unlabelled texts
# help. With many the baseline is as good without them.
classifiers = {
    "EmbeddingClassifier": EmbeddingClassifier(),
    "logistic regression": LogisticRegression(C=10),
}
numbers, n_draws = [1, 2, 5, 10], 10
accuracies = {name: np.zeros((len(numbers), n_draws)) for name in classifiers}
for i, n in enumerate(numbers):
    for draw in range(n_draws):
        few = draw_labels(n, seed=draw)
        labelled = few >= 0
        for name, clf in classifiers.items():
            seen = slice(None) if name == "EmbeddingClassifier" else labelled
            clf.fit(X[seen], few[seen])
            accuracies[name][i, draw] = clf.score(X[~labelled], y[~labelled])

fig, ax = plt.subplots(layout="constrained")
for name, accuracy in accuracies.items():
    ax.plot(numbers, accuracy.mean(axis=1), "o-", label=name)
    print(f"{name}: {accuracy.mean(axis=1).round(2)}")
ax.set(xlabel="labels of each class", ylabel="accuracy on the other texts", xticks=numbers)
ax.legend()
plt.show()
