"""What an author's agent opens before its first task and closes after its last."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.log import Logger

log = Logger("lifespan")


class LifespanHooks(Struct, frozen=True):
    """The functions of an agent that are called around its life, each in the order in which it was
    registered."""

    lifespans: list[Callable[..., Any]]
    starts: list[Callable[..., Any]]
    stops: list[Callable[..., Any]]

    def __bool__(self) -> bool:
        return bool(self.lifespans or self.starts or self.stops)


class Lifespan:
    """One life of an agent: from the start of the peer that runs its tasks to the end of it.

    Everything runs in one task of its own. So an author may hold a task group or a timeout open
    over the whole life: these must be left in the task that entered them.
    """

    def __init__(self, agent: str, hooks: LifespanHooks) -> None:
        self._agent, self._hooks = agent, hooks
        self.state = SimpleNamespace()
        """What the functions have opened, for the turns of the agent."""
        self._stopping = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Calls the functions of the start. Raises `ConfigError` if one of them fails."""
        if not self._hooks:
            return
        begun = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(begun))
        try:
            await asyncio.wait({self._life, begun}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._life.cancel()
            raise
        if self._life.done():
            life, self._life = self._life, None
            life.result()

    async def stop(self) -> None:
        """Calls the functions of the end. What goes wrong there is logged, and the others are
        called all the same."""
        life, self._life = self._life, None
        if life is not None:
            self._stopping.set()
            await life

    async def _live(self, begun: asyncio.Future[None]) -> None:
        failure: DragomanError | None = None
        async with AsyncExitStack() as stack:
            try:
                await self._begin(stack)
            except DragomanError as exc:
                failure = exc
            except Exception as exc:  # the author's code may raise anything
                log.error("The agent cannot start", exc, agent=self._agent)
                why = f"{type(exc).__name__}: {exc}"
                failure = ConfigError(f"Agent `{self._agent}` cannot start: {why}")
            else:
                begun.set_result(None)
                await self._stopping.wait()
        if failure is not None:  # raised here, so that what is open is closed in the usual way
            raise failure

    async def _begin(self, stack: AsyncExitStack) -> None:
        for lifespan in self._hooks.lifespans:
            make = lifespan
            if inspect.isasyncgenfunction(lifespan):
                make = asynccontextmanager(lifespan)
            context = make(*self._arguments(lifespan))
            found = await context.__aenter__()
            stack.push_async_callback(self._logged, partial(context.__aexit__, None, None, None))
            if isinstance(found, Mapping):
                vars(self.state).update(found)
        for start in self._hooks.starts:
            await self._call(start)
        for stop in self._hooks.stops:
            stack.push_async_callback(self._logged, partial(self._call, stop))

    async def _logged(self, end: Callable[[], Awaitable[object]]) -> None:
        try:
            await end()
        except Exception as exc:  # the others are called all the same
            log.error("The agent did not stop as it should", exc, agent=self._agent)

    async def _call(self, function: Callable[..., Any]) -> None:
        """Calls a function of the author; a plain one runs in a thread."""
        arguments = self._arguments(function)
        if inspect.iscoroutinefunction(function):
            await function(*arguments)
            return
        value = await asyncio.to_thread(function, *arguments)
        if inspect.isawaitable(value):
            await value

    def _arguments(self, function: Callable[..., Any]) -> tuple[SimpleNamespace, ...]:
        """Returns the state, if the function takes a parameter."""
        return (self.state,) if inspect.signature(function).parameters else ()
