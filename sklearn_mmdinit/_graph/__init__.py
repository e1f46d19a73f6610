"""Which rows of unlabelled data are near each other, and random walks among them.

The nearest neighbours of each row, the graph that they make, and where walks on it end.
"""

from .distinct import count_distinct
from .estimators import on_read_only, seed_
from .graph import check_graph, neighbor_graph
from .neighbors import ALGORITHMS, check_search
from .walk import Walk

__all__ = [
    "ALGORITHMS",
    "Walk",
    "check_graph",
    "check_search",
    "count_distinct",
    "neighbor_graph",
    "on_read_only",
    "seed_",
]
