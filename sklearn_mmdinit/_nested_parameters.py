"""Parameters with two underscores in their names: what a module's class and a coherence take."""

from __future__ import annotations

from typing import Any, Self

from ._coherence import Coherence
from ._pretraining import is_auto

__all__ = ["PREFIX", "NestedParameters"]

# Of what the class in ``module`` is called with, as skorch has it.
PREFIX = "module__"


class NestedParameters:
    """For an estimator with the parameters ``module`` and ``coherence``."""

    coherence: Any

    def _set_module_parameters(self, parameters: dict[str, Any]) -> None:
        for name in parameters:
            if not name.startswith(PREFIX):
                raise TypeError(
                    f"{type(self).__name__} got an unexpected parameter {name!r}; those of the "
                    f"class in module begin with {PREFIX!r}"
                )
        vars(self).update(parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters, those of the module's class among them.

        Parameters
        ----------
        deep : bool, default=True
            Whether to add those of the coherence.

        Returns
        -------
        params : dict
            Values by name.
        """
        own: dict[str, Any] = super().get_params(deep)  # type: ignore[misc]
        return own | {name: value for name, value in vars(self).items() if name.startswith(PREFIX)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the coherence and of the module's class among them.

        Parameters
        ----------
        **params : dict
            Values by name. ``coherence__<name>`` where the coherence is "auto" puts a
            ``Coherence()`` in its place first; ``module__<name>`` is for the class in module.

        Returns
        -------
        self : MMDInitializer
            This one.
        """
        nested = any(name.startswith("coherence__") for name in params)
        if nested and is_auto(params.get("coherence", self.coherence)):
            params["coherence"] = Coherence()
        of_module = {name: value for name, value in params.items() if name.startswith(PREFIX)}
        super().set_params(**{n: v for n, v in params.items() if n not in of_module})  # type: ignore[misc]
        vars(self).update(of_module)
        return self
