"""Which rows of unlabelled data are near each other, and random walks among them.

The nearest neighbours of each row, the graph that they make, and where walks on it end.
"""

from .graph import neighbor_graph
from .neighbors import ALGORITHMS
from .walk import Walk

__all__ = ["ALGORITHMS", "Walk", "neighbor_graph"]
