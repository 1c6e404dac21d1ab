"""Lets callers leave a server that is about to stop, without one of their calls failing.

A client that keeps its connection open for the next call cannot know that the server stops. If the
server closed the connection at that moment, the call would be lost, and many clients do not repeat
a call that may have arrived. Therefore the server first goes on to answer, and says with each
answer that the connection ends there (RFC 9112 §9.6). HTTP/2 and gRPC have a frame for that
(GOAWAY), which their servers send by themselves.

A connection that the system has accepted, but the listener has not, is reset when the listening
socket is closed. So before that, the system ignores new ones for a moment (their clients try again
by themselves after a second), while those that were begun are accepted.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import struct
from contextlib import suppress

from .asgi import AsgiEvent, Handler, Receive, Scope, Send
from .descriptors import AVAILABLE, open_descriptors, peer

LOOK = 0.05
"""Seconds between two looks whether a connection is open."""
SETTLE = 0.2
"""Seconds in which a connection that was begun must have sent its first request."""
_ATTACH_FILTER = 26
"""SO_ATTACH_FILTER of Linux, which Python does not name."""
# A program for the socket filter of Linux, which sees the TCP header: a packet with the flag SYN
# begins a connection and is dropped, everything else passes.
_NO_SYN = b"".join(
    struct.pack("@HBBI", *each)
    for each in (
        (0x30, 0, 0, 13),  # load the byte with the flags
        (0x45, 0, 1, 0x02),  # if it has SYN,
        (0x06, 0, 0, 0),  # drop the packet,
        (0x06, 0, 0, 0xFFFFFFFF),  # else take all of it
    )
)


def closing(app: Handler) -> Handler:
    """Returns the app whose answers say that their connection ends with them."""

    def answer(scope: Scope, receive: Receive, send: Send) -> object:
        if scope["type"] != "http" or not scope["http_version"].startswith("1"):
            return app(scope, receive, send)

        async def told(message: AsgiEvent) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        return app(scope, receive, told)

    return answer  # type: ignore[return-value]  # it returns the coroutine of the app


async def no_connections(port: int, seconds: float) -> None:
    """Returns when no connection to this port is open any more, or after so many seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        if AVAILABLE and not any(peer(fd, port) for fd in open_descriptors()[0]):
            return
        await asyncio.sleep(LOOK)


def ignore_new_connections(listening: int) -> bool:
    """Has the system ignore new connections to a listening socket, which are not accepted yet.
    Returns False if this system cannot do it."""
    program = ctypes.create_string_buffer(_NO_SYN, len(_NO_SYN))
    asked = struct.pack("@HP", len(_NO_SYN) // 8, ctypes.addressof(program))
    with suppress(OSError):
        sock = socket.socket(fileno=os.dup(listening))
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, asked)
        return True
    return False
