"""The tour of `dragoman demo`: agents in every dialect, a gateway, and callers in every dialect."""

from .dialects import TourDialect, tour_dialects
from .stage import Stage
from .steps import Tour

__all__ = ["Stage", "Tour", "TourDialect", "tour_dialects"]
