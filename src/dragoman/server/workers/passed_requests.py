"""A request that one worker passes on to another, because only that one can answer it.

Both ends speak ASGI over a Unix socket: the scope first, and then what is received in one direction
and what is sent in the other, each as one frame.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from dragoman.net.http.asgi import AsgiEvent, Handler, Receive, Scope, Send

LARGEST = 256 * 1024 * 1024
"""The bytes of the largest frame. Bodies have smaller limits, which the receiver applies."""
_SIZE = 4

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


async def pass_on(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Has the worker at the other end answer a request."""
    _write(writer, {key: value for key, value in scope.items() if _is_plain(value)})

    async def receive_all() -> None:
        message: AsgiEvent = {"type": ""}
        with suppress(ConnectionError):
            while message["type"] != "http.disconnect":
                message = await receive()
                _write(writer, message)
                await writer.drain()

    receiving = asyncio.get_running_loop().create_task(receive_all())
    try:
        while (message := await _read(reader)) is not None:
            headers = message.get("headers")
            if headers is not None:
                message["headers"] = [tuple(each) for each in headers]
            await send(message)
    finally:
        receiving.cancel()
        await asyncio.wait([receiving])


async def answer_passed(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
) -> None:
    """Answers a request that another worker passes on."""
    scope = await _read(reader)
    if scope is None:
        return
    scope["headers"] = [tuple(each) for each in scope["headers"]]
    for key in ("client", "server"):
        if isinstance(scope.get(key), list):
            scope[key] = tuple(scope[key])

    async def receive() -> AsgiEvent:
        return await _read(reader) or {"type": "http.disconnect"}

    async def send(message: AsgiEvent) -> None:
        _write(writer, message)
        await writer.drain()

    await handler(scope, receive, send)


def _is_plain(value: object) -> bool:
    try:
        _encode(value)
    except (TypeError, ValueError):
        return False
    return True


def _write(writer: asyncio.StreamWriter, value: object) -> None:
    frame = _encode(value)
    writer.write(len(frame).to_bytes(_SIZE) + frame)


async def _read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Returns the next frame; None at the end."""
    try:
        size = int.from_bytes(await reader.readexactly(_SIZE))
        if size > LARGEST:
            return None
        found: dict[str, Any] = _decode(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return found
