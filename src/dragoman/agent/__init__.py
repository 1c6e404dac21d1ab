"""The API for authors of agents: `Agent`, `Turn` and the values that skills return."""

from typing import TYPE_CHECKING

from dragoman.lazy_names import lazy_names

if TYPE_CHECKING:
    from .agent import Agent
    from .answers import Answer, Failed, Rejected
    from .remote_calls import AgentClient
    from .skill import Shape, Skill
    from .sync_turn import SyncTurn
    from .turn import Turn

__all__ = [
    "Agent",
    "AgentClient",
    "Answer",
    "Failed",
    "Rejected",
    "Shape",
    "Skill",
    "SyncTurn",
    "Turn",
]
__getattr__ = lazy_names(
    __name__,
    {
        "agent": "Agent",
        "answers": "Answer Failed Rejected",
        "remote_calls": "AgentClient",
        "skill": "Shape Skill",
        "sync_turn": "SyncTurn",
        "turn": "Turn",
    },
)
