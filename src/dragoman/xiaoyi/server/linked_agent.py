"""An agent that has dialled in: all its links, and its tasks.

It is a `Peer`. An agent may have several links, which are equivalent: a request goes over the link
that its session used last, and the answer may come over any other. While an agent has no link, it
gets no requests, and its running tasks wait for it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Protocol, cast

from msgspec.structs import replace

from dragoman.core.card import Card
from dragoman.core.errors import DragomanError, PeerUnreachable, Unsupported
from dragoman.core.events import ArtifactChunk, StateChanged
from dragoman.core.log import Logger
from dragoman.core.model import Artifact, Json, Message, Role, State, Task, Text
from dragoman.core.operations import (
    CancelTask,
    Invoke,
    Operation,
    SendMessage,
    Streamed,
    Watch,
)
from dragoman.core.peer import Batch, Context
from dragoman.core.session import Frame, Id, Introduction, Ping
from dragoman.dialects.xiaoyi.caller import XiaoYiCaller, name_out
from dragoman.dialects.xiaoyi.events import ANSWER
from dragoman.dialects.xiaoyi.signing import HOPS, RESUBSCRIBE
from dragoman.engine.background_work import BackgroundWork
from dragoman.net.websocket.peer import WebSocketPeer
from dragoman.relay.received_task import ReceivedTask, parsed
from dragoman.relay.received_tasks import ReceivingAgent
from dragoman.relay.relay import UNKNOWN_OUTCOME
from dragoman.store.clock import wall_clock

from ..link_figures import LinkFigures

log = Logger("xiaoyi")

MOST_SESSIONS, RETRY_AFTER = 10_000, 5
LAST_PIECE_TIMEOUT_SECONDS = 2.0
"""Seconds in which the last piece of a completed task must arrive."""
CONFIRMATION_TIMEOUT_SECONDS = 15.0
"""Seconds in which an agent has to confirm that it canceled a task, or cleared a context."""
ANSWER_GAP_SECONDS = 45.0
"""Seconds in which an agent that is back must say something about a task, if it cannot be asked."""
SUPERSEDED = "superseded"
"""The reason of a task that the agent dropped for a newer message."""


class AgentLink(Protocol):
    """One link of an agent."""

    name: str
    open: bool
    extensions: frozenset[str]
    """What the agent understands beyond the source document (`signing.EXTENSIONS`)."""

    async def say(self, body: bytes) -> None:
        """Sends a frame."""


class LinkedAgent(ReceivingAgent):
    """One agent, while it has tasks or links here."""

    dialect = "xiaoyi"
    unsupported = "A XiaoYi link has no word for this."

    def __init__(
        self,
        agent_id: str,
        figures: LinkFigures | None = None,
        *,
        answer_gap: float = ANSWER_GAP_SECONDS,
    ) -> None:
        """`answer_gap` is the time in seconds after which the outcome of a task is unknown whose
        link was lost, if the agent is back, says nothing about it, and cannot be asked."""
        super().__init__()
        self._answer_gap = answer_gap
        self.agent_id = agent_id
        self._figures = figures
        self.card = Card(
            name=agent_id,
            description=f"{agent_id}, over a XiaoYi link",
            version="1",
            streaming=True,
        )
        self.links: list[AgentLink] = []
        self._caller = XiaoYiCaller(agent_id, now=wall_clock)
        self._peer = WebSocketPeer(self._caller, self._say, f"rq-{secrets.token_hex(6)}-")
        self._sessions: OrderedDict[str, AgentLink] = OrderedDict()
        """The link that each session used last."""
        self._unsure: set[str] = set()
        """The sessions whose link was lost, with whatever it carried."""
        self._settling: set[Id] = set()
        self.stored: dict[str, tuple[Artifact, ...]] = {}
        """What earlier processes have received of tasks that are about to be followed again."""
        self._work = BackgroundWork()

    # Links.

    @property
    def online(self) -> bool:
        """Whether the agent has a link."""
        return bool(self.links)

    @property
    def busy(self) -> bool:
        """Whether it has a running task."""
        return any(each.pump is not None for each in self._tasks.values())

    def add_link(self, link: AgentLink) -> None:
        """Adds a link, and asks over it for the answers whose link was lost."""
        self.links.append(link)
        self._caller.link_opened(link.name)
        self._caller.counts_hops = self.understands(HOPS)
        if self._unsure:
            self._work.spawn(self._inquire())

    def remove_link(self, link: AgentLink) -> None:
        """Removes a link. Tasks continue over the other links, or wait for the next one."""
        if link in self.links:
            self.links.remove(link)
            self._caller.link_closed(link.name)
            self._caller.counts_hops = self.understands(HOPS)
        for session in [each for each, used in self._sessions.items() if used is link]:
            del self._sessions[session]
            self._unsure.add(session)
        if self._unsure and self.links:
            self._work.spawn(self._inquire())

    def understands(self, extension: str) -> bool:
        """Returns whether the agent has announced something over each of its links."""
        return bool(self.links) and all(extension in each.extensions for each in self.links)

    async def _inquire(self) -> None:
        """Asks for the open answers of the sessions whose link was lost, or expects them soon if
        the agent cannot be asked: a part of them, or their end, may have been lost with the
        link."""
        if not self.links:
            return  # lost again: the next link asks
        sessions, self._unsure = self._unsure, set()
        if not self.understands(RESUBSCRIBE):
            for task in self._tasks.values():
                if task.session in sessions and task.pump is not None:
                    self._expect_answer(task)
            return
        for frame in self._caller.inquire(sessions):
            await self._say_or_wait(frame)

    async def _end_if_silent(
        self, task: ReceivedTask, state: State, why: str, reason: str = ""
    ) -> None:
        """Ends a task if nothing more of it arrives for a while. While the agent is away, nothing
        is expected of it."""
        before, pump = task.seq, task.pump
        await asyncio.sleep(self._answer_gap)
        if task.seq != before or task.pump is not pump or pump is None or not self.online:
            return
        log.warning("A task without an answer is ended", agent=self.agent_id, task=task.name)
        self._end(task, state, why, reason)

    def _expect_answer(self, task: ReceivedTask) -> None:
        """Ends a task if the agent, which is back, says nothing about it: its end may be lost."""
        why = f"The link to {self.agent_id} was lost, and nobody can tell what came of the task"
        self._work.spawn(self._end_if_silent(task, State.FAILED, why, UNKNOWN_OUTCOME))

    def _settle_superseded(self, newer: ReceivedTask) -> None:
        """Ends the older tasks of the session of a task that has ended, if the agent says nothing
        more about them: many agents go on with the newer message only."""
        for task in list(self._tasks.values()):
            if task is newer:
                return  # tasks are kept in the order of their messages
            if task.session == newer.session and task.pump is not None:
                why = "The agent went on with a newer message of the conversation"
                self._work.spawn(self._end_if_silent(task, State.CANCELED, why, SUPERSEDED))

    async def _say_or_wait(self, frame: Frame) -> None:
        """Sends a frame. Without a link, the next one begins with an inquiry about its session."""
        try:
            await self._say(frame)
        except PeerUnreachable:
            self._unsure.add(frame.name)

    async def hear(self, frame: Frame) -> bool:
        """Handles a frame of the agent, whose `target` names the link. Returns whether it answers
        one of our requests."""
        told = list(self._caller.receive(frame))
        for lost in self._caller.repeated():
            await self._say_or_wait(lost)
        if not told:
            for note in self._caller.notes():
                log.debug("A frame is ignored", agent=self.agent_id, why=note.get("ignored"))
            for id in self._caller.settling:
                self._await_last_piece(id)
            return self._caller.was_copy
        if isinstance(told[0], Introduction | Ping):
            return False
        await self._peer.deliver(told, len(frame.body))
        return True

    def lost(self) -> None:
        """Fails everything that waits for the agent, which has been offline for too long."""
        self._peer.lost()

    def _await_last_piece(self, id: Id) -> None:
        if id in self._settling:
            return
        self._settling.add(id)

        async def settle() -> None:
            await asyncio.sleep(LAST_PIECE_TIMEOUT_SECONDS)
            self._settling.discard(id)
            await self._peer.deliver(self._caller.settle(id), 0)

        self._work.spawn(settle())

    async def _say(self, frame: Frame) -> None:
        link = self._sessions.get(frame.name)
        if link is None or not link.open:
            if link is not None:
                self._unsure.add(frame.name)  # asked for when the link is removed
            link = next((each for each in reversed(self.links) if each.open), None)
        if link is None:
            raise PeerUnreachable(f"{self.agent_id} is offline", retry_after=str(RETRY_AFTER))
        self._sessions[frame.name] = link
        self._sessions.move_to_end(frame.name)
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        await link.say(frame.body)

    async def close(self) -> None:
        """Ends the background work for its tasks."""
        await self._work.cancel()

    # Peer, and what a pool calls.

    async def changed(self) -> bool:
        """Returns False, because agents do not describe themselves. Raises `PeerUnreachable` while
        the agent is offline."""
        if not self.online:
            raise PeerUnreachable(f"{self.agent_id} is offline", retry_after=str(RETRY_AFTER))
        return False

    async def _called(self, op: Operation[Any], ctx: Context) -> object:
        if isinstance(op, Invoke):
            return await self._peer.call(op, ctx, CONFIRMATION_TIMEOUT_SECONDS)
        return await super()._called(op, ctx)

    def settle_cleared(self, session: str) -> None:
        """Forgets the link of a session that was cleared, and ends its open tasks: the agent will
        not answer them."""
        self._sessions.pop(session, None)
        for task in list(self._tasks.values()):
            if task.session == session and not task.over:
                self._end(task, State.CANCELED, "The conversation was cleared")

    def _end(self, task: ReceivedTask, state: State, why: str, reason: str = "") -> None:
        """Ends a task of which nothing more is expected."""
        message = Message(message_id=f"{task.name}.end", role=Role.AGENT, parts=(Text(why),))
        about: dict[str, Json] | None = {"reason": reason} if reason else None
        task.add(StateChanged(state=state, message=message, metadata=about))
        if task.pump is not None:
            task.pump.cancel()

    async def _send(self, op: SendMessage, ctx: Context) -> ReceivedTask:
        """Sends a message, which creates a task, or answers the question of a known one: in a
        session, the next message is the answer."""
        message, task = op.message, None
        if message.task_id:
            task = self._find(message.task_id)
            message = replace(message, task_id="", context_id=task.session)
        name = name_out(replace(op, message=message))
        session = message.context_id or name
        if task is None:
            task = ReceivedTask(name, session)
            known = self._tasks.get(task.id)
            if known is not None:
                return known  # the same message again
        message = replace(message, context_id=session)
        await self._begin(task, name, replace(op, message=message), ctx)
        return task

    async def _adopt(self, op: Watch, ctx: Context) -> ReceivedTask:
        """Takes over a task of an earlier process: all of its events if the agent can send them
        again, and otherwise what that process has received, and all that follows."""
        name, session = parsed(op.task_id)
        task = ReceivedTask(name, session, ctx.cursor or 0)
        stored = self.stored.pop(op.task_id, ())
        self._caller.remember(name, session)
        op = replace(op, task_id=name)
        if self.understands(RESUBSCRIBE):
            await self._begin(task, name, op, ctx)
            return task
        frames: list[Frame] = []
        text = next((each.text for each in stored if each.artifact_id == ANSWER), "")
        events = self._peer.listen(lambda id: frames.extend(self._caller.adopt(id, op, text)))
        task.add(StateChanged(state=State.WORKING))
        for artifact in stored:
            task.add(ArtifactChunk(artifact=artifact, append=False))
        task.pump = self._work.spawn(self._receive(task, events))
        self._keep(task)
        self._expect_answer(task)
        for frame in frames:
            await self.hear(frame)
        return task

    async def _begin(self, task: ReceivedTask, name: str, op: Streamed, ctx: Context) -> None:
        if task.over or task.pump is not None:
            raise Unsupported("The agent takes no message for a task that it works on, or ended.")
        steps = await self._peer.begin(op, ctx)
        task.name = name
        if self._figures is not None and isinstance(op, SendMessage):
            steps = _timed(steps, self._figures)
        task.pump = self._work.spawn(self._receive(task, steps))
        task.add(StateChanged(state=State.WORKING))
        self._keep(task)

    async def _receive(self, task: ReceivedTask, steps: AsyncGenerator[Batch, None]) -> None:
        await _pump(task, steps)
        self._settle_superseded(task)

    async def _cancel(self, task_id: str, ctx: Context) -> Task:
        known = self._tasks.get(task_id)
        name, session = (known.name, known.session) if known is not None else parsed(task_id)
        self._caller.remember(name, session)
        op = CancelTask(task_id=name)
        canceled = await self._peer.call(op, ctx, CONFIRMATION_TIMEOUT_SECONDS)
        if known is None:
            return replace(canceled, id=task_id)
        known.add(StateChanged(state=State.CANCELED))
        if known.pump is not None:
            known.pump.cancel()  # most agents say nothing more about the task
        return known.task()


async def _pump(task: ReceivedTask, steps: AsyncGenerator[Batch, None]) -> None:
    """Adds the answer to one request to the log of its task."""
    try:
        async with aclosing(steps):
            async for batch in steps:
                for entry in batch.entries:
                    task.add(cast(Any, entry).event)
                if task.over:
                    return
                await task.room()
    except DragomanError as exc:
        task.fail(exc)
    finally:
        task.rest()


async def _timed(
    steps: AsyncGenerator[Batch, None], figures: LinkFigures
) -> AsyncGenerator[Batch, None]:
    """Notes the time until the first answer."""
    began = asyncio.get_running_loop().time()
    async with aclosing(steps):
        async for batch in steps:
            if began:
                figures.latency = asyncio.get_running_loop().time() - began
                began = 0.0
            yield batch


Left = Callable[[LinkedAgent], None]
"""Called with an agent whose last link has closed."""
