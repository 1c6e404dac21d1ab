"""The behaviour of the reference parser of A2A-Lite, a shell script (dialects §1.2)."""

from __future__ import annotations

import re
from typing import NamedTuple


class Read(NamedTuple):
    """What the reference parser prints for a protocol message."""

    type: str
    params: dict[str, str]
    body: str


def read(text: str) -> Read | None:
    """Returns what the reference parser makes of a text: None if it says `isA2A: false`. Raises
    `ValueError` where it prints no JSON, or other words than stood there."""
    if not text.startswith("[A2A:"):
        return None
    header, _, body = text.partition("\n")
    content = header.removeprefix("[A2A:").removesuffix("]")
    words = content.split()
    params: dict[str, str] = {}
    for found in re.findall(r"[a-z_-]+=[^ ]+", content):
        # The shell splits what grep found at whitespace, and expands file name patterns in it.
        if found.split() != [found] or re.search(r'[*?\[\\"]', found):
            raise ValueError(f"the reference parser breaks at {found!r}")
        key, _, value = found.partition("=")
        params[key] = value
    return Read(words[0] if words else "", params, body.rstrip("\n"))
