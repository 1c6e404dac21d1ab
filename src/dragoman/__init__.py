"""Write an agent once, speak every agent-to-agent dialect."""

from typing import TYPE_CHECKING

from dragoman.lazy_names import lazy_names

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

# Each module is imported when one of its names is used, so that `dragoman --help` needs none of
# them, and a server needs no HTTP client.
__getattr__ = lazy_names(
    __name__,
    {
        "agent": "Agent Answer SyncTurn Turn",
        "agent.parts": "file",
        "backend": "Backend",
        "client": "connect",
        "core.card": "Extension Provider",
        "core.events": "ArtifactChunk Ask Asked Event Note Noted Opened Snapshot Stamped "
        "StateChanged",
        "core.model": "Artifact Blob Data Hook Link Message Part Role State Status Task Text",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
