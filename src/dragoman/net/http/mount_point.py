"""Where an app, or one agent of it, is mounted, and which paths lie below that.

Everything behind the router sees paths that are relative to the mount point: `scope["path"]` is
what follows it, and `scope["root_path"]` the mount point itself, with that of another app around
ours. ASGI says that a path includes the `root_path`. Older servers and frameworks leave it out;
both are understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from .asgi import Scope
from .forwarded import typed_base

AGENTS = "/agents"
"""Below it lie the agents of a server that has several, each at its name."""
IN_PATHS = "/:@!$&'()*+,;=~"
"""What stands in a path as it is (RFC 3986 §3.3)."""


class MountPoint(Struct, frozen=True):
    """The address of an agent."""

    base: str = ""
    """The address of the server; empty if only callers know it."""
    path: str = ""
    """What follows it: nothing for the only agent of a server."""

    @property
    def url(self) -> str:
        """The address of the agent; empty if only callers know it."""
        return f"{self.base}{self.path}" if self.base else ""

    def url_in(self, scope: Scope, headers: Mapping[str, str]) -> str:
        """The address of the agent for the caller of this request. In another app it ends with a
        slash: what has none is that app's own path, which it redirects at best."""
        root = quote(scope.get("root_path", "").rstrip("/"), safe=IN_PATHS)
        around = root.removesuffix(self.path)
        base = self.base or typed_base(scope, headers)
        own = urlsplit(base).path.rstrip("/")
        if own and f"{around}/".startswith(f"{own}/"):
            base = base.rstrip("/").removesuffix(own)  # the operator has named it there already
        return f"{base}{around}{self.path}{'/' if around and not self.path else ''}"


def relative(scope: Scope) -> Scope:
    """The request as an app sees it that is mounted in another one, at `root_path`."""
    root, path = scope["root_path"].rstrip("/"), scope["path"]
    if path == root or path.startswith(f"{root}/"):
        path = path[len(root) :] or "/"
    changed: Scope = {**scope, "path": path, "root_path": root}
    if raw := scope.get("raw_path"):
        changed["raw_path"] = _rest_of(raw, root, path)
    return changed


def below(scope: Scope, prefix: str) -> Scope:
    """The request as an agent sees it that is mounted at `prefix`."""
    path = scope["path"][len(prefix) :] or "/"
    changed: Scope = {**scope, "path": path, "root_path": scope.get("root_path", "") + prefix}
    if raw := scope.get("raw_path"):
        changed["raw_path"] = _rest_of(raw, prefix, path)
    return changed


def _rest_of(raw: bytes, prefix: str, path: str) -> bytes | None:
    """What follows the prefix in a path as it was sent, where an id may hold an escaped slash;
    None if that cannot be told, and then `path` is all there is to know."""
    parts = raw.split(b"/", prefix.count("/") + 1)
    rest = b"/" + parts[-1] if len(parts) == prefix.count("/") + 2 else b"/"
    return next((each for each in (rest, raw) if unquote(each) == path), None)
