"""Which of many examples without a label to label first: the numbers of those that are chosen.

Each function takes rows (n, width), how many of them to choose, the number of classes and a seed.
"""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances, pairwise_distances_argmin


def at_random(rows: np.ndarray, budget: int, n_classes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(len(rows))[:budget]


def nearest_to_centres(rows: np.ndarray, budget: int, n_classes: int, seed: int) -> np.ndarray:
    """Of each cluster of k-means the example nearest to the centre."""
    centres = KMeans(budget, random_state=seed).fit(rows).cluster_centers_
    return np.unique(pairwise_distances_argmin(centres, rows))


def medoids(rows: np.ndarray, budget: int, n_classes: int, seed: int) -> np.ndarray:
    """The medoids that FasterPAM finds (Schubert and Rousseeuw, 2021)."""
    import kmedoids

    distances = pairwise_distances(rows).astype(np.float32)
    return kmedoids.fasterpam(distances, budget, random_state=seed, n_cpu=1).medoids


def typiclust(rows: np.ndarray, budget: int, n_classes: int, seed: int) -> np.ndarray:
    """TypiClust (Hacohen, Dekel and Weinshall, 2022) of scikit-activeml."""
    from skactiveml.pool import TypiClust

    no_labels = np.full(len(rows), np.nan)
    return TypiClust(random_state=seed).query(rows, no_labels, batch_size=budget)


def probcover(rows: np.ndarray, budget: int, n_classes: int, seed: int) -> np.ndarray:
    """ProbCover (Yehuda, Dekel, Hacohen and Weinshall, 2022) of scikit-activeml."""
    from skactiveml.pool import ProbCover

    no_labels = np.full(len(rows), np.nan)
    return ProbCover(n_classes, random_state=seed).query(rows, no_labels, batch_size=budget)
