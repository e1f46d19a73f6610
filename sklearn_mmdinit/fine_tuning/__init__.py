"""Labelled rows, their mini-batches, and the net that trains on them."""
