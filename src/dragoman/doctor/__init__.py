"""`dragoman doctor`: is this agent what the specification says an agent is?"""

from . import checks
from .check import CHECKS, Check, Level
from .report import CheckResult, Report
from .run import Orders, examine

__all__ = ["CHECKS", "Check", "CheckResult", "Level", "Orders", "Report", "checks", "examine"]
