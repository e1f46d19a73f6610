"""Which rows of unlabelled data are near each other, and random walks among them.

The nearest neighbours of each row, the graph that they make, and where walks on it end.
"""

from .graph import neighbor_graph
from .neighbors import EXACT_BELOW, nearest_neighbors
from .walk import Walk

__all__ = ["EXACT_BELOW", "Walk", "nearest_neighbors", "neighbor_graph"]
