"""How the agents of a server are: those in this process, and those that are elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dragoman.store.registry import AgentHealth


class HasHealth(ABC):
    """An agent elsewhere, which may be down."""

    @property
    @abstractmethod
    def health(self) -> AgentHealth:
        """How the agent is, by what its calls and health checks told."""

    @property
    @abstractmethod
    def last_seen(self) -> int:
        """When it answered last, in milliseconds."""


def health_of(agent: object) -> AgentHealth:
    """Returns how an agent is; an agent in this process is up."""
    return agent.health if isinstance(agent, HasHealth) else AgentHealth.UP


def last_seen(agent: object) -> int | None:
    """Returns when an agent elsewhere answered last, in milliseconds; None for an agent in this
    process."""
    return agent.last_seen if isinstance(agent, HasHealth) else None
