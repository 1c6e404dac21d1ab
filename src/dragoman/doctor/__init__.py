"""`dragoman doctor`: is this agent what the specification says an agent is?"""

from . import checks
from .check import CHECKS, Check, Level
from .report import Report, Result
from .run import Orders, examine

__all__ = ["CHECKS", "Check", "Level", "Orders", "Report", "Result", "checks", "examine"]
