"""The answer to one request in a room: it follows the log of its task until the task has ended.

What was not said yet is in the log of the task, and nowhere else. Everything that was said is
recorded in the store under the number of its event, so after a restart the log is read again from
its beginning, and each event is told once. A process that dies after it has said something and
before that is recorded would say it again; channels that know keys (Matrix) drop the repetition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import BadParams, DragomanError, PeerUnreachable, TaskFinished
from dragoman.core.events import Snapshot, Stamped
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.log import Logger
from dragoman.core.model import Json, State, Task
from dragoman.core.operations import GetTask, Watch
from dragoman.core.peer import Batch, Context, Peer
from dragoman.core.session import Result, Update
from dragoman.dialects.lite.callee import LiteCallee
from dragoman.dialects.lite.telling import Telling
from dragoman.dialects.lite.wire import LiteMessage
from dragoman.store.sessions import SentMarks

from .speaker import RoomSpeaker

log = Logger("lite")

PROGRESS_INTERVAL_SECONDS = 5.0
"""The seconds between two messages that tell only how far a task is."""
RETRY_SECONDS = 1.0
"""The seconds before another attempt, after the log could not be read or nothing could be said."""
ORIGIN = "lite"
"""The key in the metadata of a task under which its origin stands."""
ACK, END = "ack", "end"
"""The marks of the two messages that are told at most once per task."""


class Origin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a task comes from; it stands in the metadata of the task, for the next process."""

    channel: str
    room: str
    sender: str
    id: str
    """The requester's id of the task."""
    message: str = ""
    """The chat message that opened it."""
    marked: bool = True
    """Whether the requester uses markers."""
    person: bool = False
    """Whether the requester may be a person, and not a program."""

    def metadata(self) -> dict[str, Json]:
        """Returns the metadata of a new task."""
        return {ORIGIN: msgspec.to_builtins(self)}


def origin_of(task: Task) -> Origin | None:
    """Returns where a task comes from, or None if it does not come from a room."""
    try:
        return msgspec.convert((task.metadata or {}).get(ORIGIN), Origin)
    except msgspec.ValidationError:
        return None


class RoomAnswer:
    """The answer to one request."""

    def __init__(
        self,
        peer: Peer,
        ctx: Context,
        task_id: str,
        origin: Origin,
        session: LiteCallee,
        speaker: RoomSpeaker,
        marks: SentMarks,
        *,
        again: State | None = None,
        may_say: Callable[[], bool] = lambda: True,
        on_question: Callable[[str, str], None] = lambda task_id, message: None,
    ) -> None:
        """`session` is the conversation in which the task was asked for. `again` is the state of a
        task of which an earlier process may have told something. `may_say` returns whether one more
        message may be said. `on_question` is called with the task and the chat message that holds
        its question."""
        self._peer, self.ctx, self.task_id, self.origin = peer, ctx, task_id, origin
        self.session = session
        self._speaker, self._marks, self._again = speaker, marks, again is not None
        self._until = again
        """The state of the task until the log has been read up to it."""
        self._on_question, self._may_say = on_question, may_say
        self._seq = 0
        self._told_at = 0.0

    @property
    def state(self) -> State:
        """The state of the task, as far as it is known here."""
        return self._told_state if self._until is None else self._until

    @property
    def _told_state(self) -> State:
        return self.session.state(self.origin.id)

    @property
    def waits(self) -> bool:
        """Whether the task waits for its requester."""
        return self.state in WAITING

    async def run(self) -> None:
        """Tells everything there is to tell, until the task has ended."""
        while self._told_state not in FINAL:
            try:
                async with aclosing(self._batches()) as batches:
                    async for batch in batches:
                        for entry in batch.entries:
                            if isinstance(entry, Stamped):
                                await self._take(entry)
            except DragomanError as exc:
                if not exc.retry:
                    log.error("A task cannot be followed", exc, task=self.task_id)
                    return
                await asyncio.sleep(RETRY_SECONDS)
            else:
                if self._told_state not in FINAL | WAITING:
                    await asyncio.sleep(
                        RETRY_SECONDS
                    )  # the engine stops; the next process continues
        await self._marks.add(END, self.task_id)

    async def repeat(self) -> None:
        """Tells the current state again, because the requester asked for the task again."""
        task = await self._peer.call(GetTask(task_id=self.task_id), self.ctx)
        telling = LiteCallee().tell(Result(self.origin.id, task))
        if telling is not None:
            await self._say(telling, "")

    async def _batches(self) -> AsyncGenerator[Batch, None]:
        """Yields the events after those that were taken. The log of a task that ended long ago is
        gone; then the task is told as a whole."""
        try:
            ctx = replace(self.ctx, cursor=self._seq)
            async with aclosing(self._peer.stream(Watch(task_id=self.task_id), ctx)) as batches:
                async for batch in batches:
                    yield batch
        except (TaskFinished, BadParams):
            task = await self._peer.call(GetTask(task_id=self.task_id), self.ctx)
            entry = Stamped(task.id, task.context_id, 0, task.status.at, Snapshot(task=task))
            yield Batch((entry,), last=True)

    async def _take(self, entry: Stamped) -> None:
        telling = self.session.tell(Update(self.origin.id, entry))
        if self._told_state is self._until:
            self._until = None
        if telling is not None and self._is_worth_it(telling):
            await self._tell(telling, ACK if telling.ack else entry.seq or END)
        self._seq = entry.seq or self._seq

    def _is_worth_it(self, telling: Telling) -> bool:
        """Returns whether to tell this now. People without markers are not told that a request has
        arrived, nor figures, and others are told figures only now and then."""
        if telling.ack:
            return self.origin.marked
        if telling.plain or telling.files or telling.state in FINAL:
            return True
        now = asyncio.get_running_loop().time()
        if not self.origin.marked or now - self._told_at < PROGRESS_INTERVAL_SECONDS:
            return False
        self._told_at = now
        return True

    async def _tell(self, telling: Telling, mark: object) -> None:
        """Tells something once, in this process or in the one before."""
        if self._again and await self._marks.has(self.task_id, mark):
            return
        if not self._may_say():
            log.info("An answer to a program is left out: there were many", task=self.task_id)
            return
        while True:
            try:
                ids = await self._say(telling, f"{self.task_id}:{mark}")
                break
            except PeerUnreachable as exc:
                log.warning("An answer waits for its channel", task=self.task_id, why=exc)
                await asyncio.sleep(RETRY_SECONDS)
            except DragomanError as exc:
                log.error("An answer cannot be said", exc, task=self.task_id)
                ids = []
                break
        await self._marks.add(self.task_id, mark)
        if telling.question:
            for message in ids:
                self._on_question(self.task_id, message)

    async def _say(self, telling: Telling, key: str) -> list[str]:
        origin = self.origin
        said = telling.marked(origin.id) if origin.marked else telling.plain
        if telling.ack and not self._speaker.multiline and isinstance(said, LiteMessage):
            said = replace(said, body="")  # a line of its own would cost as much as the marker
        return await self._speaker.say(
            origin.room,
            said,
            files=telling.files,
            task_id=self.task_id,
            reply_to=origin.message,
            key=key,
        )
