"""Agents inside a FastAPI or Starlette application:

    app = FastAPI()
    mount(app, "/desk", agent)

Nothing of Starlette is imported here: the application that is passed in is all that is needed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from dragoman import settings as config
from dragoman.app import App, create_app
from dragoman.server.agent_names import Agents


class _Routes(Protocol):
    lifespan_context: Any


class WebApplication(Protocol):
    """What we need of a FastAPI or Starlette application."""

    @property
    def router(self) -> _Routes:
        """The router, which holds the lifespan."""

    def mount(self, path: str, app: Any) -> None:
        """Serves an ASGI app below a path."""


def mount(host: WebApplication, path: str, agents: Agents, **options: Any) -> App:
    """Serves one agent at `path`, or several at `path/agents/{name}`, and starts and stops them
    with the application. Returns the mounted app.

    The options are the keys of `[server]` in the settings, and `cors` with those of `[cors]`; the
    variables and the file of the settings count too, unless `settings=` is given. The agents start
    before the lifespan of the application begins, and stop after it has ended.
    """
    settings, file = options.pop("settings", None), options.pop("config", None)
    app = create_app(agents, settings or config.load(options, os.environ, file))
    host.mount(path, app)
    around = host.router.lifespan_context

    def lifespan(application: Any) -> AbstractAsyncContextManager[Any]:
        return _both(app.lifespan(), around(application))

    host.router.lifespan_context = lifespan
    return app


@asynccontextmanager
async def _both(
    ours: AbstractAsyncContextManager[None], theirs: AbstractAsyncContextManager[Any]
) -> AsyncIterator[Any]:
    async with ours, theirs as state:
        yield state
