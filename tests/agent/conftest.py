"""The same homes as the engine's tests have."""

from engine.conftest import memory

__all__ = ["memory"]
