"""A host as the service of its server sees it. Servers of other agents need no more of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping

from dragoman.core.peer import Context, Peer
from dragoman.core.session import Introduction

from .sub_agent import Dial, SubAgent


class HostRole(ABC):
    """What a server does for a host, and a host for its server."""

    workspace_root: str
    """The folder to which sub-agents are confined. A caller may narrow it further."""
    dial: Dial | None = None
    """Creates the transport to a sub-agent at an address; set by the server."""
    peer: Peer | None = None
    """The engine that runs the host's tasks; set by the server."""
    sessions: Callable[[str], Awaitable[Collection[object]]]
    """Returns the sessions of a registered agent of this name; set by the server."""
    agents: Mapping[str, SubAgent]
    """The sub-agents that are connected, by their names."""
    stopping = False
    """Whether the host is stopping, so that sub-agents are disconnected by us; set by the
    server."""

    @abstractmethod
    async def check_claim(self, met: Introduction, peer: Peer | None) -> None:
        """Raises `Forbidden` if the name belongs to another sub-agent that still responds."""

    @abstractmethod
    def joined(self, met: Introduction, caller: Context, peer: Peer | None, token: str) -> None:
        """Adds an agent that has introduced itself, and got this session token. Without a `peer`
        that can be called, it is only a caller."""

    @abstractmethod
    def connect_agents(self) -> None:
        """Starts to connect to every agent whose address is configured."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnects all sub-agents."""
