"""Serves the agents that have dialled in over XiaoYi links.

Such an agent is an `UpstreamAgent` like any other, whose pool has one connection: its links.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.agent import Turn
from dragoman.agent.turn import run_of
from dragoman.core.errors import BadParams, ConfigError, Forbidden
from dragoman.core.model import Json
from dragoman.core.operations import Invoke, Streamed, Watch
from dragoman.core.peer import Begun, Context, Peer
from dragoman.dialects.xiaoyi.wire import CLEAR
from dragoman.relay import Upstream
from dragoman.xiaoyi.server.linked_agent import LinkedAgent
from dragoman.xiaoyi.server.links import Links

from ..registry import LINK_OWNER
from ..upstream import RemoteUpstream, conversation_of
from ..upstream_agent import UpstreamAgent
from ..upstream_peer import UpstreamPeer
from .dial_ins import DialIns, dialed_in_pool

SCHEME = "xiaoyi-link"
"""The prefix of the label that an agent has instead of an address, in the journal and for
operators."""


class LinkedUpstream(RemoteUpstream):
    """An agent that has dialled in, for one task of ours."""

    async def begin(self, peer: Peer, op: Streamed, ctx: Context) -> Begun:
        """Returns the first events of a task. An agent that cannot be asked for a task goes on
        where an earlier process stopped, so it gets what that process has received."""
        assert isinstance(peer, UpstreamPeer)  # noqa: S101  as `peer` gives it
        if isinstance(op, Watch) and isinstance(peer.agent, LinkedAgent):
            run = run_of(self._turn)
            (task,) = await run.tasks([run.task_id])
            peer.agent.stored[op.task_id] = task.artifacts
        return await super().begin(peer, op, ctx)


class LinkedUpstreamAgent(UpstreamAgent):
    """An agent that has dialled in."""

    def _upstream(self, turn: Turn) -> Upstream:
        return LinkedUpstream(self, turn)

    async def invoke_elsewhere(self, op: Invoke, ctx: Context) -> Json:
        """Clears a context of the caller. The link has no other method of its own."""
        # A2A requires a namespace before the name of such a method; any will do.
        if op.method.rpartition("/")[2] == CLEAR:
            params = op.params if isinstance(op.params, dict) else {}
            named = params.get("contextId") or params.get("sessionId")
            if not isinstance(named, str):
                raise BadParams("Which context?", field="contextId")
            whose = conversation_of(self.served_as, ctx, named)
            session = self.contexts.get(whose) or whose[:32]
            op = Invoke(method=CLEAR, params={"sessionId": session})
        return await super().invoke_elsewhere(op, ctx)


class LinkedAgents:
    """Serves the agents that dial in."""

    def __init__(
        self, links: Links, dial_ins: DialIns, slug: Callable[[str], str], *, task_limit: float
    ) -> None:
        """`slug` derives the name of an agent from its id."""
        self._links, self._slug, self._task_limit = links, slug, task_limit
        self.dial_ins = dial_ins
        dial_ins.serve(LINK_OWNER, self._agent)
        links.on_arrival, links.on_departure = self._arrived, self._left

    async def check_claim(self, agent_id: str) -> None:
        """Raises `Forbidden` for an id that cannot be a name, or whose name belongs to another
        agent."""
        try:
            name = self._slug(agent_id)
        except ConfigError as exc:
            raise Forbidden(exc.message) from None
        await self.dial_ins.check(name, _owner(agent_id))

    def _arrived(self, agent: LinkedAgent) -> None:
        name, agent_id = self._slug(agent.agent_id), agent.agent_id
        self.dial_ins.arrived(name, _owner(agent_id))

    def _left(self, agent: LinkedAgent) -> None:
        self.dial_ins.left(self._slug(agent.agent_id))

    def _agent(self, name: str, agent_id: str) -> UpstreamAgent:
        def connected() -> LinkedAgent | None:
            agent = self._links.agents.get(agent_id)
            return agent if agent is not None and agent.online else None

        pool = dialed_in_pool(name, agent_id, SCHEME, connected)
        return LinkedUpstreamAgent(name, pool, timeout=self._task_limit)


def _owner(agent_id: str) -> str:
    return LINK_OWNER + agent_id
