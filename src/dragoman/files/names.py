"""Safe names for files that come from others."""

from __future__ import annotations

import re

LONGEST_NAME = 120
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]+')
# With them "invoice\u202efdp.exe" is shown as "invoiceexe.pdf".
_BIDIRECTIONAL_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def safe_name(said: str) -> str:
    """Returns a name that is safe on any system: it cannot leave its folder, is not hidden, and is
    shown in the order of its characters."""
    last = said.replace("\\", "/").rpartition("/")[2]
    name = _UNSAFE.sub("_", _BIDIRECTIONAL_CONTROLS.sub("", last)).strip(" .")
    stem, dot, ending = name[-LONGEST_NAME:].rpartition(".")
    return f"{stem}{dot}{ending}" if name else "file"
