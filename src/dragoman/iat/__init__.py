"""IAT from the host's side: sub-agents that register, tools they may call, questions they ask."""

from .host import Host
from .sub_agent import SubAgent

__all__ = ["Host", "SubAgent"]
