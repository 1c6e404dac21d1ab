"""Write an agent once, speak every agent-to-agent dialect."""

from .agent import Agent, Answer, SyncTurn, Turn
from .agent.values import file
from .card import Provider
from .model import Artifact, Blob, Data, Link, Message, Part, Role, State, Task, Text

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Answer",
    "Artifact",
    "Blob",
    "Data",
    "Link",
    "Message",
    "Part",
    "Provider",
    "Role",
    "State",
    "SyncTurn",
    "Task",
    "Text",
    "Turn",
    "__version__",
    "file",
]
