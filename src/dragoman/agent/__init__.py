"""What authors write against: `Agent`, `Turn` and the values they give."""

from .agent import Agent, Shape, Skill
from .answers import Answer, Failed, Rejected
from .blocking import SyncTurn
from .calls import Colleague
from .turn import Turn

__all__ = [
    "Agent",
    "Answer",
    "Colleague",
    "Failed",
    "Rejected",
    "Shape",
    "Skill",
    "SyncTurn",
    "Turn",
]
