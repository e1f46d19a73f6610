"""Nearest-neighbour graphs of unlabelled rows, and random walks on them."""
