"""A sub-agent as the upstream of a relay. IAT adds tools, workspaces and a TTL to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dragoman.agent import Turn
from dragoman.agent.remote_calls import TurnAccess
from dragoman.core.card import Tool
from dragoman.core.errors import DragomanError, WorkspaceViolation
from dragoman.core.events import Asked
from dragoman.core.extensions import TOOLS, WORK
from dragoman.core.model import Json, Message
from dragoman.core.operations import CancelTask, SendMessage
from dragoman.core.peer import Context, Peer
from dragoman.dialects.iat.errors import TtlExceeded
from dragoman.dialects.iat.events import THEIRS
from dragoman.dialects.iat.wire import MOST_TTL
from dragoman.relay import QuestionAnswer, Upstream
from dragoman.relay.remote_task import context_for
from dragoman.workspace import WISH, inside, within

from .sub_agent import KnownAgent, SubAgent
from .tools import refused

if TYPE_CHECKING:
    from .host import Host

GIVE_UP = 3.0
"""The maximum time in seconds to tell a sub-agent that its task is canceled."""
PREFIX = "sub-agent:"


class SubAgentUpstream(Upstream):
    """The sub-agent that one `execute` of a host goes to."""

    def __init__(self, host: Host, turn: Turn) -> None:
        self._host, self._turn = host, turn
        named = turn.metadata.get("agent")
        self.name = named if isinstance(named, str) else ""
        self.approval_expires = host.approval_expires
        self._sub: SubAgent | None = None
        allowed = turn.metadata.get("allowed_tools")
        own = host.offered(name for name in host.tools if _in(name, allowed))
        # The tools of our own caller are offered too, unless the host has a tool of the same name.
        names = {tool.name for tool in own}
        theirs = tuple(
            each
            for each in turn.caller.tools
            if isinstance(each, Tool) and each.name not in names and _in(each.name, allowed)
        )
        self._own, self._theirs = names, {tool.name for tool in theirs}
        self._tools = (*own, *theirs)

    @property
    def address(self) -> str:
        """The name of the sub-agent, for a later run that has to cancel its task."""
        return PREFIX + self.name

    @asynccontextmanager
    async def peer(self, task_id: str, address: str) -> AsyncIterator[Peer]:
        """Waits for the sub-agent if it is offline, and yields it."""
        self._sub = await self._host.find(self.name)
        self.name = self._sub.name
        yield self._sub.transport

    async def lost(self, *, heard: bool) -> None:
        """Does nothing: `peer` waits for a sub-agent that comes back, which registers again or
        responds at its address."""
        if self._sub is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, self._host.patience)):
                    await self._sub.changed.wait()

    def context(self, access: TurnAccess) -> Context:
        """Returns the context of calls, with the tools that the sub-agent may use. A message that
        starts here may pass through as many agents as the host allows; one that came from another
        agent has already used up some of its hops."""
        used = self._turn.caller.hops or MOST_TTL - self._host.depth - 1
        if used + 1 >= MOST_TTL:
            raise TtlExceeded()
        ctx = context_for(access, extensions=(WORK,), tools=self._tools)
        return replace(ctx, trace=self._turn.caller.trace or ctx.trace, hops=used + 1)

    def request(self, turn: Turn, key: str) -> SendMessage:
        """Returns the `execute` request, with the folder to which it is confined."""
        assert self._sub is not None  # noqa: S101  it was found just now
        metadata = {
            key: value
            for key, value in turn.metadata.items()
            if key not in ("agent", "allowed_tools", "skillId")
        }
        if (root := self._root(self._sub)) is not None:
            metadata[WISH] = root
        if isinstance(self._sub.transport, KnownAgent) and self._tools:
            # IAT envelopes have a field for tools; other dialects carry them in our extension.
            metadata[TOOLS] = msgspec.to_builtins(self._tools)
        message = Message(message_id=key, role=turn.message.role, parts=turn.message.parts)
        return SendMessage(message=message, metadata=metadata or None, context=turn.context)

    def _root(self, sub: SubAgent) -> Json:
        """Returns the folder to which this `execute` is confined: the host's, narrowed as our
        caller requests. Only the sub-agent knows what is in its own folder."""
        limit, wish = self._host.workspace_root, self._turn.metadata.get(WISH)
        if not limit or inside(sub.workspace, limit):
            return wish
        if sub.workspace and not inside(limit, sub.workspace):
            raise WorkspaceViolation(f"{sub.name} works elsewhere than in the host's workspace")
        return within(limit, wish)

    async def run_tool(self, turn: Turn, asked: Asked) -> Json:
        """Returns the result of a tool. Only tools that were offered are run (R04)."""
        name = asked.message.text
        if name in self._own:
            tool = self._host.tools[name]
            return await turn.step(f"tool {asked.question}", tool.run, asked.body)
        if name in self._theirs:
            try:
                return {"result": await super().run_tool(turn, asked)}
            except DragomanError as exc:
                return refused(exc.reason, exc.message)
        return refused("tool_not_allowed", f"The tool {name[:80]!r} was not offered")

    async def answer(self, peer: Peer, answer: QuestionAnswer, ctx: Context) -> None:
        """Sends an answer without waiting for a response, because the agents of other vendors send
        none."""
        op = replace(answer.op, parts=answer.parts)
        if self._sub is not None and op.question.startswith(THEIRS):
            await self._sub.transport.tell(op, ctx)
        else:
            await peer.call(op, ctx)


async def stop_task(host: Host, name: str, task_id: str) -> None:
    """Tells a sub-agent to terminate a task, if the sub-agent is there."""
    sub = host.agents.get(name)
    if sub is None:
        return
    with suppress(DragomanError, TimeoutError, OSError):
        async with asyncio.timeout(GIVE_UP):
            await sub.transport.tell(CancelTask(task_id=task_id), Context())


def _in(name: str, allowed: object) -> bool:
    return not isinstance(allowed, list) or name in allowed
