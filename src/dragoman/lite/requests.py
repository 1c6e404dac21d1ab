"""The requests that people and agents make in rooms, and the agents of ours that answer them.

What a message asks for is read by the callee session of A2A-Lite; one session is the conversation
about one task. Manners are decided here: a task belongs to its channel, room and sender. The same
id again is answered with the current state, or answers the question of the task; nobody but the
requester and operators cancels. While one sender has a task open, no other sender can use its id in
that room: answers are told to the room, so the answer to one would be taken for that of the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from dragoman.core.errors import Conflict, DragomanError, Forbidden, TaskFinished, TooMany
from dragoman.core.log import Logger
from dragoman.core.model import AnyPart, State, Task
from dragoman.core.operations import CancelTask, GetTask, SendMessage, Watch
from dragoman.core.peer import Context
from dragoman.core.session import Call, Fault, Result, Signal
from dragoman.core.task_names import task_id_of
from dragoman.dialects.lite.callee import LiteCallee
from dragoman.engine.background_work import BackgroundWork
from dragoman.settings import ChannelSettings
from dragoman.store.clock import wall_clock
from dragoman.store.owed_answers import OwedAnswers
from dragoman.store.sessions import SentMarks

from .answers import END, Origin, RoomAnswer, origin_of
from .heard_message import HeardMessage, Resident, resident_for
from .loop_guard import LoopGuard, SenderPace
from .naming import DIALECT, context_of, message_in, message_key, task_name
from .shelf import FileShelf
from .speaker import RoomSpeaker

log = Logger("lite")

HEARD = "heard"
"""The mark of a message that was handled."""
MAX_QUESTIONS = 10_000
MAX_WAITING_PER_SENDER = 100
"""The tasks of one sender that may wait for it."""

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
        *,
        is_begun: Callable[[str, str, str, int], bool],
        now: Callable[[], float],
    ) -> None:
        """`name` is that of the channel in the settings; principals contain it. `is_begun` is
        called with a room, a sender, an id and a number, and returns whether somebody else had
        begun to ask for a task of this id before. `now` returns seconds that only grow."""
        self.name, self._settings = name, settings
        self._speaker, self._shelf, self._guard = speaker, shelf, guard
        self._residents, self._marks, self._work = residents, marks, work
        self._is_begun, self._now, self._pace = is_begun, now, SenderPace()
        self._answers: dict[str, tuple[Resident, RoomAnswer]] = {}
        """The answers that are under way, by the ids of their tasks."""
        self._opening: list[Origin] = []
        """The tasks whose files are still awaited."""
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

    async def admits(self, said: HeardMessage) -> bool:
        """Returns whether a request outside of tasks is answered, and counts it. A sender that asks
        too often is told so once, and then not answered for a while."""
        pause = self._pace.admit(said.chat.sender, self._now())
        # One who uses markers may be an agent that takes a text without one for an answer.
        if pause and said.lite is None and self._guard.may_say(*said.whose):
            text = f"You ask more than I can answer; I listen again in {pause:g} seconds."
            await self._speaker.say(said.chat.room, text, reply_to=said.chat.id)
        return pause == 0

    # Tasks with markers.

    def session(self, said: HeardMessage) -> LiteCallee:
        """Returns the conversation that a message with a marker belongs to."""
        known = self._known(said)
        return known[1].session if known is not None else LiteCallee()

    async def hear(self, said: HeardMessage, session: LiteCallee, call: Call) -> None:
        """Handles what somebody asks for with a marker: a task, its state, or its end."""
        match call.op:
            case SendMessage() as op:
                await self._task(said, session, op)
            case Watch():
                await self._inquire(said)
            case CancelTask() as op:
                await self.cancel_task(said, op)

    async def _task(self, said: HeardMessage, session: LiteCallee, op: SendMessage) -> None:
        """Opens a task, or continues the one with the same id of the same sender."""
        lite = said.marked
        known = self._known(said)
        if known is not None:
            await self.continue_task(said, *known, op, lite.attachments)
            return
        meant = self.meant(said)
        if meant is None or self.draining:
            return
        if self._is_taken(said, lite.task):
            # In words only: a marker with this id would be read by the one who has it open.
            await self.note(said, f"Somebody else uses the id {lite.task} here; choose another.")
            return
        await self.open(said, meant, self.origin(said, lite.task), session, op, lite.attachments)

    async def _inquire(self, said: HeardMessage) -> None:
        """Tells the state of a task to its requester, which has lost sight of it."""
        known = self._known(said)
        if known is not None:
            await self._repeat_answer(said, known[1])
            return
        meant = self.meant(said)
        if meant is not None:
            origin = self.origin(said, said.marked.task)
            ctx = self._context(said.chat.sender)
            await self._quietly(self._repeat(meant, ctx, origin, task_name(origin)))

    def _known(self, said: HeardMessage) -> tuple[Resident, RoomAnswer] | None:
        """Returns the answer to the request that a message with a marker is about."""
        task = said.marked.task
        return next((each for each in self.own(said) if each[1].origin.id == task), None)

    def _is_taken(self, said: HeardMessage, task: str) -> bool:
        """Returns whether somebody else has a task of this id open in the room, or has begun to ask
        for it: its marker is seen before its body has come."""
        room, sender = said.whose
        if self._is_begun(room, sender, task, said.number):
            return True
        open_here = (*(answer.origin for _, answer in self._answers.values()), *self._opening)
        return any(
            each.marked and each.id == task and each.room == room and each.sender != sender
            for each in open_here
        )

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
        session: LiteCallee,
        asked: SendMessage,
        attachments: Sequence[str] | None,
    ) -> None:
        """Opens a task, unless the sender may not, or the agent has too much to do."""
        refusal = self._refusal(said)
        if refusal is not None:
            await self._refuse(origin, refusal)
            return
        ctx, name = self._context(said.chat.sender), task_name(origin)
        metadata = {**origin.metadata(), **(asked.metadata or {})}

        async def send(parts: list[AnyPart]) -> None:
            context_id = context_of(self.name, *said.whose)
            message = message_in(said, asked.message, parts, context_id=context_id)
            op = replace(asked, message=message, wait=False, metadata=metadata, open_as=name)
            try:
                task = await resident.peer.call(op, replace(ctx, idempotency_key=message_key(said)))
            except (TaskFinished, Conflict):
                await self._repeat(resident, ctx, origin, name)
                return
            if origin.marked:  # two programs without markers could go on like this forever
                self._guard.reset(origin.room)
            if isinstance(task, Task):
                self._answer(resident, ctx, task.id, origin, session)

        self._opening.append(origin)
        await self._with_files(said, origin, attachments, send)

    def _refusal(self, said: HeardMessage) -> DragomanError | None:
        """Returns why a sender may not open a task now. Of the tasks at once, each sender has a
        share: in a room with others, some are left for them."""
        sender, most = said.chat.sender, self._settings.tasks
        if not self._may(sender):
            return Forbidden("You may not use this agent here.")
        answers = [answer for _, answer in self._answers.values()]
        own = [answer for answer in answers if answer.origin.sender == sender]
        opening = sum(each.sender == sender for each in self._opening)
        busy = len(self._opening) + sum(not answer.waits for answer in answers)
        share = most if said.chat.direct else most - most // 4
        own_busy = opening + sum(not answer.waits for answer in own)
        if busy >= most or own_busy >= share:
            many = own_busy if own_busy >= share else busy
            return TooMany(f"I work on {many} tasks; please ask again later.")
        if len(own) - own_busy >= MAX_WAITING_PER_SENDER:
            return TooMany(f"{len(own)} tasks wait for you; please answer or cancel some.")
        return None

    async def continue_task(
        self,
        said: HeardMessage,
        resident: Resident,
        answer: RoomAnswer,
        asked: SendMessage,
        attachments: Sequence[str] | None,
    ) -> None:
        """Answers the question of a task, or tells the state of one that does not ask."""
        if not answer.waits:
            await self._repeat_answer(said, answer)
            return

        async def send(parts: list[AnyPart]) -> None:
            message = message_in(said, asked.message, parts, task_id=answer.task_id)
            ctx = replace(answer.ctx, idempotency_key=message_key(said))
            await resident.peer.call(SendMessage(message=message, wait=False), ctx)
            if answer.origin.marked:
                self._guard.reset(said.chat.room)

        await self._with_files(said, answer.origin, attachments, send)

    async def _repeat_answer(self, said: HeardMessage, answer: RoomAnswer) -> None:
        if await self.admits(said) and self._guard.may_say(*said.whose):
            await answer.repeat()

    async def _repeat(self, resident: Resident, ctx: Context, origin: Origin, name: str) -> None:
        """Tells how a task has ended that was asked for again."""
        task_id = task_id_of(name, resident.kept_as, ctx.tenant, ctx.principal)
        task = await resident.peer.call(GetTask(task_id=task_id), ctx)
        admitted = self._pace.admit(origin.sender, self._now()) == 0
        if admitted and self._guard.may_say(origin.room, origin.sender):
            await self._tell(origin, Result(origin.id, task), task_id)

    async def cancel_task(self, said: HeardMessage, op: CancelTask) -> None:
        """Cancels the task with this id of the requester, if the sender may do that."""
        chat, task = said.chat, op.task_id
        named = [
            each
            for each in self._answers.values()
            if each[1].origin.room == chat.room and each[1].origin.id == task
        ]
        is_operator = self.is_operator(said)
        for resident, answer in named:
            if answer.origin.sender == chat.sender or is_operator:
                cancel = replace(op, task_id=answer.task_id)
                # The follower of the task tells how it ends.
                self._work.spawn(self._quietly(resident.peer.call(cancel, answer.ctx)))
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
        if await self.admits(said) and self._guard.may_say(*said.whose):
            await self._speaker.say(said.chat.room, text, reply_to=said.chat.id)

    async def refuse_damaged(self, said: HeardMessage) -> None:
        """Tells the requester of a task that its message has not arrived as a whole."""
        task, meant = said.marked.task, self.meant(said)
        if meant is None or not task or self._known(said) or self._is_taken(said, task):
            return
        error = Conflict("Your message has not arrived as a whole; please send it again.")
        await self._refuse(self.origin(said, task), error)

    # Answers.

    def _answer(
        self,
        resident: Resident,
        ctx: Context,
        task_id: str,
        origin: Origin,
        session: LiteCallee,
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
            session,
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
            return self._guard.may_say(origin.room, origin.sender)
        self._guard.note_own(origin.room, origin.sender)
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
        if len(self._questions) > MAX_QUESTIONS:
            self._questions.popitem(last=False)

    async def resume(self) -> None:
        """Continues the answers that an earlier process has not finished."""
        prefix = self._context("").principal
        for resident in self._residents():
            if resident.store is None:
                continue
            owed = OwedAnswers(resident.store, resident.kept_as, DIALECT, self._has_ended)
            async for row in owed.rows(wall_clock()):
                sender = row.principal.removeprefix(prefix)
                if sender == row.principal:
                    continue
                ctx = self._context(sender)
                try:
                    task = await resident.peer.call(GetTask(task_id=row.task_id), ctx)
                except DragomanError as exc:
                    log.warning("A task cannot be continued", task=row.task_id, why=exc)
                    continue
                origin = origin_of(task)
                if origin is not None:
                    session = LiteCallee()
                    session.follow(origin.id)
                    self._answer(resident, ctx, task.id, origin, session, again=task.state)

    async def _has_ended(self, task_id: str) -> bool:
        return await self._marks.has(END, task_id)

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
            finally:
                self._opening = [each for each in self._opening if each is not origin]

        if not self._shelf.has(said.chat, names):
            self._work.spawn(self._quietly(fetch_and_send()))
        else:
            await fetch_and_send()

    async def _refuse(self, origin: Origin, error: DragomanError) -> None:
        """Tells why a request was refused. A refused request is no task, so it is counted: by the
        rate of its sender and, without markers, as every other text to a program."""
        log.info("A request was refused", room=origin.room, reason=error.reason)
        if origin.marked:
            allowed = self._pace.admit(origin.sender, self._now()) == 0
        else:
            allowed = self._guard.may_say(origin.room, origin.sender)
        if allowed:
            await self._tell(origin, Fault(origin.id, error), "")

    async def _tell(self, origin: Origin, signal: Signal, task_id: str) -> None:
        telling = LiteCallee().tell(signal)
        if telling is None:
            return
        said = telling.marked(origin.id) if origin.marked else telling.plain
        files, reply_to = telling.files, origin.message
        await self._speaker.say(origin.room, said, files=files, task_id=task_id, reply_to=reply_to)

    async def _quietly(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except DragomanError as exc:
            log.info("Something in a room failed", reason=exc.reason, why=exc)
