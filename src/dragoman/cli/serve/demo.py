"""`dragoman demo`: the showcase agent in a process of its own, and a tour of it over real HTTP."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from dragoman import showcase
from dragoman.core.errors import ConfigError
from dragoman.doctor.http import NoAnswer

from .tour_http import JsonRpcClient, message_0_3, message_1_0, text_of

PORT, GRPC_PORT = 8420, 8421
START = 15.0
"""Seconds the server may take to answer for the first time."""


def demo(
    *,
    port: Annotated[int, Parameter(help="Port to use; a free one if it is taken.")] = PORT,
    stay: Annotated[
        bool | None,
        Parameter(
            help="Keep serving after the tour until Ctrl-C. [default: on a terminal]",
            negative="--no-stay",
        ),
    ] = None,
) -> None:
    """Start the showcase agent, watch it work, then talk to it yourself."""
    console = Console(highlight=False, soft_wrap=True)
    staying = sys.stdout.isatty() if stay is None else stay
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)  # so that the server never outlives the demo
    folder = Path(tempfile.mkdtemp(prefix="dragoman-demo-"))
    server = ShowcaseServer(free_port(port), folder)
    try:
        server.start()
        Tour(console, server).run()
        if staying:
            console.print(f"   log      {server.log}", markup=False)
            console.print("\nStill serving. [bold]Ctrl-C[/bold] stops it.")
            server.wait()
    except KeyboardInterrupt:
        console.print()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    console.print("The demo has ended; its store is removed.")


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


class ShowcaseServer:
    """`dragoman serve showcase.py` in a child process."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port, self.folder = port, folder
        self.url = f"http://127.0.0.1:{port}"
        # gRPC is an extra, so the demo does without where it is not installed.
        self.grpc_port = free_port(GRPC_PORT) if find_spec("grpc") else 0
        self.log = folder / "server.log"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid if self._child else 0

    def start(self) -> None:
        """Answers when this returns."""
        command = [sys.executable, "-m", "dragoman", "serve", str(Path(showcase.__file__))]
        command += ["--port", str(self.port), "--store", f"sqlite:///{self.folder}/demo.db"]
        if self.grpc_port:
            command += ["--grpc-port", str(self.grpc_port)]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603  our own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is for us; we stop it in order
            )
        until = time.monotonic() + START
        while not self._answers():
            if self._child.poll() is not None or time.monotonic() > until:
                raise ConfigError(f"The showcase did not start:\n{self._last_words()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """As the power cut would: SIGKILL."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def stop(self) -> None:
        """As Ctrl-C would."""
        child = self._child
        if child is None or child.poll() is not None:
            return
        child.terminate()
        try:
            child.wait(6)
        except subprocess.TimeoutExpired:
            child.kill()

    def wait(self) -> None:
        """Until it ends by itself."""
        if self._child is not None and self._child.wait() != 0:
            raise ConfigError(f"The showcase ended:\n{self._last_words()}")

    def _answers(self) -> bool:
        client = JsonRpcClient(self.url)
        try:
            return client.get("/readyz")[0] == 200
        except NoAnswer:
            return False
        finally:
            client.close()

    def _last_words(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return "\n".join(f"  {line[:300]}" for line in lines[-5:])


class Tour:
    """Six things the agent does, each shown as it happens."""

    def __init__(self, console: Console, server: ShowcaseServer) -> None:
        self.console, self.server = console, server
        self.client = JsonRpcClient(server.url)

    def run(self) -> None:
        """All of it."""
        steps: tuple[tuple[str, Callable[[], None]], ...] = (
            ("The card: what the agent says about itself", self.card),
            ("A2A 1.0: send a message", self.send),
            ("A2A 1.0: a stream, chunk by chunk", self.stream),
            ("A2A 0.3: the same agent, the older dialect", self.older),
            ("Many turns: the agent asks back", self.turns),
            ("kill -9 in the middle of a task, then a restart", self.crash),
        )
        self.console.print(
            f"[bold]{showcase.agent.name}[/bold] listens at [cyan]{self.server.url}/[/cyan]"
            f" (process {self.server.pid})"
        )
        for number, (title, step) in enumerate(steps, 1):
            self.console.print(f"\n[bold green]{number}[/bold green] [bold]{title}[/bold]")
            step()
        self.farewell()

    def card(self) -> None:
        """The card and its skills."""
        _, card = self.client.get_json("/.well-known/agent-card.json")
        for skill in card["skills"]:
            self.show(f"{skill['id']:8} {skill['description']}")

    def send(self) -> None:
        """One message, one answer."""
        task = self.client.call("SendMessage", message_1_0("hello, dragoman"))["task"]
        self.show(f"hello, dragoman -> {text_of(task)}   ({state_of(task)})")

    def stream(self) -> None:
        """Chunks as they come."""
        chunks, began = 0, time.monotonic()
        self.console.print("  ", end="")
        for event in self.client.stream("SendStreamingMessage", message_1_0("a story", "write")):
            if "artifactUpdate" in event:
                chunks += 1
                text = event["artifactUpdate"]["artifact"]["parts"][0].get("text", "")
                self.console.print(f"[cyan]{text}[/cyan]", end="")
        self.console.print()
        self.show(f"{chunks} chunks in {time.monotonic() - began:.1f} s")

    def older(self) -> None:
        """The same agent for a 0.3 client."""
        task = self.client.call("message/send", message_0_3("bonjour"), version="")
        self.show(f"bonjour -> {text_of(task)}   ({state_of(task)}, kind: {task['kind']})")

    def turns(self) -> None:
        """A question and its answer."""
        task = self.client.call("SendMessage", message_1_0("Kyoto", "trip"))["task"]
        question = text_of({"artifacts": [task["status"]["message"]]})
        self.show(f"Kyoto -> {question}   ({state_of(task)})")
        answer = message_1_0("3", task=task["id"])
        task = self.client.call("SendMessage", answer)["task"]
        self.show(f"3 ->   ({state_of(task)})\n{text_of(task).strip()}")

    def crash(self) -> None:
        """A task outlives the process that runs it."""
        params = message_1_0("go", "slow")
        params["configuration"] = {"returnImmediately": True}
        task = self.client.call("SendMessage", params)["task"]
        time.sleep(1.0)
        before = self.server.pid
        self.server.kill()
        self.show(f"task {task['id'][:13]} was running; process {before} is dead")
        self.server.start()
        self.show(f"process {self.server.pid} took over the store")
        until = time.monotonic() + 30
        while state_of(task) in ("submitted", "working") and time.monotonic() < until:
            time.sleep(0.2)
            task = self.client.call("GetTask", {"id": task["id"]})
        self.show(f"{text_of(task)}   ({state_of(task)})")

    def show(self, text: str) -> None:
        """A line of what happens."""
        for line in text.splitlines():
            self.console.print(f"   {line}", markup=False)

    def farewell(self) -> None:
        """What runs, and what to try next."""
        url = self.server.url
        self.console.print("\n[bold]Try it yourself[/bold]")
        head = f"curl -sN {url}/ -H 'Content-Type: application/json'"
        hello = '{"jsonrpc":"2.0","id":1,"method":"%s","params":{"message":{%s}}}'
        new = '"messageId":"m1","role":"ROLE_USER","parts":[{"text":"%s"}]'
        skill = ',"metadata":{"skillId":"write"}'
        old = (
            '"kind":"message","messageId":"m2","role":"user","parts":[{"kind":"text","text":"hi"}]'
        )
        for line in (
            f"dragoman chat {url}",
            *([f"dragoman send {url} hello --dialect GRPC"] if self.server.grpc_port else []),
            f"curl -s {url}/.well-known/agent-card.json",
            f"{head} -H 'A2A-Version: 1.0' \\\n     -d '"
            + hello % ("SendStreamingMessage", new % "a story" + skill)
            + "'",
            f"{head} \\\n     -d '" + hello % ("message/send", old) + "'",
        ):
            self.console.print(f"   {line}", markup=False)
        self.console.print(f"\n   card     {url}/.well-known/agent-card.json", markup=False)
        self.console.print(f"   metrics  {url}/metrics", markup=False)
        if self.server.grpc_port:
            self.console.print(f"   gRPC     127.0.0.1:{self.server.grpc_port}", markup=False)


def state_of(task: dict[str, Any]) -> str:
    """The state in words, whatever the version spells."""
    state = str(task["status"]["state"])
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


def free_port(wanted: int) -> int:
    """The wanted port, or any free one."""
    for port in (wanted, 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as sock:
                return int(sock.getsockname()[1])
        except OSError:
            continue
    raise ConfigError("No free port was found on 127.0.0.1.")
