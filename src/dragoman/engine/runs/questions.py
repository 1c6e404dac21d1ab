"""The questions of a run and the inputs of its caller.

Theory. A question is an event and a column of the task's row, so it outlives the process that asked
it. A message of the caller is an input, numbered by the store; the log says how many of them the
run has received. An answer is recorded in the journal as the number of its input, so a run that
starts again finds it there and does not ask twice. Inputs without a question wait for the next
`ask`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import AgentMisbehaved
from dragoman.core.events import AnyEvent, Ask, Asked, StateChanged
from dragoman.core.model import Json, Message, State, Text
from dragoman.core.questions import decision_in
from dragoman.store.interface import Input

from .event_writer import EventWriter
from .journal import Journal
from .open_question import NO_QUESTION, OpenQuestion
from .run_context import ReceivingRun, RunContext

QUESTION_KEYS = tuple(f"{kind}:" for kind in Ask)
"""The prefixes of the journal keys of questions; their records contain the number of the answer."""
CREDENTIAL_KEYS = f"{Ask.CREDENTIALS}:"
GIVEN = b"null"
"""The journal record of credentials, which does not contain them."""
MASKED = (Text("[credentials]"),)
"""The text that replaces credentials in the history."""


class AskingRun(ReceivingRun, Protocol):
    """The part of a run that its questions use."""

    shared: RunContext
    writer: EventWriter
    attempt: int
    deadline: float
    time_left: float
    detached_at: int

    @property
    def journal(self) -> Journal: ...

    @property
    def over(self) -> bool: ...

    @property
    def seconds_left(self) -> float: ...

    def emit(self, event: AnyEvent) -> None: ...

    def end_as_too_large(self) -> None: ...


class Questions:
    """The questions of one run and the inputs of its caller."""

    def __init__(self, run: AskingRun) -> None:
        self._run = run
        self._inputs: dict[int, Input] = {}
        """All inputs that were received, by number."""
        self._unasked: deque[Input] = deque()
        """Inputs that arrived before a question; the next `ask` takes them."""
        self._answer: asyncio.Future[Input] | None = None
        """The future that the author's code waits for while a question is open."""

    def load(self, inputs: list[Input]) -> None:
        """Adds the inputs of earlier runs. Those that answered no question wait for the next."""
        run = self._run
        used = {
            msgspec.json.decode(value)
            for key, value in run.journal.entries.items()
            if key.startswith(QUESTION_KEYS)
        }
        for entry in inputs:
            if entry.n <= run.writer.heard:
                self._inputs[entry.n] = entry
                if entry.n not in used and not entry.question:
                    self._unasked.append(entry)

    async def ask(
        self, key: str, kind: Ask, message: Message, body: Json, expires: float | None
    ) -> tuple[Message, Json]:
        """Asks the caller, and returns when the answer has arrived."""
        recorded = self._run.recorded(key)
        if recorded is not None and recorded != GIVEN:
            answer = self._inputs[msgspec.json.decode(recorded, type=int)]
        elif kind is Ask.INPUT and self._unasked:
            # The message arrived before the question. Only plain questions accept it: an approval
            # must be an answer to its own question.
            answer = self._unasked.popleft()
            self._run.journal.add(key, msgspec.json.encode(answer.n))
        else:
            answer = await self._park(key, kind, message, body, expires)
        receiver = self._run.shared.receiver
        message = answer.message
        if receiver is not None and kind is not Ask.CREDENTIALS:  # those are stored nowhere
            message = await receiver(self._run, message)
        return message, answer.value

    async def _park(
        self, key: str, kind: Ask, message: Message, body: Json, expires: float | None
    ) -> Input:
        run = self._run
        shared, writer = run.shared, run.writer
        if run.over:
            raise AgentMisbehaved("The task is over; there is nobody to ask any more")
        waiting_ms = shared.waiting_ms if expires is None else int(expires * 1000)
        if writer.question.key != key:  # else an earlier run asked it, and it is still open
            run.emit(Asked(question=key, kind=kind, message=message, body=body))
            writer.question = OpenQuestion(key, kind, shared.clock() + waiting_ms)
        self._answer = shared.loop.create_future()
        writer.schedule()
        # Time in which a run waits for its caller is not working time.
        run.time_left, run.deadline = run.seconds_left, 0.0
        shared.on_park(run)
        try:
            return await self._answer
        finally:
            self._answer = None
            run.deadline = shared.loop.time() + run.time_left
            shared.on_wake(run)

    def receive(self, entry: Input) -> None:
        """Adds an input to the history, and passes it to the code that waits for it."""
        run = self._run
        if run.over or entry.n in self._inputs:
            return
        writer, question = run.writer, run.writer.question
        # An input from before the caller could see this question counts for the next `ask`, which
        # is this one.
        early = not entry.question and question.kind is Ask.INPUT
        fits = early or entry.question == question.key
        answers = bool(question.key) and fits and not entry.sealed
        if answers and question.kind is Ask.APPROVAL:
            # The audit comes first: if it fails, the input was not received and is delivered again.
            decision = decision_in(entry.message, entry.value)
            run.shared.audit.record(run.task_id, question.key, decision, entry.by, entry.n)
        run.detached_at = 0  # a caller that sends a message waits again
        writer.heard = max(writer.heard, entry.n)
        self._inputs[entry.n] = entry
        if entry.sealed:
            pass  # it cannot be decrypted here: the question stays open
        elif answers:
            self._resolve(question, entry)
        else:
            self._unasked.append(entry)
        state = writer.fold.state if writer.question.key else State.WORKING
        writer.stamp(StateChanged(state=state, heard=history_message(writer, entry)))
        if writer.size > run.shared.max_task_size:
            run.end_as_too_large()
        else:
            writer.schedule()

    def _resolve(self, question: OpenQuestion, answer: Input) -> None:
        run, number = self._run, msgspec.json.encode(answer.n)
        if question.kind is Ask.CREDENTIALS:
            run.journal.add(question.key, GIVEN)
            # The credentials are for this run only; the next one has to ask again.
            run.journal.entries[question.key] = number
        else:
            run.journal.add(question.key, number)
        run.writer.question = NO_QUESTION
        run.attempt, run.writer.reset_attempts = 1, True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def close(self) -> None:
        """Cancels the code that waits for an answer, because none will come."""
        if self._answer is not None:
            self._answer.cancel()


def history_message(writer: EventWriter, entry: Input) -> Message:
    """Returns the message that the history keeps of an input; credentials are masked."""
    row = writer.row
    message = replace(entry.message, task_id=row.task_id, context_id=row.context_id)
    if entry.question.startswith(CREDENTIAL_KEYS):
        # Credentials are passed on once and stored nowhere (A2A 0.3 §4.5; DESIGN §4.1).
        writer.forget += (entry.n,)
        message = replace(message, parts=MASKED, metadata=None)
    return message
