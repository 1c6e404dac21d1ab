"""Serves with one optimization taken out, to see what it buys.

    python -m bench.without tap serve agent.py

Nothing in `src/` can switch these off. They are taken out here, from outside, by replacing the one
function that each of them is.
"""

import sys
from collections.abc import Callable


def _no_batch_scheduling() -> None:
    from dragoman.server.process import tuning

    tuning.use_batch_scheduling = lambda: None


def _default_collector() -> None:
    from dragoman.server.process import tuning

    tuning.collect_less_often = tuning.postpone_collection = lambda: None


def _no_tap() -> None:
    from dragoman.engine.runs.live_log import LiveLog

    LiveLog._feed = lambda self, tap: False  # type: ignore[method-assign]


def _no_read_ahead() -> None:
    from dragoman.net.websocket.reader import WebSocketReader

    async def next_one(self: WebSocketReader) -> dict[str, object]:
        return await self._receive()

    WebSocketReader.next = next_one  # type: ignore[method-assign]


OPTIMIZATIONS: dict[str, Callable[[], None]] = {
    "batch-scheduling": _no_batch_scheduling,
    "collector": _default_collector,
    "tap": _no_tap,
    "read-ahead": _no_read_ahead,
}


if __name__ == "__main__":
    name = sys.argv.pop(1)
    OPTIMIZATIONS[name]()
    from dragoman.cli import main

    main()
