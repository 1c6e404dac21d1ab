"""The IAT host: sub-agents register with it, call its tools and ask it questions."""

from typing import TYPE_CHECKING

from dragoman.lazy_names import lazy_names

if TYPE_CHECKING:
    from .host import Host
    from .sub_agent import SubAgent

__all__ = ["Host", "SubAgent"]
__getattr__ = lazy_names(__name__, {"host": "Host", "sub_agent": "SubAgent"})
