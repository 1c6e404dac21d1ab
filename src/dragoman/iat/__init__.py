"""The IAT host: sub-agents register with it, call its tools and ask it questions."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .host import Host
    from .sub_agent import SubAgent

__all__ = ["Host", "SubAgent"]


def __getattr__(name: str) -> Any:
    # They are imported when they are used: most servers of IAT are no hosts.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import host

    return getattr(host, name)
