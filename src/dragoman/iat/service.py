"""The IAT service of a server: it authenticates messages, answers introductions, and connects to
hosts or sub-agents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.core.card import Card, Tool
from dragoman.core.dialect import Dialect, Wire
from dragoman.core.errors import ConfigError
from dragoman.core.extensions import SKILLS
from dragoman.core.model import Json
from dragoman.core.peer import Context, Peer, identity_of
from dragoman.core.session import Frame, Id, Introduction, Posted, Session
from dragoman.dialects.iat import ROLE, IatCallee, IatSocketCallee
from dragoman.dialects.iat.callee import NOTHING
from dragoman.dialects.iat.plain_endpoints import PlainCallee
from dragoman.dialects.iat.requests import introduction_out
from dragoman.dialects.iat.wire import MOST_TTL, Envelope
from dragoman.engine.task_ids import new_id, now_ms
from dragoman.net.driver import Admitted, Driver
from dragoman.net.http.asgi import TEXT, Handler, Receive, Scope, Send, answer
from dragoman.net.server_context import ServerContext
from dragoman.net.service import Factory, Service
from dragoman.net.websocket.connection import SocketLimits
from dragoman.net.websocket.peer import WebSocketPeer
from dragoman.net.websocket.socket import SocketDriver
from dragoman.security.access_control import AccessControl
from dragoman.security.authentication import cursor_in, deadline_in, key_in
from dragoman.security.iat import JOINING, IatAuthenticator, IatSession
from dragoman.security.route_policy import Policy, policy
from dragoman.security.verifiers import read_secret
from dragoman.settings import Settings
from dragoman.store.sessions import SessionStore
from dragoman.workspace import granted

from .host_role import HostRole
from .open_executes import OpenExecutes

if TYPE_CHECKING:
    from dragoman.dialects.iat import IatCaller, IatDuplex

    from .registration import Registration
    from .transports import SubAgentTransport

PROTOCOL = "iat/1"
LINGER = 1.0
"""The maximum time in seconds to tell the host that we leave."""
Joined = Callable[[Introduction, Context, Peer | None, str], None]
"""Called with each introduction, its caller, over a WebSocket a peer that calls the caller back,
and the session token of the caller."""
ClaimCheck = Callable[[Introduction, Peer | None], Awaitable[None]]


class IatSender(Admitted):
    """The sender of one message."""

    __slots__ = ("callee", "headers", "said", "session")

    def __init__(
        self,
        ctx: Context,
        session: IatSession,
        callee: IatCallee,
        said: Envelope,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(ctx)
        self.session, self.callee, self.said, self.headers = session, callee, said, headers


class IatService(Service):
    """What IAT needs beyond its codec: sessions, HTTP routes, and connections to sub-agents or to a
    host. It is the `Admission` and the `DialectRole` of every IAT endpoint."""

    name = "iat"

    def __init__(
        self,
        server: ServerContext,
        access: AccessControl,
        settings: Settings,
        store: SessionStore,
        *,
        name: str = "",
        kept_as: str = "",
    ) -> None:
        """`name` is the name of the agent on a server with several, and `kept_as` its name in the
        store of sessions."""
        self.server, self.settings = server, settings.iat
        self.role = ROLE if settings.iat.enabled else ""
        self.agent: Agent = access.agent
        if name and settings.iat.agent_id:
            raise ConfigError(
                "iat.agent_id would name every agent of this server alike: leave it out, and each "
                "is called by its name at /agents/NAME."
            )
        self.me = settings.iat.agent_id or name or self.agent.name
        self.workspace = _told_root(self.agent, settings)
        """The folder in which our agent works, as hosts see it."""
        if settings.iat.secret and "iat" in (*settings.auth, *self.agent.auth):
            # Its callers would be named `iat:...`, like the agents that have the shared secret.
            raise ConfigError(
                "[auth.iat]: call it otherwise; agents with iat.secret are 'iat:...'."
            )
        self.guard = IatAuthenticator(
            settings.iat,
            access.admit,
            agent=kept_as or self.agent.name,
            me=self.me,
            store=store,
            recognizes=access.authenticator.recognizes if access.locked else None,
            insecure=settings.server.insecure,
            meter=access.meter if settings.rates.calls_per_minute else None,
        )
        self.executes = OpenExecutes()
        """The executes of a host in the same process."""
        self.joined: Joined = _no_host
        """Called with every agent that has introduced itself; for a host in the same process."""
        self.check_claim: ClaimCheck = _any_name
        """Raises `Forbidden` for a name that belongs to another agent; for a host in the same
        process."""
        self.registration: Registration | None = None
        """Our registration with a host, if there is one."""
        self._registering: asyncio.Task[None] | None = None
        secret = read_secret(settings.iat.secret, "iat.secret") if settings.iat.secret else ""
        if isinstance(self.agent, HostRole):
            self._serve_host(self.agent, secret, allow_private=settings.server.allow_private)
        if settings.iat.host:
            from .registration import Registration
            from .workspace_guard import WorkspaceLimitedPeer

            url = server.mount_point.url
            registration = Registration(self, settings.iat.host, secret, url)
            self.registration = registration
            if self.workspace:
                server.peer = WorkspaceLimitedPeer(
                    server.peer, self.workspace, lambda: registration.root
                )

    def _serve_host(self, host: HostRole, secret: str, *, allow_private: bool) -> None:
        host.peer, self.joined = self.server.peer, host.joined
        self.check_claim, host.sessions = host.check_claim, self.guard.sessions.list_valid

        def dial(
            url: str, to: str = "", *, typed: bool = False, signs: bool = False, token: str = ""
        ) -> SubAgentTransport:
            from .transports import sub_agent_transport

            return sub_agent_transport(
                url,
                self.me,
                to,
                self.executes,
                secret=secret if signs else "",
                token=token,
                typed=typed,
                allow_private=allow_private,
            )

        host.dial = dial

    # Conversations

    def driver(self, dialect: Dialect, callee: Factory, served: frozenset[str] | None) -> Driver:
        """Returns the driver of the conversations in one of the forms of IAT."""
        make = partial(self.session, callee)
        if dialect.wire is not Wire.WEBSOCKET:
            return Driver(self.server, make, served=served, admission=self, role=self)
        return self.socket_driver()

    def session(self, callee: Factory) -> Session:
        """Returns the callee side of a new conversation, with our name and our clock."""
        found = callee(self.me, now=now_ms, new_id=new_id)  # type: ignore[call-arg]
        assert isinstance(found, IatCallee)  # noqa: S101  only these need our role
        found.is_open = self.executes.__contains__
        found.is_another = self._is_another
        return found

    def _socket_callee(self) -> IatSocketCallee:
        callee = IatSocketCallee(self.me, now=now_ms, new_id=new_id)
        callee.is_another = self._is_another
        return callee

    def _is_another(self, name: str) -> bool:
        """Returns whether a message to this name is for another agent, which this server knows."""
        if isinstance(self.agent, HostRole) and name in self.agent.agents:
            return True
        return self.server.has_agent(name)

    def socket_driver(self) -> SocketDriver:
        """Returns the driver of the conversations over WebSockets, whichever side opened them."""
        iat = self.settings
        limits = SocketLimits(
            sockets=iat.sockets,
            calls=iat.calls,
            messages_per_second=iat.messages_per_second,
            message_size=iat.message_size,
            idle=iat.idle,
        )
        return SocketDriver(
            self.server,
            self._socket_callee,
            admission=self,
            role=self,
            duplex=self.duplex,
            limits=limits,
        )

    def duplex(self, caller: IatCaller | None = None) -> IatDuplex:
        """Returns both sessions of a new WebSocket."""
        from dragoman.dialects.iat import IatCaller, IatDuplex

        caller = caller or IatCaller(me=self.me, now=now_ms, new_id=new_id)
        return IatDuplex(caller, self._socket_callee())

    # Admission

    async def admit(self, session: Session, frame: Frame, certificate: str) -> IatSender:
        """Returns the sender of a frame, as `Admission` requires."""
        assert isinstance(session, IatCallee)  # noqa: S101  only these are given our admission
        said, headers = session.heard, frame.headers
        if isinstance(session, IatSocketCallee) and frame.body:
            said = session.read(frame.body)  # it may be for the caller session of the WebSocket
            # Every frame authenticates its sender: the credentials of the handshake count only for
            # the frame that opens a session.
            headers = headers if said.action in JOINING else NOTHING
        asked = frame.target.partition("?")[2].encode("latin-1")
        found = await self.guard.who(
            *(said, headers, frame.target, certificate),
            asked if frame.target.startswith("GET ") and not frame.body else frame.body,
            plain=isinstance(session, PlainCallee),
        )
        return IatSender(_context(session, said, found), found, session, said, frame.headers)

    def has_credentials(self, frame: Frame) -> bool:
        """Implements `Admission`: an envelope carries its `auth_token` in the metadata."""
        return b'"metadata"' in frame.body

    @property
    def admits_everyone(self) -> bool:
        """Whether nobody is refused, as `Admission` requires."""
        return self.guard.insecure

    async def recognizes(self, headers: Mapping[str, str], target: str, certificate: str) -> bool:
        """Implements `Admission`. A signature covers what follows: the body, or the first frame."""
        return await self.guard.recognizes(headers, target, certificate)

    # Role

    def ourselves(self, id: Id = None) -> Introduction:
        """Returns the introduction of our agent, in which its skills are listed as tools."""
        card = self.agent.card(())
        schemas = _schemas(card)
        return Introduction(
            id,
            self.me,
            Card(
                name=self.agent.name,
                description=self.agent.description,
                version=self.agent.version,
                extensions=card.extensions,
            ),
            tuple(
                Tool(
                    name=skill.id,
                    description=skill.description,
                    parameters=schemas.get(skill.id, {}).get("input"),
                    returns=schemas.get(skill.id, {}).get("output"),
                )
                for skill in card.skills
            ),
            self.workspace,
        )

    async def welcome(self, met: Introduction, caller: Admitted, peer: Peer | None) -> Json:
        """Returns a session token and our introduction. For a caller that has a token already, it
        confirms the tools of the caller."""
        assert isinstance(caller, IatSender)  # noqa: S101  as `admit` gives it
        sessions = self.guard.sessions
        if met.card is None:
            sessions.grant(caller.session.key, met.tools)
            await sessions.landed()
            return {"ok": True}
        found = caller.session
        if not found.key:  # a caller with the session of a name has that name
            await self.check_claim(met, peer)
        token, until = sessions.issue(met.who, _bare(found.caller), met.tools)
        if isinstance(peer, WebSocketPeer):
            from dragoman.dialects.iat import IatCaller

            # From now on both sessions of this WebSocket belong to this caller, and carry its
            # token.
            assert isinstance(peer.caller, IatCaller)  # noqa: S101  as `duplex` makes it
            peer.caller.state.to, peer.caller.state.token = met.who, token
            caller.callee.token = token
        # The next message may reach another process, which reads the session from the store.
        await sessions.landed()
        # This comes last, so that the caller is not called before it has this welcome and its
        # token.
        self.joined(met, found.caller, peer, token)
        return {
            **introduction_out(self.ourselves()),
            "protocol": PROTOCOL,
            "session_token": token,
            "expires_at": int(until),
        }

    async def alive(self, caller: Admitted) -> Json:
        """Returns the answer to a ping, which also keeps the session alive."""
        assert isinstance(caller, IatSender)  # noqa: S101  as `admit` gives it
        until = self.guard.renew(caller.said, caller.headers)
        return {"ok": True, "expires_at": int(until)} if until else {"ok": True}

    async def take_event(self, posted: Posted, caller: Admitted) -> Json:
        """Takes an event of an execute from the sub-agent that works on it. A request of the
        sub-agent is answered by whoever gave the work."""
        assert isinstance(caller, IatSender)  # noqa: S101  as `admit` gives it
        execute = self.executes.find(caller.said.parent)
        if not self.guard.insecure:
            execute.check_sender(caller.session.who)
        return await execute.post(posted.frame, caller.said)

    # Pages

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """Returns the routes of the manifest and of the health check."""
        if not self.role:
            return {}
        return {"/manifest": {"GET": self.manifest}, "/health": {"GET": self.health}}

    @policy(Policy.CARD)
    async def manifest(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the manifest, for hosts that search for agents."""
        # Only callers that have introduced themselves may learn in which folder we work.
        us = replace(self.ourselves(), workspace="")
        told = {**introduction_out(us), "protocol": PROTOCOL}
        await answer(send, 200, msgspec.json.encode(told))

    @policy(Policy.OPEN)
    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a health check."""
        await answer(send, 200, b"ok", TEXT)

    # Life

    async def start(self) -> None:
        """Registers with the host, or connects to the sub-agents whose addresses are configured."""
        if self.registration is not None:
            self._registering = asyncio.get_running_loop().create_task(self.registration.run())
        if isinstance(self.agent, HostRole):
            self.agent.connect_agents()

    async def drain(self) -> None:
        """Leaves the host."""
        if isinstance(self.agent, HostRole):
            self.agent.stopping = True
            self.executes.close_all()
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.wait({self._registering}, timeout=LINGER)

    async def stop(self) -> None:
        """Disconnects all sub-agents. Their work was still relayed while the engine stopped."""
        if isinstance(self.agent, HostRole):
            await self.agent.close()


def _context(session: IatCallee, said: Envelope, found: IatSession) -> Context:
    """Returns the context of a call: its caller, and the tools that the caller offers."""
    session.known, session.granted = found.tools, found.granted
    caller = replace(
        found.caller, dialect=session.dialect, tools=session.tools, hops=MOST_TTL - said.ttl
    )
    # Over HTTP these fields are headers; a WebSocket has none.
    if said.cursor:
        caller = replace(caller, cursor=cursor_in(said.cursor))
    if said.deadline:
        caller = replace(caller, deadline=deadline_in(said.deadline))
    if said.key:
        caller = replace(caller, idempotency_key=key_in(said.key))
    return caller


def _no_host(met: Introduction, caller: Context, peer: Peer | None, token: str) -> None:
    """Does nothing: without a host in this process, whoever registers is a caller."""


async def _any_name(met: Introduction, peer: Peer | None) -> None:
    """Accepts any name: without a host in this process there are no sub-agents."""


def _bare(caller: Context) -> Context:
    """Returns the context of the caller without the fields of its first message."""
    return Context(**identity_of(caller))


def _told_root(agent: Agent, settings: Settings) -> str:
    """Returns the folder that we name to IAT peers in our introduction: the one in which our agent
    works, or the one to which a host confines its sub-agents."""
    if isinstance(agent, HostRole):
        return agent.workspace_root
    space = granted(settings.workspace, agent.workspace)
    return str(Path(space.root).absolute()) if space is not None else ""


def _schemas(card: Card) -> dict[str, dict[str, Json]]:
    """Returns the JSON Schemas of the skills on a card, by the ids of the skills."""
    params = next((each.params for each in card.extensions if each.uri == SKILLS), None) or {}
    found = params.get("schemas")
    return found if isinstance(found, dict) else {}
