"""Links of a Markdown file of this repository, made to work where the file is read elsewhere.

The README becomes the description on a package index (``setup.py``), and several files become
pages of the site (``conf.py``). Relative links mean nothing there. The project's address is named
in one place, ``project_urls`` of ``setup.cfg``; while it names none, such links are left out.
"""

from __future__ import annotations

import configparser
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Files of the repository that are pages of the site, by where these stand.
PAGES = {
    "benchmarks/results/REPORT.md": "generated/project/report",
    "benchmarks/results/README.md": "generated/project/results",
    "CONTRIBUTING.md": "generated/project/contributing",
    "CHANGELOG.md": "generated/project/changelog",
    **{
        f"benchmarks/results/report/{path.name}": f"generated/project/report/{path.stem}"
        for path in sorted(ROOT.glob("benchmarks/results/report/*.md"))
    },
}

FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def repository() -> str | None:
    """The address of the repository's files, or None where the owner has not named one."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    urls = parser["metadata"].get("project_urls", "")
    named = dict(line.split(" = ", 1) for line in urls.strip().splitlines())
    return named["Source"].rstrip("/") if "Source" in named else None


def with_links(text: str, target_of: Callable[[bool, str], str | None]) -> str:
    """The text with each link to a file replaced; None of ``target_of`` leaves the words alone.

    It is called with whether the link is a picture, and with the path as it stands.
    """

    def replace(match: re.Match[str]) -> str:
        image, words, target = match["image"], match["text"], match["target"]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        if (new := target_of(bool(image), target)) is None:
            return "" if image else words
        return f"{image}[{words}]({new})"

    # Of a code block nothing is a link, x[0](y) among others.
    parts = FENCED.split(text)
    return "".join(part if i % 2 else LINK.sub(replace, part) for i, part in enumerate(parts))


def absolute(address: str | None, folder: str, image: bool, target: str) -> str | None:
    """Where a file is on the web that a document in ``folder`` links to; None without address."""
    if address is None:
        return None
    path, hash_, anchor = target.partition("#")
    whole = posixpath.normpath(posixpath.join(folder, path))
    return f"{address}/{'raw' if image else 'blob'}/HEAD/{whole}{hash_}{anchor}"


def description() -> str:
    """The README for a package index."""
    address, text = repository(), (ROOT / "README.md").read_text(encoding="utf-8")
    return with_links(text, lambda image, target: absolute(address, "", image, target))
