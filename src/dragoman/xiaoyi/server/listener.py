"""`connect("xiaoyi+ws://BIND:PORT/AGENT_ID")`: listens until the agent dials in, and calls it.

For scripts and tests of one agent. It is the same endpoint that servers have, with one pair of
keys, which is in the environment: `DRAGOMAN_XIAOYI_AK` and `DRAGOMAN_XIAOYI_SK`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from dragoman.client.cards import FoundCard
from dragoman.client.transports.connected import ConnectedTransport
from dragoman.client.transports.transport import Destination
from dragoman.core.errors import ConfigError, PeerUnreachable
from dragoman.dialects.xiaoyi.wire import PATH
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.net.http.router import SOCKET, Router
from dragoman.net.server_context import ServerContext
from dragoman.observability.log import Log
from dragoman.security.authentication import anyone
from dragoman.settings import Limits, XiaoYi
from dragoman.store.clock import wall_clock
from dragoman.store.memory.store import MemoryStore

from ..keys import KeyRing
from .handshake import LinkHandshake
from .linked_agent import LinkedAgent
from .links import LinkEndpoint, Links

ACCESS_KEY, SECRET_KEY = "DRAGOMAN_XIAOYI_AK", "DRAGOMAN_XIAOYI_SK"
LINGER = 1.0


class LinkListener:
    """Listens for one agent."""

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        """`url` has the address to bind, and the id of the agent as its path."""
        parts = urlsplit(url)
        self.agent_id = unquote(parts.path.removeprefix("/"))
        self._keys = environ.get(ACCESS_KEY, ""), environ.get(SECRET_KEY, "")
        if parts.scheme == "https":
            raise ConfigError("We listen without TLS here: xiaoyi+ws://BIND:PORT/AGENT_ID.")
        if not self.agent_id or parts.port is None:
            raise ConfigError("Which agent, and where? xiaoyi+ws://BIND:PORT/AGENT_ID")
        if not all(self._keys):
            raise ConfigError(f"Set {ACCESS_KEY} and {SECRET_KEY} to the keys of the agent.")
        self._sock = bind(parts.hostname or "", parts.port)
        self.links = Links(XiaoYi().keep)
        self._server = ServerContext(LinkedAgent(""), anyone, Limits(), Log("error"))
        self._listener: GranianServer | None = None

    async def start(self) -> None:
        """Begins to listen."""
        said, store = XiaoYi(), MemoryStore(wall_clock)
        ring = KeyRing(store.link_keys, secrets.token_bytes(32))
        await ring.keep(*self._keys, [self.agent_id])
        endpoint = LinkEndpoint(self.links, self._server, said, ring)
        endpoint.handshake = LinkHandshake(
            *(ring, store.sessions, wall_clock), window=said.window, name_in=lambda host: ""
        )
        router = Router({PATH: {SOCKET: endpoint, "GET": endpoint}}, None, None)
        self._listener = GranianServer(router.route, self._sock, self._server.limits)
        self._listener.begin()

    async def agent(self, seconds: float) -> LinkedAgent:
        """Returns the agent, and waits until it has dialled in."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    changed = self.links.changed
                    found = self.links.agents.get(self.agent_id)
                    if found is not None and found.online:
                        return found
                    await changed.wait()
        except TimeoutError:
            raise PeerUnreachable(f"{self.agent_id} did not dial in within {seconds} s") from None

    async def close(self) -> None:
        """Closes the links, and listens no more."""
        self._server.draining = True
        await self._server.opened.close_sockets(LINGER)
        await self.links.close()
        if self._listener is not None:
            self._listener.refuse()
            self._server.opened.end_streams()
            await self._listener.end(LINGER)
        self._server.deadlines.stop()
        self._sock.close()


async def listen(url: str, to: Destination) -> tuple[FoundCard, ConnectedTransport]:
    """Listens at an address, and returns the agent as soon as it has dialled in."""
    listener = LinkListener(url, os.environ)
    wait = to.http.limits.wait
    transport = ConnectedTransport(to, lambda: listener.agent(wait), listener.close)
    try:
        await listener.start()
        agent = await listener.agent(wait)
    except BaseException:
        await listener.close()
        raise
    return FoundCard(agent.card, url), transport
