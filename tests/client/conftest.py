"""The client runs on asyncio's event loop in a user's program, and on uvloop in our server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

ON_BOTH_LOOPS = {"test_talk.py", "test_tls.py"}
"""The files whose tests run on both: they use every dialect and wire."""
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Names the event loops of a test."""
    names = LOOPS if item.path.name in ON_BOTH_LOOPS else ["asyncio"]
    return {name: LOOPS[name] for name in names}
