"""The task engine: the only writer of tasks."""

from .engine import Engine
from .runner import EngineSettings

__all__ = ["Engine", "EngineSettings"]
