"""Where cells are computed: on this machine's cores, a dask cluster or a ray cluster.

A cell is a call whose result is all that comes of it. Every engine computes the same cells to the
same last digit.
"""
