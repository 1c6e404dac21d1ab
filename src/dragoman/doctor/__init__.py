"""`dragoman doctor`: checks an agent against the specification."""

from . import checks
from .check import CHECKS, Check, Level
from .report import CheckResult, Report
from .run import Orders, examine

__all__ = ["CHECKS", "Check", "CheckResult", "Level", "Orders", "Report", "checks", "examine"]
