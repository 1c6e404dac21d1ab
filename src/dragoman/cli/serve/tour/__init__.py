"""The tour of `dragoman demo`: agents in every dialect, a gateway, and callers in every dialect."""

from .speakers import DialectSpeaker, speakers
from .stage import Stage
from .steps import Tour

__all__ = ["DialectSpeaker", "Stage", "Tour", "speakers"]
