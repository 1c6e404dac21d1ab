"""Limits on the depth and the number of arrays and objects in JSON.

A value that is nested deeper than the interpreter's stack breaks any code that meets it later: a
reader, a store or an export. A body that consists only of brackets costs a hundred times as much as
the same number of bytes of text. Therefore the depth is limited wherever a value comes in, from a
wire or from an author, and the number of arrays and objects is limited in what callers send.
"""

from __future__ import annotations

import re
from itertools import accumulate

MAX_DEPTH = 64
"""The maximum number of nested levels."""
MAX_CONTAINERS = 100_000
"""The maximum number of arrays and objects in one document."""

_STRING = re.compile(rb'"[^"]*"')
_REST = bytes(set(range(256)) - set(b'{}[]"'))
# As signed bytes: one level down, one level up.
_STEPS = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
_DOWN = b"\x01"


def unfit(body: bytes) -> str:
    """Returns why JSON from a caller is refused, as the end of a sentence, or an empty text if it
    is accepted. A body that is not JSON is left to the decoder."""
    # Each level opens a bracket, so a body with few brackets cannot be nested deeply: a normal
    # request costs only these two scans.
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return ""
    steps = _steps(body)
    if steps.count(_DOWN) > MAX_CONTAINERS:
        return f"has more than {MAX_CONTAINERS} arrays and objects"
    return _too_deep(steps)


def too_deep(body: bytes) -> str:
    """Returns why a value that we have requested, or that an author passes, is refused, or an
    empty text. Such values may be large, so only their depth is limited."""
    few = body.count(b"{") + body.count(b"[") <= MAX_DEPTH
    return "" if few else _too_deep(_steps(body))


def _steps(body: bytes) -> bytes:
    """Returns the brackets outside of strings. It works in whole passes, which run in C: a search
    for one string after another would take a second for a body of many short strings."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two adjacent quotes either end one string and begin the next, or enclose nothing. Without
    # them, every bracket is still inside or outside of a string as before, and only the quotes next
    # to brackets remain.
    marks = body.translate(_STEPS, _REST).replace(b'""', b"")
    return _STRING.sub(b"", marks).replace(b'"', b"")


def _too_deep(steps: bytes) -> str:
    deepest = max(accumulate(memoryview(steps).cast("b")), default=0)
    return f"is nested deeper than {MAX_DEPTH} levels" if deepest > MAX_DEPTH else ""
