"""The agent behind a relay, as each kind of remote agent implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext

from msgspec import Struct

from dragoman.agent.remote_calls import TurnAccess
from dragoman.agent.turn import Turn
from dragoman.core import events
from dragoman.core.errors import DragomanError, Unsupported
from dragoman.core.model import AnyPart, Json, Message
from dragoman.core.operations import Resolve, SendMessage, Streamed
from dragoman.core.peer import Begun, Context, Peer, begin_stream

from .remote_task import context_for


class QuestionAnswer(Struct, frozen=True):
    """Our caller's answer to a question of a remote task."""

    op: Resolve
    parts: tuple[AnyPart, ...]
    """The answer as a message, for dialects in which a message answers."""
    in_doubt: bool = False
    """Whether the agent may have it already."""
    message: Message | None = None
    """The message with which our caller gave it, unless a tool did."""


class Upstream(ABC):
    """The agent that a relay follows: how it is found and called, and which tools it may use."""

    name: str
    """The name of the agent for our caller."""
    approval_expires: float | None = None
    """Seconds after which an unanswered approval counts as a denial."""
    reply_within = 2.0
    """Seconds after which our task becomes visible although the agent has not answered. A direct
    reply, or an error, that comes later ends the task."""
    count: Callable[[int], None] = staticmethod(lambda size: None)
    """Counts bytes that are kept for the task in the budget of its caller, once a relay has set it.
    Raises `TooMany` if it is used up."""
    replies = False
    """Whether a direct reply of the agent, and the message with which it completes a task, become a
    direct reply and a final message of ours. If not, they become an artifact of our task, unless it
    already has one."""

    @property
    @abstractmethod
    def address(self) -> str:
        """The address of the remote task in the journal; `Agent.stop_remote` reads it."""

    @abstractmethod
    def peer(self, task_id: str, address: str) -> AbstractAsyncContextManager[Peer]:
        """Returns the agent, and waits for it if it is offline. `task_id` is its task, if there is
        one yet, and `address` that of the task, or to which the message may have been sent. Raises
        `PeerUnreachable` if that takes too long."""

    @abstractmethod
    async def lost(self, *, heard: bool) -> None:
        """Waits until it makes sense to look for an agent whose connection broke; `heard` says
        whether it has said anything new before that."""

    def has_another(self) -> bool:
        """Returns whether a message that could not be sent to this address may be sent to another
        one of the agent. The next `peer` is that address."""
        return False

    def keeps_address(self) -> bool:
        """Returns whether a message may be sent again to the same address only, because the agent
        has several."""
        return False

    def waiting(self) -> AbstractContextManager[None]:
        """Returns a context in which the agent waits for an answer of our caller."""
        return nullcontext()

    def may_repeat(self, peer: Peer) -> bool:
        """Returns whether a message that may have arrived may be sent again."""
        return True

    def context(self, access: TurnAccess) -> Context:
        """Returns the context of calls to the agent, with the tools that it may call."""
        return context_for(access)

    def told(self, exc: DragomanError) -> DragomanError:
        """Returns the error that our caller gets if a call failed with this one."""
        return exc

    async def started(self, task_id: str, context_id: str) -> None:  # noqa: B027  few need it
        """Called with the ids of the remote task, when its first event has arrived."""

    def details(self, body: Json) -> Json:
        """Returns the details of an approval that our caller sees."""
        return {"agent": self.name, "details": body}

    @abstractmethod
    def request(self, turn: Turn, key: str) -> SendMessage:
        """Returns the message that creates the remote task; `key` is its idempotency key."""

    def begin(self, peer: Peer, op: Streamed, ctx: Context) -> Awaitable[Begun]:
        """Returns the first events of a task, and the stream of all that follow, which has to be
        closed."""
        return begin_stream(peer.stream(op, ctx))

    async def run_tool(self, turn: Turn, asked: events.Asked) -> Json:
        """Runs a tool for the agent, and returns its result."""
        given = asked.body if isinstance(asked.body, dict) else {}
        return await turn.call_tool(asked.message.text, key=asked.question, **given)

    async def answer(self, peer: Peer, answer: QuestionAnswer, ctx: Context) -> None:
        """Sends the agent the answer to a question. Raises `Conflict` or `TaskFinished` if it does
        not wait for it any more."""
        await peer.call(answer.op, ctx)

    async def find_task(self, key: str, address: str) -> str:
        """Returns the id of the task that the message with this key opened, which may be at this
        address; empty if there is none so far. Raises `Unsupported` if the agent cannot tell."""
        raise Unsupported(f"{self.name} does not list its tasks")
