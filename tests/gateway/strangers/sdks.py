"""Agents and callers on the official SDKs, which nobody here wrote, for the gateway's matrix.

The agent of an SDK is the one of `tests/interop/servers`, and its caller is a program beside this
file; the one in Go has both (`tests/interop/go`). None of them imports anything of ours.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

from gateway.matrix import LOSSES, NAMES, Loss, Seen
from interop.client.servers import SERVERS, SUFFIX, Running, Server
from interop.peers import A2A_GO, A2A_JS, A2A_SDK, Peer

HERE = Path(__file__).parent


class Sdk(NamedTuple):
    """One SDK, with the programs of its caller and of its agent."""

    name: str
    peer: Peer
    caller: Path | str

    @property
    def server(self) -> Server:
        """How its agent is started."""
        return next(each for each in SERVERS if each.peer is self.peer)


class Stranger(NamedTuple):
    """An SDK in one version and binding, as a caller or as an agent."""

    sdk: Sdk
    version: str
    binding: str

    @property
    def dialect(self) -> str:
        """The dialect that it speaks, as we call it."""
        return f"a2a-{self.version}{SUFFIX[self.binding]}"

    @property
    def name(self) -> str:
        """In a table."""
        return f"{self.sdk.name}, {NAMES[self.dialect]}"

    @property
    def as_caller(self) -> tuple[str, str]:
        """What may lose something if it calls: its dialect, and itself."""
        return self.dialect, f"caller: {self.name}"

    @property
    def as_agent(self) -> tuple[str, str]:
        """What may lose something if it is called: its dialect, and itself."""
        return self.dialect, f"agent: {self.name}"

    @property
    def agent(self) -> str:
        """What its agent is called at a gateway."""
        return f"{self.sdk.peer.name}-{self.version}-{self.binding}".lower().translate(_PLAIN)

    def section(self, running: Running) -> dict[str, Any]:
        """The `[agents.NAME]` of a gateway that calls its agent."""
        origins = [f"http://127.0.0.1:{port}" for port in running.ports.values()]
        return {"url": running.url, "dialect": self.dialect, "origins": origins}

    async def call(self, url: str) -> dict[str, Seen | str]:
        """What its caller sees in each scenario, or how that broke. Raises `PeerUnavailable`."""
        args = (url, self.binding, self.version)
        done = await asyncio.to_thread(self.sdk.peer.run, self.sdk.caller, *args, timeout=900.0)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines, f"{self.name} never got to anything:\n{done.stderr[-3000:]}"
        return {line["scenario"]: _read(line) for line in lines}


_PLAIN = str.maketrans(".+", "--")


def _read(line: dict[str, Any]) -> Seen | str:
    if "seen" not in line:
        return str(line["broken"])[:300]
    seen: Seen = line["seen"]
    if "content" in seen:
        seen["content"] = bytes.fromhex(seen["content"])
    if seen.get("reason") == "failed":  # what a gateway says if the agent gives no reason
        seen["reason"] = None
    return seen


SDKS = (
    Sdk("a2a-go 2.4.0", A2A_GO, "scenarios"),
    Sdk("a2a-sdk 1.3.0", A2A_SDK, HERE / "a2a_sdk_caller.py"),
    Sdk("@a2a-js/sdk 1.3.0", A2A_JS, HERE / "a2a_js_caller.mjs"),
)
STRANGERS = tuple(
    Stranger(sdk, version, binding)
    for sdk in SDKS
    for version in sdk.server.versions
    for binding in sdk.server.bindings
)


def _each(
    side: str, dialects: tuple[str, ...], *about: Any, sometimes: bool = False
) -> tuple[Loss, ...]:
    return tuple(
        Loss(f"{side}, {NAMES[dialect]}", *about, sometimes=sometimes) for dialect in dialects
    )


_FILES = (
    "@a2a-js/sdk 1.3.0 reads and writes the bytes of a file in 0.3 over REST and gRPC in another "
    "form than the other SDKs ([why](interop-client.md)), and without its name"
)
CALLER_LOSSES = (
    *_each(
        "caller: a2a-go 2.4.0",
        ("a2a-0.3",),
        *("error", "error", "one that it cannot read"),
        "the official a2a-go 2.4.0 expects the error details of 1.0 in 0.3 over JSON-RPC, and "
        "reports an error that it cannot read, if it has other details",
        sometimes=True,
    ),
    *_each(
        "caller: a2a-go 2.4.0",
        ("a2a-0.3-grpc",),
        *("error", "error", "its text alone"),
        "the official a2a-go 2.4.0 expects the status codes of 1.0 in 0.3 over gRPC, and reports "
        "the text of an error without its class",
    ),
    *_each(
        "caller: @a2a-js/sdk 1.3.0",
        ("a2a-0.3-rest", "a2a-0.3-grpc"),
        *("file", "content", b"Y2Jh/wA="),
        _FILES,
    ),
    *_each(
        "caller: @a2a-js/sdk 1.3.0",
        ("a2a-0.3-rest", "a2a-0.3-grpc"),
        "file",
        "filename",
        "",
        _FILES,
    ),
)
AGENT_LOSSES = (
    *_each(
        "agent: @a2a-js/sdk 1.3.0",
        ("a2a-1.0", "a2a-1.0-rest", "a2a-1.0-grpc", "a2a-0.3", "a2a-0.3-rest", "a2a-0.3-grpc"),
        *("error", "error", "a task that is failed"),
        "an agent on @a2a-js/sdk 1.3.0 cannot answer with an error: the SDK makes a failed task of "
        "it",
    ),
    *_each(
        "agent: @a2a-js/sdk 1.3.0",
        ("a2a-0.3-rest", "a2a-0.3-grpc"),
        *("file", "content", b"=MmYh9PA"),
        _FILES,
    ),
    *_each(
        "agent: @a2a-js/sdk 1.3.0", ("a2a-0.3-rest", "a2a-0.3-grpc"), "file", "filename", "", _FILES
    ),
)
OWN_LOSSES = AGENT_LOSSES + CALLER_LOSSES
ALL_LOSSES = AGENT_LOSSES + LOSSES + CALLER_LOSSES
"""In the order of an answer on its way: what an agent does not say, no caller can misread."""
