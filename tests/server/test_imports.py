"""A server imports what it serves with, and nothing else: every import costs memory and the time
until the first answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.run import dragoman, serving

pytestmark = pytest.mark.slow  # starts processes

AGENT = """
import sys
from dragoman import Agent, Turn

agent = Agent("Inventory")


@agent.skill("loaded")
async def loaded(turn: Turn) -> str:
    return " ".join(sys.modules)
"""
OURS = {
    "dragoman.client": "calling other agents",
    "dragoman.doctor": "checking agents",
    "dragoman.gateway": "serving agents that are elsewhere",
    "dragoman.relay": "serving agents that are elsewhere",
    "dragoman.iat.registration": "registering with an IAT host",
    "dragoman.iat.host": "hosting IAT sub-agents",
    "dragoman.lite": "chat rooms",
    "dragoman.net.chat": "chat rooms",
    "dragoman.net.grpc.server": "gRPC",
    "dragoman.xiaoyi": "XiaoYi links",
    "dragoman.mcp.tool_server": "MCP",
    "dragoman.store.file": "another store",
    "dragoman.store.memory.store": "another store",
    "dragoman.store.postgres": "another store",
    "dragoman.server.registry.registration": "a registry",
    "dragoman.server.registry.skill_mounts": "several agents",
    "dragoman.server.workers.supervisor": "several processes",
    "dragoman.observability.tracing": "traces",
}
OTHERS = {
    "httpcore2": "HTTP requests of ours",
    "h11": "HTTP requests of ours",
    "h2": "HTTP requests of ours",
    "websockets": "WebSockets that we open",
    "python_socks": "WebSockets that we open",
    "cryptography": "secrets of webhooks, and signatures",
    "joserfc": "signatures",
    "jsonschema_rs": "skills with a schema",
    "rich": "colours and tables",
    "importlib.metadata": "stores of other packages",
    "difflib": "mistakes in the settings",
    "zipfile": "nothing",
    "grpc": "gRPC",
    "google.protobuf": "gRPC",
    "mcp": "MCP",
    "opentelemetry": "traces",
    "asyncpg": "PostgreSQL",
    "nats": "NATS",
    "pydantic": "skills with models of it",
}


def test_a_server_imports_nothing_for_what_is_not_set_up(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    with serving("agent.py", cwd=tmp_path) as server:
        sent = dragoman("send", server.url, "hello", cwd=tmp_path)
    loaded = sent.stdout.split()
    assert "dragoman.server.app" in loaded, sent.stderr
    needless = {
        name: why
        for name, why in {**OURS, **OTHERS}.items()
        if any(each == name or each.startswith(f"{name}.") for each in loaded)
    }
    assert needless == {}
