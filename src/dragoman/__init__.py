"""Write an agent once, speak every agent-to-agent dialect."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.agent import Agent, Answer, SyncTurn, Turn
    from dragoman.agent.parts import file
    from dragoman.backend import Backend
    from dragoman.client.connect import connect
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

_HOMES = {
    "dragoman.agent": "Agent Answer SyncTurn Turn",
    "dragoman.agent.parts": "file",
    "dragoman.backend": "Backend",
    "dragoman.client": "connect",
    "dragoman.core.card": "Extension Provider",
    "dragoman.core.events": "ArtifactChunk Ask Asked Event Note Noted Opened Snapshot Stamped "
    "StateChanged",
    "dragoman.core.model": "Artifact Blob Data Hook Link Message Part Role State Status Task Text",
}
"""The modules of the public names. Each is imported when one of its names is used, so that
`dragoman --help` needs none of them, and a server needs no HTTP client."""
_WHERE = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
