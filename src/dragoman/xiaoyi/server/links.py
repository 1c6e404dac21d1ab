"""The links of agents that dial in, and the endpoint for them."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec

from dragoman.core.errors import DragomanError, Forbidden, TaskNotFound, TooMany, Unauthenticated
from dragoman.core.log import Logger
from dragoman.core.peer import Context
from dragoman.core.session import Frame
from dragoman.dialects.xiaoyi.signing import extensions_in
from dragoman.dialects.xiaoyi.wire import PATH
from dragoman.net.http.asgi import Receive, Scope, Send, answer, headers_in
from dragoman.net.server_context import ServerContext
from dragoman.net.strangers import RefusalLog
from dragoman.net.websocket.connection import (
    GOING,
    REFUSED,
    TOO_BIG,
    TOO_MUCH,
    SocketConnection,
    SocketLimits,
)
from dragoman.net.websocket.endpoint import SocketEndpoint
from dragoman.security.route_policy import refuse
from dragoman.settings import XiaoYi

from ..keys import KeyRing
from ..link_figures import LinkFigures
from .handshake import LinkHandshake
from .linked_agent import ANSWER_GAP_SECONDS, LinkedAgent

log = Logger("xiaoyi")

SCHEME = "xiaoyi"
EXTENSION = "websocket.http.response"
"""The ASGI extension with which a handshake is refused with a status of ours."""
_WHY = {
    GOING: "The agent was silent for too long, or did not read",
    TOO_BIG: "The agent sent a message that is too large",
    TOO_MUCH: "The agent sent too many messages",
}
REDIAL_DELAY_SECONDS = 30
"""When an agent for which there is no room may dial again. A 403 would end it for good."""
_STATUS = {Unauthenticated: 401, Forbidden: 403, TaskNotFound: 404}


class Links:
    """The agents that have dialled in, as long as they have a link or a task that waits for one."""

    def __init__(
        self, keep: float, server: str = "", *, answer_gap: float = ANSWER_GAP_SECONDS
    ) -> None:
        """`keep` are the seconds for which tasks wait for an agent without a link. `server` is
        the address of this server, for operators. For `answer_gap`, see `LinkedAgent`."""
        self._server, self._answer_gap = server, answer_gap
        self.figures: dict[str, LinkFigures] = {}
        """The figures of each agent that has dialled in, or tried to."""
        self.on_figures: Callable[[], None] = lambda: None
        """Called when any of them has changed."""
        self.agents: dict[str, LinkedAgent] = {}
        self.open: dict[str, LinkSocket] = {}
        """The open links by their names."""
        self.open_by_key: Counter[str] = Counter()
        """How many links are open with each access key."""
        self.on_arrival: Callable[[LinkedAgent], None] = lambda agent: None
        self.on_departure: Callable[[LinkedAgent], None] = lambda agent: None
        self.changed = asyncio.Event()
        """Set when an agent has connected."""
        self._keep = keep
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.closing = False

    def figures_of(self, agent_id: str) -> LinkFigures:
        """Returns the figures of an agent."""
        found = self.figures.get(agent_id)
        if found is None:
            found = self.figures[agent_id] = LinkFigures("server", agent_id, self._server)
            found.on_change = lambda: self.on_figures()
        return found

    def add(self, agent_id: str, link: LinkSocket) -> LinkedAgent:
        """Adds a link to an agent."""
        if (timer := self._timers.pop(agent_id, None)) is not None:
            timer.cancel()
        agent = self.agents.get(agent_id)
        if agent is None:
            agent = self.agents[agent_id] = LinkedAgent(
                agent_id, self.figures_of(agent_id), answer_gap=self._answer_gap
            )
        first = not agent.online
        agent.add_link(link)
        self.open[link.name] = link
        self.open_by_key[link.access_key] += 1
        self.figures_of(agent_id).opened()
        log.info("An agent dialled in", agent=agent_id, links=len(agent.links))
        if first:
            self.on_arrival(agent)
            self.changed.set()
            self.changed = asyncio.Event()
        return agent

    def remove(self, agent: LinkedAgent, link: LinkSocket) -> None:
        """Removes a link from its agent."""
        if self.open.pop(link.name, None) is not None:
            self.open_by_key[link.access_key] -= 1
            if not self.open_by_key[link.access_key]:
                del self.open_by_key[link.access_key]
        agent.remove_link(link)
        log.info("A link has closed", agent=agent.agent_id, links=len(agent.links), why=link.why)
        figures = self.figures_of(agent.agent_id)
        figures.closed()
        if link.why:
            figures.failed(link.why)
        if agent.online or self.closing:
            return
        self.on_departure(agent)
        timer = asyncio.get_running_loop().call_later(self._keep, self._forget, agent)
        self._timers[agent.agent_id] = timer

    def _forget(self, agent: LinkedAgent) -> None:
        self._timers.pop(agent.agent_id, None)
        self.agents.pop(agent.agent_id, None)
        agent.lost()

    async def close(self) -> None:
        """Disconnects all agents."""
        self.closing = True
        for timer in self._timers.values():
            timer.cancel()
        for link in tuple(self.open.values()):
            link.hang_up("The server stops")
        for agent in self.agents.values():
            await agent.close()


class LinkSocket(SocketConnection):
    """One link of an agent."""

    def __init__(
        self,
        links: Links,
        server: ServerContext,
        limits: SocketLimits,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        access_key: str,
        agent_id: str,
    ) -> None:
        super().__init__(server, limits, PATH, scope, receive, send, patient=True)
        self.name = secrets.token_hex(8)
        self.access_key = access_key
        self.open = True
        self.extensions = extensions_in(self._headers)
        self.why = ""
        """Why we closed the link; empty if the agent has closed it."""
        self._links = links
        self._agent = links.add(agent_id, self)
        if self._meter is not None:
            # Pings show that the agent is there, like frames, but the server answers them itself.
            self._meter.on_bytes = self.stay_open

    async def _take(self, frame: Frame) -> bool:
        self.recognize()  # any frame shows that the agent is alive
        # Answers to our requests are not rate limited: their readers slow them down.
        return await self._agent.hear(Frame(frame.body, self.name)) or self._may_talk()

    async def run(self) -> int:
        """Runs until the agent leaves or breaks a rule, and returns the close code."""
        code = await super().run()
        self.why = self.why or _WHY.get(code, "")
        return code

    def hang_up(self, why: str = "") -> None:
        """Closes the link from our side."""
        self.why = why
        self._cut()

    def _cut(self) -> None:
        self.open = False
        super()._cut()

    def close(self) -> None:
        """Stops using the link."""
        if self.open or self.name in self._links.open:
            self.open = False
            self._links.remove(self._agent, self)
        super().close()


class LinkEndpoint(SocketEndpoint):
    """The endpoint where agents dial in. It exists while there is any key."""

    def __init__(self, links: Links, server: ServerContext, said: XiaoYi, ring: KeyRing) -> None:
        super().__init__(server, f"GET {PATH}", said.links)
        self._links, self._ring, self._settings = links, ring, said
        self._refusals = RefusalLog(log, "A link is refused")
        self._limits = SocketLimits(
            sockets=said.links,
            messages_per_second=said.messages_per_second,
            message_size=said.message_size,
            idle=said.idle,
        )
        self.handshake: LinkHandshake | None = None
        self.check_claim: Callable[[str], Awaitable[None]] = _any_name
        """Raises `Forbidden` for an agent id whose name belongs to another agent."""

    async def _handshake(self, scope: Scope) -> Context:
        assert self.handshake is not None  # noqa: S101  set by the service
        if not await self._ring.in_use():
            raise TaskNotFound("Nothing is here.")
        access_key, agent_id = await self.handshake.check(headers_in(scope["headers"]))
        await self.check_claim(agent_id)
        self._check_share(access_key, agent_id)
        scope[SCHEME] = access_key, agent_id
        return Context(principal=f"{SCHEME}:{agent_id}", schemes=(SCHEME,))

    def _check_share(self, access_key: str, agent_id: str) -> None:
        """Raises `TooMany` if the key, or the agent, has as many links as it may have."""
        agent = self._links.agents.get(agent_id)
        if agent is not None and len(agent.links) >= self._settings.links_per_agent:
            raise self._refused_share(access_key, agent_id, "the agent has too many links")
        if self._links.open_by_key[access_key] >= self._settings.links_per_key:
            raise self._refused_share(access_key, agent_id, "the key has too many links")

    def _refused_share(self, access_key: str, agent_id: str, why: str) -> TooMany:
        self._refusals.add(access_key=access_key, agent=agent_id, why=why)
        self._links.figures_of(agent_id).failed(why)
        return TooMany("There are too many links; dial again later.")

    def _connection(
        self, scope: Scope, receive: Receive, send: Send, caller: Context | None
    ) -> LinkSocket:
        access_key, agent_id = scope[SCHEME]
        return LinkSocket(
            *(self._links, self.server, self._limits, scope, receive, send),
            access_key=access_key,
            agent_id=agent_id,
        )

    async def _refuse(self, scope: Scope, send: Send, error: DragomanError) -> None:
        if EXTENSION not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": REFUSED})
            return
        status = next((_STATUS[each] for each in type(error).__mro__ if each in _STATUS), 503)
        body = msgspec.json.encode({"error": error.reason, "message": error.message})
        headers = [(b"content-type", b"application/json")]
        if status == 503:
            headers.append((b"retry-after", str(REDIAL_DELAY_SECONDS).encode()))
        start = {"type": f"{EXTENSION}.start", "status": status, "headers": headers}
        await send(start)
        await send({"type": f"{EXTENSION}.body", "body": body, "more_body": False})

    async def _turn_away(self, scope: Scope, send: Send) -> None:
        await self._refuse(scope, send, TooMany("There is no room for a link now."))

    async def _answer_plain_request(self, scope: Scope, send: Send) -> None:
        try:
            await self._handshake(scope)
        except TaskNotFound:
            await answer(send, 404, b'{"error":"not_found"}')
            return
        except DragomanError as error:
            later = ((b"retry-after", str(REDIAL_DELAY_SECONDS).encode()),)
            await refuse(send, error, later if isinstance(error, TooMany) else ())
            return
        upgrade = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))
        await answer(send, 426, b'{"error":"upgrade_required"}', extra=upgrade)


async def _any_name(agent_id: str) -> None:
    """Accepts every name, if nothing else serves agents here."""
