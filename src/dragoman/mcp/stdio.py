"""MCP over standard input and output.

The package drops what it cannot read without a word, and reads lines of any length. So the lines
are read here, and a client that sends nonsense is told so.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, BinaryIO

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from mcp.types.jsonrpc import jsonrpc_message_adapter

Inbox = MemoryObjectSendStream[SessionMessage | Exception]
Outbox = MemoryObjectSendStream[SessionMessage]


async def serve_stdio(server: Server[Any], most_bytes: int) -> None:
    """Serves one client on standard input and output until it closes them. A message may have this
    many bytes."""
    inbox, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outbox = anyio.create_memory_object_stream[SessionMessage](0)
    async with _claimed() as (stdin, stdout), anyio.create_task_group() as writing:
        writing.start_soon(_write, stdout, outbox, writing.cancel_scope.cancel)
        async with anyio.create_task_group() as reading:
            reading.start_soon(_read, stdin, most_bytes, inbox, write_stream.clone())
            await server.run(read_stream, write_stream, server.create_initialization_options())
            reading.cancel_scope.cancel()
        # The last answers are still written: the writer ends when nobody can send any more.


async def _read(stdin: BinaryIO, most_bytes: int, inbox: Inbox, outbox: Outbox) -> None:
    async with inbox, outbox:
        async for line in _lines(stdin, most_bytes):
            if len(line) > most_bytes:
                why = f"A message of more than {most_bytes} bytes is not read."
                await outbox.send(_refusal(INVALID_REQUEST, why))
                continue
            if not line.strip():
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                await outbox.send(_unreadable(line))
            else:
                await inbox.send(SessionMessage(message))


def _unreadable(line: bytes) -> SessionMessage:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError as exc:
        return _refusal(PARSE_ERROR, f"This line is not JSON: {exc}")
    return _refusal(INVALID_REQUEST, "This line is not a JSON-RPC message.")


def _refusal(code: int, why: str) -> SessionMessage:
    error = ErrorData(code=code, message=why)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=error))


async def _write(
    stdout: BinaryIO, outbox: MemoryObjectReceiveStream[SessionMessage], end: Callable[[], None]
) -> None:
    async with outbox:
        async for each in outbox:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await asyncio.to_thread(_put, stdout, text.encode() + b"\n")
            except OSError:  # the client is gone, and will send nothing more either
                end()


def _put(stdout: BinaryIO, line: bytes) -> None:
    stdout.write(line)
    stdout.flush()


async def _lines(stdin: BinaryIO, most_bytes: int) -> AsyncGenerator[bytes, None]:
    """Yields the lines of the client. One that is too long is cut behind its limit."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes](1)

    def read() -> None:
        # A thread of our own: nothing can interrupt a read, and the process must not wait for it.
        with suppress(RuntimeError, OSError, ValueError):  # the loop or the pipe is closed
            while line := stdin.readline(most_bytes + 2):
                rest = line
                while len(line) > most_bytes + 1 and rest and not rest.endswith(b"\n"):
                    rest = stdin.readline(65_536)
                asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()
            asyncio.run_coroutine_threadsafe(queue.put(b""), loop).result()

    threading.Thread(target=read, name="dragoman-mcp-stdin", daemon=True).start()
    while line := await queue.get():
        yield line.rstrip(b"\r\n") or b" "


@asynccontextmanager
async def _claimed() -> AsyncGenerator[tuple[BinaryIO, BinaryIO], None]:
    """Keeps both pipes for the protocol alone: what skills and their children print goes to
    standard error, and they have nothing to read."""
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield os.fdopen(stdin, "rb", closefd=False), os.fdopen(stdout, "wb", closefd=False)
    finally:
        sys.stdout.flush()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
