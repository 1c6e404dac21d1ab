"""The IAT host: sub-agents register with it, call its tools and ask it questions."""

from .host import Host
from .sub_agent import SubAgent

__all__ = ["Host", "SubAgent"]
