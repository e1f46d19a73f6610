"""The description on a package index; all other metadata stand in setup.cfg."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent / "docs"))

from links import description

setup(long_description=description(), long_description_content_type="text/markdown")
