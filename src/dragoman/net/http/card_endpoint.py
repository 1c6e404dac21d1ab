"""Serves the agent's card at its well-known paths, encoded in advance, with headers for caches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from time import gmtime

from dragoman.core.card import Card
from dragoman.dialects.a2a.cards import documents
from dragoman.security.route_policy import Policy, policy

from .asgi import JSON, Handler, Header, Receive, Scope, Send, answer, headers_in
from .mount_point import MountPoint

MAX_AGE = 300
HTML: Header = (b"content-type", b"text/html; charset=utf-8")
PAGE_HEADERS: tuple[Header, ...] = (
    (b"vary", b"Accept"),
    # The card may hold text of others. Nothing on the page is executed or fetched.
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
)
MOST_HOSTS = 64
"""The number of host names for which the encoded card is kept; for others it is encoded again."""


def is_browser(headers: Mapping[str, str]) -> bool:
    """Returns whether the client wants a page for people."""
    return "text/html" in headers.get("accept", "")


class CardEndpoint:
    """Serves the card: in the form of 1.0 to clients that ask for 1.0, and in a form that fits all
    versions to others."""

    def __init__(
        self, card_at: Callable[[str], Card], mount_point: MountPoint, since: float
    ) -> None:
        self._card_at = card_at
        self._mount_point = mount_point
        self._modified = _http_date(since)
        self._forms = dict(_FORMS)
        self._ready: dict[tuple[str, str], tuple[bytes, bytes]] = {}

    def renew(self, since: float) -> None:
        """Has the card encoded again at the next request, because it has changed at this time."""
        self._modified = _http_date(since)
        self._ready.clear()

    def routes(
        self, below: Iterable[str] = (), *, rest: bool = False
    ) -> dict[str, dict[str, Handler]]:
        """Returns the routes of the card. Clients of some dialects look for a card `below` the
        address they call, and must not find an interface of another dialect in it. With `rest`,
        there is also an OpenAPI document of that binding."""
        pages: dict[str, Handler] = {
            "/.well-known/agent-card.json": self.current,
            "/.well-known/agent.json": self.legacy,
            **{f"{path}/.well-known/agent.json": self._alone(path) for path in below},
        }
        if rest:
            pages["/openapi.json"] = self.openapi
        return {path: {"GET": page, "HEAD": page} for path, page in pages.items()}

    @policy(Policy.CARD)
    async def openapi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the OpenAPI document of the REST binding."""
        await self._answer("openapi", scope, headers_in(scope["headers"]), send)

    @policy(Policy.CARD)
    async def current(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the card to clients of 0.3 and 1.0."""
        headers = headers_in(scope["headers"])
        version = headers.get("a2a-version", "")
        form = "pure" if version.strip() == "1.0" else "merged"
        await self._answer(form, scope, headers, send)

    @policy(Policy.CARD)
    async def legacy(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the card to clients of 0.1 and 0.2."""
        await self._answer("legacy", scope, headers_in(scope["headers"]), send)

    def _alone(self, path: str) -> Handler:
        self._forms[path] = lambda card, base: documents.alone(card, base.rstrip("/") + path)

        @policy(Policy.CARD)
        async def page(scope: Scope, receive: Receive, send: Send) -> None:
            await self._answer(path, scope, headers_in(scope["headers"]), send)

        return page

    def for_browsers(self, otherwise: Handler) -> Handler:
        """Returns a handler that sends browsers a page about the agent, and leaves all other
        clients to the other handler."""

        @policy(Policy.CARD)
        async def page(scope: Scope, receive: Receive, send: Send) -> None:
            headers = headers_in(scope["headers"])
            if is_browser(headers):
                await self._answer("page", scope, headers, send, HTML, PAGE_HEADERS)
            else:
                await otherwise(scope, receive, send)

        return page

    async def _answer(
        self,
        form: str,
        scope: Scope,
        headers: dict[str, str],
        send: Send,
        kind: Header = JSON,
        more: tuple[Header, ...] = ((b"vary", b"A2A-Version"),),
    ) -> None:
        body, etag = self._page(form, self._mount_point.url_in(scope, headers))
        extra: tuple[Header, ...] = (
            (b"etag", etag),
            (b"last-modified", self._modified),
            (b"cache-control", b"public, max-age=%d" % MAX_AGE),
            *more,
        )
        known = [
            tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")
        ]
        if etag.decode() in known or "*" in known:
            await answer(send, 304, extra=extra)
            return
        await answer(send, 200, body, kind, extra, head=scope["method"] == "HEAD")

    def _page(self, form: str, base: str) -> tuple[bytes, bytes]:
        page = self._ready.get((form, base))
        if page is None:
            body = self._forms[form](self._card_at(base), base)
            page = body, b'"%s"' % hashlib.sha256(body).hexdigest()[:20].encode()
            if len(self._ready) < MOST_HOSTS:
                self._ready[(form, base)] = page
        return page


def _openapi(card: Card, base: str) -> bytes:
    from dragoman.dialects.a2a.openapi import document  # few callers ask for it

    return document(card, base)


def _page(card: Card, base: str) -> bytes:
    from .agent_page import agent_page  # few callers ask for it

    return agent_page(card, base)


_FORMS: dict[str, Callable[[Card, str], bytes]] = {
    "openapi": _openapi,
    "page": _page,
    "pure": lambda card, base: documents.pure_1_0(card),
    "merged": lambda card, base: documents.merged(card),
    "legacy": lambda card, base: documents.legacy(card),
}


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def _http_date(seconds: float) -> bytes:
    """Returns a time as headers spell it (RFC 9110 §5.6.7), in English whatever the locale is."""
    at = gmtime(seconds)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    clock = f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}"
    return f"{day}, {at.tm_mday:02} {month} {at.tm_year} {clock} GMT".encode()
