"""What a worker has from its parent: its number, its listening socket, and a line to the parent."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.settings import Settings

VARIABLE = "DRAGOMAN_WORKER"
READY = b"ready"
BEAT = b"."
BEAT_SECONDS = 2.0
"""How often a worker shows its parent that it runs."""


class WorkerProcess(Struct, frozen=True, kw_only=True):
    """One of the processes that serve a port together."""

    number: int
    """Counted from 1."""
    count: int
    listening: int
    """The descriptor of the listening socket."""
    control: int
    """The descriptor of a socket whose other end the parent holds."""
    folder: str
    """The folder in which the workers find each other."""

    @property
    def leads(self) -> bool:
        """Whether this worker runs the services that a server has only once."""
        return self.number == 1

    @property
    def environment(self) -> dict[str, str]:
        """The variable that makes a process this worker."""
        return {VARIABLE: msgspec.json.encode(self).decode()}

    def listening_socket(self) -> socket.socket:
        """Returns the socket that the parent has bound."""
        return socket.socket(fileno=self.listening)

    def report_ready(self) -> None:
        """Tells the parent that this worker accepts connections, and from now on that it runs."""
        os.write(self.control, READY)
        # Not in the event loop: code of an agent that blocks it is no reason to end the process.
        threading.Thread(target=self._beat, name="dragoman-beat", daemon=True).start()

    def _beat(self) -> None:
        with suppress(OSError):  # the parent is gone
            while True:
                os.write(self.control, BEAT)
                time.sleep(BEAT_SECONDS)

    def on_orphaned(self, stop: Callable[[], None]) -> None:
        """Calls `stop` when the parent is gone. Nobody would restart or stop this worker any more,
        and a new parent could not have the port."""
        loop = asyncio.get_running_loop()

        def heard() -> None:
            if not os.read(self.control, 64):
                loop.remove_reader(self.control)
                stop()

        loop.add_reader(self.control, heard)


def settings_of_worker(settings: Settings, worker: WorkerProcess) -> Settings:
    """Returns the settings without what only the first worker of a server has: what dials others in
    the name of the whole server."""
    if worker.leads:
        return settings
    return replace(
        settings,
        server=replace(settings.server, register=""),
        iat=replace(settings.iat, host=""),
        channels={},
        agents={name: replace(each, xiaoyi=None) for name, each in settings.agents.items()},
    )


@cache
def current_worker() -> WorkerProcess | None:
    """Returns which worker this process is, or None if it is none. The variable is removed, because
    it must not make workers of the processes that an agent starts."""
    told = os.environ.pop(VARIABLE, "")
    return msgspec.json.decode(told, type=WorkerProcess) if told else None
