"""A turn for plain functions in a thread. Its verbs are those of `Turn`, but they block."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from .turn import Turn

if TYPE_CHECKING:
    from dragoman.workspace import Folder


class BlockingVerbs:
    """An object of the event loop, as a thread may use it."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if inspect.isasyncgenfunction(found):
            return lambda *args, **kw: self._each(found(*args, **kw))
        if not inspect.iscoroutinefunction(found):
            return found

        def blocking(*args: Any, **kw: Any) -> Any:
            return self._wait(found(*args, **kw))

        return blocking

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        over = object()

        async def step() -> Any:
            return await anext(items, over)

        while (item := self._wait(step())) is not over:
            yield item


class SyncTurn(BlockingVerbs):
    """The turn of a plain function in a thread. Its verbs block."""

    def __init__(self, turn: Turn, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(turn, loop)

    @property
    def workspace(self) -> Folder:
        """Returns the folder that tools may use. Raises `Unsupported` if none is granted."""
        folder: Folder = self._inner.workspace.blocking
        return folder

    def agent(self, address: str, **options: Any) -> Any:
        """Returns another agent, which is called as part of this task. Its verbs block too."""
        return BlockingVerbs(self._inner.agent(address, **options), self._loop)

    def mcp(self, server: str) -> Any:
        """Returns an MCP server of the settings. Its verbs block too."""
        return BlockingVerbs(self._inner.mcp(server), self._loop)
