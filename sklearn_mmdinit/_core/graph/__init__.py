"""Which rows of unlabelled data are near each other, and random walks among them."""

from .edges import check_graph, neighbor_graph, on_read_only, seed_
from .search import check_search, count_distinct, nearest_neighbors
from .walk import Walk

__all__ = [
    "Walk",
    "check_graph",
    "check_search",
    "count_distinct",
    "nearest_neighbors",
    "neighbor_graph",
    "on_read_only",
    "seed_",
]
