"""
Text: which data set is the sentence about?
===========================================

Text becomes numbers first, here by TF-IDF and its leading components; a sentence encoder of your
own does as well. Two texts with such numbers near each other often have the same subject, which is
what coherence lives on. The texts are lines of the descriptions that come with scikit-learn's data.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn import datasets
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_mmdinit import MLPClassifier, MMDInitializer

names = ["iris", "wine", "breast_cancer", "diabetes", "digits"]
texts, y = [], []
for label, name in enumerate(names):
    words = getattr(datasets, f"load_{name}")().DESCR.lower().split()
    pieces = [" ".join(words[i : i + 20]) for i in range(0, len(words) - 19, 8)]
    texts += pieces
    y += [label] * len(pieces)
y = np.array(y)
print(f"{len(texts)} pieces of 20 words, for example: {texts[40]!r}")

# %%
# No label is needed up to here, nor for the start.
numbers = make_pipeline(
    TfidfVectorizer(sublinear_tf=True, stop_words="english"), TruncatedSVD(40, random_state=0)
)
X = Normalizer().fit_transform(numbers.fit_transform(texts)) * np.sqrt(40)
init = MMDInitializer((64,), n_classes=len(names), coherence="auto", random_state=0).fit(X)

# %%
# Two labels a subject and more. (Pieces overlap, so that this is an easy task.)
sizes = [10, 20, 40]
classifiers = {
    "network, fresh weights": MLPClassifier((64,), max_iter=60, validation_split=None),
    "network, learned start": MLPClassifier(
        warm_start_from=init, max_iter=60, validation_split=None
    ),
    "logistic regression": LogisticRegression(C=10),
}
fig, ax = plt.subplots(layout="constrained")
for name, clf in classifiers.items():
    clf.set_params(random_state=0)
    means = []
    for n in sizes:
        few = StratifiedShuffleSplit(5, train_size=n, random_state=0)
        means.append(cross_val_score(clf, X, y, cv=few).mean())
    ax.plot(sizes, means, "o-", label=name)
ax.set(xlabel="labels", ylabel="accuracy on the rest", xticks=sizes)
ax.legend()
plt.show()
