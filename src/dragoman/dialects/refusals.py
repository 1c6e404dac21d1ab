"""Finds the words of another side that refuses a request outside of its dialect: the body that a
web framework, a proxy or a guard before the agent sends with an HTTP status."""

from __future__ import annotations

import html
import re
from contextlib import suppress

import msgspec

from dragoman.core.errors import DragomanError

MAX_EXPLANATION_BYTES = 16_384
MAX_EXPLANATION_LENGTH = 500
_TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)
_MEMBERS = ("title", "error", "error_description", "message", "msg", "detail", "reason")


def explained(error: DragomanError, body: bytes) -> DragomanError:
    """Returns the error, with the words in the body at the end of its message."""
    if why := explanation_in(body):
        error.reword(f"{error.message.rstrip('.')}: {why}")
    return error


def explanation_in(body: bytes) -> str:
    """Returns the words of a refusal: from the members that web frameworks write, from plain text,
    or from the title of a web page. It is one line of limited length without control
    characters."""
    text = body[:MAX_EXPLANATION_BYTES].decode("utf-8", "replace").strip()
    if text[:1] == "<":
        found = _TITLE.search(text)
        text = html.unescape(found[1]) if found else ""
    elif text[:1] in ("{", "["):
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # shown as it is
            text = _words_in(msgspec.json.decode(body)) or text
    elif "\ufffd" in text:
        return ""  # it is no text at all
    words = printable(text, MAX_EXPLANATION_LENGTH)
    return words if any(char.isalnum() for char in words) else ""


def _words_in(value: object, depth: int = 3) -> str:
    """Returns the words in an error of RFC 9457, FastAPI, OAuth or a similar one."""
    match value:
        case str():
            return value
        case list() if depth:
            return "; ".join(filter(None, (_words_in(each, depth - 1) for each in value[:5])))
        case {"msg": str(problem), "loc": list(path)}:
            return f"{'.'.join(map(str, path[:10]))}: {problem}"
        case dict() if depth:
            words = (_words_in(value.get(name), depth - 1) for name in _MEMBERS)
            return ": ".join(dict.fromkeys(filter(None, words)))
    return ""


def printable(text: object, most: int = 200) -> str:
    """Returns another party's text in a form that is safe to show: one line of limited length
    without control characters."""
    words = "".join(c if c.isprintable() else " " for c in str(text)[: most * 2])
    return " ".join(words.split())[:most]
