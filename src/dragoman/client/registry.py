"""The registry of a gateway, from the outside: its lists, and registrations with a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from dragoman.core.errors import (
    BadParams,
    Conflict,
    Forbidden,
    PeerMisbehaved,
    PeerRefused,
    PeerUnreachable,
    TooMany,
    Unauthenticated,
)
from dragoman.security.outbound.guarded_http import GuardedHttp, Rules, Unreachable

TOKEN = "DRAGOMAN_REGISTRY_TOKEN"  # noqa: S105  the name of a variable
"""The variable with the token for registrations."""
TIMEOUT = 30.0
MOST_BYTES = 4 * 1024 * 1024
_ERRORS = {400: BadParams, 401: Unauthenticated, 403: Forbidden, 409: Conflict, 429: TooMany}


class RegistryClient:
    """Asks the registry at the address of a gateway."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url.rstrip("/").removesuffix("/agents")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        # An operator typed the address, so it may lie anywhere.
        self._http = GuardedHttp(Rules(allow_private=True))

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.close()

    async def search(self, **wanted: str) -> list[dict[str, Any]]:
        """Returns the agents that have this `skill`, `tag`, `mode` and the words of `q`; all of
        them if nothing is wanted."""
        found: list[dict[str, Any]] = []
        token = ""
        while True:
            query = {**wanted, "pageSize": "100", "pageToken": token}
            given = urlencode({key: value for key, value in query.items() if value})
            page = await self._ask("GET", f"/agents?{given}")
            agents = page.get("agents") if page is not None else None
            if page is None or not isinstance(agents, list):
                raise PeerMisbehaved(f"{self.url} has no list of agents")
            found += agents
            token = str(page.get("nextPageToken", ""))
            if not token or not agents:
                return found

    async def find(self, name: str) -> dict[str, Any] | None:
        """Returns the entry of an agent, or None if there is none."""
        return await self._ask("GET", f"/agents/{quote(name, safe='')}")

    async def register(self, name: str, url: str, **more: Any) -> dict[str, Any]:
        """Registers an agent, or changes what is registered of it."""
        said = {key: value for key, value in more.items() if value is not None}
        found = await self._ask("POST", "/agents", {"name": name, "url": url, **said})
        if found is None:
            raise PeerMisbehaved(f"{self.url} takes no registrations")
        return found

    async def renew(self, name: str, lease: float) -> bool:
        """Renews the lease of an agent; False if it is not registered any more."""
        return await self._ask("POST", "/agents", {"name": name, "lease": lease}) is not None

    async def remove(self, name: str) -> bool:
        """Removes an agent; False if there is none of this name of ours."""
        return await self._ask("DELETE", f"/agents/{quote(name, safe='')}") is not None

    async def _ask(
        self, method: str, path: str, said: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Returns the answer, or None if there is nothing at this path."""
        headers = {**self._headers, "accept": "application/json"}
        body = b""
        if said is not None:
            body, headers["content-type"] = msgspec.json.encode(said), "application/json"
        try:
            reply = await self._http.request(
                method,
                f"{self.url}{path}",
                headers=headers,
                body=body,
                seconds=TIMEOUT,
                max_size=MOST_BYTES,
            )
        except Unreachable as exc:
            raise PeerUnreachable(f"{self.url} cannot be reached: {exc}") from None
        if reply.status == 404:
            return None
        try:
            told = msgspec.json.decode(reply.body) if reply.body else {}
        except msgspec.DecodeError:
            told = None
        if reply.status >= 400:
            message = str(told.get("message", "")) if isinstance(told, dict) else ""
            message = message or f"{self.url} answered with status {reply.status}"
            error = _ERRORS.get(reply.status)
            raise error(message) if error is not None else PeerRefused(message, code=reply.status)
        if not isinstance(told, dict):
            raise PeerMisbehaved(f"{self.url}{path} did not answer with a JSON object")
        return told
