"""Sphinx builds the site by ``sphinx-build -W docs docs/_build/html``; nothing is fetched.

What it makes on the way stands in ``docs/generated``: the gallery, a page for each public name, and
the pages that are files of the repository (``PAGES`` of ``links.py``). Links of a page lead from
file to file, so that they work where the repository is read, too.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
# Before PyTorch is loaded: threads that wait for each other on a busy machine cost more than they
# bring to examples as small as these.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Examples learn for few epochs, as their first page says, and need not repeat it.
os.environ.setdefault("PYTHONWARNINGS", "ignore:Pre-training has not converged")

from links import PAGES, ROOT, absolute, repository, with_links  # noqa: E402

import sklearn_mmdinit  # noqa: E402

project = "sklearn_mmdinit"
author = "The sklearn_mmdinit developers"
project_copyright = "2026, " + author
version = release = sklearn_mmdinit.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = [
    "_build",
    "_templates",
    "examples",
    "generated/examples/**/*.md5",
    "generated/**/*.ipynb",
]
root_doc = "index"


FROM = {page: source for source, page in PAGES.items()}
for page, source in FROM.items():
    path, text = HERE / f"{page}.md", (ROOT / source).read_text(encoding="utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    # An unchanged page keeps its time, so that a second build has nothing to do.
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")

# Markdown
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 4

# API
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say them, in words
numpydoc_show_class_members = False  # the templates list them, with what they say
toc_object_entries_show_parents = "hide"
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

# Gallery
sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "examples",
    "gallery_dirs": "generated/examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "plot_gallery": True,
    "abort_on_example_error": True,
    "write_computation_times": False,
    "min_reported_time": float("inf"),  # times are those of the machine that builds
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("sklearn_mmdinit",),
    "inspect_global_variables": False,
    "reset_modules": ("matplotlib",),
    "image_scrapers": ("matplotlib",),
    "show_memory": False,
    "parallel": 2,
}


# The pages
html_theme = "pydata_sphinx_theme"
html_title = "sklearn_mmdinit"
# Formulas are drawn by a file of the site: its pages load nothing from another host.
mathjax_path = "tex-svg.js"
mathjax = files("sphinx-mathjax-offline") / "static/mathjax"
html_static_path = ["_static", str(mathjax / mathjax_path)]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options: dict[str, Any] = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
    "navbar_persistent": ["search-button"],
    "back_to_top_button": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
if repository():
    html_theme_options["icon_links"] = [
        {"name": "Source", "url": repository(), "icon": "fa-solid fa-code"}
    ]

REFERENCE = re.compile(r":(?:ref|term):`(?P<words>[^<`]+?)\s*(?:<[^>]*>)?`")


def links_to_pages(app: Any, docname: str, source: list[str]) -> None:
    """Point links of a Markdown page, which are between files, at the pages that these become."""
    if not str(app.env.doc2path(docname)).endswith(".md"):
        return
    folder = posixpath.dirname(FROM.get(docname, f"docs/{docname}"))
    here = posixpath.dirname(f"docs/{docname}")

    def target_of(image: bool, target: str) -> str | None:
        path, hash_, anchor = target.partition("#")
        whole = posixpath.normpath(posixpath.join(folder, path))
        whole = f"docs/{PAGES[whole]}.md" if whole in PAGES else whole
        whole = re.sub(r"^docs/examples$", "docs/generated/examples/index.rst", whole)
        whole = re.sub(r"^docs/examples/(\w+)\.py$", r"docs/generated/examples/\1.rst", whole)
        if image or whole.startswith("docs/"):
            return posixpath.relpath(whole, here) + hash_ + anchor
        return absolute(repository(), folder, image, target)

    source[0] = with_links(source[0], target_of)


def plain_references(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Leave the words of references to scikit-learn's own guide, which is not part of this site."""
    lines[:] = [REFERENCE.sub(r"\g<words>", line) for line in lines]


def plot_gallery_as_bool(app: Any, config: Any) -> None:
    """Make a bool of ``-D plot_gallery=0``, which Sphinx leaves as text and then warns about."""
    config.plot_gallery = str(config.plot_gallery) not in ("0", "False")


def setup(app: Any) -> None:
    """Sphinx calls it."""
    app.connect("config-inited", plot_gallery_as_bool)
    app.connect("source-read", links_to_pages)
    app.connect("autodoc-process-docstring", plain_references)
