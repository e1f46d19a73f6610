"""Any PyTorch module as a network: its layers found by a pass, its perturbed copies drawn.

Each known layer adds its own noise to its output, through hooks that come and go; what hooks
cannot see is drawn by ``torch.func.vmap``. ``register_layer`` makes a type known.
"""

from .blueprint import ModuleBlueprint, blueprint_of
from .description import described, described_with_logits, takes_integers
from .embedding import with_dense_gradients_
from .embedding_indices import embeddings_named
from .keywords import (
    ModuleKeywords,
    keywords_of,
    keywords_of_initializer,
    with_n_classes,
)
from .network import ModuleNetwork
from .perturbed import samplers_of
from .registry import register_layer
from .source import ModuleSource, check_source

__all__ = [
    "ModuleBlueprint",
    "ModuleKeywords",
    "ModuleNetwork",
    "ModuleSource",
    "blueprint_of",
    "check_source",
    "described",
    "described_with_logits",
    "embeddings_named",
    "keywords_of",
    "keywords_of_initializer",
    "register_layer",
    "samplers_of",
    "takes_integers",
    "with_dense_gradients_",
    "with_n_classes",
]
