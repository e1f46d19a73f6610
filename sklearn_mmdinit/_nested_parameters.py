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
        prefix = "coherence__"
        own = {n.removeprefix(prefix): v for n, v in params.items() if n.startswith(prefix)}
        coherence = params.get("coherence", self.coherence)
        if own and is_auto(coherence):
            # Whole before it takes the place of "auto": what is refused leaves that as it is.
            params["coherence"] = Coherence().set_params(**own)
        elif own and not isinstance(coherence, Coherence):
            raise ValueError(
                f"{prefix}{next(iter(own))} is a parameter of a coherence, and there is none: "
                f'coherence={coherence!r}; set coherence="auto" or coherence=Coherence() as well'
            )
        return super().set_params(**params)
