"""`POST /agents` and `DELETE /agents/{name}`: agents register themselves, or an operator does.

Callers authenticate with the schemes of the settings, and their scopes say what they may do. With
`agents:register` they register agents of their own, with a lease that they have to renew. With
`agents:admin` they act as the operator, whose entries take precedence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.client.addresses import dialects_of, web_form
from dragoman.client.cards import card_in
from dragoman.core.errors import (
    BadParams,
    ConfigError,
    Conflict,
    DragomanError,
    Forbidden,
    StoreUnavailable,
    TooLarge,
    TooMany,
    TooSlow,
    Unauthenticated,
)
from dragoman.core.model import Json
from dragoman.core.peer import Context
from dragoman.gateway.registry import Registry, told
from dragoman.net.http.asgi import Handler, Receive, Scope, Send, answer, headers_in
from dragoman.net.http.mount_point import AGENTS
from dragoman.net.http.request_body import RequestBody
from dragoman.net.server_context import ServerContext
from dragoman.security.access_control import ServerAccess
from dragoman.security.outbound.guarded_http import Rules, Unreachable, addresses, parse
from dragoman.security.route_policy import Policy, admitted, policy
from dragoman.settings import Settings
from dragoman.store.clock import wall_clock
from dragoman.store.registry import RegistryEntry, Source

from ..agent_names import checked

if TYPE_CHECKING:
    from dragoman.observability.audit_log import AuditLog

REGISTER, ADMIN = "agents:register", "agents:admin"
"""The scopes that a caller needs."""
MOST_BODY = 256 * 1024
MOST_ADDRESSES, MOST_TAGS, MOST_TAG_CHARS = 16, 32, 64
SHORTEST_LEASE, LEASE, LONGEST_LEASE = 5.0, 60.0, 86_400.0
"""The shortest, the default and the longest lease, in seconds."""
PATTERN = f"{AGENTS}/{{name}}"
XIAOYI_SCHEME = "xiaoyi"
_STATUS: dict[type[DragomanError], int] = {
    Unauthenticated: 401,
    Forbidden: 403,
    TooSlow: 408,
    Conflict: 409,
    TooLarge: 413,
    TooMany: 429,
    StoreUnavailable: 503,
}


class RegistrationRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a registration."""

    name: str
    url: str = ""
    """The address of the agent, in any dialect. If it is empty, the lease is renewed."""
    urls: tuple[str, ...] = ()
    """More addresses of the same agent."""
    card: dict[str, Json] | None = None
    tags: tuple[str, ...] = ()
    lease: float | None = None
    """The seconds for which the agent is registered, unless it renews its lease."""


_read = msgspec.json.Decoder(RegistrationRequest).decode


class RegistrationRecord:
    """The line of the audit log about one registration. Callers that are not known write none."""

    def __init__(self, audit: AuditLog | None, operation: str) -> None:
        self._audit, self._operation = audit, operation
        self._caller: Context | None = None
        self.agent = "-"

    def begin(self, caller: Context) -> None:
        """Notes who asks. Raises `StoreUnavailable` if nothing can be recorded now."""
        if self._audit is not None:
            self._audit.check()
        self._caller = caller if caller.schemes else None

    def done(self, source: Source) -> None:
        """Records that the registry was changed."""
        self._record("ok", source.value)

    def refused(self, error: DragomanError | LookupError) -> None:
        """Records that the registry was not changed."""
        self._record(error.reason if isinstance(error, DragomanError) else "not_found", "")

    def _record(self, outcome: str, why: str) -> None:
        if self._audit is None or self._caller is None:
            return
        from dragoman.observability.audit_log import audited_change

        self._audit.record(
            audited_change(self._caller, self._operation, self.agent, outcome=outcome, why=why)
        )


class RegistrationEndpoints:
    """Registers agents for callers that may do so."""

    def __init__(
        self,
        registry: Registry,
        access: ServerAccess,
        server: ServerContext,
        settings: Settings,
        audit: AuditLog | None,
    ) -> None:
        self._registry, self._access, self._server = registry, access, server
        self._audit = audit
        self._rules = Rules(
            allow_private=settings.server.allow_private, ports=tuple(range(1, 65_536))
        )

    def routes(self) -> dict[str, dict[str, Handler]]:
        """Returns the routes, beside those of the list."""
        return {
            AGENTS: {"POST": self.register},
            f"{AGENTS}/": {"POST": self.register},
            PATTERN: {"DELETE": self.unregister},
        }

    @policy(Policy.CALLER)
    async def register(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Registers an agent, or renews its lease."""
        body = RequestBody(scope, receive, headers_in(scope["headers"]))
        record = RegistrationRecord(self._audit, "RegisterAgent")
        try:
            source, owner = await self._owner(scope, record)
            data = await body.read(self._server)
            if len(data) > MOST_BODY:
                raise TooLarge(limit=str(MOST_BODY))
            try:
                said = _read(data)
            except (msgspec.DecodeError, UnicodeDecodeError) as exc:
                raise BadParams(f"The registration is not valid: {exc}") from None
            record.agent = said.name
            entry = await self._register(said, source, owner)
        except (DragomanError, LookupError) as error:
            record.refused(error)
            await body.drain()
            await self._refuse(send, error)
            return
        if said.url or said.urls:  # a renewal, every few seconds, changes nothing
            record.done(entry.source)
        found = {"name": entry.name, **told(entry, wall_clock())}
        await answer(send, 200, msgspec.json.encode(found))

    @policy(Policy.CALLER)
    async def unregister(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Removes an agent of the caller, or any agent if the caller is the operator."""
        await RequestBody(scope, receive, headers_in(scope["headers"])).drain()
        whole = f"{scope.get('root_path', '')}{scope['path']}".rstrip("/")
        name = whole.rpartition("/")[2]
        record = RegistrationRecord(self._audit, "UnregisterAgent")
        try:
            source, owner = await self._owner(scope, record)
            record.agent = name
            known = await self._registry.store.find(name)
            if known is not None and source is Source.CLI and known.source is not Source.FILE:
                source, owner = known.source, known.owner
            if not await self._registry.store.remove(name, source, owner):
                raise LookupError(f"You have registered no agent called {name[:64]}.")
            await self._registry.look()
        except (DragomanError, LookupError) as error:
            record.refused(error)
            await self._refuse(send, error)
            return
        record.done(source)
        await answer(send, 204)

    async def _owner(self, scope: Scope, record: RegistrationRecord) -> tuple[Source, str]:
        caller: Context = await admitted(scope, self._access.authenticator)
        record.begin(caller)
        if ADMIN in caller.scopes:
            return Source.CLI, ""
        if REGISTER not in caller.scopes:
            raise Forbidden(
                f"To register agents, a caller needs the scope {REGISTER} or {ADMIN}.",
                scope=REGISTER,
            )
        return Source.TOKEN, f"{caller.tenant}/{caller.principal}"

    async def _register(
        self, said: RegistrationRequest, source: Source, owner: str
    ) -> RegistryEntry:
        store, now = self._registry.store, wall_clock()
        name = checked(said.name)
        lease = said.lease if said.lease is not None or source is Source.CLI else LEASE
        if lease is not None and not SHORTEST_LEASE <= lease <= LONGEST_LEASE:
            raise BadParams(
                f"lease must be between {SHORTEST_LEASE:g} and {LONGEST_LEASE:g} seconds.",
                field="lease",
            )
        until = now + int(lease * 1000) if lease is not None else 0
        if not said.url and not said.urls:
            if not await store.renew(name, source, owner, until):
                raise LookupError(f"You have registered no agent called {name}: send its url.")
            entry = await store.find(name)
            assert entry is not None  # noqa: S101  it was renewed just now
            return entry
        urls = tuple(dict.fromkeys(filter(None, (said.url, *said.urls))))
        await self._check(urls, said.tags, source)
        card = msgspec.json.encode(said.card) if said.card is not None else b""
        if card:
            try:
                card_in(card)
            except DragomanError as exc:
                raise BadParams(exc.message, field="card") from None
        entry = await store.put(
            RegistryEntry(
                name=name,
                source=source,
                owner=owner,
                addresses=urls,
                card=card.decode(),
                tags=said.tags,
                until=until,
            )
        )
        await self._registry.look()
        return entry

    async def _check(self, urls: tuple[str, ...], tags: tuple[str, ...], source: Source) -> None:
        if len(urls) > MOST_ADDRESSES:
            raise BadParams(f"An agent has at most {MOST_ADDRESSES} addresses.", field="urls")
        if len(tags) > MOST_TAGS or any(len(tag) > MOST_TAG_CHARS for tag in tags):
            raise BadParams(
                f"An agent has at most {MOST_TAGS} tags of {MOST_TAG_CHARS} characters.",
                field="tags",
            )
        for url in urls:
            try:
                if _is_listened_at(url) and (source is Source.TOKEN or await self._is_public(url)):
                    raise BadParams(
                        f"{url[:200]} is an address where we would listen, and none of an agent. "
                        "An agent of XiaoYi dials in with a key.",
                        field="url",
                    )
                await self._resolved(url, self._rules)
            except ConfigError as exc:
                raise BadParams(exc.message, field="url") from None
            except Unreachable as exc:
                raise BadParams(f"{url[:200]} cannot be reached: {exc}.", field="url") from None
            except BadParams as exc:
                if self._rules.allow_private or not await self._is_private(url):
                    raise
                hint = "It is private: the operator would have to set allow_private in [server]."
                raise BadParams(f"{exc.message}. {hint}", field="url") from None

    async def _resolved(self, url: str, rules: Rules) -> list[str]:
        """Returns where a url leads. Raises what is wrong with it."""
        dialects_of(url)
        target = parse(web_form(url), rules)
        return await addresses(target.host, target.port, rules)

    async def _is_private(self, url: str) -> bool:
        """Returns whether `allow_private` is all that a url lacks."""
        try:
            await self._resolved(url, replace(self._rules, allow_private=True))
        except (DragomanError, Unreachable):
            return False
        return True

    async def _is_public(self, url: str) -> bool:
        """Returns whether a url leads to a public address."""
        try:
            await self._resolved(url, replace(self._rules, allow_private=False))
        except (DragomanError, Unreachable):
            return False
        return True

    async def _refuse(self, send: Send, error: DragomanError | LookupError) -> None:
        if isinstance(error, LookupError):
            body = msgspec.json.encode({"error": "not_found", "message": str(error)})
            await answer(send, 404, body)
            return
        status = next((_STATUS[each] for each in type(error).__mro__ if each in _STATUS), 400)
        body = msgspec.json.encode({"error": error.reason, "message": error.message})
        await answer(send, status, body, extra=self._access.authenticator.refusal_headers(error))


def _is_listened_at(url: str) -> bool:
    """Returns whether a url says where we listen for an agent, and not where the agent is."""
    return url.partition("+")[0] == XIAOYI_SCHEME and any(dialects_of(url))


def is_entry(path: str) -> bool:
    """Returns whether a path is that of one entry: `/agents/{name}`."""
    return path.startswith(f"{AGENTS}/") and path.rstrip("/").count("/") == 2
