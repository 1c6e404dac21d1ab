"""The mount point of an app or of one of its agents, and paths relative to it.

Everything behind the router sees paths that are relative to the mount point: `scope["path"]` is the
part after it, and `scope["root_path"]` is the mount point itself, including that of an app around
ours. ASGI says that a path includes the `root_path`. Older servers and frameworks leave it out;
both forms work.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from .asgi import Scope
from .forwarded import typed_base

AGENTS = "/agents"
"""The path below which a server with several agents serves each of them at its name."""
HOSTED = "dragoman.hosted"
"""The key that marks the scope of a request to the host of one agent."""
IN_PATHS = "/:@!$&'()*+,;=~"
"""The characters that need no escape in a path (RFC 3986 §3.3)."""


class MountPoint(Struct, frozen=True):
    """The place of an agent on its server."""

    base: str = ""
    """The URL of the server; empty if only callers know it."""
    path: str = ""
    """The path of the agent; empty for the only agent of a server."""

    @property
    def url(self) -> str:
        """Returns the URL of the agent; empty if only callers know it."""
        url = f"{self.base}{self.path}" if self.base else ""
        return as_folder(url) if self.path else url

    def url_in(self, scope: Scope, headers: Mapping[str, str]) -> str:
        """Returns the address of the agent for the caller of this request. It ends with a slash
        if the agent has a path here; a public URL with a path is what the operator wrote."""
        if HOSTED in scope:
            return f"{typed_base(scope, headers)}{quote(scope.get('root_path', ''), safe=IN_PATHS)}"
        root = quote(scope.get("root_path", "").rstrip("/"), safe=IN_PATHS)
        around = root.removesuffix(self.path)
        base = self.base or typed_base(scope, headers)
        own = urlsplit(base).path.rstrip("/")
        if own and f"{around}/".startswith(f"{own}/"):
            base = base.rstrip("/").removesuffix(own)  # the public URL includes the mount point
        url = f"{base}{around}{self.path}"
        return as_folder(url) if around or self.path else url


def as_folder(url: str) -> str:
    """Returns the address of an agent with a slash at the end, if it has a path. Clients resolve
    `.well-known/agent-card.json` against it (RFC 3986 §5.2.3 drops what follows the last slash),
    and inside another app the path without the slash belongs to that app."""
    return f"{url}/" if urlsplit(url).path.strip("/") and not url.endswith("/") else url


def host_in(scope: Scope) -> str:
    """Returns the name in the `Host` header, in lower case and without a port, or an empty text if
    there is not exactly one."""
    found = [value for name, value in scope["headers"] if name == b"host"]
    host: str = found[0].decode("latin-1").lower() if len(found) == 1 else ""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def relative(scope: Scope) -> Scope:
    """Returns the request as seen by an app that is mounted in another one at `root_path`."""
    root, path = scope["root_path"].rstrip("/"), scope["path"]
    if path == root or path.startswith(f"{root}/"):
        path = path[len(root) :] or "/"
    changed: Scope = {**scope, "path": path, "root_path": root}
    if raw := scope.get("raw_path"):
        changed["raw_path"] = _rest_of(raw, root, path)
    return changed


def below(scope: Scope, prefix: str) -> Scope:
    """Returns the request as seen by an agent that is mounted at `prefix`."""
    path = scope["path"][len(prefix) :] or "/"
    changed: Scope = {**scope, "path": path, "root_path": scope.get("root_path", "") + prefix}
    if raw := scope.get("raw_path"):
        changed["raw_path"] = _rest_of(raw, prefix, path)
    if path.startswith("//"):  # a path was appended to our address, which ends with a slash
        changed["path"] = f"/{path.lstrip('/')}"
        if rest := changed.get("raw_path"):
            changed["raw_path"] = b"/" + rest.lstrip(b"/")
    return changed


def _rest_of(raw: bytes, prefix: str, path: str) -> bytes | None:
    """Returns the rest of a raw path after the prefix, in which an id may contain an escaped slash.
    Returns None if the prefix is escaped in the raw path, so that only `path` can be used."""
    parts = raw.split(b"/", prefix.count("/") + 1)
    rest = b"/" + parts[-1] if len(parts) == prefix.count("/") + 2 else b"/"
    return next((each for each in (rest, raw) if unquote(each) == path), None)
