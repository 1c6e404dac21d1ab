"""The gateway: agents elsewhere, in any dialect, as agents of ours (ADR 0005, ADR 0017)."""

from typing import TYPE_CHECKING

from dragoman.lazy_names import lazy_names

if TYPE_CHECKING:
    from .upstream_agent import UpstreamAgent

__all__ = ["UpstreamAgent"]
__getattr__ = lazy_names(__name__, {"upstream_agent": "UpstreamAgent"})
