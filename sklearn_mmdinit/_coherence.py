"""Where older modules look for :mod:`sklearn_mmdinit.coherence`."""

from .coherence import Coherence, brings_edges, check_coherence, coherence_of

__all__ = ["Coherence", "brings_edges", "check_coherence", "coherence_of"]
