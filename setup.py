"""Writes the description of the package page; everything else is in pyproject.toml.

The description is the README. Its links to other files of this repository lead nowhere on the
page, so only their words are left; its pictures are left out.
"""

import re
from pathlib import Path

from setuptools import setup

PICTURE = re.compile(r"!\[[^]\n]*\]\((?![a-z]+:)[^)\s]+\)\n")
LINK = re.compile(r"\[([^]\n]+)\]\((?![a-z]+:|#)[^)\s]+\)")


def description() -> str:
    """Returns the README without links to files."""
    return LINK.sub(r"\1", PICTURE.sub("", Path("README.md").read_text("utf-8")))


setup(long_description=description(), long_description_content_type="text/markdown")
