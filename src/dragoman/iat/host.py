"""`Host`: an agent that delegates its work to sub-agents.

A host is an `Agent`, so `execute` is a task like any other: it survives a restart, `dragoman
approvals` lists its approvals, and A2A callers can give it work too. Sub-agents register over a
WebSocket or with an address, or the host is given their addresses. Their requests for tools are
answered by the host's own tools; their approvals and questions are passed to the caller that gave
the host the task.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, TypeVar, overload
from uuid import uuid4

from dragoman.agent import Agent, Turn
from dragoman.agent.remote_calls import StartedCall
from dragoman.core.card import Card, Tool
from dragoman.core.errors import (
    BadParams,
    ConfigError,
    DragomanError,
    Forbidden,
    PeerUnreachable,
    Unsupported,
)
from dragoman.core.extensions import WORK
from dragoman.core.log import Logger
from dragoman.core.model import Json, Message, Role, Task, Text
from dragoman.core.operations import GetTask, Resolve, SendMessage
from dragoman.core.peer import Batch, Context, Peer
from dragoman.core.session import Introduction
from dragoman.dialects.iat.wire import TTL
from dragoman.net.websocket.peer import WebSocketPeer
from dragoman.relay import Relay
from dragoman.security.iat import PROVED
from dragoman.workspace import WISH

from .host_role import HostRole
from .sub_agent import AddressTransport, AgentTransport, KnownAgent, SubAgent
from .tools import HostTool, tool_of
from .upstream import PREFIX, SubAgentUpstream, stop_task

log = Logger("iat")

F = TypeVar("F", bound=Callable[..., Any])

OPERATOR = Context(principal="host", extensions=(WORK,))
"""The context in which the host's own process gives work."""
PULSE = 30.0
PATIENCE = 60.0
ANSWER = 5.0
"""Seconds that an agent has to respond when another one claims its name."""
GREETING = 15.0
"""Seconds that an agent at an address has to answer the first message."""
_ADDRESS = re.compile(r"(?:([^\s=/:?#]+)=)?(https?://[^\s/?#]\S*)")


class Host(Agent, HostRole):
    """An agent that has sub-agents, offers them tools, and delegates `execute` to them."""

    def __init__(
        self,
        name: str = "host",
        *,
        agents: Iterable[str] = (),
        depth: int = TTL,
        pulse: float = PULSE,
        patience: float = PATIENCE,
        approval_expires: float = 900.0,
        workspace_root: str = "",
        **about: Any,
    ) -> None:
        super().__init__(name, **about)
        if depth < 1 or pulse <= 0 or patience <= 0 or approval_expires <= 0:
            raise ConfigError("depth, pulse, patience and approval_expires must be positive")
        self.addresses: list[tuple[str, str]] = []
        """The names and URLs of agents that do not register by themselves."""
        for address in agents:
            self.add_address(address)
        self.depth, self.pulse, self.patience = depth, pulse, patience
        """The number of agents that an `execute` may pass through, the seconds between heartbeats,
        and the seconds to wait for a sub-agent that is offline."""
        self.approval_expires = approval_expires
        """Seconds after which an unanswered approval counts as a denial."""
        self.workspace_root = workspace_root
        self.tools: dict[str, HostTool] = {}
        self.agents: dict[str, SubAgent] = {}
        self.sessions = _none
        self.news: Callable[[SubAgent], None] = lambda sub: None
        """Called with every sub-agent that connects (`online`) or disconnects."""
        self._arrived = asyncio.Event()
        self._pulses: set[asyncio.Task[None]] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._placed: dict[str, str] = {}
        """The addresses of the agents that were reached at a configured address, by name."""
        self.skill("execute", description="Has a sub-agent do it", default=True)(self._execute)

    # Tools.

    @overload
    def tool(self, function: F) -> F: ...
    @overload
    def tool(self, *, name: str = "", description: str = "") -> Callable[[F], F]: ...
    def tool(self, function: Any = None, *, name: str = "", description: str = "") -> Any:
        """Registers a function as a tool for sub-agents. Its schemas come from its type hints."""

        def add(function: F) -> F:
            found = tool_of(function, name, description)
            if found.description.name in self.tools:
                raise ConfigError(f"There are two tools `{found.description.name}`")
            self.tools[found.description.name] = found
            return function

        return add if function is None else add(function)

    def offered(self, allowed: Iterable[str] | None = None) -> tuple[Tool, ...]:
        """Returns the tools that an `execute` allows, or all tools if it names none."""
        names = list(self.tools if allowed is None else allowed)
        unknown = [name for name in names if name not in self.tools]
        if unknown:
            raise Unsupported(f"This host has no tool {', '.join(unknown)}")
        return tuple(self.tools[name].description for name in names)

    # Sub-agents.

    async def check_claim(self, met: Introduction, peer: Peer | None) -> None:
        """Raises `Forbidden` if the name belongs to another sub-agent that still responds.

        Every agent with the shared secret can sign for any name, so the secret does not prove a
        name. An agent that comes back is told apart from one that wants the work of another by
        whether the earlier one still responds."""
        place, before = place_of(met, peer), self.agents.get(met.who)
        if place is None or met.who in self._placed:
            return  # a mere caller gets no work
        if before is None or not before.online or before.place == place:
            return
        if await before.answers(ANSWER):
            log.warning("An agent may not have the name of one that is elsewhere", agent=met.who)
            raise Forbidden("`agent_id` is somebody else, who is at work.")

    def joined(self, met: Introduction, caller: Context, peer: Peer | None, token: str) -> None:
        """Adds an agent that has introduced itself, and got this session token. Without a `peer`
        that can be called, it is only a caller."""
        if met.card is None or not met.callable:
            return
        if met.who in self._placed:
            # The operator has configured its address, so its work is sent nowhere else.
            log.warning("An agent registered that is called at its own address", agent=met.who)
            return
        transport: AgentTransport | None = None
        place = place_of(met, peer)
        if isinstance(peer, WebSocketPeer):
            transport = peer
        elif met.card.interfaces and self.dial is not None:
            # An agent that has proved the secret could sign by itself, so our signature gives it
            # nothing. For other agents nothing is signed: one of them could have claimed the name
            # of another agent to use our signature there.
            signs = PROVED in caller.schemes
            transport = self.dial(str(place), met.who, signs=signs, token=token)
        if transport is None:
            return
        sub = SubAgent(met.who, met.card, met.tools, transport, met.workspace, place)
        if isinstance(peer, WebSocketPeer):
            peer.on_lost = sub.leave
        log.info("An agent registered", agent=met.who, tools=len(met.tools))
        self._came(sub)
        heart = asyncio.get_running_loop().create_task(self._beat(sub))
        self._pulses.add(heart)
        heart.add_done_callback(self._pulses.discard)

    def add_address(self, address: str) -> None:
        """Adds the address of an agent that does not register: `URL`, or `NAME=URL`.

        Without a path, `/iat` and `/a2a` are tried. An agent that has not introduced itself is
        named by its address. Messages to it are signed for `NAME`, or not at all without a name.
        This must be called before the host is served."""
        from dragoman.security.outbound.guarded_http import Rules, parse

        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise ConfigError(
                f"An agent's address is [NAME=]http(s)://HOST[:PORT], not {address!r}."
            )
        try:
            parse(found[2].partition("#")[0], Rules(allow_private=True, allow_loopback=True))
        except BadParams as exc:
            named = f" of {found[1]}" if found[1] else ""  # the rest may hold a password
            raise ConfigError(f"An agent's address{named} cannot be called: {exc}.") from None
        self.addresses.append((found[1] or "", found[2]))

    def connect_agents(self) -> None:
        """Starts to connect to every agent whose address is configured. The server calls this."""
        for name, url in self.addresses:
            task = asyncio.get_running_loop().create_task(self._stay_connected(name, url))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _stay_connected(self, name: str, url: str) -> None:
        """Keeps the agent at an address connected as a sub-agent, whenever it can be reached."""
        from .registration import pause

        assert self.dial is not None  # noqa: S101  set by the server before it begins
        tries = 0
        while True:
            transport: AddressTransport | None = None
            try:
                transport = self.dial(url, name, typed=True, signs=bool(name))
                async with asyncio.timeout(GREETING):
                    met = await transport.meet()
                called = name or met.who
                if not name and called not in self._placed:
                    await self._check_unregistered(called)
                tries = 0
                if self._placed.setdefault(called, url) != url:
                    log.error("Two agents have one name; give one a NAME=", agent=called, at=url)
                    return
                card = met.card or Card(name=called, description="", version="")
                sub = SubAgent(called, card, met.tools, transport, met.workspace)
                log.info("An agent was reached", agent=called, at=url)
                self._came(sub)
                await self._beat(sub)
            except (DragomanError, TimeoutError, OSError) as exc:
                tries += 1
                tell = log.warning if tries == 1 else log.info
                tell("An agent does not answer", at=url, why=exc)
            except Exception as exc:  # whatever this attempt failed with, another one follows
                tries += 1
                log.error("An agent cannot be called", exc, at=url)
            finally:
                if transport is not None:
                    await transport.close()
            await asyncio.sleep(pause(tries))

    async def _check_unregistered(self, name: str) -> None:
        """Raises `Forbidden` if the name that an agent at an address claims belongs to a sub-agent,
        or to an agent that has registered and may come back."""
        # The agents are checked last: one may register during the query of the store.
        if await self.sessions(name) or name in self.agents:
            raise Forbidden(f"it says that it is {name}, who registered; give it a NAME=")

    def add(self, name: str, agent: Peer, card: Card | None = None) -> None:
        """Adds an agent of any dialect as a sub-agent: the result of `connect`, which must stay
        open."""
        card = card or Card(name=name, description="", version="")
        self._came(SubAgent(name, card, (), KnownAgent(agent)))

    def _came(self, sub: SubAgent) -> None:
        before = self.agents.get(sub.name)
        if before is not None:
            before.leave()
        self.agents[sub.name] = sub
        self._arrived.set()
        self._arrived = asyncio.Event()
        self.news(sub)

    async def _beat(self, sub: SubAgent) -> None:
        """Sends heartbeats until the sub-agent disconnects or registers again."""
        while sub.online:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.pulse):
                    await sub.changed.wait()
            if not sub.online:
                break
            if not await sub.pulse(self.pulse):
                log.warning("An agent is offline", agent=sub.name)
        if self.agents.get(sub.name) is sub:
            del self.agents[sub.name]
            if not self.stopping:
                self.news(sub)
        await sub.transport.close()

    async def find(self, name: str = "", seconds: float | None = None) -> SubAgent:
        """Returns the sub-agent of that name, or the only one, and waits for it if it is
        offline."""
        until = asyncio.get_running_loop().time() + (self.patience if seconds is None else seconds)
        while True:
            sub = self.agents.get(name) if name else next(iter(self.agents.values()), None)
            if sub is not None and sub.online:
                if not name and len(self.agents) > 1:
                    raise Unsupported(f"Which sub-agent? There are: {', '.join(self.agents)}")
                return sub
            arrived = self._arrived
            try:
                async with asyncio.timeout_at(until):
                    await arrived.wait()
            except TimeoutError:
                what = f"sub-agent {name!r}" if name else "any sub-agent"
                raise PeerUnreachable(f"There is no {what} (Agent Unreachable)") from None

    async def close(self) -> None:
        """Disconnects all sub-agents."""
        for task in self._connecting:
            task.cancel()
        for sub in tuple(self.agents.values()):
            sub.leave()
        if ending := self._pulses | self._connecting:
            await asyncio.wait(ending, timeout=1.0)

    # Work.

    async def _execute(self, turn: Turn) -> None:
        """Implements the skill: relays between the task and the sub-agent."""
        await Relay(turn, SubAgentUpstream(self, turn)).run()

    async def stop_remote(self, call: StartedCall, caller: Context) -> bool:
        """Terminates the work of a sub-agent for a task of ours, even after a restart."""
        if not call.address.startswith(PREFIX):
            return False
        await stop_task(self, call.address.removeprefix(PREFIX), call.task_id)
        return True

    def execute(
        self,
        query: str,
        *,
        agent: str = "",
        allowed_tools: Iterable[str] | None = None,
        context_fragments: Iterable[Json] = (),
        workspace_root: str = "",
    ) -> AsyncGenerator[Batch, None]:
        """Gives work to a sub-agent, and yields every event as it arrives, including questions.

        The stream ends when the task does. It continues after a question (`Asked`) when other code
        calls `answer`."""
        metadata: dict[str, Json] = {}
        if agent:
            metadata["agent"] = agent
        if allowed_tools is not None:
            metadata["allowed_tools"] = [tool.name for tool in self.offered(allowed_tools)]
        if workspace_root:
            metadata[WISH] = workspace_root
        message = Message(message_id=uuid4().hex, role=Role.USER, parts=(Text(query),))
        op = SendMessage(
            message=message, metadata=metadata or None, context=tuple(context_fragments)
        )
        from dragoman.net.question_stream import stream_until_final

        return stream_until_final(self._engine(), op, OPERATOR)

    async def run(self, query: str, **about: Any) -> Task:
        """Gives work to a sub-agent as `execute` does, and returns the task when it has ended or
        asks a question."""
        task_id = ""
        async for batch in self.execute(query, **about):
            for entry in batch.entries:
                task_id = getattr(entry, "task_id", task_id)
        return await self._engine().call(GetTask(task_id=task_id), OPERATOR)

    async def answer(self, task_id: str, question: str, value: Json) -> None:
        """Answers a question of a task, with `{"approved": true}` or with the requested value."""
        op = Resolve(task_id=task_id, question=question, value=value)
        await self._engine().call(op, OPERATOR)

    def _engine(self) -> Peer:
        if self.peer is None:
            raise ConfigError("The host does not run; serve it first")
        return self.peer


def place_of(met: Introduction, peer: Peer | None) -> object:
    """Returns where an agent registers from: its WebSocket or the address that it names, or None if
    it is only a caller."""
    if isinstance(peer, WebSocketPeer):
        return peer
    return met.card.interfaces[0].url if met.card is not None and met.card.interfaces else None


async def _none(name: str) -> Collection[object]:
    return ()
