"""Where cells are computed: on this machine's cores, a dask cluster or a ray cluster."""
