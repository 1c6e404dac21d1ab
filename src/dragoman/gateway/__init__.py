"""The gateway: agents elsewhere, in any dialect, as agents of ours (ADR 0005, ADR 0017)."""

from .upstream_agent import UpstreamAgent

__all__ = ["UpstreamAgent"]
