"""An MCP server in a process of its own, over its standard input and output.

The client of the package reads lines of any length, so that one answer could take all memory. Here
a server that sends too long a line is ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types.jsonrpc import jsonrpc_message_adapter

from dragoman.core.log import Logger

log = Logger("mcp")

Inbox = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]
GRACE = 2.0
"""Seconds that a process has to end, once by itself, and once when it is told to."""
POLL = 0.01
"""Seconds between two looks whether it has ended."""


@asynccontextmanager
async def run_process(
    name: str, command: Sequence[str], env: Mapping[str, str], max_size: int, ended: asyncio.Event
) -> AsyncGenerator[Streams, None]:
    """Starts the process and yields the streams to it; `ended` is set when it says no more. Raises
    `OSError` if it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=get_default_environment() | dict(env),
        limit=max_size,
        start_new_session=True,  # its children end with it
    )
    assert process.stdin is not None  # noqa: S101  asked for above
    assert process.stdout is not None  # noqa: S101  asked for above
    inbox, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outbox = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group, read_stream, write_stream:
            group.start_soon(_read, name, process.stdout, inbox, ended)
            group.start_soon(_write, process.stdin, outbox, ended)
            try:
                yield read_stream, write_stream
            finally:
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _read(
    name: str, stdout: asyncio.StreamReader, inbox: Inbox, ended: asyncio.Event
) -> None:
    try:
        async with inbox:
            while line := await stdout.readline():
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    log.warning("An MCP server sent what is no message", server=name)
                    continue
                await inbox.send(SessionMessage(message))
    except ValueError:  # `readline` says so
        log.error("An MCP server sent too long a message, and is ended", server=name)
    except anyio.BrokenResourceError:  # nobody reads any more
        pass
    finally:
        ended.set()


async def _write(
    stdin: asyncio.StreamWriter,
    outbox: MemoryObjectReceiveStream[SessionMessage],
    ended: asyncio.Event,
) -> None:
    async with outbox:
        try:
            async for each in outbox:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                await stdin.drain()
        except OSError:
            ended.set()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Closes the input of the process, then asks it to end, then kills it, with its children."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                # Not `wait`, which also waits until every child has closed the output.
                while process.returncode is None:  # noqa: ASYNC110  nothing else tells
                    await asyncio.sleep(POLL)
            break
    with suppress(ProcessLookupError):  # children that outlived it
        os.killpg(process.pid, signal.SIGKILL)
    # Nothing public closes the output of a process that nobody reads to its end.
    process._transport.close()  # type: ignore[attr-defined]
