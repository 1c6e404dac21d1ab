"""Calls from one agent to another: the records that a run keeps of its calls, and the interface of
the code that makes them.

A call leaves two records in the journal of its task. `sent:` is written as soon as the id of the
remote task is known, `agent:` when that task has ended or waits. A run that starts again therefore
gets the results of finished calls and continues unfinished ones, and a cancel in any process finds
the remote tasks that have to be canceled too.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack, runtime_checkable

import msgspec
from msgspec import Struct

from dragoman.core.card import Card
from dragoman.core.errors import Unsupported
from dragoman.core.events import Stamped
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Hook, Json, Message, State, Status, Task

if TYPE_CHECKING:
    from dragoman.core.peer import Context

    from .mcp_calls import McpClient
    from .run_api import RunApi

AGENT, SENT, SENDING = "agent", "sent", "sending"
"""The kinds of records that a call leaves in the journal. `sending` is left before a message that
must not be sent twice."""
MOST_HOPS = 16
"""The number of agents that may call each other in a row; a loop ends there."""
SHOWN = 80
"""The number of characters of a message that the name of its record quotes."""


class StartedCall(Struct, frozen=True, omit_defaults=True):
    """A task at another agent that a call opened or continued."""

    address: str
    task_id: str
    context_id: str = ""
    """The conversation there, as the agent calls it."""
    options: dict[str, Json] = {}
    """The options with which the agent is reached, without any secrets."""
    over: bool = False
    """Whether the task had ended when its id became known."""


class CallResult(Struct, frozen=True, omit_defaults=True):
    """The result of a call: a task, a direct reply, or the value of a method."""

    task: Task | None = None
    reply: Message | None = None
    value: Json = None


class SendOptions(TypedDict, total=False):
    """The options of a message to another agent."""

    skill: str
    """The id of the skill that is meant."""
    task: Task | str
    """The task that the message continues or answers."""
    context_id: str
    metadata: Mapping[str, Json]
    references: Iterable[Task | str]
    """Other tasks that the message refers to."""
    accepts: Iterable[str]
    """The media types that the caller can read."""
    hook: Hook | str
    """A webhook, or its address."""
    message_id: str


def as_task(answer: Task | Message) -> Task:
    """Returns the task, or for a direct reply a completed task without an id that holds it."""
    if isinstance(answer, Task):
        return answer
    done = Status(State.COMPLETED, message=answer)
    return Task(id="", context_id=answer.context_id, status=done)


class AgentClient(Protocol):
    """Another agent, as `turn.agent(address)` returns it: a client that is bound to this task."""

    async def card(self) -> Card:
        """Returns the card of the agent."""

    async def ask(
        self,
        *what: object,
        pass_up: bool = False,
        key: str = "",
        wait: bool = True,
        **about: Unpack[SendOptions],
    ) -> Task | Message:
        """Sends a message like `send`, but returns a direct reply of the agent as the message that
        it is."""

    async def send(
        self,
        *what: object,
        pass_up: bool = False,
        key: str = "",
        wait: bool = True,
        **about: Unpack[SendOptions],
    ) -> Task:
        """Sends a message. Returns the task when it has finished or asks a question. A direct reply
        of the agent is a completed task without an id.

        With `pass_up`, the questions of the agent are passed to our own caller, and the answers
        back to the agent. `key` is the name of the record; by default it consists of the address
        and the text. The other options are those of the client.
        """

    def stream(
        self, *what: object, key: str = "", **about: Unpack[SendOptions]
    ) -> AsyncIterator[Stamped | Message]:
        """Sends a message and yields every event. In a run that starts again it yields them from
        the first on."""

    async def answer(
        self, task: Task | str, value: object, *, pass_up: bool = False, key: str = ""
    ) -> Task:
        """Answers what a task waits for, and returns the task when it rests again."""

    async def call(
        self, skill: str, /, *, pass_up: bool = False, key: str = "", **arguments: Json
    ) -> Json:
        """Calls a skill with arguments and returns its result. Both are checked if the card has
        schemas for them.

        Raises `PeerRefused` if the task does not complete."""

    async def invoke(self, method: str, /, *, key: str = "", **params: Json) -> Json:
        """Calls a method that the agent has beyond the protocol."""

    async def get(self, task: Task | str) -> Task:
        """Returns a task as it stands. The call is not recorded."""

    async def cancel(self, task: Task | str) -> Task:
        """Cancels a task. The call is not recorded."""


class TurnAccess(Struct, frozen=True):
    """The part of a turn that a client bound to it needs."""

    run: RunApi
    record_name: Callable[[str, str], str]
    """Returns the name of the next record of this kind and name in the run."""
    ask: Callable[..., Awaitable[tuple[Message, Json]]]
    """Asks our own caller. The arguments are kind, prompt, key, body, expiry and more parts."""
    decide: Callable[..., Awaitable[tuple[bool, Message]]]
    """Asks our own caller for a yes or a no. The arguments are prompt, details, key and expiry."""
    message: Callable[..., Message]
    """Makes a message of our agent. The arguments are its parts, metadata and extensions."""


class Outside(Protocol):
    """Connects the runs of this process to other agents and to MCP servers."""

    def agent(self, seat: TurnAccess, address: str, options: Mapping[str, Any]) -> AgentClient:
        """Returns another agent, bound to a task."""

    def mcp(self, seat: TurnAccess, server: str) -> McpClient:
        """Returns an MCP server of the settings, bound to a task. Raises `Unsupported` if there is
        none of that name."""

    async def stop(self, sent: StartedCall, caller: Context) -> None:
        """Cancels a task at another agent that was opened for this caller of ours. It is no error
        if the task is over."""

    async def stop_unrecorded(self, run: RunApi) -> None:
        """Cancels a task that an earlier run may have opened at another agent, without learning
        its id."""

    async def close(self) -> None:
        """Closes all connections."""


@runtime_checkable
class Relaying(Protocol):
    """An agent whose tasks follow tasks elsewhere."""

    async def stop_unrecorded(self, run: RunApi) -> None:
        """Cancels the task elsewhere of a run that did not learn its id."""


def outside_of(run: RunApi) -> Outside:
    """Returns the connections of a run. Raises `Unsupported` if its engine has none."""
    outside = run.shared.outside
    if outside is None:
        raise Unsupported("This engine was made without a way to other agents and tools")
    return outside


def name_of(address: str, said: str) -> str:
    """Returns the name of a call's record, if its author gives none."""
    if len(said) <= SHOWN:
        return f"{address} {said}"
    return f"{address} {said[:SHOWN]}@{hashlib.sha256(said.encode()).hexdigest()[:12]}"


def started(journal: Mapping[str, bytes]) -> list[StartedCall]:
    """Returns all tasks at other agents that a run has opened."""
    return [
        msgspec.json.decode(value, type=StartedCall)
        for key, value in journal.items()
        if key.partition(":")[0] == SENT
    ]


def unfinished(journal: Mapping[str, bytes]) -> list[StartedCall]:
    """Returns the tasks at other agents that a run has opened and has not seen finish."""
    found: dict[tuple[str, str], StartedCall] = {}
    over: set[str] = set()
    for key, value in journal.items():
        kind = key.partition(":")[0]
        if kind == SENT:
            sent = msgspec.json.decode(value, type=StartedCall)
            if not sent.over:
                found[sent.address, sent.task_id] = sent
        elif kind == AGENT:
            task = msgspec.json.decode(value, type=CallResult).task
            if task is not None and task.state in FINAL:
                over.add(task.id)
    return [sent for sent in found.values() if sent.task_id not in over]
