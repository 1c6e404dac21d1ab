"""A server imports what it serves with, and a command what it does, and nothing else: every import
costs memory, and time until the first answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import warm_start
from cli.run import ENVIRON, Served, dragoman, serving

pytestmark = pytest.mark.slow  # starts processes

AGENT = """
import sys
from dragoman import Agent, Turn

agent = Agent("Inventory")


@agent.skill("loaded")
async def loaded(turn: Turn) -> str:
    return " ".join(sys.modules)
"""
PACKAGES = {
    "httpcore2": "HTTP/2 and TLS of our client",
    "h11": "HTTP/2 and TLS of our client",
    "h2": "HTTP/2 and TLS of our client",
    "websockets": "WebSockets that we open",
    "python_socks": "WebSockets that we open",
    "cryptography": "secrets of webhooks, and signatures",
    "joserfc": "signatures",
    "jsonschema_rs": "skills with a schema",
    "rich": "colours and tables",
    "importlib.metadata": "stores of other packages",
    "difflib": "mistakes in the settings",
    "tomllib": "a settings file",
    "zipfile": "nothing",
    "grpc": "gRPC",
    "google.protobuf": "gRPC",
    "mcp": "MCP",
    "opentelemetry": "traces",
    "asyncpg": "PostgreSQL",
    "nats": "NATS",
    "pydantic": "skills with models of it",
    "dragoman.doctor": "checking agents",
    "dragoman.lite": "chat rooms",
    "dragoman.xiaoyi": "XiaoYi links",
    "dragoman.iat.host": "hosting IAT sub-agents",
    "dragoman.iat.registration": "registering with an IAT host",
    "dragoman.gateway.upstream_agent": "serving agents that are elsewhere",
    "dragoman.relay": "serving agents that are elsewhere",
    "dragoman.observability.tracing": "traces",
    "dragoman.workspace.folder": "a workspace",
    "dragoman.store.file": "another store",
    "dragoman.store.memory.store": "another store",
    "dragoman.store.postgres": "another store",
}
"""What nothing here uses, and what it is for."""
OF_SERVERS = PACKAGES | {
    "dragoman.client": "calling other agents",
    "dragoman.net.chat": "chat rooms",
    "dragoman.net.grpc.server": "gRPC",
    "dragoman.mcp.tool_server": "MCP",
    "dragoman.backend": "agents whose tasks live elsewhere",
    "dragoman.server.registry.registration": "a registry",
    "dragoman.server.workers.supervisor": "several processes",
}
OF_ONE_AGENT = OF_SERVERS | {
    "dragoman.gateway": "serving agents that are elsewhere",
    "dragoman.server.registry.skill_mounts": "several agents",
}
OF_CALLERS = PACKAGES | {
    "dragoman.agent.agent": "writing agents",
    "dragoman.engine": "running tasks",
    "dragoman.server.app": "serving agents",
    "granian": "serving agents",
    "uvloop": "serving agents",
    "sqlite3": "storing tasks",
}


def needless(loaded: Iterable[str], unused: dict[str, str]) -> dict[str, str]:
    """Returns which of these modules were imported, and what they would be for."""
    each_level = {
        ".".join(words[:count])
        for words in (name.split(".") for name in loaded)
        for count in range(1, len(words) + 1)
    }
    return {name: why for name, why in unused.items() if name in each_level}


@contextmanager
def serving_anew(*agents: str, cwd: Path) -> Iterator[Served]:
    """Serves the agent in a process that has imported nothing before."""
    (cwd / "agent.py").write_text(AGENT)
    with ExitStack() as stack:
        with warm_start.suspended():
            found = stack.enter_context(serving(*agents, cwd=cwd))
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("server")
    with serving_anew("agent.py", cwd=home) as found:
        yield found


def test_a_server_imports_nothing_for_what_is_not_set_up(server: Served, tmp_path: Path) -> None:
    sent = dragoman("send", server.url, "hello", cwd=tmp_path)
    loaded = sent.stdout.split()
    assert "dragoman.server.app" in loaded, sent.stderr
    assert needless(loaded, OF_ONE_AGENT) == {}


def test_a_server_of_several_agents_imports_no_client(tmp_path: Path) -> None:
    with serving_anew("one=agent.py", "two=agent.py", cwd=tmp_path) as server:
        sent = dragoman("send", f"{server.url}/agents/one", "hello", cwd=tmp_path)
    loaded = sent.stdout.split()
    assert "dragoman.server.registry.skill_mounts" in loaded, sent.stderr
    assert needless(loaded, OF_SERVERS) == {}


def imported_by(*words: str, cwd: Path) -> set[str]:
    """Returns the modules that a command imports. `-X` has a process of its own started."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dragoman", *words],
        cwd=cwd,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.mark.parametrize("command", ["send", "tasks list", "card"])
def test_a_command_imports_no_server(server: Served, tmp_path: Path, command: str) -> None:
    words = [*command.split(), server.url, *(["hello"] if command == "send" else ["--json"])]
    loaded = imported_by(*words, cwd=tmp_path)
    assert "dragoman.client.connect" in loaded
    assert needless(loaded, OF_CALLERS) == {}


def test_help_about_a_server_imports_none(tmp_path: Path) -> None:
    loaded = imported_by("serve", "--help", cwd=tmp_path)
    assert "dragoman.cli.serve.server_flags" in loaded
    needed = {"rich": "the help itself", "importlib.metadata": "rich"}
    assert needless(loaded, OF_CALLERS | {"msgspec": "serving agents"}).keys() <= needed.keys()
