"""The client bound to a task: its calls are made only once, and are canceled with the task.

Theory. A call is a long step. Its result is recorded like that of a step, and so is the id of the
remote task, as soon as it is known. A run that starts again finds one of three things: the result
(which is returned), the remote task (which is followed from its current state), or nothing (the
message is sent with the same idempotency key as before, so that a server that supports keys creates
no second task).
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Unpack

import msgspec

from dragoman.agent.parts import builtins_of, json_of, parts_of
from dragoman.agent.remote_calls import (
    AGENT,
    CallResult,
    SendOptions,
    TurnAccess,
    as_task,
    name_of,
)
from dragoman.core.card import Card
from dragoman.core.errors import PeerMisbehaved, TaskFinished
from dragoman.core.events import Ask, Snapshot, Stamped
from dragoman.core.json_schema import schemas_of
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Json, Message, State, Task
from dragoman.core.questions import answer_value, question_in
from dragoman.core.stream_state import Entry
from dragoman.relay.remote_task import RemoteTask, context_for

from .agent import RemoteAgent
from .arguments import check_arguments, fitting
from .event_stream import Events, result_parts
from .failover import RESTS
from .waiting import rested, retold, waits

Reach = Callable[[], AbstractAsyncContextManager[RemoteAgent]]


class TaskAgent:
    """Another agent, called on behalf of one task; implements `agent.remote_calls.AgentClient`."""

    def __init__(
        self, seat: TurnAccess, address: str, options: Mapping[str, Json], reach: Reach
    ) -> None:
        self._seat = seat
        self._run = seat.run
        self.address = address
        self._options = dict(options)
        """The options of the connection that may be recorded."""
        self._reach = reach
        self._tasks: dict[str, RemoteTask] = {}
        """The remote tasks by the journal record of their call."""

    def __repr__(self) -> str:
        return f"<BoundAgent {self.address} for {self._run.task_id}>"

    # Verbs.

    async def card(self) -> Card:
        """The card of the agent."""
        async with self._agent() as agent:
            return agent.card

    async def send(
        self,
        *what: object,
        pass_up: bool = False,
        key: str = "",
        wait: bool = True,
        **about: Unpack[SendOptions],
    ) -> Task:
        """Sends a message, and returns the task when it ends or asks a question. A direct reply is
        a completed task without an id.

        A run that starts again gets the recorded result. With `pass_up`, the agent's questions are
        passed to our own caller, and its answers to the agent.
        """
        return as_task(await self.ask(*what, pass_up=pass_up, key=key, wait=wait, **about))

    async def ask(
        self,
        *what: object,
        pass_up: bool = False,
        key: str = "",
        wait: bool = True,
        **options: Unpack[SendOptions],
    ) -> Task | Message:
        """Sends a message like `send`, but returns a direct reply as the message that it is."""
        about: dict[str, Any] = {**options} if wait else {**options, "wait": False}
        record = self._record(key, *what, about.get("skill", ""), _id(about.get("task", "")))
        done = self._done(record)
        if done is None:
            answer = await self._asked(record, what, about, pass_up)
            done = await self._keep(record, answer)
        return _answer(done)

    async def answer(
        self, task: Task | str, value: object, *, pass_up: bool = False, key: str = ""
    ) -> Task:
        """Answers the question of a task, and returns the task when it ends or waits again."""
        answer = await self.ask(answer_value(value), task=task, pass_up=pass_up, key=key)
        if isinstance(answer, Message):
            raise PeerMisbehaved("The agent answered with a message about no task")
        return answer

    async def call(
        self, skill: str, /, *, pass_up: bool = False, key: str = "", **arguments: Json
    ) -> Json:
        """Calls a skill with arguments and returns its result, validated against the card.

        A task that does not complete raises `PeerRefused`.
        """
        arguments = builtins_of(arguments)
        record = self._record(key, skill, arguments)
        done = self._done(record)
        if done is None:
            async with self._agent() as agent:
                takes, gives = schemas_of(agent.card, skill)
            check_arguments(takes, arguments, skill)
            answer = await self._asked(record, (arguments,), {"skill": skill}, pass_up)
            value = None
            if not isinstance(answer, Task) or answer.state is State.COMPLETED:
                value = fitting(gives, result_parts(answer, skill), skill)
            done = await self._keep(record, answer, value)
        result_parts(_answer(done), skill)  # raises if it did not complete
        return done.value

    async def invoke(self, method: str, /, *, key: str = "", **params: Json) -> Json:
        """Calls a method that the agent defines beyond the protocol."""
        record = self._record(key, method, params)
        done = self._done(record)
        if done is None:
            await self._run.begin()
            async with self._agent() as agent:
                done = CallResult(value=await agent.invoke(method, **params))
            await self._run.record(record, msgspec.json.encode(done))
        return done.value

    async def stream(
        self, *what: object, key: str = "", **about: Any
    ) -> AsyncGenerator[Entry, None]:
        """Sends a message and yields every event until the task ends or waits.

        A run that starts again gets the task from its start, in fewer events.
        """
        record = self._record(key, "stream", *what, about.get("skill", ""))
        done = self._done(record)
        if done is not None:
            answer = _answer(done)
            told: list[Entry] = retold(answer) if isinstance(answer, Task) else [answer]
            for entry in told:
                yield entry
            return
        await self._run.begin()
        remote = self._remote(record)
        known = remote.id
        async with self._agent() as agent:
            events = agent.watch(known) if known else self._saying(agent, record, what, about)
            async with remote.stopped_with_us(), aclosing(remote.follow(events)) as entries:
                async for entry in entries:
                    if known and isinstance(entry, Stamped) and isinstance(entry.event, Snapshot):
                        for piece in retold(entry.event.task):
                            yield piece
                    else:
                        yield entry
                    if waits(entry):
                        break
            found = events.reply or events.task
        if found is None:
            raise PeerMisbehaved("The stream ended without telling anything")
        await self._keep(record, found)

    async def get(self, task: Task | str) -> Task:
        """Returns the current state of a task."""
        async with self._agent() as agent:
            return await agent.get(task)

    async def cancel(self, task: Task | str) -> Task:
        """Cancels a task."""
        async with self._agent() as agent:
            return await agent.cancel(task)

    # Calls, and their continuation after a restart.

    async def _asked(
        self, record: str, what: tuple[object, ...], about: dict[str, Any], pass_up: bool
    ) -> Task | Message:
        await self._run.begin()
        async with self._remote(record).stopped_with_us():
            if about.get("task"):
                answer = await self._told(record, what, about)
            else:
                answer = await self._opened(record, what, about)
            while pass_up and isinstance(answer, Task) and answer.state in WAITING:
                answer = await self._passed_up(record, answer)
        return answer

    async def _opened(
        self, record: str, what: tuple[object, ...], about: dict[str, Any]
    ) -> Task | Message:
        """Sends a message that creates a task, or returns the task that an earlier run created."""
        remote = self._remote(record)
        async with self._agent() as agent:
            if remote.id:
                return await rested(agent, remote.id)
            if not about.get("wait", True):
                answer = await remote.first(agent.ask(*what, **about, **self._marks(record)))
                if isinstance(answer, Task):
                    await remote.started(answer.id)
                return answer
            events = self._saying(agent, record, what, about)
            async with aclosing(remote.follow(events)) as entries:
                async for entry in entries:
                    if waits(entry):
                        break
            if events.reply is not None:
                return events.reply
            task = events.task
            if task is None:
                raise PeerMisbehaved("The stream ended without telling anything")
            return task if task.state in RESTS else await rested(agent, task.id)

    async def _told(
        self, record: str, what: tuple[object, ...], about: dict[str, Any]
    ) -> Task | Message:
        """Sends a message to an existing task. If an earlier run may have sent it already, and the
        task no longer waits, it has arrived."""
        about = dict(about)
        told = about.pop("task")
        task_id = _id(told)
        async with self._agent() as agent:
            remote = self._remote(record)
            if remote.id:
                task = await agent.get(task_id)
                if task.state not in WAITING:
                    return await rested(agent, task_id)
            await remote.started(task_id)
            try:
                answer = await agent.ask(*what, task=told, **about, **self._marks(record))
            except TaskFinished:
                task = await agent.get(task_id)
                if task.state not in FINAL or not self._seat.run.attempt > 1:
                    raise
                return task
            if isinstance(answer, Message) or answer.state in RESTS:
                return answer
            return await rested(agent, task_id) if about.get("wait", True) else answer

    async def _passed_up(self, record: str, task: Task) -> Task | Message:
        """Passes the question of the agent to our own caller."""
        found = question_in(task.status.message, task.state)
        # We offered no tools, so a tool call is a question like any other.
        kind = Ask.INPUT if found.kind is Ask.TOOL else found.kind
        text = found.prompt or "The agent asks for more"
        asked = task.status.message
        name = f"{record} {(asked.message_id if asked else '') or task.status.at}"
        message, value = await self._seat.ask(kind, text, name, found.details, None, *found.more)
        parts = parts_of(value) if value is not None else message.parts
        return await self._told(name, parts, {"task": task})

    def _saying(
        self, agent: RemoteAgent, record: str, what: tuple[object, ...], about: dict[str, Any]
    ) -> Events:
        about = {name: value for name, value in about.items() if name != "wait"}
        begun: Events = agent.stream(*what, **about, **self._marks(record))
        return begun

    def _marks(self, record: str) -> dict[str, Any]:
        """Returns the ids of a message, which are the same in every run, so that a repetition is
        recognised."""
        key = self._remote(record).key
        return {"key": key, "message_id": key}

    # Records.

    def _record(self, key: str, *said: object) -> str:
        words = " ".join(filter(None, map(_spelled, said)))
        return self._seat.record_name(AGENT, key or name_of(self.address, words))

    def _done(self, record: str) -> CallResult | None:
        raw = self._run.recorded(record)
        return None if raw is None else msgspec.json.decode(raw, type=CallResult)

    def _remote(self, record: str) -> RemoteTask:
        """Returns the remote task of the call with this record."""
        found = self._tasks.get(record)
        if found is None:
            found = self._tasks[record] = RemoteTask(
                self._seat, record, self.address, self._options
            )
        return found

    async def _keep(self, record: str, answer: Task | Message, value: Json = None) -> CallResult:
        task = answer if isinstance(answer, Task) else None
        reply = answer if isinstance(answer, Message) else None
        heard = CallResult(task=task, reply=reply, value=value)
        await self._run.record(record, msgspec.json.encode(heard))
        return heard

    # The connection.

    @asynccontextmanager
    async def _agent(self) -> AsyncIterator[RemoteAgent]:
        ctx = context_for(self._seat)
        async with self._reach() as agent:
            yield agent.bearing(trace=ctx.trace, hops=ctx.hops, deadline=ctx.deadline)


def _answer(done: CallResult) -> Task | Message:
    answer = done.task or done.reply
    if answer is None:
        raise PeerMisbehaved("This call was recorded under another kind of answer")
    return answer


def _spelled(said: object) -> str:
    match said:
        case str():
            return str(said)
        case bytes() | bytearray():
            return hashlib.sha256(said).hexdigest()
        case Path():
            return said.name
        case list() | tuple():
            return " ".join(map(_spelled, said))
    return json_of(said, "What is said to an agent").decode()


def _id(task: Task | str) -> str:
    return task.id if isinstance(task, Task) else task
