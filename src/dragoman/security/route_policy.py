"""Guards each route by its policy. A route without one is refused (default deny).

Handlers carry their policy as an attribute: exchanges admit callers themselves, since they answer
in the caller's dialect; pages are wrapped here. New routes need one line, and forgetting it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TypeVar

import msgspec

from dragoman.core.errors import (
    ConfigError,
    DragomanError,
    Forbidden,
    StoreUnavailable,
    TooMany,
    Unauthenticated,
)
from dragoman.core.peer import Context
from dragoman.net.http.asgi import (
    AsgiEvent,
    Handler,
    Header,
    Receive,
    Scope,
    Send,
    answer,
    headers_in,
)

from .authentication import Authenticator, certificate_in
from .outbound.address_scopes import within

H = TypeVar("H", bound=Callable[..., object])


class Policy(StrEnum):
    """What a route requires of its callers."""

    OPEN = "open"
    """The route is open, since it tells nothing about anyone."""
    CALLER = "caller"
    """The caller must be authenticated; the handler does that in its dialect."""
    CARD = "card"
    """The setting `server.card_access` decides."""
    METRICS = "metrics"
    """The setting `server.metrics_access` decides."""
    STATUS = "status"
    """The setting `server.status_access` decides, or `metrics_access` if it is empty."""


def policy(which: Policy) -> Callable[[H], H]:
    """Returns a decorator that gives a handler its policy."""

    def mark(handler: H) -> H:
        handler.policy = which  # type: ignore[attr-defined]  # functions take attributes
        return handler

    return mark


Routes = dict[str, dict[str, Handler]]


class Access:
    """A setting for access: `public`, `authenticated`, or address ranges."""

    def __init__(self, key: str, said: str) -> None:
        self.public = said == "public"
        self.authenticated = said == "authenticated"
        self._ranges: list[IPv4Network | IPv6Network] = []
        if not self.public and not self.authenticated:
            try:
                self._ranges = [ip_network(each.strip()) for each in said.split(",")]
            except ValueError as exc:
                raise ConfigError(
                    f"server.{key} is public, authenticated or address ranges: {exc}"
                ) from None

    def holds(self, address: str) -> bool:
        """Returns whether this address lies in the ranges."""
        return within(address, self._ranges)


def policed(
    routes: Mapping[str, Mapping[str, Handler]],
    authenticator: Authenticator,
    access: Mapping[Policy, Access],
) -> Routes:
    """Returns the routes, each guarded by its policy."""
    return {
        path: {method: _kept(handler, authenticator, access) for method, handler in methods.items()}
        for path, methods in routes.items()
    }


def _kept(
    handler: Handler, authenticator: Authenticator, access: Mapping[Policy, Access]
) -> Handler:
    which = getattr(handler, "policy", None)
    if which is None:
        return _refuse
    if which in access and not access[which].public:
        return _behind(handler, authenticator, access[which])
    return handler


@policy(Policy.OPEN)
async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    await refuse(send, Forbidden("This route has no policy."), ())


def _behind(handler: Handler, authenticator: Authenticator, access: Access) -> Handler:
    async def kept(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await check(scope, authenticator, access)
        except DragomanError as error:
            await refuse(send, error, authenticator.refusal_headers(error))
            return
        await handler(scope, receive, _private(send))

    return kept


async def check(scope: Scope, authenticator: Authenticator, access: Access) -> None:
    """Raises what a caller is told that has no access."""
    if access.public:
        return
    if access.authenticated:
        await admitted(scope, authenticator)
    elif not access.holds((scope.get("client") or ("",))[0]):
        raise Forbidden()


async def admitted(scope: Scope, authenticator: Authenticator) -> Context:
    """Returns the caller of a request to a page, which must be one that is known."""
    target = f"{scope['method']} {scope['path']}?{scope['query_string'].decode('latin-1')}"
    found = authenticator.admit(headers_in(scope["headers"]), target, certificate_in(scope))
    caller = found if isinstance(found, Context) else await found
    if not caller.schemes:
        raise Unauthenticated()  # no scheme is set up: nobody can be authenticated
    return caller


def _private(send: Send) -> Send:
    """Marks an answer as private: what not everyone may see must not lie in a shared cache."""

    async def sent(message: AsgiEvent) -> None:
        if message["type"] == "http.response.start":
            headers: list[Header] = [
                (name, b"private, no-cache") if name == b"cache-control" else (name, value)
                for name, value in message["headers"]
            ]
            message = {**message, "headers": headers}
        await send(message)

    return sent


_STATUS = {Unauthenticated: 401, TooMany: 429, StoreUnavailable: 503}


async def refuse(send: Send, error: DragomanError, extra: tuple[Header, ...]) -> None:
    """Answers with an error where there is no dialect to tell it in."""
    status = next((_STATUS[each] for each in type(error).__mro__ if each in _STATUS), 403)
    body = msgspec.json.encode({"error": error.reason, "message": error.message})
    await answer(send, status, body, extra=extra)
