"""The connections of a server to the agents that its skills call, shared by all tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from dragoman.agent.remote_calls import StartedCall, TurnAccess
from dragoman.core.errors import NotCancelable, TaskFinished, TaskNotFound
from dragoman.core.model import Json

from .agent import RemoteAgent
from .connect import connect
from .task_agent import TaskAgent

T = TypeVar("T")
FRESH = 300.0
"""Seconds after which a card is read again."""
PLAIN = ("dialect", "prefer", "origins", "extensions", "allow_private", "timeout", "ca")
"""Options that may be recorded: none of them is a secret."""


class SharedConnection(AbstractAsyncContextManager[RemoteAgent]):
    """One connection, and a context for each use of it. A user of an old connection may finish with
    it."""

    def __init__(
        self, agent: RemoteAgent, options: Mapping[str, Any], ends: AsyncExitStack, fresh: float
    ) -> None:
        """`fresh` are the seconds after which the card is read again."""
        self.agent, self.options, self._ends = agent, options, ends
        self.users = 0
        self.old = False
        self.fresh_until = monotonic() + fresh

    async def let_go(self) -> None:
        """Closes the connection if it has no users and has been replaced."""
        if self.old and not self.users:
            await self._ends.aclose()

    def use(self) -> RemoteAgent:
        """Begins a use of the connection without waiting."""
        self.users += 1
        return self.agent

    async def __aenter__(self) -> RemoteAgent:
        return self.use()

    async def __aexit__(self, *error: object) -> None:
        self.users -= 1
        if self.old:
            await self.let_go()


class Entered(AbstractAsyncContextManager[T]):
    """A context of a coroutine that enters it and returns what leaves it. One that is made of a
    generator costs several times as much."""

    __slots__ = ("_enter", "_leave")

    def __init__(
        self, enter: Coroutine[Any, Any, tuple[T, Callable[[], Awaitable[object]]]]
    ) -> None:
        self._enter = enter

    async def __aenter__(self) -> T:
        value, self._leave = await self._enter
        return value

    async def __aexit__(self, *error: object) -> None:
        await self._leave()


class ConnectionCache:
    """Implements `agent.remote_calls.Outside` with shared connections.

    If a skill passes no `auth`, the credentials in `environ` for the agent's origin are used:
    variables, `credentials.toml`, the tokens of `dragoman login`. A skill therefore needs no
    secrets, and a remote task can be canceled even after a restart.
    """

    def __init__(
        self,
        *,
        allow_private: bool = False,
        environ: Mapping[str, str] | None = None,
        fresh: float = FRESH,
        name: Callable[[], str] | None = None,
    ) -> None:
        """`name` returns our name for agents to which callers introduce themselves."""
        self._allow_private = allow_private
        self._environ = environ
        self._fresh = fresh
        self._make_name, self._name = name, ""
        self._closed = False
        self._connections: dict[object, SharedConnection] = {}
        self._last_used: dict[str, tuple[Mapping[str, Any], SharedConnection]] = {}
        """The connection to each address that was used last, and with which options."""
        self._latest: dict[str, Mapping[str, Any]] = {}
        """The latest options of each address."""

    def agent(self, seat: TurnAccess, address: str, options: Mapping[str, Any]) -> TaskAgent:
        """Returns another agent, bound to a task."""
        self._latest[address] = options
        plain: dict[str, Json] = {name: options[name] for name in PLAIN if name in options}
        return TaskAgent(seat, address, plain, partial(self.reach, address, options))

    async def stop(self, sent: StartedCall) -> None:
        """Cancels a remote task. It is no error if the task has ended."""
        options = self._latest.get(sent.address, sent.options)
        async with self.reach(sent.address, options) as agent:
            with suppress(NotCancelable, TaskNotFound, TaskFinished):
                await agent.cancel(sent.task_id)

    def reach(
        self, address: str, options: Mapping[str, Any], *, renew: bool = False
    ) -> AbstractAsyncContextManager[RemoteAgent]:
        """Returns a connection for the duration of the block. `renew` makes a new one, with the
        card as it is now; the one before serves until then."""
        held = None if renew else self.held(address, options)
        return held or Entered(self._reached(address, options, renew=renew))

    def held(self, address: str, options: Mapping[str, Any]) -> SharedConnection | None:
        """Returns the open connection to an address if it was used last with these options; None if
        there is none, or if its card has to be read again."""
        known = self._last_used.get(address)
        if known is None or known[0] is not options:
            return None
        connection = known[1]
        return None if connection.old or monotonic() > connection.fresh_until else connection

    async def _reached(
        self, address: str, options: Mapping[str, Any], *, renew: bool
    ) -> tuple[RemoteAgent, Callable[[], Awaitable[None]]]:
        key = (address, frozenset((name, _mark(value)) for name, value in options.items()))
        connection = self._connections.get(key)
        if renew:
            made = await self._connected(address, options)
            connection, before = made, self._connections.get(key)
            made.old = self._closed
            if not self._closed:
                self._connections[key] = made
            if before is not None:
                before.old = True
                await before.let_go()
        elif connection is not None and monotonic() > connection.fresh_until:
            connection.old = True
            del self._connections[key]
            await connection.let_go()
            connection = None
        if connection is None:
            made = await self._connected(address, options)
            # A task that goes on although its agent was replaced has a connection to itself.
            connection = made if self._closed else self._connections.setdefault(key, made)
            made.old = self._closed
            if connection is not made:  # another task has connected at the same time
                made.old = True
                await made.let_go()
        self._last_used[address] = options, connection
        return connection.use(), partial(connection.__aexit__, None, None, None)

    async def _connected(self, address: str, options: Mapping[str, Any]) -> SharedConnection:
        given = dict(options)
        given.setdefault("allow_private", self._allow_private)
        if self._make_name is not None:
            self._name = self._name or self._make_name()
            given.setdefault("me", self._name)
        async with AsyncExitStack() as stack:
            if "auth" not in given and self._environ is not None:
                from .auth import CardAuth

                auth = CardAuth.of(self._environ, allow_private=given["allow_private"])
                given["auth"] = await stack.enter_async_context(auth)
            agent = await stack.enter_async_context(connect(address, **given))
            return SharedConnection(agent, options, stack.pop_all(), self._fresh)
        raise AssertionError("unreachable")  # pragma: no cover

    async def close(self) -> None:
        """Ends all connections. Those that are made from now on end with their use."""
        self._closed = True
        self._last_used = {}
        connections, self._connections = [*self._connections.values()], {}
        for connection in connections:
            connection.old, connection.users = True, 0
            await connection.let_go()


def _mark(value: object) -> object:
    """Returns a value that identifies an option. A connection keeps its options alive, so that
    their ids are not reused."""
    return value if isinstance(value, str | int | float | bytes) else id(value)
