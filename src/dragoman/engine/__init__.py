"""The task engine: the only writer of tasks."""

from dragoman.settings import EngineSettings

from .engine import Engine

__all__ = ["Engine", "EngineSettings"]
