"""An agent that was met in a room: a `Peer`, which is called by saying things there.

A room has no method to get a task, so what the agent reports is kept here, and every reader of a
task reads that. Messages that belong to no task of ours are not lost at once: after a restart, they
may belong to a task that is about to be followed again.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

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
from dragoman.core.model import Blob, Json, Message, Role, State, Status, Task, Text
from dragoman.core.operations import SendMessage, Streamed, Watch
from dragoman.core.peer import Context
from dragoman.core.session import Call, End, Fault, Signal, Update
from dragoman.dialects.lite.caller import LiteCaller, cancel_out, name_out
from dragoman.dialects.lite.wire import LiteMessage
from dragoman.engine.background_work import BackgroundWork
from dragoman.relay.received_task import ReceivedTask
from dragoman.relay.received_tasks import ReceivingAgent
from dragoman.relay.relay import UNKNOWN_OUTCOME
from dragoman.store.clock import wall_clock

from .heard_message import HeardMessage
from .shelf import FileShelf
from .speaker import Addressee, RoomSpeaker

log = Logger("lite")

SETTLE_SECONDS = 2.0
"""The time in which the result of a task may follow the status that it is completed."""
CANCEL_CONFIRMATION_TIMEOUT_SECONDS = 15.0
"""The time in which an agent may say how a canceled task ended."""
PLAIN_QUIET_SECONDS = 3.0
"""Where every line is a message, an agent without markers is quiet for this time after its last
line."""
SAY_TIMEOUT_SECONDS = 10.0
"""The time for which an answer waits until we know the id of the message that it answers."""
MAX_STRAYS, MAX_STRAY_CHARACTERS = 100, 1024 * 1024


class RoomExchange:
    """A request, until its task rests: it has ended, or waits for us."""

    def __init__(self, task: ReceivedTask) -> None:
        self.task = task
        self.said, self.reacted, self.rests = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.marked = False
        """Whether the agent has used a marker in its answer."""
        self.settles = False
        """Whether the task is completed, and its result may still follow."""
        self.plain: list[str] = []
        """The lines of an agent without markers."""
        self.quiet: asyncio.TimerHandle | None = None


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
        addressee: Callable[[], Addressee | None] = lambda: None,
        plain: bool = False,
        patience: float = 120.0,
        file_size: int = 10 * 1024 * 1024,
    ) -> None:
        """`addressee` returns how it is addressed now. An agent that is `plain` has shown that it
        knows no markers, so it is spoken to in words only. It has `patience` seconds to react to a
        task."""
        super().__init__()
        self.agent_id, self.room, self.sender, self.card = agent_id, room, sender, card
        self._addressee, self._plain = addressee, plain
        self._patience, self._file_size = patience, file_size
        self._speaker, self._shelf, self._work = speaker, shelf, work
        self.most_file_size: int | None = None
        """The largest file that it takes, in bytes, if its card says so."""
        self._caller = LiteCaller(agent_id, now=wall_clock)
        self._open: dict[str, RoomExchange] = {}
        self._bound: dict[str, set[str]] = {}
        """The chat messages that belong to each open task: what we have said, and the answers.
        A task of an earlier process is not among them."""
        self._strays: deque[HeardMessage] = deque(maxlen=MAX_STRAYS)

    # What the agent says.

    def works_on(self, task: str) -> bool:
        """Returns whether it has been asked for a task of this name."""
        return task in self._open

    async def hear(self, said: HeardMessage) -> bool:
        """Takes what the agent says with a marker. Returns whether it is about a task of ours."""
        lite = said.marked
        exchange = self._open.get(lite.task)
        if exchange is None:
            if id_of(lite.task, self.room) not in self._tasks:
                self._keep_stray(said)
            return False
        if not await self._is_bound(exchange, said):
            log.warning("An answer to somebody else was left out", agent=self.agent_id)
            return True
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

    async def _is_bound(self, exchange: RoomExchange, said: HeardMessage) -> bool:
        """Returns whether an answer belongs to our request. Somebody else may have asked the agent
        with the same id; where the channel tells what a message replies to, that shows it."""
        bound = self._bound.get(exchange.task.name)
        if bound is None:
            return True
        if said.chat.reply_to and said.chat.reply_to not in bound and not exchange.said.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(SAY_TIMEOUT_SECONDS):
                    await exchange.said.wait()
        if said.chat.reply_to and said.chat.reply_to not in bound:
            return False
        bound.add(said.chat.id)
        return True

    def _keep_stray(self, said: HeardMessage) -> None:
        self._strays.append(said)
        while sum(len(each.text) for each in self._strays) > MAX_STRAY_CHARACTERS:
            self._strays.popleft()

    async def hear_plain(self, said: HeardMessage) -> bool:
        """Takes a text without a marker as the result, if the agent uses no markers and works on
        one task of ours, in a room of two. Returns whether it was taken."""
        if not said.chat.direct or len(self._open) != 1 or not said.text:
            return False
        (exchange,) = self._open.values()
        if exchange.marked:
            return False
        exchange.reacted.set()
        if self._speaker.multiline:
            files = await self._files(said, None)
            self._add(exchange, self._caller.hear_plain(said.text, files))
            return True
        exchange.plain.append(said.text)
        if exchange.quiet is not None:
            exchange.quiet.cancel()
        loop = asyncio.get_running_loop()
        exchange.quiet = loop.call_later(PLAIN_QUIET_SECONDS, self._take_plain, exchange)
        return True

    def _take_plain(self, exchange: RoomExchange) -> None:
        if self._open.get(exchange.task.name) is exchange:
            self._add(exchange, self._caller.hear_plain("\n".join(exchange.plain)))

    async def _take(
        self, exchange: RoomExchange, said: HeardMessage, lite: LiteMessage, names: list[str]
    ) -> None:
        files = await self._files(said, names)
        self._add(exchange, self._caller.hear(lite, files))
        for id in self._caller.settling:
            if id == exchange.task.name and not exchange.settles:
                exchange.settles = True
                self._work.spawn(self._settle(exchange))

    async def _files(self, said: HeardMessage, names: list[str] | None) -> tuple[Blob, ...]:
        try:
            parts = await self._shelf.parts(said.chat, names, self._file_size)
        except DragomanError as exc:
            log.warning("A file of a result was not taken", agent=self.agent_id, why=exc)
            parts = []
        return tuple(part for part in parts if isinstance(part, Blob))

    async def _settle(self, exchange: RoomExchange) -> None:
        """Waits for the result, which may follow the status that the task is completed."""
        await asyncio.sleep(SETTLE_SECONDS)
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
            if task.over:
                self._bound.pop(task.name, None)
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
            task = self._tasks.get(message.task_id) or self._taken_over(message.task_id, 0)
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
        task = self._taken_over(op.task_id, ctx.cursor or 0)
        await self._ask(task, Watch(task_id=task.name))
        missed = [said for said in self._strays if said.lite and said.lite.task == task.name]
        for said in missed:
            self._strays.remove(said)
            await self.hear(said)
        return task

    def _taken_over(self, task_id: str, after: int) -> ReceivedTask:
        """Returns a task of an earlier process."""
        name, mark, room = task_id.partition("@")
        if not mark or room != self.room:
            raise TaskNotFound(taskId=task_id)
        return ReceivedTask(name, room, after)

    async def _ask(self, task: ReceivedTask, op: Streamed) -> None:
        """Says a request, and expects an answer."""
        exchange = self._open[task.name] = RoomExchange(task)
        if isinstance(op, SendMessage) and not op.message.task_id:
            self._bound[task.name] = set()
        inquires = isinstance(op, Watch)
        task.pump = self._work.spawn(self._await_reaction(exchange, inquires=inquires))
        self._keep(task)
        asked = self._caller.ask(Call(task.name, op, stream=True))
        try:
            if asked is not None:
                said, files = asked
                ids = await self._say(said, files)
                if (bound := self._bound.get(task.name)) is not None:
                    bound.update(ids)
        except DragomanError as exc:
            self._add(exchange, (Fault(task.name, exc),))
            raise
        finally:
            exchange.said.set()

    async def _say(self, said: LiteMessage, files: Sequence[Blob] = ()) -> list[str]:
        if self._plain:
            return await self._speaker.say(self.room, said.body, files=files)
        return await self._speaker.say(self.room, said, files=files, to=self._addressee())

    async def _await_reaction(self, exchange: RoomExchange, *, inquires: bool) -> None:
        task = exchange.task
        try:
            async with asyncio.timeout(self._patience):
                await exchange.reacted.wait()
            await exchange.rests.wait()
        except TimeoutError:
            if inquires:
                # It had taken the task, and what it said while nobody listened is lost. To call it
                # unreachable would invite the caller to have the work done twice.
                why = f"{self.agent_id} was asked, and nobody can tell what came of the task"
                end_id = f"{task.name}.end"
                message = Message(message_id=end_id, role=Role.AGENT, parts=(Text(why),))
                about: dict[str, Json] = {"reason": UNKNOWN_OUTCOME}
                task.add(StateChanged(state=State.FAILED, message=message, metadata=about))
            else:
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
        await self._say(cancel_out(name, "user-request"))
        if task is None:
            return Task(id=task_id, context_id=self.room, status=Status(State.CANCELED))
        if exchange is not None:
            exchange.reacted.set()
            try:
                async with asyncio.timeout(CANCEL_CONFIRMATION_TIMEOUT_SECONDS):
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
