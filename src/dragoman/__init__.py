"""Write an agent once, speak every agent-to-agent dialect."""

from typing import TYPE_CHECKING, Any

from dragoman.agent import Agent, Answer, SyncTurn, Turn
from dragoman.agent.parts import file
from dragoman.backend import Backend
from dragoman.core.card import Extension, Provider
from dragoman.core.events import (
    ArtifactChunk,
    Ask,
    Asked,
    Event,
    Note,
    Noted,
    Opened,
    Snapshot,
    Stamped,
    StateChanged,
)
from dragoman.core.model import (
    Artifact,
    Blob,
    Data,
    Hook,
    Link,
    Message,
    Part,
    Role,
    State,
    Status,
    Task,
    Text,
)

if TYPE_CHECKING:
    from dragoman.client import connect

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Answer",
    "Artifact",
    "ArtifactChunk",
    "Ask",
    "Asked",
    "Backend",
    "Blob",
    "Data",
    "Event",
    "Extension",
    "Hook",
    "Link",
    "Message",
    "Note",
    "Noted",
    "Opened",
    "Part",
    "Provider",
    "Role",
    "Snapshot",
    "Stamped",
    "State",
    "StateChanged",
    "Status",
    "SyncTurn",
    "Task",
    "Text",
    "Turn",
    "__version__",
    "connect",
    "file",
]


def __getattr__(name: str) -> Any:
    """`connect` brings an HTTP client along, which whoever only serves need not load."""
    if name == "connect":
        from dragoman.client import connect

        return connect
    raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
