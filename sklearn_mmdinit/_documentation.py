"""Where scikit-learn's HTML representation of an estimator links to."""

from __future__ import annotations

from importlib import metadata

from sklearn.base import BaseEstimator

__all__ = ["DocumentedEstimator"]

PACKAGE = __name__.partition(".")[0]


def _pages() -> str:
    """The URL that the distribution's metadata name as its documentation; empty without one."""
    try:
        urls = metadata.metadata("sklearn-mmdinit").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        urls = []
    for label, _, url in (entry.partition(",") for entry in urls):
        if label.strip().lower() == "documentation":
            return url.strip().rstrip("/")
    return ""


class DocumentedEstimator(BaseEstimator):
    """An estimator of this package: scikit-learn looks for no page of it among its own.

    Its page is one of Sphinx's autosummary. Where the metadata name no pages there is no link.
    """

    _doc_link_module = PACKAGE
    _doc_link_template = "{page}"

    # Asked when an estimator is shown, and not on import: metadata are a file.
    def _doc_link_url_param_generator(self) -> dict[str, str]:
        pages = _pages()
        page = f"{pages}/generated/{PACKAGE}.{type(self).__name__}.html" if pages else ""
        return {"page": page}
