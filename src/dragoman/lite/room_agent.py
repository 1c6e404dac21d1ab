"""An agent that was met in a room: a `Peer`, which is called by saying things there.

A room has no method to get a task, so what the agent reports is kept here, and every reader of a
task reads that. Messages that belong to no task of ours are not lost at once: after a restart, they
may belong to a task that is about to be followed again.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterable

from msgspec.structs import replace

from dragoman.core.card import Card
from dragoman.core.errors import (
    DragomanError,
    PeerUnreachable,
    TaskNotFound,
    TooLarge,
    Unsupported,
)
from dragoman.core.events import Stamped, StateChanged
from dragoman.core.log import Logger
from dragoman.core.model import Blob, State, Status, Task
from dragoman.core.operations import SendMessage, Streamed, Watch
from dragoman.core.peer import Context
from dragoman.core.session import Call, End, Fault, Frame, Signal, Update
from dragoman.dialects.lite.caller import LiteCaller, cancel_out, name_out
from dragoman.dialects.lite.parts import PostFile, posted
from dragoman.dialects.lite.post import Post, frame_out, post_in
from dragoman.dialects.lite.wire import LiteMessage, parse
from dragoman.engine.background_work import BackgroundWork
from dragoman.relay.received_task import ReceivedTask
from dragoman.relay.received_tasks import ReceivingAgent
from dragoman.store.clock import wall_clock

from .heard_message import HeardMessage
from .shelf import FileShelf
from .speaker import RoomSpeaker

log = Logger("lite")

SETTLE, CANCELED = 2.0, 15.0
"""The seconds in which the result of a task may follow the status that it is completed, and those
in which an agent may say how a canceled task ended."""
MOST_STRAYS = 1_000


class RoomExchange:
    """A request, until its task rests: it has ended, or waits for us."""

    def __init__(self, task: ReceivedTask) -> None:
        self.task = task
        self.reacted, self.rests = asyncio.Event(), asyncio.Event()
        self.marked = False
        """Whether the agent has used a marker in its answer."""
        self.settles = False
        """Whether the task is completed, and its result may still follow."""


class RoomAgent(ReceivingAgent):
    """One agent in one room."""

    dialect = "lite"
    unsupported = "A chat room has no word for this."

    def __init__(
        self,
        agent_id: str,
        room: str,
        sender: str,
        card: Card,
        *,
        speaker: RoomSpeaker,
        shelf: FileShelf,
        work: BackgroundWork,
        mention: str = "",
        patience: float = 120.0,
        file_size: int = 10 * 1024 * 1024,
    ) -> None:
        """`mention` stands before what is said to it, in a room with more members. It has
        `patience` seconds to react to a task."""
        super().__init__()
        self.agent_id, self.room, self.sender, self.card = agent_id, room, sender, card
        self.mention, self._patience, self._file_size = mention, patience, file_size
        self._speaker, self._shelf, self._work = speaker, shelf, work
        self.most_file_size: int | None = None
        """The largest file that it takes, in bytes, if its card says so."""
        self._caller = LiteCaller(agent_id, now=wall_clock)
        self._open: dict[str, RoomExchange] = {}
        self._strays: deque[HeardMessage] = deque(maxlen=MOST_STRAYS)

    # What the agent says.

    async def hear(self, said: HeardMessage) -> bool:
        """Takes what the agent says with a marker. Returns whether it is about a task of ours."""
        lite = said.marked
        exchange = self._open.get(lite.task)
        if exchange is None:
            if id_of(lite.task, self.room) not in self._tasks:
                self._strays.append(said)
            return False
        exchange.marked = True
        exchange.reacted.set()
        names = list(lite.attachments)
        for name in filter(None, lite.params.get("artifacts", "").split(",")):
            if name not in names and self._shelf.has(said.chat, [name]):
                names.append(name)
        if self._shelf.has(said.chat, names):
            await self._take(exchange, said, lite, names)
        else:
            # The files come after the message that names them, so the room must be heard.
            self._work.spawn(self._take(exchange, said, lite, names))
        return True

    async def hear_plain(self, said: HeardMessage) -> bool:
        """Takes a text without a marker as the result, if the agent uses no markers and works on
        one task of ours, in a room of two. Returns whether it was taken."""
        if not said.chat.direct or len(self._open) != 1 or not said.text:
            return False
        (exchange,) = self._open.values()
        if exchange.marked:
            return False
        exchange.reacted.set()
        files = await self._files(said, None)
        self._add(exchange, self._caller.plain(Post(said.text, files)))
        return True

    async def _take(
        self, exchange: RoomExchange, said: HeardMessage, lite: LiteMessage, names: list[str]
    ) -> None:
        files = await self._files(said, names)
        self._add(exchange, self._caller.receive(frame_out(lite, files)))
        for id in self._caller.settling:
            if id == exchange.task.name and not exchange.settles:
                exchange.settles = True
                self._work.spawn(self._settle(exchange))

    async def _files(self, said: HeardMessage, names: list[str] | None) -> tuple[PostFile, ...]:
        try:
            parts = await self._shelf.parts(said.chat, names, self._file_size)
        except DragomanError as exc:
            log.warning("A file of a result was not taken", agent=self.agent_id, why=exc)
            parts = []
        return posted(part for part in parts if isinstance(part, Blob))

    async def _settle(self, exchange: RoomExchange) -> None:
        """Waits for the result, which may follow the status that the task is completed."""
        await asyncio.sleep(SETTLE)
        self._add(exchange, self._caller.settle(exchange.task.name))

    def _add(self, exchange: RoomExchange, told: Iterable[Signal]) -> None:
        for signal in told:
            match signal:
                case Update(entry=Stamped(event=event)):
                    exchange.task.add(event)
                case Fault(error=error):
                    exchange.task.fail(error)
                    self._end(exchange)
                case End():
                    self._end(exchange)

    def _end(self, exchange: RoomExchange) -> None:
        """Ends a request at once: whoever reads the question may answer it in the same moment."""
        task = exchange.task
        exchange.rests.set()
        if self._open.get(task.name) is exchange:
            del self._open[task.name]
            self._caller.abandon(task.name)
            task.rest()

    # Peer, and what a pool calls.

    async def changed(self) -> bool:
        """Returns False: a new card comes by itself."""
        return False

    async def _send(self, op: SendMessage, ctx: Context) -> ReceivedTask:
        """Says a message, which opens a task, or answers the question of a known one."""
        message = op.message
        for file in message.parts:
            if isinstance(file, Blob) and len(file.content) > (self.most_file_size or sys.maxsize):
                most = f"{self.agent_id} takes files of at most {self.most_file_size} bytes."
                raise TooLarge(most)
        if message.task_id:
            task = self._find(message.task_id)
            if task.over or task.pump is not None:
                raise Unsupported("The agent takes no message for a task that it works on.")
            op = replace(op, message=replace(message, task_id=task.name))
        else:
            task = ReceivedTask(name_out(op), self.room)
            if (known := self._tasks.get(task.id)) is not None:
                return known  # the same message again
        await self._ask(task, op)
        return task

    async def _adopt(self, op: Watch, ctx: Context) -> ReceivedTask:
        """Follows a task of an earlier process again: takes what came in the meantime, or asks for
        its state."""
        name, mark, room = op.task_id.partition("@")
        if not mark or room != self.room:
            raise TaskNotFound(taskId=op.task_id)
        task = ReceivedTask(name, room, ctx.cursor or 0)
        await self._ask(task, Watch(task_id=name))
        missed = [said for said in self._strays if said.lite and said.lite.task == name]
        for said in missed:
            self._strays.remove(said)
            await self.hear(said)
        return task

    async def _ask(self, task: ReceivedTask, op: Streamed) -> None:
        """Says a request, and expects an answer."""
        exchange = self._open[task.name] = RoomExchange(task)
        task.pump = self._work.spawn(self._await_reaction(exchange))
        self._keep(task)
        try:
            for frame in self._caller.send(Call(task.name, op, stream=True)):
                await self._say(frame)
        except DragomanError as exc:
            self._add(exchange, (Fault(task.name, exc),))
            raise

    async def _say(self, frame: Frame) -> None:
        post = post_in(frame)
        said = parse(post.text)
        files = [
            Blob(each.content, filename=each.name, media_type=each.media_type)
            for each in post.files
        ]
        await self._speaker.say(self.room, said or post.text, files=files, mention=self.mention)

    async def _await_reaction(self, exchange: RoomExchange) -> None:
        task = exchange.task
        try:
            async with asyncio.timeout(self._patience):
                await exchange.reacted.wait()
            await exchange.rests.wait()
        except TimeoutError:
            why = f"{self.agent_id} did not react within {self._patience:g} s"
            task.fail(PeerUnreachable(why, sent=True))
        finally:
            self._end(exchange)

    async def _cancel(self, task_id: str, ctx: Context) -> Task:
        """Tells the agent to cancel a task. If it does not say how the task ended, the task counts
        as canceled, because nothing obliges it to answer."""
        task = self._tasks.get(task_id)
        name = task.name if task is not None else task_id.partition("@")[0]
        if task is not None and task.over:
            return task.task()
        exchange = self._open.get(name)
        said = cancel_out(name, "user-request")
        await self._speaker.say(self.room, said, mention=self.mention)
        if task is None:
            return Task(id=task_id, context_id=self.room, status=Status(State.CANCELED))
        if exchange is not None:
            exchange.reacted.set()
            try:
                async with asyncio.timeout(CANCELED):
                    await exchange.rests.wait()
            except TimeoutError:
                log.info("An agent did not confirm a cancel", agent=self.agent_id, task=name)
        task.add(StateChanged(state=State.CANCELED))
        if exchange is not None:
            self._end(exchange)
        return task.task()


def id_of(name: str, room: str) -> str:
    """Returns our id of a task, which contains its name in the room."""
    return f"{name}@{room}"
