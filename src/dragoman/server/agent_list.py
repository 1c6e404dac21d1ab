"""`GET /agents`: the agents of a server that has several."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

import msgspec

from dragoman.core.errors import BadParams, DragomanError
from dragoman.core.model import Json
from dragoman.net.http.asgi import Handler, Header, Receive, Scope, Send, answer, headers_in
from dragoman.net.http.mount_point import AGENTS
from dragoman.security.access_control import ServerAccess
from dragoman.security.route_policy import Policy, policy, refuse

from .agent_mount import AgentMount

PAGE, MOST = 50, 100
"""How many agents stand on a page, if the caller does not say, and at most."""
CARD = "/.well-known/agent-card.json"
HEADERS: tuple[Header, ...] = ((b"cache-control", b"private, no-cache"),)


class AgentList:
    """Lists the agents whose cards the caller may read, in the order of their names."""

    def __init__(self, mounts: Mapping[str, AgentMount], access: ServerAccess) -> None:
        self._mounts = mounts
        self._access = access

    def routes(self) -> dict[str, dict[str, Handler]]:
        """Its address."""
        return {path: {"GET": self.page, "HEAD": self.page} for path in (AGENTS, f"{AGENTS}/")}

    @policy(Policy.OPEN)  # it asks the policy of each card itself
    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One page of them: `?pageSize=` at a time, from where `?pageToken=` says."""
        headers, head = headers_in(scope["headers"]), scope["method"] == "HEAD"
        try:
            size, after = _asked(scope["query_string"])
        except BadParams as error:
            body = msgspec.json.encode({"error": error.reason, "message": error.message})
            await answer(send, 400, body, head=head)
            return
        try:
            found = [each for each in await self._readable(scope) if each.name > after]
        except DragomanError as error:
            await refuse(send, error, self._access.authenticator.refusal_headers(error))
            return
        told: dict[str, Json] = {"agents": [_entry(each, scope, headers) for each in found[:size]]}
        if len(found) > size:
            told["nextPageToken"] = found[size - 1].name
        await answer(send, 200, msgspec.json.encode(told), extra=HEADERS, head=head)

    async def _readable(self, scope: Scope) -> list[AgentMount]:
        """The agents whose cards this caller may read; what it is told if there are none."""
        refusal: DragomanError | None = None
        common = False
        try:
            await self._access.check_card(scope)
            common = True
        except DragomanError as error:
            refusal = error
        found: list[AgentMount] = []
        for _, each in sorted(self._mounts.items()):
            readable = common
            if not common and each.agent.auth:  # what its code lets in besides
                try:
                    await each.access.check_card(scope)
                    readable = True
                except DragomanError as error:
                    refusal = error
            if readable:
                found.append(each)
        if refusal is not None and not found:
            raise refusal
        return found


def _asked(query: bytes) -> tuple[int, str]:
    try:
        said = parse_qs(query.decode("latin-1"), max_num_fields=16)
    except ValueError:
        raise BadParams("The query is not readable.") from None
    size = said.get("pageSize", [str(PAGE)])[0]
    if not (size.isascii() and size.isdigit() and len(size) < 10 and int(size) > 0):
        raise BadParams("pageSize is a number from 1.", field="pageSize")
    return min(int(size), MOST), said.get("pageToken", [""])[0]


def _entry(mount: AgentMount, scope: Scope, headers: Mapping[str, str]) -> Json:
    # What is asked for lies beside the mount point of each agent, not below it.
    below = {**scope, "root_path": scope.get("root_path", "") + mount.mount_point.path}
    url = mount.mount_point.url_in(below, headers)
    return {
        "name": mount.name,
        "title": mount.agent.name,
        "description": mount.agent.description,
        "version": mount.agent.version,
        "url": url,
        "cardUrl": f"{url}{CARD}",
    }
