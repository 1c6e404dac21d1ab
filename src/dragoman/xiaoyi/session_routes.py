"""Chooses the link for the answers of a session: the one over which its last request arrived."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

MOST = 10_000
"""The number of sessions that are remembered. A session that is not remembered may use any link."""


class SessionRoutes:
    """The routes of all sessions. A link is named by the address of its server."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._links: OrderedDict[str, str] = OrderedDict()

    def record(self, session: str, link: str) -> None:
        """Notes that a request of this session came over this link."""
        self._links[session] = link
        self._links.move_to_end(session)
        if len(self._links) > self._most:
            self._links.popitem(last=False)

    def find(self, session: str, open_links: Collection[str]) -> str | None:
        """Returns the link for an answer: that of the session if it is open, otherwise any other
        one, or None if no link is open."""
        link = self._links.get(session)
        return link if link in open_links else next(iter(open_links), None)

    def drop(self, session: str) -> None:
        """Forgets a session that was cleared."""
        self._links.pop(session, None)

    def __contains__(self, session: str) -> bool:
        return session in self._links
