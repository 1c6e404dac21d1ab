"""`GET /agents` and `/.well-known/ai-catalog.json`: the agents of a server that has several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from urllib.parse import parse_qs, quote, urlsplit

import msgspec
from msgspec import Raw

from dragoman.core.errors import BadParams, DragomanError
from dragoman.core.model import Json
from dragoman.net.http.asgi import Handler, Header, Receive, Scope, Send, answer, headers_in
from dragoman.net.http.card_endpoint import HTML, PAGE_HEADERS, is_browser
from dragoman.net.http.forwarded import typed_base
from dragoman.net.http.mount_point import AGENTS, as_folder
from dragoman.net.http.router import no_route
from dragoman.security.access_control import AccessControl, ServerAccess
from dragoman.security.route_policy import Policy, policy, refuse

from .agent_mount import AgentMount
from .registry.agent_index import AgentIndex, Search

PAGE, MOST = 50, 100
"""The number of agents on a page by default, and at most."""
CARD = "/.well-known/agent-card.json"
CARDS = (CARD, "/.well-known/agent.json")
CATALOG = "/.well-known/ai-catalog.json"
CATALOG_VERSION = "1.0"
MAX_CATALOG_ENTRIES = 1000
MAX_CATALOG_BYTES = 4 * 1024 * 1024
"""The size of a page of the catalog: others wrote the descriptions of registered agents."""
CARD_TYPE = "application/a2a-agent-card+json"
"""The media type of an agent's card in an AI Catalog."""
CATALOG_TYPE: Header = (b"content-type", b"application/ai-catalog+json")
HEADERS: tuple[Header, ...] = ((b"cache-control", b"private, no-cache"),)

About = Callable[[str], Mapping[str, Json]]
"""Returns what is known of an agent beside its card, such as its source and its health."""


class AgentList:
    """Lists the agents whose cards the caller may read, in the order of their names."""

    def __init__(
        self,
        mounts: Mapping[str, AgentMount],
        index: AgentIndex,
        access: ServerAccess | AccessControl,
        *,
        empty: bool = True,
    ) -> None:
        """Unless it may be `empty`, there is no list while there are no agents on it."""
        self._mounts, self._index, self._access, self._empty = mounts, index, access, empty
        self.about: About = lambda name: {}
        self.max_catalog_bytes = MAX_CATALOG_BYTES

    def routes(self) -> dict[str, dict[str, Handler]]:
        """Returns the routes of the list."""
        pages: dict[str, Handler] = {
            AGENTS: self._if_any(self.page),
            f"{AGENTS}/": self._if_any(self.page),
            CATALOG: self._if_any(self.catalog),
        }
        # A client that takes the address of an agent for that of a document looks beside it.
        pages |= {f"{AGENTS}{path}": self._if_any(self.no_card) for path in CARDS}
        if self._empty:  # else the only agent of the server has its card there
            pages |= dict.fromkeys(CARDS, self.no_card)
        found = {path: {"GET": page, "HEAD": page} for path, page in pages.items()}
        if self._empty:
            found["/"] = dict.fromkeys(("GET", "HEAD", "POST"), self.root)
        return found

    @policy(Policy.OPEN)  # as for the list
    async def root(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends browsers the list. For other clients there is nothing at this address."""
        if scope["method"] != "POST" and is_browser(headers_in(scope["headers"])):
            await self.page(scope, receive, send)
        else:
            await no_route(scope, receive, send, None)

    def _if_any(self, page: Handler) -> Handler:
        if self._empty:
            return page

        @policy(Policy.OPEN)  # as both pages
        async def found(scope: Scope, receive: Receive, send: Send) -> None:
            if len(self._index):
                await page(scope, receive, send)
            else:
                await answer(send, 404, b'{"error":"not_found"}', head=scope["method"] == "HEAD")

        return found

    @policy(Policy.OPEN)  # it applies the policy of each card itself
    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends one page of the list. `?pageSize=` sets its size and `?pageToken=` its position;
        `?skill=`, `?tag=`, `?mode=` and `?q=` filter the agents."""
        headers, head = headers_in(scope["headers"]), scope["method"] == "HEAD"
        try:
            search, size, after = _asked(scope["query_string"])
            found, more = await self._readable(scope, search, size, after)
        except BadParams as error:
            body = msgspec.json.encode({"error": error.reason, "message": error.message})
            await answer(send, 400, body, head=head)
            return
        except DragomanError as error:
            await refuse(send, error, self._access.authenticator.refusal_headers(error))
            return
        told: dict[str, Json] = {"agents": [self._entry(each, scope, headers) for each in found]}
        if more:
            told["nextPageToken"] = found[-1].name
        if is_browser(headers):
            from dragoman.net.http.agent_page import agents_page

            body = agents_page(told["agents"], told.get("nextPageToken", ""))
            await answer(send, 200, body, HTML, (*HEADERS, *PAGE_HEADERS), head=head)
            return
        await answer(send, 200, msgspec.json.encode(told), extra=HEADERS, head=head)

    @policy(Policy.OPEN)  # the same
    async def no_card(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers where a client looks for one card although there are several: with the addresses
        of the agents whose cards it may read."""
        headers, head = headers_in(scope["headers"]), scope["method"] == "HEAD"
        try:
            found, more = await self._readable(scope, Search(), PAGE, "")
        except DragomanError as error:
            await refuse(send, error, self._access.authenticator.refusal_headers(error))
            return
        entries = [self._entry(each, scope, headers) for each in found]
        known = [{key: each[key] for key in ("name", "url", "cardUrl")} for each in entries]
        told: dict[str, Json] = {
            "error": "not_found",
            "message": "There are several agents here. Each has a card of its own, at its cardUrl"
            f"{f'; all of them are listed at {AGENTS}' if more else ''}.",
            "agents": known,
        }
        await answer(send, 404, msgspec.json.encode(told), extra=HEADERS, head=head)

    @policy(Policy.OPEN)  # the same
    async def catalog(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the same agents as an AI Catalog, for clients that search for artifacts of any
        kind. `?pageToken=` continues a catalog that is too large for one page."""
        headers, head = headers_in(scope["headers"]), scope["method"] == "HEAD"
        try:
            _, _, after = _asked(scope["query_string"])
            found, more = await self._readable(scope, Search(), MAX_CATALOG_ENTRIES, after)
        except BadParams as error:
            body = msgspec.json.encode({"error": error.reason, "message": error.message})
            await answer(send, 400, body, head=head)
            return
        except DragomanError as error:
            await refuse(send, error, self._access.authenticator.refusal_headers(error))
            return
        base = next(iter(self._mounts.values())).mount_point.base if self._mounts else ""
        host = urlsplit(base or typed_base(scope, headers)).hostname or "localhost"
        entries: list[Raw] = []
        size = 0
        for each in found:
            entry = msgspec.json.encode(self._artifact(each, scope, headers, host))
            size += len(entry)
            if entries and size > self.max_catalog_bytes:
                more = True
                break
            entries.append(Raw(entry))
        told: dict[str, object] = {
            "specVersion": CATALOG_VERSION,
            "host": {"displayName": host, "identifier": f"did:web:{host}"},
            "entries": entries,
        }
        extra = HEADERS
        if more:
            token = told["nextPageToken"] = found[len(entries) - 1].name
            # The format has no pages of its own, so the next one is also linked (RFC 8288).
            extra = (*HEADERS, (b"link", f'<?pageToken={quote(token)}>; rel="next"'.encode()))
        await answer(send, 200, msgspec.json.encode(told), CATALOG_TYPE, extra, head=head)

    def entry_of(self, name: str) -> Handler:
        """Returns the page of one agent: `GET /agents/{name}`."""

        @policy(Policy.CARD)
        async def page(scope: Scope, receive: Receive, send: Send) -> None:
            headers, head = headers_in(scope["headers"]), scope["method"] == "HEAD"
            mount = self._mounts[name]
            # Unlike the address of the list, this one is already below the mount point.
            root = scope.get("root_path", "").removesuffix(mount.mount_point.path)
            told = self._entry(mount, {**scope, "root_path": root}, headers)
            body = msgspec.json.encode(told)
            await answer(send, 200, body, extra=HEADERS, head=head)

        return page

    async def _readable(
        self, scope: Scope, search: Search, size: int, after: str
    ) -> tuple[list[AgentMount], bool]:
        """Returns up to `size` of the agents whose cards this caller may read, and whether there
        are more. If the caller may read none, raises the error to answer it with."""
        names = self._index.find(search, after)
        try:
            await self._access.check_card(scope)
        except DragomanError as refusal:
            return await self._by_own_rules(scope, names, size, refusal)
        found = [self._mounts[name] for name in islice(names, size + 1) if name in self._mounts]
        return found[:size], len(found) > size

    async def _by_own_rules(
        self, scope: Scope, names: Iterator[str], size: int, refusal: DragomanError
    ) -> tuple[list[AgentMount], bool]:
        """Returns the agents whose own code admits this caller although the settings do not."""
        found: list[AgentMount] = []
        for name in names:
            each = self._mounts.get(name)
            if each is None or not each.agent.auth:
                continue
            try:
                await each.access.check_card(scope)
            except DragomanError as error:
                refusal = error
                continue
            found.append(each)
            if len(found) > size:
                return found[:size], True
        if not found:
            raise refusal
        return found, False

    def _entry(
        self, mount: AgentMount, scope: Scope, headers: Mapping[str, str]
    ) -> dict[str, Json]:
        # The requested path is beside the mount point of each agent, not below it.
        below = {**scope, "root_path": scope.get("root_path", "") + mount.mount_point.path}
        url = as_folder(mount.mount_point.url_in(below, headers))
        return {
            "name": mount.name,
            "title": mount.agent.name,
            "description": mount.agent.description,
            "version": mount.agent.version,
            "url": url,
            "cardUrl": f"{url.rstrip('/')}{CARD}",
            **self.about(mount.name),
        }

    def _artifact(
        self, mount: AgentMount, scope: Scope, headers: Mapping[str, str], host: str
    ) -> Json:
        entry = self._entry(mount, scope, headers)
        artifact: dict[str, Json] = {
            "identifier": f"urn:air:{host}:{mount.name}:a2a",
            "displayName": entry["title"],
            "type": CARD_TYPE,
            "mediaType": CARD_TYPE,  # the name of `type` in drafts before 0.9
            "url": entry["cardUrl"],
            "description": entry["description"],
            "version": entry["version"],
        }
        if entry.get("tags"):
            artifact["tags"] = entry["tags"]
        return artifact


def _asked(query: bytes) -> tuple[Search, int, str]:
    try:
        said = parse_qs(query.decode("latin-1"), max_num_fields=16)
    except ValueError:
        raise BadParams("The query cannot be parsed.") from None
    size = said.get("pageSize", [str(PAGE)])[0]
    if not (size.isascii() and size.isdigit() and len(size) < 10 and int(size) > 0):
        raise BadParams("pageSize must be a number of at least 1.", field="pageSize")
    found = {key: said.get(key, [""])[0] for key in ("skill", "tag", "mode", "q")}
    search = Search(skill=found["skill"], tag=found["tag"], mode=found["mode"], text=found["q"])
    return search, min(int(size), MOST), said.get("pageToken", [""])[0]
