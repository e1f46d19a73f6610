"""Parameters of an estimator that its module's class is called with, such as ``module__width``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Self

__all__ = [
    "PREFIX",
    "ModuleKeywords",
    "keywords_of",
    "keywords_of_initializer",
    "with_n_classes",
]

# As skorch has it.
PREFIX = "module__"

# Of an initializer's classes; a module may have any other number without being told.
_DEFAULT_N_CLASSES = 2


def keywords_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What the class is called with, of all parameters of an estimator."""
    named = {name: value for name, value in parameters.items() if name.startswith(PREFIX)}
    return {name.removeprefix(PREFIX): value for name, value in named.items()}


def with_n_classes(module: Any, keywords: Mapping[str, Any], n_classes: int) -> dict[str, Any]:
    """The number of classes among what a class is called with, where it takes it and has none."""
    takes = inspect.isclass(module) and "n_classes" in inspect.signature(module).parameters
    return {"n_classes": n_classes, **keywords} if takes else dict(keywords)


def keywords_of_initializer(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What an initializer's class is called with: its number of classes too, where it is given.

    The default counts as not given, but for a class that has none of its own.
    """
    own, n_classes = keywords_of(parameters), parameters["n_classes"]
    if n_classes == _DEFAULT_N_CLASSES and not _needs_n_classes(parameters["module"]):
        return own
    return with_n_classes(parameters["module"], own, n_classes)


def _needs_n_classes(module: Any) -> bool:
    """Whether a class cannot be called without the number of classes."""
    takes = inspect.signature(module).parameters if inspect.isclass(module) else {}
    return "n_classes" in takes and takes["n_classes"].default is inspect.Parameter.empty


class ModuleKeywords:
    """For an estimator with the parameters ``module`` and ``**module__params``."""

    def _set_module_keywords(self, parameters: dict[str, Any]) -> None:
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
            Whether to add those of its parts.

        Returns
        -------
        params : dict
            Values by name.
        """
        own: dict[str, Any] = super().get_params(deep)  # type: ignore[misc]
        return own | {name: value for name, value in vars(self).items() if name.startswith(PREFIX)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the module's class and of parts among them.

        Parameters
        ----------
        **params : dict
            Values by name; ``module__<name>`` is for the class in module.

        Returns
        -------
        self : estimator
            This one.
        """
        of_module = {name: value for name, value in params.items() if name.startswith(PREFIX)}
        super().set_params(**{n: v for n, v in params.items() if n not in of_module})  # type: ignore[misc]
        vars(self).update(of_module)
        return self
