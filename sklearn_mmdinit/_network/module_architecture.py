"""What a theta0 says of the module that it belongs to."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ModuleArchitecture", "digest_of"]

# What an Architecture has and a module does not.
_OF_A_PERCEPTRON = ("activation", "batch_norm", "hidden_layer_sizes", "n_layers", "widths")


def digest_of(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """What stands for names and shapes of arrays: 16 hexadecimal digits."""
    listed = sorted((name, list(shape)) for name, shape in shapes.items())
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ModuleArchitecture:
    """The description of a PyTorch module, in place of an :class:`Architecture`.

    Parameters
    ----------
    module : str
        Qualified name of its class.
    parameters : tuple of (str, str)
        Name and ``repr`` of what the class was called with, ``module__`` left out; empty where an
        instance was given.
    input_shape : tuple of int
        Shape of one example.
    n_classes : int
        Number of logits, the paper's d.
    digest : str
        Of the names and shapes of the module's arrays.
    last_layer : str, default=""
        Name of the linear layer that gives the logits; empty where there is none.
    chain : tuple of str, default=()
        Names of the layers, the first one first, where each hands a scale on to the next, so that
        a gain does not change the function; empty where that is not known.
    """

    module: str
    parameters: tuple[tuple[str, str], ...]
    input_shape: tuple[int, ...]
    n_classes: int
    digest: str
    last_layer: str = ""
    chain: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        # Reached only where there is no such attribute.
        words = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in _OF_A_PERCEPTRON:
            words = (
                f"a module has no {name}, which a multi-layer perceptron has; this theta0 is of "
                f"the module {self.module}: to_module() of its initializer starts there"
            )
        raise AttributeError(words)

    @property
    def n_features(self) -> int:
        """Numbers of one example."""
        return math.prod(self.input_shape)

    @property
    def scaled_layers(self) -> tuple[str, ...]:
        """Names of the layers that a gain acts on, the last one included."""
        return self.chain

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise a ValueError unless arrays have the names and shapes of the module's."""
        if (found := digest_of(shapes)) != self.digest:
            raise ValueError(
                f"arrays of the module {self.module} have names and shapes of the digest "
                f"{self.digest}, these have {found}: {sorted(shapes.items())}"
            )

    def to_json(self) -> str:
        """The description as a JSON object, the inverse of :meth:`from_json`."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ModuleArchitecture:
        """The module that a JSON object describes.

        Raises
        ------
        ValueError
            If the text is not the JSON of such a description.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            return cls(
                module=str(fields["module"]),
                parameters=tuple((str(name), str(value)) for name, value in fields["parameters"]),
                input_shape=tuple(int(n) for n in fields["input_shape"]),
                n_classes=int(fields["n_classes"]),
                digest=str(fields["digest"]),
                last_layer=str(fields["last_layer"]),
                chain=tuple(str(name) for name in fields["chain"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the description of a module: {text!r}") from error
