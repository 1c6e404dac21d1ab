"""The host side of a gateway: sub-agents that register over IAT are served as agents of ours.

A sub-agent is an agent elsewhere that came to us. So it is an `UpstreamAgent` like any other, whose
pool has one connection: the one with which it registered, or the address that it gave.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.client.cards import introduced_card
from dragoman.core.card import Card
from dragoman.core.errors import ConfigError, Forbidden
from dragoman.core.extensions import IDEMPOTENCY
from dragoman.core.log import Logger
from dragoman.core.model import Task
from dragoman.core.operations import Operation, R, Resolve, Streamed
from dragoman.core.peer import Begun, Context, Peer, begin_stream
from dragoman.core.session import Introduction
from dragoman.dialects.iat.events import THEIRS
from dragoman.iat.host import ANSWER, Host, place_of
from dragoman.iat.sub_agent import SubAgent
from dragoman.iat.upstream import stop_task
from dragoman.net.websocket.peer import WebSocketPeer
from dragoman.security.iat import PROVED

from ..upstream_agent import UpstreamAgent
from .dial_ins import DialIns, dialed_in_pool

log = Logger("gateway")
OWNER = "iat/"
"""Begins the owner of the name of a sub-agent in the registry."""
SOCKET = "websocket"
"""The place of a sub-agent that has no address."""
SCHEME = "iat-sub-agent"
"""Begins the label of a sub-agent in place of an address, in the journal and for operators."""


class ConnectedSubAgent:
    """A sub-agent that is online, as the pool calls it."""

    def __init__(self, host: Host, sub: SubAgent) -> None:
        self._host, self._sub = host, sub
        met = Introduction(None, sub.name, sub.card, sub.tools)
        self.card: Card = introduced_card(met, sub.name, ())
        self.dialect = "iat-ws" if isinstance(sub.transport, WebSocketPeer) else "iat"
        self.remembers = any(each.uri == IDEMPOTENCY for each in self.card.extensions)

    async def changed(self) -> bool:
        """Returns False: it registers anew to tell of a change. The host asks for its heartbeat."""
        return False

    async def cancel(self, task: Task | str) -> None:
        """Tells it to terminate a task."""
        task_id = task if isinstance(task, str) else task.id
        await stop_task(self._host, self._sub.name, task_id)

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the result. An agent that did not come from us answers no answer."""
        if isinstance(op, Resolve) and op.question.startswith(THEIRS):
            await self._sub.transport.tell(op, ctx)
            return None  # type: ignore[return-value]  # nobody reads the result of an answer
        return await self._sub.transport.call(op, ctx)

    async def begin(self, op: Streamed, ctx: Context) -> Begun:
        """Returns the first events of a task, and the stream of all that follow."""
        return await begin_stream(self._sub.transport.stream(op, ctx))


class GatewayHost(Host):
    """Where sub-agents register. It gives them no work of its own."""

    def __init__(self, dial_ins: DialIns, slug: Callable[[str], str]) -> None:
        """`slug` makes the name of an agent of what the sub-agent calls itself."""
        super().__init__("host", description="Sub-agents of this gateway register here.")
        self.dial_ins, self._slug = dial_ins, slug
        dial_ins.serve(OWNER, self._agent)
        dial_ins.answers = self._answers
        self.news = self._follow

    async def check_claim(self, met: Introduction, peer: Peer | None) -> None:
        """Raises `Forbidden` also for a name that an agent of this gateway has."""
        await super().check_claim(met, peer)
        place = place_of(met, peer)
        if met.card is None or not met.callable or place is None:
            return  # it is only a caller
        try:
            name = self._slug(met.who)
        except ConfigError as exc:
            raise Forbidden(exc.message) from None
        await self.dial_ins.check(
            name, _owner(met.who), place if isinstance(place, str) else SOCKET
        )

    async def _answers(self, name: str, place: str) -> bool:
        """Returns whether a sub-agent answers, although one at another place claims its name."""
        for sub in tuple(self.agents.values()):
            if self._slug(sub.name) == name and sub.place != place:
                if await sub.answers(ANSWER):
                    return True
                sub.leave()
        return False

    def joined(self, met: Introduction, caller: Context, peer: Peer | None, token: str) -> None:
        """Takes only agents that know the secret: callers of other schemes stay callers."""
        if PROVED in caller.schemes:
            super().joined(met, caller, peer, token)
        elif met.callable:
            log.warning("An agent without the secret registered; it is not served", agent=met.who)

    def _follow(self, sub: SubAgent) -> None:
        name = self._slug(sub.name)
        if sub.online:
            self.dial_ins.arrived(name, _owner(sub.name))
        else:
            self.dial_ins.left(name)

    def _agent(self, name: str, who: str) -> UpstreamAgent:
        known: dict[SubAgent, ConnectedSubAgent] = {}

        def connected() -> ConnectedSubAgent | None:
            sub = self.agents.get(who)
            if sub is None or not sub.online:
                return None
            if sub not in known:  # it has registered anew
                known.clear()
                known[sub] = ConnectedSubAgent(self, sub)
            return known[sub]

        pool = dialed_in_pool(name, who, SCHEME, connected)
        return UpstreamAgent(name, pool, patience=self.patience)


def _owner(who: str) -> str:
    return OWNER + who
