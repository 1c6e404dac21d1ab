"""The API for authors of agents: `Agent`, `Turn` and the values that skills return."""

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
