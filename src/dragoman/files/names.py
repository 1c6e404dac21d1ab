"""Safe names for files that come from others."""

from __future__ import annotations

import re

LONGEST_NAME = 120
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]+')


def safe_name(said: str) -> str:
    """Returns a name that is safe on any system: it cannot leave its folder, and is not hidden."""
    name = _UNSAFE.sub("_", said.replace("\\", "/").rpartition("/")[2]).strip(" .")
    stem, dot, ending = name[-LONGEST_NAME:].rpartition(".")
    return f"{stem}{dot}{ending}" if name else "file"
