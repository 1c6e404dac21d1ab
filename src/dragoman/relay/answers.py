"""The answers of our caller to the questions of a remote task, each delivered once."""

from __future__ import annotations

from msgspec import Struct

from dragoman.core.errors import Conflict, PeerUnreachable, TaskFinished
from dragoman.core.events import Stamped
from dragoman.core.log import Logger
from dragoman.core.model import AnyPart, Json, Message
from dragoman.core.operations import Resolve
from dragoman.core.peer import Context, Peer

from .upstream import QuestionAnswer, Upstream

log = Logger("relay")


class CallerAnswer(Struct, frozen=True):
    """The answer of our caller to a question of a remote task."""

    value: Json
    parts: tuple[AnyPart, ...]
    """The same as the parts of a message."""
    message: Message | None = None
    """The message with which our caller gave it, unless a tool did."""


class Answers:
    """The answers of one run by question, so that nobody is asked twice because a connection
    broke."""

    def __init__(self, upstream: Upstream, *, in_doubt: bool) -> None:
        """`in_doubt` says that an earlier run may have delivered them."""
        self.given: dict[str, CallerAnswer] = {}
        self.delivered: set[str] = set()
        self._upstream, self._in_doubt = upstream, in_doubt
        self._pending: Resolve | None = None

    async def deliver(self, question: str, asked: Stamped, peer: Peer, ctx: Context) -> None:
        """Sends the agent the answer to a question of its task. If the connection breaks meanwhile,
        the next one begins with it, because the question is not told again."""
        self._pending = Resolve(
            task_id=asked.task_id,
            question=question,
            value=self.given[question].value,
            context_id=asked.context_id,
        )
        await self.deliver_pending(peer, ctx)

    async def deliver_pending(self, peer: Peer, ctx: Context) -> None:
        """Sends the agent the answer that could not be delivered before, if there is one."""
        op = self._pending
        if op is None:
            return
        given = self.given[op.question]
        answer = QuestionAnswer(op, given.parts, self._in_doubt, given.message)
        try:
            await self._upstream.answer(peer, answer, ctx)
        except PeerUnreachable as exc:
            self._in_doubt |= exc.sent
            raise
        except (Conflict, TaskFinished):
            # The question was answered at the remote agent in the meantime, or it expired. The next
            # events will show which.
            name = self._upstream.name
            log.info("The question is not open any more", agent=name, question=op.question)
        self._pending = None
        self.delivered.add(op.question)
