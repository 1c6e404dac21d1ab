"""The extra that MCP needs: whether it is installed, and the error if it is not."""

from __future__ import annotations

import importlib.util

from dragoman.core.errors import ConfigError

INSTALL = "pip install 'dragoman[mcp]'"


def installed() -> bool:
    """Returns whether the `mcp` package is installed. It is not imported for that."""
    return importlib.util.find_spec("mcp") is not None


def require() -> None:
    """Raises `ConfigError` if the `mcp` package is not installed."""
    if not installed():
        raise ConfigError(f"MCP is not installed; add it with: {INSTALL}")
