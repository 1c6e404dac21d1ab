"""The requests that people and agents make in rooms, and the agents of ours that answer them.

Manners: a task belongs to its channel, room and sender. The same id again is answered with the
current state, or answers the question of the task; nobody but the requester and operators cancels.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from dragoman.core.errors import (
    CallError,
    Conflict,
    DragomanError,
    Forbidden,
    TaskFinished,
    TooMany,
)
from dragoman.core.lifecycle import FINAL
from dragoman.core.log import Logger
from dragoman.core.model import AnyPart, Json, State, Task
from dragoman.core.operations import CancelTask, GetTask, SendMessage
from dragoman.core.peer import Context
from dragoman.core.task_names import task_id_of
from dragoman.dialects.lite.callee import metadata_in
from dragoman.dialects.lite.telling import Telling, current
from dragoman.engine.background_work import BackgroundWork
from dragoman.settings import ChannelSettings
from dragoman.store.clock import wall_clock
from dragoman.store.interface import AdminFilter
from dragoman.store.sessions import OWED, SentMarks

from .answers import END, Origin, RoomAnswer, origin_of
from .heard_message import HeardMessage, Resident, resident_for
from .loop_guard import LoopGuard
from .naming import DIALECT, context_of, message_in, message_key, task_name
from .shelf import FileShelf
from .speaker import RoomSpeaker

log = Logger("lite")

HEARD = "heard"
"""The mark of a message that was handled."""
MOST_OWED = 100_000
"""The maximum number of tasks that are examined after a restart."""
MOST_QUESTIONS = 10_000

Then = Callable[[list[AnyPart]], Awaitable[None]]


class RoomRequests:
    """The requests of one channel."""

    def __init__(
        self,
        name: str,
        settings: ChannelSettings,
        speaker: RoomSpeaker,
        shelf: FileShelf,
        guard: LoopGuard,
        residents: Callable[[], Sequence[Resident]],
        marks: SentMarks,
        work: BackgroundWork,
    ) -> None:
        """`name` is that of the channel in the settings; principals contain it."""
        self.name, self._settings = name, settings
        self._speaker, self._shelf, self._guard = speaker, shelf, guard
        self._residents, self._marks, self._work = residents, marks, work
        self._answers: dict[str, tuple[Resident, RoomAnswer]] = {}
        """The answers that are under way, by the ids of their tasks."""
        self._questions: OrderedDict[str, str] = OrderedDict()
        """The task whose question each chat message holds."""
        self.draining = False

    # Everything is handled once: a message is heard again if the process died meanwhile.

    async def is_new(self, said: HeardMessage) -> bool:
        """Returns whether a message has not been handled before, also by an earlier process."""
        return not await self._marks.has(HEARD, *said.whose, said.chat.id)

    async def note_handled(self, said: HeardMessage) -> None:
        """Records that a message has been handled."""
        await self._marks.add(HEARD, *said.whose, said.chat.id)

    # Tasks with markers.

    async def task(self, said: HeardMessage) -> None:
        """Opens a task, or continues the one with the same id of the same sender."""
        lite = said.marked
        for resident, answer in self.own(said):
            if answer.origin.id == lite.task:
                await self.continue_task(said, resident, answer, lite.body, lite.attachments)
                return
        meant = self.meant(said)
        if meant is not None and not self.draining:
            origin = self.origin(said, lite.task)
            about = metadata_in(lite) or {}
            await self.open(said, meant, origin, lite.body, lite.attachments, about)

    async def inquire(self, said: HeardMessage) -> None:
        """Tells the state of a task to its requester, which has lost sight of it."""
        lite = said.marked
        for _, answer in self.own(said):
            if answer.origin.id == lite.task:
                await self._repeat_answer(answer)
                return
        meant = self.meant(said)
        if meant is not None:
            origin = self.origin(said, lite.task)
            ctx = self._context(said.chat.sender)
            await self._quietly(self._repeat(meant, ctx, origin, task_name(origin)))

    async def cancel(self, said: HeardMessage) -> None:
        """Cancels a task for its requester, or for an operator."""
        lite = said.marked
        reason = lite.params.get("reason") or lite.body
        await self.cancel_task(said, lite.task, reason)

    def origin(self, said: HeardMessage, task: str, *, marked: bool = True) -> Origin:
        """Returns where a new task comes from; `task` is its id."""
        chat = said.chat
        return Origin(
            channel=self.name,
            room=chat.room,
            sender=chat.sender,
            id=task,
            message=chat.id,
            marked=marked,
            person=said.person,
        )

    def meant(self, said: HeardMessage) -> Resident | None:
        """Returns the agent of ours that a message is for."""
        return resident_for(said, self._residents(), needs_mention=self._settings.mention)

    def own(self, said: HeardMessage) -> list[tuple[Resident, RoomAnswer]]:
        """Returns the answers to the requests of this sender in this room, oldest first."""
        return [
            (resident, answer)
            for resident, answer in self._answers.values()
            if (answer.origin.room, answer.origin.sender) == said.whose
        ]

    async def open(
        self,
        said: HeardMessage,
        resident: Resident,
        origin: Origin,
        text: str,
        attachments: Sequence[str] | None,
        about: Mapping[str, Json] = {},
    ) -> None:
        """Opens a task, unless the sender may not, or the agent has too much to do."""
        if not self._may(said.chat.sender):
            await self._refuse(origin, Forbidden("You may not use this agent here."))
            return
        busy = sum(not answer.waits for _, answer in self._answers.values())
        if busy >= self._settings.tasks:
            await self._refuse(origin, TooMany(f"I work on {busy} tasks; please ask again later."))
            return
        ctx, name = self._context(said.chat.sender), task_name(origin)
        metadata = {**origin.metadata(), **about}

        async def send(parts: list[AnyPart]) -> None:
            message = message_in(said, text, parts, context_id=context_of(self.name, *said.whose))
            op = SendMessage(message=message, wait=False, metadata=metadata, open_as=name)
            try:
                task = await resident.peer.call(op, replace(ctx, idempotency_key=message_key(said)))
            except (TaskFinished, Conflict):
                await self._repeat(resident, ctx, origin, name)
                return
            if origin.marked:  # two programs without markers could go on like this forever
                self._guard.reset(origin.room)
            if isinstance(task, Task):
                self._answer(resident, ctx, task.id, origin)

        await self._with_files(said, origin, attachments, send)

    async def continue_task(
        self,
        said: HeardMessage,
        resident: Resident,
        answer: RoomAnswer,
        text: str,
        attachments: Sequence[str] | None,
    ) -> None:
        """Answers the question of a task, or tells the state of one that does not ask."""
        if not answer.waits:
            await self._repeat_answer(answer)
            return

        async def send(parts: list[AnyPart]) -> None:
            message = message_in(said, text, parts, task_id=answer.task_id)
            ctx = replace(answer.ctx, idempotency_key=message_key(said))
            await resident.peer.call(SendMessage(message=message, wait=False), ctx)
            if answer.origin.marked:
                self._guard.reset(said.chat.room)

        await self._with_files(said, answer.origin, attachments, send)

    async def _repeat_answer(self, answer: RoomAnswer) -> None:
        if self._guard.may_say(answer.origin.room):
            await answer.repeat()

    async def _repeat(self, resident: Resident, ctx: Context, origin: Origin, name: str) -> None:
        """Tells how a task has ended that was asked for again."""
        task_id = task_id_of(name, resident.kept_as, ctx.tenant, ctx.principal)
        task = await resident.peer.call(GetTask(task_id=task_id), ctx)
        if self._guard.may_say(origin.room):
            await self._tell(origin, current(task), task_id)

    async def cancel_task(self, said: HeardMessage, task: str, reason: str) -> None:
        """Cancels the task with this id, if the sender may do that."""
        chat = said.chat
        named = [
            each
            for each in self._answers.values()
            if each[1].origin.room == chat.room and each[1].origin.id == task
        ]
        is_operator = self.is_operator(said)
        for resident, answer in named:
            if answer.origin.sender == chat.sender or is_operator:
                metadata: dict[str, Json] | None = {"reason": reason} if reason else None
                op = CancelTask(task_id=answer.task_id, metadata=metadata)
                # The follower of the task tells how it ends.
                self._work.spawn(self._quietly(resident.peer.call(op, answer.ctx)))
                return
        if named:
            await self.note(said, f"Only its requester or an operator may cancel {task}.")
        elif said.person and said.addressed:
            await self.note(said, f"There is no open task {task} of yours here.")

    def is_operator(self, said: HeardMessage) -> bool:
        """Returns whether the sender may do more than others."""
        return said.chat.sender in self._settings.operators

    async def note(self, said: HeardMessage, text: str) -> None:
        """Tells a person why nothing happens, in plain words."""
        if self._guard.may_say(said.chat.room):
            await self._speaker.say(said.chat.room, text, reply_to=said.chat.id)

    # Answers.

    def _answer(
        self,
        resident: Resident,
        ctx: Context,
        task_id: str,
        origin: Origin,
        *,
        again: State | None = None,
    ) -> None:
        if task_id in self._answers:
            return
        answer = RoomAnswer(
            resident.peer,
            ctx,
            task_id,
            origin,
            self._speaker,
            self._marks,
            again=again,
            may_say=partial(self._may_tell, origin),
            on_question=self._note_question,
        )
        self._answers[task_id] = resident, answer
        self._work.spawn(self._run(answer))

    def _may_tell(self, origin: Origin) -> bool:
        """Returns whether one more message about a task may be said. Two programs without markers
        could go on forever, so what is told to them is counted."""
        if origin.marked:
            return True
        if not origin.person:
            return self._guard.may_say(origin.room)
        self._guard.note_own(origin.room)
        return True

    async def _run(self, answer: RoomAnswer) -> None:
        try:
            await answer.run()
        except Exception as exc:  # one answer must not end the others
            log.error("An answer could not be told", exc, task=answer.task_id)
        finally:
            self._answers.pop(answer.task_id, None)

    def asked_in(self, message: str) -> str:
        """Returns the task whose question a chat message holds, or an empty text."""
        return self._questions.get(message, "") if message else ""

    def _note_question(self, task_id: str, message: str) -> None:
        self._questions[message] = task_id
        if len(self._questions) > MOST_QUESTIONS:
            self._questions.popitem(last=False)

    async def resume(self) -> None:
        """Continues the answers that an earlier process has not finished."""
        for resident in self._residents():
            if resident.store is None:
                continue
            prefix = self._context("").principal
            which = AdminFilter(agent=resident.kept_as)
            for row in await resident.store.find_in_all_scopes(which, MOST_OWED):
                sender = row.principal.removeprefix(prefix)
                if row.dialect != DIALECT or sender == row.principal:
                    continue
                if row.state in FINAL and (
                    wall_clock() - row.status_at > OWED or await self._marks.has(END, row.task_id)
                ):
                    continue
                ctx = self._context(sender)
                try:
                    task = await resident.peer.call(GetTask(task_id=row.task_id), ctx)
                except DragomanError as exc:
                    log.warning("A task cannot be continued", task=row.task_id, why=exc)
                    continue
                origin = origin_of(task)
                if origin is not None:
                    self._answer(resident, ctx, task.id, origin, again=task.state)

    # What all of them need.

    def _may(self, sender: str) -> bool:
        allowed = self._settings.allow
        return not allowed or sender in allowed or sender in self._settings.operators

    def _context(self, sender: str) -> Context:
        return Context(
            principal=f"{DIALECT}:{self.name}:{sender}",
            scopes=self._settings.scopes,
            schemes=(DIALECT,),
            dialect=DIALECT,
        )

    async def _with_files(
        self, said: HeardMessage, origin: Origin, names: Sequence[str] | None, then: Then
    ) -> None:
        """Continues with the files of a message. If some have not been posted yet, the room is
        heard in the meantime, since they come in messages of their own."""

        async def fetch_and_send() -> None:
            try:
                await then(await self._shelf.parts(said.chat, names, self._settings.file_size))
            except DragomanError as error:
                await self._refuse(origin, error)

        if not self._shelf.has(said.chat, names):
            self._work.spawn(self._quietly(fetch_and_send()))
        else:
            await fetch_and_send()

    async def _refuse(self, origin: Origin, error: DragomanError) -> None:
        """Tells why a request was refused. A refused request is no task, so it is counted."""
        log.info("A request was refused", room=origin.room, reason=error.reason)
        if self._guard.may_say(origin.room):
            state = State.REJECTED if isinstance(error, CallError) else State.FAILED
            await self._tell(origin, Telling(state=state, text=error.message), "")

    async def _tell(self, origin: Origin, telling: Telling, task_id: str) -> None:
        said = telling.marked(origin.id) if origin.marked else telling.plain
        files, reply_to = telling.files, origin.message
        await self._speaker.say(origin.room, said, files=files, task_id=task_id, reply_to=reply_to)

    async def _quietly(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except DragomanError as exc:
            log.info("Something in a room failed", reason=exc.reason, why=exc)
