"""How deep and how bushy JSON may be: one limit for all that is read, kept or told.

What is deeper than the interpreter's stack can follow breaks whoever meets it, at any later time: a
reader, a store, an export. And a body of nothing but brackets costs a hundred times what the same
bytes of text cost. So depth is bounded where any value comes in, from a wire or from an author, and
the number of brackets where callers send them.
"""

from __future__ import annotations

import re
from itertools import accumulate

MAX_DEPTH = 64
"""The number of levels that JSON may be nested."""
MAX_CONTAINERS = 100_000
"""The number of arrays and objects that one document may hold."""

_STRING = re.compile(rb'"[^"]*"')
_REST = bytes(set(range(256)) - set(b'{}[]"'))
# As signed bytes: one level down, one level up.
_STEPS = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
_DOWN = b"\x01"


def unfit(body: bytes) -> str:
    """Why JSON that a caller sends is not taken, as the end of a sentence; empty if it is. What is
    no JSON at all is the decoder's business."""
    # Each level opens a bracket, so few brackets cannot be deep: two scans are all that a
    # normal request pays.
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return ""
    steps = _steps(body)
    if steps.count(_DOWN) > MAX_CONTAINERS:
        return f"has more than {MAX_CONTAINERS} arrays and objects"
    return _too_deep(steps)


def too_deep(body: bytes) -> str:
    """The same for what we asked for, or an author gives: there may be much of it."""
    few = body.count(b"{") + body.count(b"[") <= MAX_DEPTH
    return "" if few else _too_deep(_steps(body))


def _steps(body: bytes) -> bytes:
    """The brackets outside of strings. Whole passes in C: a search for each string in turn would
    cost a body of many short ones a second."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes in a row end and begin, or begin and end: without them every bracket is still
    # inside or outside of a string as it was, and only the quotes next to brackets are left.
    marks = body.translate(_STEPS, _REST).replace(b'""', b"")
    return _STRING.sub(b"", marks).replace(b'"', b"")


def _too_deep(steps: bytes) -> str:
    deepest = max(accumulate(memoryview(steps).cast("b")), default=0)
    return f"is nested deeper than {MAX_DEPTH} levels" if deepest > MAX_DEPTH else ""
