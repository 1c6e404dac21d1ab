"""The session with one MCP server: begun by the first call, and begun again when it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import httpx2
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED, Implementation, RequestParamsMeta
from pydantic import ValidationError

from dragoman import __version__
from dragoman.agent.mcp_calls import McpResult
from dragoman.core.card import Tool
from dragoman.core.errors import DragomanError, PeerMisbehaved, PeerRefused, PeerUnreachable
from dragoman.core.log import Logger
from dragoman.core.model import Json
from dragoman.settings import McpServer

from .content import result_in
from .guarded_transport import GuardedTransport
from .process import run_process

log = Logger("mcp")

KEY = "dragoman/idempotencyKey"
"""In the `_meta` of a call: the same value if the call is made again after a crash."""
MOST_CHARS = 1000
"""The number of characters of a server's words that an error repeats."""
MOST_PAGES = 100
"""Pages of the list of tools."""


class McpConnection:
    """One MCP server."""

    def __init__(self, name: str, server: McpServer) -> None:
        self._name, self._server = name, server
        self._starting = asyncio.Lock()
        self._session: _Session | None = None

    async def tools(self) -> tuple[Tool, ...]:
        """Returns the tools of the server."""
        found: list[Tool] = []
        async with self._calling() as client:
            cursor: str | None = None
            for _ in range(MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += [
                    Tool(
                        name=each.name,
                        description=each.description or "",
                        parameters=each.input_schema,
                        returns=each.output_schema,
                    )
                    for each in page.tools
                ]
                cursor = page.next_cursor
                if cursor is None:
                    break
        return tuple(found)

    async def call(self, tool: str, arguments: Mapping[str, Json], key: str) -> McpResult:
        """Calls a tool. Raises `PeerRefused` if the tool reports an error."""
        meta = cast(RequestParamsMeta, {KEY: key})  # which may hold any key with a prefix
        async with self._calling() as client:
            result = await client.call_tool(tool, dict(arguments), meta=meta)
        found = result_in(result)
        if result.is_error:
            said = found.text[:MOST_CHARS] or "it gives no reason"
            raise PeerRefused(f"The tool `{self._name}.{tool}` failed: {said}")
        return found

    async def close(self) -> None:
        """Ends the session."""
        async with self._starting:
            session, self._session = self._session, None
            if session is not None:
                await session.close()

    @asynccontextmanager
    async def _calling(self) -> AsyncGenerator[Client, None]:
        """Yields the client for one call, whose failures are told in our words."""
        seconds = self._server.timeout
        session = await self._running()
        try:
            async with asyncio.timeout(seconds):
                yield session.client
        except TimeoutError:
            raise PeerUnreachable(
                f"The MCP server `{self._name}` did not answer within {seconds:g} s", sent=True
            ) from None
        except MCPError as exc:
            if exc.code == CONNECTION_CLOSED:
                session.ended.set()
                raise self._gone() from exc
            if session.is_lost(exc):
                session.ended.set()
            said = exc.message[:MOST_CHARS]
            raise PeerRefused(
                f"The MCP server `{self._name}` refused the call: {said}", code=exc.code
            ) from exc
        except (ValidationError, RuntimeError) as exc:
            raise PeerMisbehaved(
                f"The MCP server `{self._name}` broke its protocol: {exc}"[:MOST_CHARS]
            ) from exc

    def _gone(self) -> DragomanError:
        return PeerUnreachable(f"The MCP server `{self._name}` ended during the call", sent=True)

    async def _running(self) -> _Session:
        async with self._starting:
            session = self._session
            if session is not None and session.ended.is_set():
                self._session = None
                await session.close()
                session = None
            if session is None:
                session = _Session(self._name, self._server)
                await session.start()
                self._session = session
        return session


class _Session:
    """A session from its handshake to its end. The package wants both in one task."""

    def __init__(self, name: str, server: McpServer) -> None:
        self._name, self._server = name, server
        self.ended = asyncio.Event()
        """Set when the other side is gone, or when we close."""
        self._host: asyncio.Task[None] | None = None
        self._client: asyncio.Future[Client] | None = None

    @property
    def client(self) -> Client:
        """The client of a session that has started."""
        assert self._client is not None  # noqa: S101  `start` makes it
        return self._client.result()

    def is_lost(self, exc: MCPError) -> bool:
        """Returns whether an error says that the server has forgotten the session."""
        return bool(self._server.url) and "session" in exc.message.lower()

    async def start(self) -> None:
        """Begins the session. Raises `PeerUnreachable` if that does not succeed in time."""
        loop = asyncio.get_running_loop()
        self._client = loop.create_future()
        self._host = loop.create_task(self._run(self._client))
        seconds = self._server.timeout
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._client)
        except TimeoutError:
            await self.close()
            raise PeerUnreachable(
                f"The MCP server `{self._name}` did not start within {seconds:g} s"
            ) from None
        except asyncio.CancelledError:
            await self.close()
            raise

    async def _run(self, started: asyncio.Future[Client]) -> None:
        try:
            async with AsyncExitStack() as stack:
                client = Client(await self._transport(stack), client_info=_US)
                await stack.enter_async_context(client)
                started.set_result(client)
                await self.ended.wait()
        except Exception as exc:  # the package raises whatever its transports do, and groups of it
            why = _reason(exc)
            if started.done():
                log.warning("The session with an MCP server broke", server=self._name, why=why)
            else:
                words = f"The MCP server `{self._name}` cannot be reached: {why}"
                started.set_exception(PeerUnreachable(words[:MOST_CHARS]))
        finally:
            self.ended.set()
            if not started.done():
                started.cancel()

    async def _transport(self, stack: AsyncExitStack) -> Transport:
        server = self._server
        if server.command:
            env = {name: str(value) for name, value in server.env.items()}
            return run_process(self._name, server.command, env, server.max_size, self.ended)
        headers = {name: str(value) for name, value in server.headers.items()}
        guarded = GuardedTransport(server.url, server.max_size)
        web = httpx2.AsyncClient(transport=guarded, headers=headers, timeout=None)
        await stack.enter_async_context(web)
        return streamable_http_client(
            server.url, http_client=web, max_sse_event_size=server.max_size
        )

    async def close(self) -> None:
        """Ends the session, and the process if it has one."""
        self.ended.set()
        if self._host is not None:
            if self._client is not None and not self._client.done():
                self._host.cancel()
            await asyncio.wait({self._host})


_US = Implementation(name="dragoman", version=__version__)


def _reason(exc: BaseException) -> str:
    """Says what went wrong; of a group of exceptions, the first one."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    if isinstance(exc, OSError) and exc.strerror:
        return f"{exc.strerror}: {exc.filename}" if exc.filename else exc.strerror
    return str(exc) or type(exc).__name__
