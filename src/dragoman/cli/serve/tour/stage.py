"""The processes of the tour: one with the agents, one with the gateway in front of them, one with
an agent that dials in to the gateway, and one with an agent that lives in a chat room."""

from __future__ import annotations

import asyncio
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
from dragoman.net.http.mount_point import AGENTS
from dragoman.security.server_secret import secret_for
from dragoman.server.agent_list import CARD
from dragoman.server.xiaoyi.agent_link import ACCESS_KEY, SECRET_KEY
from dragoman.store import open_store
from dragoman.xiaoyi.keys import KeyRing

from .chat_rooms import ChatHub
from .dialects import LINKED, ROOMED, Ports, TourDialect, phone_name
from .phones import Phones

START = 60.0
"""The seconds that a process may take until it is ready."""


class Stage:
    """Agents in every dialect, and the gateway between them and their callers. Everything that they
    store is in one folder."""

    def __init__(self, port: int, dialects: Sequence[TourDialect], folder: Path) -> None:
        self.dialects = dialects
        self.agent_dialects = [*dialects, LINKED, ROOMED]
        self.hub = ChatHub(ROOMED.name)
        self.secret = secrets.token_hex(16)
        self._held: list[socket.socket] = []
        self.ports = Ports(self._port(port), self._port(port + 1 if port else 0))
        grpc = any(each.dialect.wire == "grpc" for each in dialects)
        behind = Ports(self._port(0), self._port(0))
        files = {}
        for each in self.agent_dialects:
            # Each has a file of its own, so that they are separate agents with separate tasks.
            file = folder / f"agent_{each.name.replace('-', '_')}.py"
            shutil.copyfile(showcase.__file__, file)
            files[each.name] = file.name
        settings = folder / "gateway.toml"
        names = [phone_name(each) for each in self.agent_dialects]
        self.phones = Phones({name: self._port(0) for name in names})
        sections = [each.section(behind) for each in dialects]
        linked_at = f"{self.ports.url}{AGENTS}/{LINKED.name}"
        sections.append(f'[agents.{phone_name(LINKED)}]\nurl = "{linked_at}"\n')
        sections += self.hub.sections()
        sections += map(self.phones.section, names)
        settings.write_text("\n".join(sections), "utf-8")
        environ = {**os.environ, "IAT_SECRET": self.secret}
        serve = ["serve", *(f"{each.name}={files[each.name]}" for each in dialects)]
        self.agents = ChildProcess(
            "The agents",
            [*serve, *_options("serve", folder, behind, grpc=grpc)],
            f"{behind.url}/readyz",
            *(folder, environ),
        )
        self.gateway = ChildProcess(
            "The gateway",
            ["gateway", settings.name, *_options("gateway", folder, self.ports, grpc=grpc)],
            f"{self.ports.url}/readyz",
            *(folder, {**environ, **self.phones.keys}),
        )
        link = ["xiaoyi", "link", files[LINKED.name], "--agent-id", LINKED.name]
        link += ["--server", self.ports.url.replace("http:", "ws:")]
        access_key, secret_key = _link_keys(_store("gateway", folder))
        self.linked = ChildProcess(
            "The agent that dials in",
            [*link, "--store", _store("xiaoyi", folder)],
            f"{self.ports.url}{AGENTS}/{LINKED.name}{CARD}",
            *(folder, {**environ, ACCESS_KEY: access_key, SECRET_KEY: secret_key}),
        )
        self.roomed = ChildProcess(
            "The agent in a chat room",
            [*self.hub.command(files[ROOMED.name]), "--store", _store("lite", folder)],
            f"{self.ports.url}{AGENTS}/{ROOMED.name}{CARD}",
            *(folder, environ),
        )
        self._processes = (self.agents, self.gateway, self.linked, self.roomed)

    def _port(self, wanted: int) -> int:
        """Returns the wanted port, or any free one. It is held until the end by a socket that does
        not listen: a process that asks for this very port can listen there, but the system gives it
        to nobody that asks for any."""
        for port in (wanted, 0):
            held = socket.socket()
            if os.name == "posix":  # elsewhere two sockets cannot share a port like this
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind(("127.0.0.1", port))
                found = int(held.getsockname()[1])
            except OSError:
                held.close()
                continue
            if os.name == "posix":
                self._held.append(held)
            else:
                held.close()
            return found
        raise ConfigError("No free port was found on 127.0.0.1.")

    async def start(self) -> None:
        """Starts the agents, then the gateway, which reads their cards at once, and then together
        the agent that dials in and the one that joins a room."""
        for group in ((self.agents,), (self.gateway,), (self.linked, self.roomed)):
            for each in group:
                each.start()
            for each in group:
                await each.wait_ready()

    def stop(self) -> None:
        """Stops all of them, as Ctrl-C would."""
        for each in reversed(self._processes):
            each.stop()
        for held in self._held:
            held.close()

    async def wait(self) -> None:
        """Returns when one of them has ended by itself."""
        while all(each.alive for each in self._processes):  # noqa: ASYNC110  we only see them end
            await asyncio.sleep(0.2)
        for each in self._processes:
            each.check()


def _store(name: str, folder: Path) -> str:
    return f"sqlite:///{folder}/{name}.db"


def _options(name: str, folder: Path, ports: Ports, *, grpc: bool) -> list[str]:
    """Returns the flags of a server."""
    flags = ["--port", str(ports.http), "--store", _store(name, folder)]
    return [*flags, "--grpc-port", str(ports.grpc)] if grpc else flags


def _link_keys(url: str) -> tuple[str, str]:
    """Makes the keys with which the agent dials in, as `dragoman xiaoyi keys add` does."""

    async def made() -> tuple[str, str]:
        store = open_store(url)
        await store.open()
        try:
            ring = KeyRing(store.link_keys, secret_for(url, os.environ))
            key, secret = await ring.add([LINKED.name])
            return key.access_key, secret
        finally:
            await store.close()

    return asyncio.run(made())


class ChildProcess:
    """A command of ours in a child process."""

    def __init__(
        self,
        title: str,
        command: Sequence[str],
        ready: str,
        folder: Path,
        environ: dict[str, str],
    ) -> None:
        """`ready` is an address that answers as soon as the process is ready."""
        self.title, self._ready = title, ready
        self.log = folder / f"{command[0]}.log"
        self._folder, self._environ = folder, environ
        self._command = [sys.executable, "-m", "dragoman", *command]
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

    async def wait_ready(self) -> None:
        """Waits until the process is ready."""
        until = time.monotonic() + START
        while not await asyncio.to_thread(self._answers):
            self.check()
            if time.monotonic() > until:
                raise ConfigError(f"{self.title} did not start:\n{self._last_words()}")
            await asyncio.sleep(0.05)

    def kill(self) -> None:
        """Kills the process with SIGKILL, as a power cut would."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def stop(self) -> None:
        """Stops the process as Ctrl-C would."""
        child = self._child
        if child is None or child.poll() is not None:
            return
        child.terminate()
        try:
            child.wait(6)
        except subprocess.TimeoutExpired:
            child.kill()

    def check(self) -> None:
        """Raises `ConfigError` if the process has ended."""
        if not self.alive:
            raise ConfigError(f"{self.title} ended:\n{self._last_words()}")

    def _answers(self) -> bool:
        http = RawHttp(Guard(self._ready, allow_private=False), timeout=30)
        try:
            return http.ask("GET", self._ready).status == 200
        except NoAnswer:
            return False
        finally:
            http.close()

    def _last_words(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return "\n".join(f"  {line[:300]}" for line in lines[-5:])
