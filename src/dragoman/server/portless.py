"""Runs an agent that opens no port: it is reached over a link that it dials, or in chat rooms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .app import App
from .engines import engines_for
from .process import tuning
from .serve import run_loop, stop_signals

if TYPE_CHECKING:
    from dragoman.agent import Agent
    from dragoman.core.errors import DragomanError
    from dragoman.observability.log import Log
    from dragoman.settings import Settings

Ends = Callable[[App], tuple[asyncio.Future[Any], Mapping[str, str]]]
"""Returns what is done when the agent cannot be reached any more, with the reason as an error or
None, and what the log says at the start."""


def run_without_port(agent: Agent, settings: Settings, ends: Ends) -> None:
    """Runs an agent until it is told to stop. Raises the error with which it ended by itself."""
    from dragoman.observability.log import set_up

    log = set_up(settings.server.log_level, settings.server.log_format)
    try:
        run_loop(_run(agent, settings, log, ends))
    finally:
        log.close()


async def _run(agent: Agent, settings: Settings, log: Log, ends: Ends) -> None:
    agents = {"": agent}
    peers, pool = engines_for(agents, settings)
    app = App(agents, peers, settings, log, pool=pool)
    stopping = stop_signals(log)
    try:
        await app.start()
        tuning.collect_less_often()
        ended, about = ends(app)
        log.info("started", agent=agent.name, **about)
        first: set[asyncio.Future[Any]] = {stopping, ended}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        why: DragomanError | None = ended.result() if ended.done() else None
        if why is not None:
            raise why
    finally:
        await app.stop()
