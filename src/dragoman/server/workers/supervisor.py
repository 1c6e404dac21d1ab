"""The parent of the workers: it starts, watches, restarts, reloads and stops them.

The parent binds one socket for each worker, all to the same port (SO_REUSEPORT), and keeps them
open. A connection that arrives while a worker is replaced therefore waits for the next one instead
of being refused. The parent serves nothing itself and runs no code of an agent, so it survives
whatever happens to the workers.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic

from dragoman.core.errors import ConfigError
from dragoman.core.log import Logger
from dragoman.net.grpc.service import asked_for
from dragoman.net.http.granian_server import bind
from dragoman.settings import Settings

from .worker_process import READY, WorkerProcess

log = Logger("workers")

START = 120.0
"""The seconds in which a new worker must be ready; else the one before it stays."""
STOP = 60.0
"""The seconds in which a worker must have stopped. It gives up its tasks long before."""
SILENCE_SECONDS = 15.0
"""How long a worker may show no sign of life. One that is suspended in the middle of a write would
hold up all others: SQLite has one writer at a time."""
CHECK_SECONDS = 1.0
"""How often we look for signs of life."""
STABLE = 60.0
"""A worker that lived for so many seconds is restarted at once."""
LONGEST_PAUSE = 30.0
BRIEF = 0.05
"""The seconds between two looks at a process that is about to end."""
UNSHARED = ("memory:", "file:")
"""The stores that only one process can use."""


def supervise(settings: Settings, announce: Callable[[socket.socket], None]) -> int:
    """Runs the workers until SIGTERM or SIGINT, and replaces them one by one at SIGHUP. `announce`
    is called with a socket of theirs when they serve. Returns the exit code of the process."""
    server = settings.server
    if server.store.startswith(UNSHARED):
        raise ConfigError(
            f"{server.workers} workers need a store that processes can share, not {server.store}: "
            "set --store sqlite:///PATH."
        )
    bind(server.host, server.port, limits=settings.limits, reserved=server.grpc_port).close()
    if asked_for(settings):
        if not server.grpc_port:
            raise ConfigError("Workers share the port for gRPC: set one, such as --grpc-port 8421.")
        bind(server.host, server.grpc_port, flag="--grpc-port").close()
    folder = tempfile.mkdtemp(prefix="dragoman-workers-")
    try:
        return Supervisor(settings, folder).run(announce)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class SupervisedProcess:
    """One process, and the parent's end of the line to it."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.process, self.control = process, control
        self.started_at = monotonic()
        self.ready = False
        self.seen_at = 0.0
        """When it last showed that it runs."""
        self.ending = False
        """Whether it has closed the line, because it ends."""

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        """Sends a signal to the process, if it has not ended."""
        if self.running:
            self.process.send_signal(number)


class WorkerPlace:
    """The place of one worker: its number, its socket, and the process that fills it now."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.socket: socket.socket | None = None
        self.worker: SupervisedProcess | None = None
        self.crashes = 0
        """The number of workers in a row that ended soon after their start."""
        self.start_at = 0.0


class Supervisor:
    """Keeps a number of workers running."""

    def __init__(self, settings: Settings, folder: str) -> None:
        self._settings, self._folder = settings, folder
        self._port = settings.server.port
        self._places = [WorkerPlace(number + 1) for number in range(settings.server.workers)]
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []

    def run(self, announce: Callable[[socket.socket], None]) -> int:
        """Runs the workers, and returns the exit code of the parent."""
        with self._hearing_signals():
            first, *others = self._places
            # Whatever is wrong with the settings or the agent is reported once, by the first one.
            worker = self._start(first)
            if not self._await_ready(worker):
                return self._stop() if self._stopping else worker.process.wait()
            for place in others:
                self._start(place)
            for place in others:
                if place.worker is not None:
                    self._await_ready(place.worker)
            if not self._stopping and first.socket is not None:
                announce(first.socket)
            looked_at = monotonic()
            while not self._stopping:
                self._look(min(self._pause(), CHECK_SECONDS))
                self._end_silent(looked_at)
                looked_at = monotonic()
                self._restart()
                if signal.SIGHUP in self._signals:
                    self._signals.remove(signal.SIGHUP)
                    self._reload()
            return self._stop()

    @property
    def _stopping(self) -> bool:
        return any(number != signal.SIGHUP for number in self._signals)

    @contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ, None)
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = [signal.signal(each, lambda n, _: self._signals.append(n)) for each in numbers]
        wakes = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakes)
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
            ours.close()
            theirs.close()

    # Starting.

    def _start(self, place: WorkerPlace) -> SupervisedProcess:
        limits, server = self._settings.limits, self._settings.server
        if place.socket is None:
            place.socket = bind(server.host, self._port, limits=limits, shared=True)
            self._port = place.socket.getsockname()[1]  # the first one may choose it
        mine, theirs = socket.socketpair()
        worker = WorkerProcess(
            number=place.number,
            count=len(self._places),
            listening=place.socket.fileno(),
            control=theirs.fileno(),
            folder=self._folder,
        )
        with theirs:
            process = subprocess.Popen(  # noqa: S603  our own command once more
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, **worker.environment},
                pass_fds=(worker.listening, worker.control),
                start_new_session=True,  # Ctrl-C is for us
            )
        mine.setblocking(False)
        place.worker = started = SupervisedProcess(process, mine)
        self._selector.register(mine, selectors.EVENT_READ, started)
        return started

    def _await_ready(self, worker: SupervisedProcess) -> bool:
        """Returns whether a worker became ready, unless we are to stop before."""
        until = worker.started_at + START
        while not worker.ready and worker.running and not self._stopping and monotonic() < until:
            self._look(until - monotonic())
        return worker.ready and worker.running

    def _look(self, seconds: float) -> None:
        """Waits at most so long for a signal, or for news of a worker."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            with suppress(BlockingIOError, ConnectionError):
                news = os.read(key.fd, 64)
                worker: SupervisedProcess | None = key.data
                if worker is None:
                    continue
                if news:
                    worker.ready = worker.ready or READY in news
                    worker.seen_at = monotonic()
                else:
                    self._selector.unregister(key.fd)
                    worker.control.close()
                    worker.ending = True

    # Restarting.

    def _pause(self) -> float:
        """Returns how long nothing has to be done."""
        if any(each.worker is not None and each.worker.ending for each in self._places):
            return BRIEF
        waiting = [each.start_at for each in self._places if each.worker is None]
        return min((at - monotonic() for at in waiting), default=CHECK_SECONDS)

    def _end_silent(self, looked_at: float) -> None:
        """Ends workers that are suspended; `_restart` replaces them. `looked_at` is when we looked
        last: while we were suspended ourselves, we have heard of nobody."""
        now = monotonic()
        for place in self._places:
            worker = place.worker
            if worker is None or not worker.ready or not worker.running:
                continue
            if now - looked_at > SILENCE_SECONDS / 2:
                worker.seen_at = now
            elif now - worker.seen_at > SILENCE_SECONDS:
                log.error(
                    "A worker shows no sign of life, so it is ended",
                    worker=place.number,
                    seconds=SILENCE_SECONDS,
                )
                worker.seen_at = now
                worker.signal(signal.SIGKILL)

    def _restart(self) -> None:
        now = monotonic()
        for place in self._places:
            worker = place.worker
            if worker is not None and not worker.running:
                soon = now - worker.started_at < STABLE
                place.crashes = place.crashes + 1 if soon else 0
                pause = 0.0 if place.crashes < 2 else min(2.0 ** (place.crashes - 2), LONGEST_PAUSE)
                code, place.worker, place.start_at = worker.process.returncode, None, now + pause
                log.error("A worker ended", worker=place.number, code=code, again_in=pause)
                if pause and place.socket is not None:
                    # Connections would wait for it in vain, where others could serve them.
                    place.socket.close()
                    place.socket = None
            if place.worker is None and place.start_at <= now:
                self._start(place)

    # Reloading and stopping.

    def _reload(self) -> None:
        """Replaces the workers, one after the other. If a new one does not start, the others stay
        as they are."""
        log.info("The workers are replaced")
        for place in self._places:
            before = place.worker
            if place.number == 1 and before is not None:
                # What a server has only once must not run twice, so this one stops first.
                self._leave(before)
            new = self._start(place)
            if not self._await_ready(new):
                if self._stopping:
                    return
                log.error("A new worker did not start; the others stay", worker=place.number)
                new.signal(signal.SIGKILL)
                if before is not None and before.running:
                    place.worker = before
                return
            if before is not None:
                self._leave(before)
        log.info("The workers were replaced")

    def _leave(self, worker: SupervisedProcess) -> None:
        """Tells a worker to stop, and waits until it has."""
        worker.signal(signal.SIGTERM)
        self._await_end([worker])

    def _await_end(self, workers: list[SupervisedProcess], *, patient: bool = True) -> None:
        """Waits until these workers have stopped, but not longer than they should need. At a second
        signal, it is not `patient` any more."""
        until = monotonic() + STOP
        while any(each.running for each in workers):
            if monotonic() >= until or (not patient and len(self._signals) > 1):
                for each in workers:
                    each.signal(signal.SIGKILL)
            self._look(BRIEF)

    def _stop(self) -> int:
        """Stops all workers; at a second signal, at once."""
        workers = [place.worker for place in self._places if place.worker is not None]
        for place in self._places:
            if place.socket is not None:
                place.socket.close()  # the workers listen on, until they have let callers go
        for worker in workers:
            worker.signal(signal.SIGTERM)
        del self._signals[1:]
        self._await_end(workers, patient=False)
        return 0
