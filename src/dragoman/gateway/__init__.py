"""The gateway: agents elsewhere, in any dialect, as agents of ours (ADR 0005, ADR 0017)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .upstream_agent import UpstreamAgent

__all__ = ["UpstreamAgent"]


def __getattr__(name: str) -> Any:
    # It is imported when it is used, so that servers which only ask for the health of their own
    # agents need no HTTP client.
    if name != "UpstreamAgent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .upstream_agent import UpstreamAgent

    return UpstreamAgent
