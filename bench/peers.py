"""The servers under comparison: how each is installed, started, found ready and stopped.

Each peer lives in its own environment under `.peers/`, made once, so that its dependencies never
meet ours. `python -m bench.peers` only installs them.
"""

import compileall
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import measure, proxies, stores
from .iat_load import SECRET as IAT_SECRET
from .packages import PEERS, ROOT, NodePackages, PythonPackages, SetupFailed
from .stores import StorePlace
from .wire import A2A_1_0, FASTA2A, Requests, Words

AGENTS = Path(__file__).resolve().parent / "agents"
# What the bare handler answers with; the bench writes it before the first start.
BARE_ANSWER = PEERS / "bare-answer.json"

Pin = int | frozenset[int] | None
"""A core, or several, or where the bench itself runs."""
START_TIMEOUT = 30.0
STOP_TIMEOUT = 2.0
READY_POLL = 0.005


@dataclass(frozen=True, slots=True)
class Subject:
    """One server in the comparison, and what the bench must know to be fair to it."""

    name: str
    title: str
    command: tuple[str | Path, ...]
    environment: dict[str, str] = field(default_factory=dict)
    packages: PythonPackages | NodePackages | None = None
    words: Words = A2A_1_0
    # The skill that streams, where an agent's skills are separate functions.
    stream_skill: str | None = None
    # True when a send is answered before the agent has run; the work is then waited for.
    answers_early: bool = False
    # Seconds of load before measuring; a compiler that learns as it runs needs more of it.
    warm_up: float = 0.6
    # Chunks streamed to find the cost of one: the slower the server, the fewer.
    chunk_total: int = 5_000
    # For a proxy: the command, in an empty folder, that listens before the agent at another port.
    in_front: Callable[[list[str], Path, int, int], list[str]] | None = None
    # What answers when it is ready.
    ready: str = "/.well-known/agent-card.json"
    # Whether a run without it is a whole one.
    optional: bool = False
    # How many processes serve its port.
    processes: int = 1

    def missing(self) -> str | None:
        """Why this server cannot be started, if it cannot."""
        program = self.command[0]
        if isinstance(program, Path):
            return None if program.exists() else f"{program.relative_to(ROOT)} does not exist"
        return None if shutil.which(program) else f"{program} is not on PATH"


_A2A_SDK = PythonPackages(
    "a2a-sdk",
    (
        "a2a-sdk[grpc,http-server,postgresql,sqlite]==1.3.0",
        "uvicorn==0.54.0",
        "uvloop==0.23.0",
        "httptools==0.9.0",
    ),
)
_FASTA2A = PythonPackages(
    "fasta2a", ("fasta2a==2.1.1", "uvicorn==0.54.0", "uvloop==0.23.0", "httptools==0.9.0")
)
_A2A_JS = NodePackages("a2a-js", ("@a2a-js/sdk@1.3.0", "express@5.3.0"))

OURS = "dragoman"
BARE = "bare"
BARE_POLICY = "bare-policy"
GATEWAY, NGINX, REGISTRY, LINKS = "gateway", "nginx", "registry", "links"
WORKERS = "workers"
_OURS = Subject(
    name=OURS,
    title="dragoman",
    command=(
        ROOT / ".venv/bin/dragoman",
        "serve",
        AGENTS / "dragoman_agent.py",
        "--log-level",
        "warning",
        "--config",
        AGENTS / "dragoman_agent.toml",
    ),
    environment={"BENCH_IAT_SECRET": IAT_SECRET},
    stream_skill="write",
    chunk_total=500_000,
)
SUBJECTS = {
    subject.name: subject
    for subject in (
        _OURS,
        replace(
            _OURS,
            name=WORKERS,
            title="dragoman, 2 workers",
            command=(*_OURS.command, "--workers", "2"),
            processes=2,
        ),
        Subject(
            name="a2a-sdk",
            title="a2a-sdk 1.3.0",
            command=(_A2A_SDK.python, AGENTS / "a2a_sdk_server.py"),
            packages=_A2A_SDK,
        ),
        Subject(
            name="fasta2a",
            title="fasta2a 2.1.1",
            command=(_FASTA2A.python, AGENTS / "fasta2a_server.py"),
            packages=_FASTA2A,
            words=FASTA2A,
            answers_early=True,
            chunk_total=20_000,
        ),
        Subject(
            name="a2a-js",
            title="@a2a-js/sdk 1.3.0",
            command=("node", AGENTS / "js_server.mjs"),
            environment={"BENCH_PROJECT": str(PEERS / "a2a-js"), "NODE_ENV": "production"},
            packages=_A2A_JS,
            warm_up=4.0,
        ),
        Subject(
            name=BARE,
            title="bare handler on Granian",
            command=(ROOT / ".venv/bin/python", AGENTS / "bare_server.py"),
            environment={"BENCH_BARE_ANSWER": str(BARE_ANSWER)},
        ),
        Subject(
            name=BARE_POLICY,
            title="bare handler, our thread policy",
            command=(ROOT / ".venv/bin/python", AGENTS / "bare_server.py", "--policy"),
            environment={"BENCH_BARE_ANSWER": str(BARE_ANSWER)},
        ),
        Subject(
            name=GATEWAY,
            title="dragoman gateway, before dragoman",
            command=(ROOT / ".venv/bin/dragoman", "gateway", "--log-level", "warning"),
            stream_skill="write",
            in_front=proxies.gateway,
        ),
        *(
            Subject(
                name=name,
                title=f"dragoman gateway with {what}",
                command=(ROOT / ".venv/bin/dragoman", "gateway", "--registry"),
                environment={"BENCH_OPERATOR": proxies.OPERATOR},
                in_front=in_front,
                ready="/healthz",
            )
            for name, what, in_front in (
                (REGISTRY, "a registry", proxies.registry),
                (LINKS, "links", proxies.links),
            )
        ),
        Subject(
            name=NGINX,
            title="nginx, before dragoman",
            command=(proxies.NGINX,),
            stream_skill="write",
            in_front=proxies.nginx,
            optional=True,
        ),
    )
}


def install(subjects: list[Subject]) -> None:
    """Make the environments of these subjects; quick when they are there already. Our own code is
    compiled, as pip does it for the code of all others when it installs them."""
    compileall.compile_dir(ROOT / "src", quiet=1)
    for subject in subjects:
        if subject.packages is not None:
            subject.packages.install()


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs and has answered its first request."""

    subject: Subject
    pid: int
    port: int
    began: float
    """When its process was started, by `time.perf_counter`."""
    place: StorePlace
    grpc_port: int = 0
    # The port of the agent behind a proxy.
    behind: int = 0

    @property
    def requests(self) -> Requests:
        return Requests(self.subject.words, self.port, stream_skill=self.subject.stream_skill)

    def cpu_seconds(self) -> float:
        return measure.cpu_seconds(self.pid)

    def rss_kib(self) -> int:
        return measure.rss_kib(self.pid)


@contextmanager
def running(
    subject: Subject,
    store: str | StorePlace,
    *,
    core: Pin,
    grpc: bool = False,
    behind_core: Pin = None,
) -> Iterator[Server]:
    """Start the server alone on its core, with a new store unless it is given one; stop it in the
    end. The agent behind a proxy is ours, on another core, and its CPU is not counted."""
    if subject.in_front is None:
        with _started(subject, store, core=core, grpc=grpc) as server:
            yield server
        return
    with (
        _started(SUBJECTS[OURS], store, core=behind_core) as behind,
        _started(subject, store, core=core, behind=behind.port) as server,
    ):
        yield server


@contextmanager
def beside(server: Server) -> Iterator[Server]:
    """Starts another server of the same kind on the same store."""
    with _started(server.subject, server.place, core=None) as other:
        yield other


@contextmanager
def _started(
    subject: Subject,
    store: str | StorePlace,
    *,
    core: Pin,
    grpc: bool = False,
    behind: int = 0,
) -> Iterator[Server]:
    # Beside the peers and not in /tmp, which may be memory: a commit has to reach a disk.
    PEERS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=PEERS) as scratch, ExitStack() as stack:
        place = stores.new_store(store, scratch, stack) if isinstance(store, str) else store
        port, grpc_port = _free_port(), _free_port() if grpc else 0
        command = [*map(str, subject.command), "--port", str(port), "--store", place.url]
        command += ["--grpc-port", str(grpc_port)] if grpc else []
        if subject.in_front is not None:
            command = subject.in_front(command, Path(scratch), port, behind)
        log_path = Path(scratch) / "server.log"
        with log_path.open("wb") as log:
            began = time.perf_counter()
            process = subprocess.Popen(
                command,
                cwd=scratch,
                env={**os.environ, **stores.SECRET_KEY, **place.environment, **subject.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A session of its own, so that whatever it starts can be ended with it.
                start_new_session=True,
                preexec_fn=lambda: _pin_self(core),
            )
            try:
                _wait_until_ready(process, port, subject.ready, command, log_path)
                yield Server(
                    subject=subject,
                    pid=process.pid,
                    port=port,
                    began=began,
                    grpc_port=grpc_port,
                    behind=behind,
                    place=place,
                )
            finally:
                _stop(process)


def _pin_self(core: Pin) -> None:
    if core is not None and core != frozenset():
        os.sched_setaffinity(0, {core} if isinstance(core, int) else core)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(
    process: subprocess.Popen[bytes], port: int, path: str, command: list[str], log_path: Path
) -> None:
    deadline = time.perf_counter() + START_TIMEOUT
    while not _answers(port, path):
        code = process.poll()
        if code is not None or time.perf_counter() > deadline:
            what = "did not answer in time" if code is None else f"ended with code {code}"
            log = log_path.read_text(errors="replace")[-2000:]
            raise SetupFailed(f"{' '.join(command)} {what}\n{log}")
        time.sleep(READY_POLL)


def _answers(port: int, path: str) -> bool:
    request = (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        "A2A-Version: 1.0\r\nConnection: close\r\n\r\n"
    )
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(request.encode())
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    try:
        install(list(SUBJECTS.values()))
    except SetupFailed as exc:
        sys.exit(str(exc))
