"""Requests over HTTP/2 are read to their end, which is a frame of its own behind the last byte.

Whoever answers before that frame is there makes the server tell the client to send no more: an
RST_STREAM with NO_ERROR. RFC 9113 §8.1 allows it and has clients keep the answer all the same, but
httpx and httpx2 fail on it. Over HTTP/1.1 a body ends with its last byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .asgi import Receive, Scope


def whole(scope: Scope, receive: Receive, headers: Mapping[str, str]) -> Receive:
    """`receive`, which gives the last byte of a body only when its end is there too."""
    declared = headers.get("content-length", "")
    if scope["http_version"] != "2" or not declared.isdigit():
        return receive
    left = int(declared)

    async def receive_whole() -> dict[str, Any]:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left == 0 and message.get("more_body", False):
            await receive()
        return message

    return receive_whole
