"""The functions of a backend as a peer: each operation asks one of them, or is unsupported."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from typing import Any, cast

from msgspec import Struct

from ..agent import Agent
from ..agent.invoke import invoke
from ..errors import (
    AgentTimedOut,
    ExtendedCardOff,
    HookNotFound,
    PushUnsupported,
    TaskNotFound,
    Unsupported,
)
from ..model import Hook, Message, Task
from ..ops import (
    CancelTask,
    DeleteHook,
    GetExtendedCard,
    GetHook,
    GetTask,
    HookPage,
    Invoke,
    ListHooks,
    ListTasks,
    Operation,
    R,
    SendMessage,
    SetHook,
    Streamed,
    TaskPage,
)
from ..peer import Batch, Context
from .answers import Story, WrongAnswer, checked, fitting, named, page
from .function import Function

IDLE = 4.0
"""Seconds of silence after which a reader is told that the stream is alive."""
THREADS = 64
"""For functions that are not async."""

_OVER = object()
_QUIET = object()


class Answering(Struct, frozen=True):
    """How one operation is answered: by which function, with what, and else how."""

    what: str
    gives: tuple[type, ...]
    missing: type[Unsupported] = Unsupported
    nothing: type[Exception] | None = None
    """What None says."""


_ANSWERS: dict[type[Operation[Any]], Answering] = {
    SendMessage: Answering("send", (Task, Message)),
    GetTask: Answering("get", (Task,), nothing=TaskNotFound),
    ListTasks: Answering("list", (TaskPage,)),
    CancelTask: Answering("cancel", (Task,), nothing=TaskNotFound),
    SetHook: Answering("set_hook", (Hook,), PushUnsupported),
    GetHook: Answering("get_hook", (Hook,), PushUnsupported, HookNotFound),
    ListHooks: Answering("list_hooks", (HookPage,), PushUnsupported),
    DeleteHook: Answering("delete_hook", (), PushUnsupported),
}


class BackendPeer:
    """A backend's functions as a peer."""

    def __init__(
        self,
        agent: Agent,
        functions: Mapping[str, Function],
        *,
        push: bool,
        timeout: float,
        around: tuple[Callable[[], Any] | None, Callable[[], Any] | None],
    ) -> None:
        self._agent, self._functions, self._push = agent, functions, push
        self._timeout = timeout
        self._on_start, self._on_stop = around
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="dragoman-backend")

    async def start(self) -> None:
        """Lets the author open what the functions need."""
        await _done(self._on_start)

    async def stop(self, grace: float) -> None:
        """Lets the author close it."""
        try:
            await _done(self._on_stop)
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def counts(self) -> dict[str, int]:
        """Nobody here knows how many tasks there are."""
        return {}

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """The answer of the function for it."""
        if isinstance(op, Invoke):
            return cast(R, await invoke(self._agent, op, ctx))  # `Operation[Json]`
        if isinstance(op, GetExtendedCard):
            raise ExtendedCardOff()  # whoever has one is asked by the guard in front
        answering = _ANSWERS.get(type(op))
        if answering is None:
            raise Unsupported()
        function = self._function(answering.what, answering.missing, op)
        try:
            async with asyncio.timeout(self._timeout) as limit:
                value = await function.ask(self._threads, op, ctx)
        except TimeoutError:
            if not limit.expired():
                raise
            raise AgentTimedOut() from None
        if value is None and answering.nothing is not None:
            raise answering.nothing()
        # `_ANSWERS` binds the answer's type to the operation's; a table cannot say so.
        return cast(R, fitting(op, checked(answering.what, page(op, value), answering.gives)))

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """What the function yields, as it comes."""
        what = "stream" if isinstance(op, SendMessage) else "resubscribe"
        function = self._function(what, Unsupported, op)
        story = Story(what)
        pieces = await function.ask(self._threads, op, ctx)
        async with aclosing(self._steps(what, pieces)) as steps:
            async for piece in steps:
                if piece is _QUIET:
                    yield Batch([], False)
                    continue
                entry = story.entry(piece)
                yield Batch([entry], story.over)
                if story.over:
                    return

    def _function(self, what: str, missing: type[Unsupported], op: Operation[Any]) -> Function:
        if not self._push:
            if missing is PushUnsupported:
                raise PushUnsupported()
            if isinstance(op, SendMessage) and op.hook is not None:
                raise PushUnsupported()  # not done in silence (a2a-wire D11)
        function = self._functions.get(what)
        if function is None:
            raise missing()
        return function

    async def _steps(self, what: str, pieces: Any) -> AsyncGenerator[Any, None]:
        """Each piece, and `_QUIET` after a while without one."""
        if isinstance(pieces, AsyncIterator):
            following: AsyncIterator[Any] = pieces
        elif isinstance(pieces, Iterable) and not isinstance(pieces, str | bytes | dict):
            following = self._threaded(iter(pieces))
        else:
            raise WrongAnswer(f"{what} gave {named(pieces)}; it must yield (async or not)")
        step: asyncio.Task[Any] | None = None
        try:
            while True:
                # A task of its own, since the wait for it is given up now and then, not the step.
                step = asyncio.get_running_loop().create_task(_next(following))
                while not (await asyncio.wait({step}, timeout=IDLE))[0]:
                    yield _QUIET
                if step.result() is _OVER:
                    return
                yield step.result()
        finally:
            if step is not None and not step.done():
                step.cancel()
                await asyncio.wait({step})
            if isinstance(following, AsyncGenerator):
                await following.aclose()

    async def _threaded(self, pieces: Iterator[Any]) -> AsyncGenerator[Any, None]:
        loop = asyncio.get_running_loop()
        try:
            while True:
                piece = await loop.run_in_executor(self._threads, next, pieces, _OVER)
                if piece is _OVER:
                    return
                yield piece
        finally:
            if inspect.isgenerator(pieces):
                with suppress(ValueError):  # it still runs in its thread; nobody hears it
                    pieces.close()


async def _next(pieces: AsyncIterator[Any]) -> Any:
    try:
        return await anext(pieces)
    except StopAsyncIteration:
        return _OVER


async def _done(function: Callable[[], Any] | None) -> None:
    if function is not None:
        value = function()
        if inspect.isawaitable(value):
            await value
