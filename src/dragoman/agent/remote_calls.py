"""Agents that call agents: what a run remembers of its calls, and who makes them for it.

A call leaves two records in the journal of its task. `sent:` is written as soon as it is known
which task it opened elsewhere, `agent:` when that task has come to rest. So a run that starts again
gives finished calls their results, goes on with unfinished ones where they are, and whoever cancels
the task knows what else has to stop, also in another process.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from dragoman.core.card import Card
from dragoman.core.events import Stamped
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Json, Message, Task

if TYPE_CHECKING:
    from .run_api import RunApi

AGENT, SENT = "agent", "sent"
"""The kinds of records."""
MOST_HOPS = 16
"""How many agents may call each other in a row: a loop ends there."""
SHOWN = 80
"""Characters of a message that the name of its record quotes."""


class StartedCall(Struct, frozen=True, omit_defaults=True):
    """A task elsewhere that a call opened or spoke to."""

    address: str
    task_id: str
    options: dict[str, Json] = {}
    """How the agent is reached, without anything secret."""


class CallResult(Struct, frozen=True, omit_defaults=True):
    """How a call ended: with a task, a direct reply, or the value of a method."""

    task: Task | None = None
    reply: Message | None = None
    value: Json = None


class AgentClient(Protocol):
    """Another agent, as `turn.agent(address)` gives it: the client, bound to this task."""

    async def card(self) -> Card:
        """What the agent says about itself."""

    async def send(
        self, *what: object, pass_up: bool = False, key: str = "", **about: Any
    ) -> Task | Message:
        """Says something: the task when it finishes or asks back, or the agent's direct reply.

        `pass_up` hands what the agent asks to our own caller, and the answers down. `key` is the
        name of the record, else address and text are. More about the message as the client has it.
        """

    def stream(
        self, *what: object, key: str = "", **about: Any
    ) -> AsyncIterator[Stamped | Message]:
        """The same, event by event. In a run that starts again it tells the task from its start."""

    async def answer(
        self, task: Task | str, value: object, *, pass_up: bool = False, key: str = ""
    ) -> Task:
        """Answers what a task waits for; gives it when it rests again."""

    async def call(
        self, skill: str, /, *, pass_up: bool = False, key: str = "", **arguments: Json
    ) -> Json:
        """Calls a skill with arguments and gives its result, both checked where the card says how.

        A task that does not complete raises `PeerRefused`."""

    async def invoke(self, method: str, /, *, key: str = "", **params: Json) -> Json:
        """Calls a method of the agent's own."""

    async def get(self, task: Task | str) -> Task:
        """A task as it stands; not recorded."""

    async def cancel(self, task: Task | str) -> Task:
        """Stops a task; not recorded."""


class TurnAccess(Struct, frozen=True):
    """What a bound client needs of the turn it works for."""

    run: RunApi
    record_name: Callable[[str, str], str]
    """The name of the next record of this kind and name in the run."""
    ask: Callable[..., Awaitable[tuple[Message, Json]]]
    """Asks our own caller: kind, prompt, key, body, expiry, and more parts."""


class Outside(Protocol):
    """Who reaches other agents for the runs of this process. The client implements it."""

    def agent(self, seat: TurnAccess, address: str, options: Mapping[str, Any]) -> AgentClient:
        """Another agent, bound to a task."""

    async def stop(self, sent: StartedCall) -> None:
        """Cancels a task elsewhere; fine if it is over."""

    async def close(self) -> None:
        """Ends all connections."""


def name_of(address: str, said: str) -> str:
    """The name of a call's record, if its author gives none."""
    if len(said) <= SHOWN:
        return f"{address} {said}"
    return f"{address} {said[:SHOWN]}@{hashlib.sha256(said.encode()).hexdigest()[:12]}"


def unfinished(journal: Mapping[str, bytes]) -> list[StartedCall]:
    """Tasks elsewhere that a run has opened and not seen finish."""
    found: dict[tuple[str, str], StartedCall] = {}
    over: set[str] = set()
    for key, value in journal.items():
        kind = key.partition(":")[0]
        if kind == SENT:
            sent = msgspec.json.decode(value, type=StartedCall)
            found[sent.address, sent.task_id] = sent
        elif kind == AGENT:
            task = msgspec.json.decode(value, type=CallResult).task
            if task is not None and task.state in FINAL:
                over.add(task.id)
    return [sent for sent in found.values() if sent.task_id not in over]
