"""A small web server of ours that plays a chat service, for clients that can be sent there."""

from __future__ import annotations

from aiohttp import web

from ports import own_port


class WebService:
    """An application of aiohttp on a port of its own. What it knows outlives its connections."""

    def __init__(self) -> None:
        self.port = own_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._runner: web.AppRunner | None = None

    def routes(self) -> list[web.RouteDef]:
        raise NotImplementedError

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.add_routes(self.routes())
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
