"""Parameters with two underscores in their names: what a module's class and a coherence take."""

from __future__ import annotations

from typing import Any, Self

from ._coherence import Coherence
from ._modules import ModuleKeywords
from ._pretraining import is_auto

__all__ = ["NestedParameters"]


class NestedParameters(ModuleKeywords):
    """For an estimator with the parameters ``module`` and ``coherence``."""

    coherence: Any

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

        Raises
        ------
        ValueError
            If there is a parameter of the coherence where there is no coherence, or no such
            parameter.
        """
        nested = next((name for name in params if name.startswith("coherence__")), None)
        coherence = params.get("coherence", self.coherence)
        if nested and is_auto(coherence):
            params["coherence"] = Coherence()
        elif nested and not isinstance(coherence, Coherence):
            raise ValueError(
                f"{nested} is a parameter of a coherence, and there is none: coherence="
                f'{coherence!r}; set coherence="auto" or coherence=Coherence() as well'
            )
        return super().set_params(**params)
