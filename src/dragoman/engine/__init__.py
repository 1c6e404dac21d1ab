"""The task engine: the only writer of tasks."""

from ..settings import EngineSettings
from .engine import Engine

__all__ = ["Engine", "EngineSettings"]
