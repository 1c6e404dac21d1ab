"""Which requests a web page may make a browser send us: those to a name of ours, from a page of
ours.

A browser lets a page talk to the host that the page came from. If the owner of evil.example binds
that name anew to 127.0.0.1, its page talks to us; only `Host` still says evil.example. And any
page may post to us without reading the answer; `Origin` and `Sec-Fetch-Site` say so (Fetch
Metadata). Clients that are no browsers send neither, and are not affected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from dragoman.net.http.asgi import Header, Scope
from dragoman.settings import Server

PROXIED = "dragoman.proxied"
"""The key of a scope whose host a trusted proxy has told."""
OPEN_PATHS = frozenset(("/healthz", "/readyz"))
"""The paths that probes call under any name of ours. They tell a foreign page nothing."""
ACTING_GETS = frozenset(("/a2a/stream",))
"""The paths where a GET opens a task; not even a link on a foreign page may lead there."""
BROWSER_FIELDS = frozenset((b"host", b"origin", b"referer", b"sec-fetch-site", b"sec-fetch-mode"))
MOST_FIELDS = 16
"""The number of such headers in one request; a browser sends each once."""
MOST_REMEMBERED = 256
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+?)\.?(:\d{1,5})?")


class Refusal(NamedTuple):
    """The reason why a request is not served."""

    status: int
    error: str
    message: str


FOREIGN_HOST = Refusal(
    421,
    "host_not_allowed",
    "This host name is not one of this server's. If it is, add it to [server] hosts.",
)
BAD_HOST = Refusal(
    400, "bad_host", "A request of HTTP/1.1 has exactly one Host header (RFC 9112, section 3.2)."
)
CROSS_SITE = Refusal(
    403, "cross_site", "Pages of other web sites may not call this server from a browser."
)


class AllowedHosts:
    """Checks host names and the origins of web pages."""

    def __init__(
        self, server: Server, *, anywhere: bool = False, origins: Iterable[str] = ()
    ) -> None:
        """`origins` are those of other sites whose pages may call us too (`[cors] origins`)."""
        self._any = "*" in server.hosts
        self._origins = frozenset(origin.lower().encode() for origin in origins)
        public = urlsplit(server.public_url)
        names = ["localhost", server.host.lower(), (public.hostname or ""), *server.hosts]
        self._names = {name.lower() for name in names if not name.startswith(".")}
        self._bound = server.host.lower()
        self._suffixes = (".localhost", *(n.lower() for n in server.hosts if n.startswith(".")))
        self._dotless = anywhere or server.host in ("0.0.0.0", "::", "")  # noqa: S104  compared
        """Where every address is bound, names of the own network lead here: a machine's, or a
        container's. No page of the web has a name without a dot."""
        self._public = public.netloc.lower().encode()
        self._known: set[bytes] = set()
        """The values of `Host` that were found to be ours."""

    def add(self, name: str) -> None:
        """Allows a host name: that of one agent."""
        self._names.add(name)

    def remove(self, name: str) -> None:
        """Allows it no longer."""
        self._names.discard(name)
        self._known.clear()

    def refusal(self, scope: Scope) -> Refusal | None:
        """Returns why this request is not served, or None if it is."""
        headers: list[Header] = scope["headers"]
        fields = dict(headers)
        if len(fields) != len(headers):  # rare: a name came twice, and every value must be right
            return self._several(scope, headers)
        # This runs for every request: most of them end here.
        if (
            b"origin" in fields
            or b"sec-fetch-site" in fields
            or b"referer" in fields
            or fields.get(b"host") not in self._known
        ):
            return self._refusal(scope, fields)
        return None

    def _several(self, scope: Scope, headers: list[Header]) -> Refusal | None:
        asked = [(name, value) for name, value in headers if name in BROWSER_FIELDS]
        hosts = [value for name, value in asked if name == b"host"]
        # HTTP/2 has `:authority`, which our listener adds as one more.
        if len(hosts) > 1 and scope.get("http_version", "").startswith("1"):
            return BAD_HOST
        fields = dict(asked)
        if len(asked) > MOST_FIELDS:
            return CROSS_SITE
        for name, value in asked or [(b"", b"")]:
            if (refused := self._refusal(scope, {**fields, name: value})) is not None:
                return refused
        return None

    def _refusal(self, scope: Scope, fields: dict[bytes, bytes]) -> Refusal | None:
        host = fields.get(b"host", b"")
        if not host and scope.get("http_version") == "1.1":
            return BAD_HOST  # our listener adds an empty one where there is none
        if host not in self._known and not self.allows(host) and PROXIED not in scope:
            return None if scope["path"] in OPEN_PATHS else FOREIGN_HOST
        if scope["path"] in ACTING_GETS and _foreign(fields.get(b"referer", b""), host):
            return CROSS_SITE
        if b"origin" not in fields and b"sec-fetch-site" not in fields:
            return None  # no browser, or one that tells nothing to a plain-HTTP address
        if self._own_page(scope, fields, host) or scope["path"] in OPEN_PATHS:
            return None
        return CROSS_SITE

    def allows(self, host: bytes) -> bool:
        """Returns whether this value of `Host` names us."""
        if host in self._known:
            return True
        if not self._any and host and not self._ours(host.decode("latin-1").lower()):
            return False
        if host and len(self._known) < MOST_REMEMBERED:  # none depends on the version of HTTP
            self._known.add(host)
        return True

    def listed_name(self, host: str) -> str:
        """Returns the name in a value of `Host`, without its port, if it is one of the names that
        were written down. Others count as the host that we are bound to, even if they are allowed:
        a client can make up as many of those as it likes."""
        found = _HOST.fullmatch(host.lower())
        return found[1] if found is not None and found[1] in self._names else self._bound

    def _ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1]
        if name in self._names or name.endswith(self._suffixes):
            return True
        if self._dotless and "." not in name:
            return True
        try:
            # A page whose host is an address came from that address, and it is ours.
            return bool(ip_address(name.strip("[]")))
        except ValueError:
            return False

    def _own_page(self, scope: Scope, fields: dict[bytes, bytes], host: bytes) -> bool:
        """Returns whether a browser sends this for a page of ours, or follows a link."""
        origin = fields.get(b"origin")
        if origin is not None:
            if self._origins and (origin.lower() in self._origins or b"*" in self._origins):
                return True
            page = origin.partition(b"://")[2].lower()
            return bool(page) and page in (host.lower(), self._public)
        site = fields[b"sec-fetch-site"]
        if scope["path"] in ACTING_GETS:
            return site in (b"same-origin", b"none")
        if site != b"cross-site":
            return True
        # A link to us on a foreign page; a form that posts is no link.
        reads = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        return reads and fields.get(b"sec-fetch-mode") == b"navigate"


def _foreign(referer: bytes, host: bytes) -> bool:
    """Returns whether a page of another host made this request."""
    page = referer.partition(b"://")[2].partition(b"/")[0]
    return bool(page) and page.lower() != host.lower()
