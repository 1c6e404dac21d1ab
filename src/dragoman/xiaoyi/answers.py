"""The answer to one request, on its way to the phone.

Events that have not been sent yet are in the log of the task, and nowhere else. When a link breaks,
the task is sent again from the beginning over the next one; its text replaces what the phone has.
An answer counts as sent when the server has read its last frame, which is recorded in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

from dragoman.core.errors import DragomanError, TaskFinished
from dragoman.core.events import AnyEvent, Asked, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.log import Logger
from dragoman.core.model import Message, State, Status
from dragoman.core.operations import GetTask, SendMessage, Streamed, Watch
from dragoman.core.peer import Batch, Context, Peer
from dragoman.core.session import Fault, Id, Signal, Update
from dragoman.dialects.losses import FileForms
from dragoman.dialects.xiaoyi import XiaoYiCallee
from dragoman.files import FileDoor
from dragoman.files.transfer import FileTransfer
from dragoman.store.sessions import SentMarks

from .outbound_link import LinkLost, OutboundLink

log = Logger("xiaoyi")
KEEP_ALIVE = 20.0
"""The seconds of silence after which the phone is notified that the task is still working."""


class LinkAnswer:
    """One answer. `run` returns when it was sent, or when there is nothing to send."""

    def __init__(
        self,
        peer: Peer,
        ctx: Context,
        op: Streamed,
        *,
        agent_id: str,
        request_id: Id,
        session: str,
        task: str,
        link: Callable[[str], Awaitable[OutboundLink]],
        marks: SentMarks,
        on_question: Callable[[str, str], None] = lambda session, task_id: None,
        keep_alive: float = KEEP_ALIVE,
        files: FileDoor | None = None,
    ) -> None:
        """`task` is the server's name for the task. `link` waits for a link of the session.
        `on_question` is called with the session and the task before a question is sent. Files are
        offered for download at the door of the server; None: they are sent with their content."""
        self._peer, self.ctx, self._op = peer, ctx, op
        self._agent_id, self._request_id = agent_id, request_id
        self.session, self.task, self._link, self._marks = session, task, link, marks
        self._on_question, self._keep_alive = on_question, keep_alive
        self._files = files
        self.task_id = op.task_id if isinstance(op, Watch) else op.message.task_id
        """Our id of the task, as soon as it is known."""
        self.opened = asyncio.Event()
        """Set when that id is known, or when there will be no task."""
        if self.task_id:
            self.opened.set()
        self.state = State.UNKNOWN
        """The state of the task that was sent last."""
        self._round = ""
        self._asked = asyncio.Event()
        """Set when the server wants to have the whole answer again."""

    def tell_again(self) -> None:
        """Sends the answer again from the beginning, over the link that its session has now."""
        self._asked.set()

    async def run(self) -> None:
        """Sends the answer, over as many links as necessary."""
        op = self._op
        while True:
            link = await self._link(self.session)
            self._asked.clear()
            try:
                refused = await self._tell(link, op)
                if not refused and self.state not in FINAL | WAITING:
                    return  # the server stops; the next process continues
                await link.confirm()
            except LinkLost:
                if self.task_id:
                    op = Watch(task_id=self.task_id)
                continue
            if self._asked.is_set():
                if self.task_id:
                    op = Watch(task_id=self.task_id)
                continue
            if not refused:
                await self._marks.add("sent", self.task_id, self._round)
            return

    async def _tell(self, link: OutboundLink, op: Streamed) -> bool:
        """Sends the whole stream. Returns whether the call was refused."""
        callee = XiaoYiCallee(self._agent_id)
        callee.resume(self._request_id, self.session, self.task)

        async def say(signal: Signal) -> None:
            await link.send(callee.send(signal))

        # The stream of an answer to a question begins with the task that asked it.
        answers = isinstance(op, SendMessage) and bool(op.message.task_id)
        try:
            async with aclosing(self._stream(op)) as batches:
                async for batch in self._steps(batches, say):
                    for entry in batch.entries:
                        if answers and isinstance(entry, Stamped):
                            answers = False
                            if isinstance(entry.event, Snapshot):
                                continue
                        self._note(entry)
                        told = entry
                        if self._files is not None:
                            told = await self._offered(entry, self._files)
                        await say(Update(self._request_id, told))
                        if self.state in FINAL | WAITING:
                            return False
        except DragomanError as error:
            if self.task_id and error.retry:
                return False  # the store or the engine is stopping; the log has the answer
            await say(Fault(self._request_id, error))
            return True
        return False

    async def _offered(self, entry: Stamped | Message, door: FileDoor) -> Stamped | Message:
        """Returns an entry with its files by their addresses. A file that cannot be kept is sent
        with its content."""

        async def note(what: str) -> None:
            log.warning("A file could not be offered", task=self.task_id, why=what)

        transfer = FileTransfer(
            door=door, task_id=self.task_id, takes=FileForms(), form="reference", note=note
        )
        return await transfer.entry(entry)

    async def _stream(self, op: Streamed) -> AsyncGenerator[Batch, None]:
        """Yields the events of the task. A finished task has no stream, so it is sent as a
        whole."""
        try:
            async with aclosing(self._peer.stream(op, self.ctx)) as batches:
                async for batch in batches:
                    yield batch
        except TaskFinished:
            if not isinstance(op, Watch):
                raise
            task = await self._peer.call(GetTask(task_id=op.task_id), self.ctx)
            entry = Stamped(task.id, task.context_id, 0, task.status.at, Snapshot(task=task))
            yield Batch((entry,), last=True)

    async def _steps(
        self, batches: AsyncGenerator[Batch, None], say: Callable[[Signal], Awaitable[None]]
    ) -> AsyncGenerator[Batch, None]:
        """Yields the batches of a stream. While there is none, the phone is notified that the task
        is working."""
        step: asyncio.Future[Batch] | None = None
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            while True:
                if step is None:
                    step = asyncio.ensure_future(anext(batches))
                # Until the task has an id, it cannot be told again: the stream goes on.
                either: set[asyncio.Future[Any]] = {step, asked} if self.task_id else {step}
                done, _ = await asyncio.wait(
                    either, timeout=self._keep_alive, return_when=asyncio.FIRST_COMPLETED
                )
                if asked in done:
                    raise LinkLost("The server asks for the whole answer")
                if not done:
                    working = StateChanged(state=State.WORKING)
                    await say(Update(self._request_id, Stamped(self.task_id, "", 0, 0, working)))
                    continue
                try:
                    batch = step.result()
                except StopAsyncIteration:
                    return
                finally:
                    step = None
                yield batch
                if batch.last:
                    return
        finally:
            asked.cancel()
            if step is not None:
                step.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration, DragomanError):
                    await step

    def _note(self, entry: Stamped | Message) -> None:
        if isinstance(entry, Message):
            self.state = State.COMPLETED
            return
        self.task_id = entry.task_id
        self.opened.set()
        status = status_of(entry.event)
        if status is not None:
            self.state, self._round = status.state, round_of(status)
        if self.state in WAITING:
            self._on_question(self.session, self.task_id)


def status_of(event: AnyEvent) -> Status | None:
    """Returns the status of the task after an event, or None if the event does not change it."""
    match event:
        case StateChanged(state=state, message=message) | Asked(state=state, message=message):
            return Status(state, 0, message)
        case Snapshot(task=task):
            return task.status
        case _:
            return None


def round_of(status: Status) -> str:
    """Returns what identifies an answer among those of one task: each ends with a different
    question, or with the task."""
    message = status.message if status.state in WAITING else None
    return message.message_id if message is not None else ""
