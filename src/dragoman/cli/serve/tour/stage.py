"""The processes of the tour: one with the agents, and one with the gateway in front of them."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dragoman import showcase
from dragoman.core.errors import ConfigError
from dragoman.doctor.guard import Guard
from dragoman.doctor.http import NoAnswer, RawHttp

from .dialects import Ports, TourDialect

START = 60.0
"""The seconds that a server may take to answer for the first time."""


class Stage:
    """Agents in every dialect, and the gateway between them and their callers. Everything that they
    store is in one folder."""

    def __init__(self, port: int, dialects: Sequence[TourDialect], folder: Path) -> None:
        self.dialects = dialects
        self.secret = secrets.token_hex(16)
        self.ports = Ports(free_port(port), free_port(port + 1 if port else 0))
        grpc = any(each.dialect.wire == "grpc" for each in dialects)
        behind = Ports(free_port(0), free_port(0))
        files = []
        for each in dialects:
            # Each has a file of its own, so that they are separate agents with separate tasks.
            file = folder / f"agent_{each.name.replace('-', '_')}.py"
            shutil.copyfile(showcase.__file__, file)
            files.append(f"{each.name}={file.name}")
        settings = folder / "gateway.toml"
        settings.write_text("\n".join(each.section(behind) for each in dialects), "utf-8")
        environ = {**os.environ, "IAT_SECRET": self.secret}
        self.agents = ServerProcess(
            "The agents", ["serve", *files], behind, folder, environ, grpc=grpc
        )
        self.gateway = ServerProcess(
            "The gateway", ["gateway", settings.name], self.ports, folder, environ, grpc=grpc
        )

    def start(self) -> None:
        """Starts the agents, then the gateway, which reads their cards at once."""
        self.agents.start()
        self.agents.wait_ready()
        self.gateway.start()
        self.gateway.wait_ready()

    def stop(self) -> None:
        """Stops both, as Ctrl-C would."""
        for each in (self.gateway, self.agents):
            each.stop()

    def wait(self) -> None:
        """Returns when one of them has ended by itself."""
        while self.gateway.alive and self.agents.alive:
            time.sleep(0.2)
        for each in (self.gateway, self.agents):
            each.check()


class ServerProcess:
    """A command of ours that serves, in a child process."""

    def __init__(
        self,
        title: str,
        command: Sequence[str],
        ports: Ports,
        folder: Path,
        environ: dict[str, str],
        *,
        grpc: bool,
    ) -> None:
        name = command[0]
        self.title, self.ports = title, ports
        self.log = folder / f"{name}.log"
        self._folder, self._environ = folder, environ
        self._command = [sys.executable, "-m", "dragoman", *command, "--port", str(ports.http)]
        self._command += ["--store", f"sqlite:///{folder}/{name}.db"]
        if grpc:
            self._command += ["--grpc-port", str(ports.grpc)]
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid if self._child else 0

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Starts the process."""
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603  our own command
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._environ,
                start_new_session=True,  # Ctrl-C is for us; we stop it in order
            )

    def wait_ready(self) -> None:
        """Waits until the server answers."""
        until = time.monotonic() + START
        while not self._answers():
            self.check()
            if time.monotonic() > until:
                raise ConfigError(f"{self.title} did not start:\n{self._last_words()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kills the server with SIGKILL, as a power cut would."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def stop(self) -> None:
        """Stops the server as Ctrl-C would."""
        child = self._child
        if child is None or child.poll() is not None:
            return
        child.terminate()
        try:
            child.wait(6)
        except subprocess.TimeoutExpired:
            child.kill()

    def check(self) -> None:
        """Raises `ConfigError` if the server has ended."""
        if not self.alive:
            raise ConfigError(f"{self.title} ended:\n{self._last_words()}")

    def _answers(self) -> bool:
        http = RawHttp(Guard(self.ports.url, allow_private=False), timeout=30)
        try:
            return http.ask("GET", f"{self.ports.url}/readyz").status == 200
        except NoAnswer:
            return False
        finally:
            http.close()

    def _last_words(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return "\n".join(f"  {line[:300]}" for line in lines[-5:])


def free_port(wanted: int) -> int:
    """Returns the wanted port, or any free one."""
    for port in (wanted, 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as sock:
                return int(sock.getsockname()[1])
        except OSError:
            continue
    raise ConfigError("No free port was found on 127.0.0.1.")
