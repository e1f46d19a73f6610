"""Where scikit-learn's HTML representation of an estimator links to."""

from __future__ import annotations

from importlib import metadata

from sklearn.base import BaseEstimator

__all__ = ["DocumentedEstimator", "page_of_estimators"]


def page_of_estimators() -> str:
    """The page of an estimator, as a template of scikit-learn's.

    Returns
    -------
    str
        Below the URL that the distribution's metadata name as its documentation, in the way of
        Sphinx's autosummary. Empty where there is none: then there are no links.
    """
    try:
        urls = metadata.metadata("sklearn-mmdinit").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        urls = []
    for label, _, url in (entry.partition(",") for entry in urls):
        if label.strip().lower() == "documentation":
            pages = url.strip().rstrip("/")
            return f"{pages}/generated/{{estimator_module}}.{{estimator_name}}.html"
    return ""


class DocumentedEstimator(BaseEstimator):
    """An estimator of this package: scikit-learn looks for no page of it among its own."""

    _doc_link_module = __name__.partition(".")[0]
    _doc_link_template = page_of_estimators()
