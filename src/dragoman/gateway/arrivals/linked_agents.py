"""Serves the agents that have dialled in over XiaoYi links.

Such an agent is an `UpstreamAgent` like any other, whose pool has one connection: its links.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from dragoman.agent import Turn
from dragoman.agent.turn import run_of
from dragoman.core.errors import BadParams, ConfigError, Forbidden
from dragoman.core.model import Json
from dragoman.core.operations import Invoke, Streamed, Watch
from dragoman.core.peer import Begun, Context, Peer
from dragoman.dialects.xiaoyi.signing import FILE_BYTES
from dragoman.dialects.xiaoyi.wire import CLEAR
from dragoman.files.transfer import FileForm
from dragoman.relay import QuestionAnswer, Relay
from dragoman.relay.known_ids import KnownIds
from dragoman.relay.received_task import parsed
from dragoman.settings import LinkedAgentSettings, XiaoYi
from dragoman.store.clock import wall_clock
from dragoman.store.sessions import SentMarks, SessionStore
from dragoman.xiaoyi.server.linked_agent import LinkedAgent
from dragoman.xiaoyi.server.links import Links

from ..registry import LINK_OWNER
from ..upstream import RemoteUpstream, conversation_of
from ..upstream_agent import UpstreamAgent
from ..upstream_peer import UpstreamPeer
from ..upstream_pool import UpstreamPool
from .dial_ins import DialIns, dialed_in_pool
from .session_lines import SessionLines

SCHEME = "xiaoyi-link"
"""The prefix of the label that an agent has instead of an address, in the journal and for
operators."""


class LinkedUpstream(RemoteUpstream):
    """An agent that has dialled in, for one task of ours."""

    def __init__(self, agent: LinkedUpstreamAgent, turn: Turn) -> None:
        super().__init__(agent, turn)
        self._linked = agent
        self._session = ""
        """The session in whose line this task has a place."""

    @property
    def _context_id(self) -> str:
        """The session there. Agents of this dialect do not rename it."""
        return self._linked.session_of(self._whose)

    async def _recall(self) -> None:
        await super()._recall()
        if self._run.context_id != self._run.task_id:  # a new conversation was never cleared
            await self._linked.count_clears(self._whose)

    async def _entered(
        self, task_id: str, address: str
    ) -> tuple[Peer, Callable[[], Awaitable[object]]]:
        if task_id and not self._session:
            self._session = parsed(task_id)[1]
            self._linked.lines.enter(self._session)
        elif not task_id:
            await self._recall()
            await self._wait_in_line()
        return await super()._entered(task_id, address)

    async def _wait_in_line(self) -> None:
        if self._session:
            return
        session, lines = self._context_id, self._linked.lines
        if not lines.is_free(session):
            await self._run.begin()  # whoever does not wait for the answer gets a task now
        await lines.wait(session)
        self._session = session

    def leave_line(self) -> None:
        """Lets the next message of the session be sent."""
        if self._session:
            self._linked.lines.leave(self._session)
            self._session = ""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Leaves the line: a question has been asked, and the next message answers it."""
        self.leave_line()
        with super().waiting():
            yield

    async def answer(self, peer: Peer, answer: QuestionAnswer, ctx: Context) -> None:
        """Sends the answer to a question, which is a message as any other here."""
        await self._wait_in_line()
        await super().answer(peer, answer, ctx)

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

    def __init__(
        self,
        name: str,
        pool: UpstreamPool,
        connected: Callable[[], LinkedAgent | None],
        settings: LinkedAgentSettings,
        marks: SentMarks,
        *,
        timeout: float,
    ) -> None:
        """`connected` returns the agent while it has a link. `marks` remember which sessions were
        cleared."""
        super().__init__(name, pool, timeout=timeout, files=settings.files)
        self.lines = SessionLines(settings.tasks_per_session)
        self._connected, self._marks = connected, marks
        self._clears = KnownIds()
        """How often each conversation was cleared, as far as it is known."""

    async def _relay(self, turn: Turn) -> None:
        upstream = LinkedUpstream(self, turn)
        try:
            await Relay(turn, upstream).run()
        finally:
            upstream.leave_line()

    def file_form(self, peer: UpstreamPeer) -> FileForm:
        """Returns the form of files for the agent: by reference, where we have an address. The
        source document has files downloaded from their `uri`, and most agents read nothing else;
        those that read the content too have announced it."""
        by_reference = self.files == "auto" and self.door is not None and self.door.offers
        if by_reference and isinstance(peer.agent, LinkedAgent):
            return "auto" if peer.agent.understands(FILE_BYTES) else "reference"
        return super().file_form(peer)

    def session_of(self, whose: str) -> str:
        """Returns the session of a conversation at the agent. It is a new one after each clear,
        because some agents are silent about a session for an hour after it was cleared."""
        clears = self._clears.get(whose)
        if not clears:
            return whose[:32]
        return hashlib.blake2b(f"{whose}\0{clears}".encode(), digest_size=16).hexdigest()

    async def count_clears(self, whose: str) -> int:
        """Returns how often a conversation was cleared, also by earlier processes."""
        known = self._clears.get(whose)
        count = int(known or 0)
        if not known:
            while await self._marks.has(whose, count + 1):
                count += 1
            if count:
                self._clears.put(whose, str(count))
        return count

    async def invoke_elsewhere(self, op: Invoke, ctx: Context) -> Json:
        """Clears a context of the caller. The link has no other method of its own."""
        # A2A requires a namespace before the name of such a method; any will do.
        if op.method.rpartition("/")[2] != CLEAR:
            return await super().invoke_elsewhere(op, ctx)
        params = op.params if isinstance(op.params, dict) else {}
        named = params.get("contextId") or params.get("sessionId")
        if not isinstance(named, str):
            raise BadParams("Which context?", field="contextId")
        whose = conversation_of(self.served_as, ctx, named)
        count = await self.count_clears(whose)
        session = self.session_of(whose)
        try:
            return await super().invoke_elsewhere(
                Invoke(method=CLEAR, params={"sessionId": session}), ctx
            )
        finally:
            # Also after an error: the agent may have cleared the session all the same.
            self._clears.put(whose, str(count + 1))
            self.lines.clear(session)
            if (agent := self._connected()) is not None:
                agent.settle_cleared(session)
            await self._marks.add(whose, count + 1)


class LinkedAgents:
    """Serves the agents that dial in."""

    def __init__(
        self,
        links: Links,
        dial_ins: DialIns,
        slug: Callable[[str], str],
        settings: XiaoYi,
        sessions: SessionStore,
    ) -> None:
        """`slug` derives the name of an agent from its id."""
        self._links, self._slug, self._settings = links, slug, settings
        self._sessions = sessions
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
        return LinkedUpstreamAgent(
            name,
            pool,
            connected,
            self._settings.agents.get(agent_id, LinkedAgentSettings()),
            SentMarks(self._sessions, wall_clock, SCHEME, agent_id),
            timeout=self._settings.task_limit,
        )


def _owner(agent_id: str) -> str:
    return LINK_OWNER + agent_id
