"""What all IAT endpoints of an agent share: who we are, who may speak, and on whose behalf."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.core.card import Card, Tool
from dragoman.core.errors import ConfigError
from dragoman.core.model import Json
from dragoman.core.peer import Context, Peer
from dragoman.core.session import Id, Introduction
from dragoman.dialects.iat.callee import IatCallee
from dragoman.dialects.iat.requests import introduction
from dragoman.dialects.iat.wire import MOST_TTL
from dragoman.engine.task_ids import new_id, now_ms
from dragoman.security.access_control import AccessControl
from dragoman.security.authentication import cursor_in
from dragoman.security.iat import IatAuthenticator, IatSession
from dragoman.security.route_policy import Policy, policy
from dragoman.settings import Settings
from dragoman.store.sessions import SessionBook

from ..http.asgi import TEXT, Receive, Scope, Send, answer
from ..http.exchange import OpenStream, ServerContext

PROTOCOL = "iat/1"
Joined = Callable[[Introduction, Context, Peer | None], None]
"""Told who introduced itself, and (over a WebSocket) how to ask it something."""


class IatContext:
    """What all IAT endpoints of an agent share."""

    def __init__(
        self,
        server: ServerContext,
        access: AccessControl,
        settings: Settings,
        book: SessionBook,
        name: str = "",
    ) -> None:
        """`name` is what the agent is called in the store of its sessions."""
        self.server, self.settings = server, settings.iat
        self.agent: Agent = access.agent
        self.me = settings.iat.agent_id or self.agent.name
        self.workspace = ""
        """The folder our agent works in, as it is told to hosts."""
        if settings.iat.secret and "iat" in (*settings.auth, *self.agent.auth):
            # Its callers would be called NAME:subject, as agents with the secret are.
            raise ConfigError(
                "[auth.iat]: call it otherwise; agents with iat.secret are 'iat:...'."
            )
        rates = settings.rates
        self.guard = IatAuthenticator(
            settings.iat,
            access.admit,
            agent=name or self.agent.name,
            me=self.me,
            book=book,
            locked=access.locked,
            insecure=settings.server.insecure,
            meter=access.meter if rates.calls_per_minute else None,
        )
        self.joined: Joined = lambda met, caller, peer: None
        """For a host that lives in the same process."""
        self.sockets: set[OpenStream] = set()
        self.stopping = False
        """No more sockets are taken: nobody would serve them."""

    def session(self, kind: type[IatCallee] = IatCallee) -> IatCallee:
        """The callee side of a new conversation."""
        return kind(self.me, now=now_ms, new_id=new_id)

    def ourselves(self, id: Id = None) -> Introduction:
        """How our agent introduces itself: its skills are the tools it has."""
        skills = [skill for skill in self.agent.skills.values() if not skill.extended]
        return Introduction(
            id,
            self.me,
            Card(
                name=self.agent.name,
                description=self.agent.description,
                version=self.agent.version,
            ),
            tuple(
                Tool(
                    name=skill.id,
                    description=skill.description,
                    parameters=skill.params.input_schema,
                    returns=skill.params.output_schema,
                )
                for skill in skills
            ),
            self.workspace,
        )

    def welcome(self, met: Introduction, found: IatSession, peer: Peer | None) -> Json:
        """What is answered to someone who introduces itself: a session token, and who we are."""
        if met.card is None:
            self.guard.sessions.grant(found.key, met.tools)
            return {"ok": True}
        token, until = self.guard.sessions.issue(met.who, _bare(found.caller), met.tools)
        self.joined(met, found.caller, peer)
        return {
            **introduction(self.ourselves()),
            "protocol": PROTOCOL,
            "session_token": token,
            "expires_at": int(until),
        }

    def alive(self, session: IatCallee, headers: Mapping[str, str]) -> Json:
        """What is answered to a pulse. It keeps the session."""
        until = self.guard.renew(session.heard, headers)
        return {"ok": True, "expires_at": int(until)} if until else {"ok": True}

    def context(self, session: IatCallee, found: IatSession) -> Context:
        """On whose behalf, and with which tools, a call is made."""
        session.known, session.granted = found.tools, found.granted
        hops = MOST_TTL - session.heard.ttl
        caller = replace(found.caller, dialect=session.dialect, tools=session.tools, hops=hops)
        cursor = session.heard.cursor
        return replace(caller, cursor=cursor_in(cursor)) if cursor else caller

    async def hang_up(self, seconds: float) -> None:
        """Ends every socket, with this long for its last words. Tasks go on: who comes back says
        `watch`."""
        self.stopping = True
        ending = {stream.task for stream in self.sockets}
        for stream in tuple(self.sockets):
            stream.end("stopping")
        if ending:
            await asyncio.wait(ending, timeout=seconds)

    @policy(Policy.CARD)
    async def manifest(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Who we are, for hosts that look around."""
        # Where on our disk we work is for those who introduced themselves.
        us = replace(self.ourselves(), workspace="")
        told = {**introduction(us), "protocol": PROTOCOL}
        await answer(send, 200, msgspec.json.encode(told))

    @policy(Policy.OPEN)
    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """That we are here."""
        await answer(send, 200, b"ok", TEXT)


def _bare(caller: Context) -> Context:
    """Who the caller is, without what only its first message said."""
    return Context(
        tenant=caller.tenant,
        principal=caller.principal,
        tenants=caller.tenants,
        scopes=caller.scopes,
        schemes=caller.schemes,
    )
