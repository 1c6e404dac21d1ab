"""What authors write against: `Agent`, `Turn` and the values they give."""

from .agent import Agent, Shape, Skill
from .answers import Answer, Failed, Rejected
from .turn import SyncTurn, Turn

__all__ = ["Agent", "Answer", "Failed", "Rejected", "Shape", "Skill", "SyncTurn", "Turn"]
