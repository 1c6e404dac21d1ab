"""The proxies of `deploy/` as they stand there, with other ports, files and shorter times."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect

from dragoman import Agent, Turn
from dragoman.settings import Server, Settings
from dragoman.testing import served
from ports import own_port
from security.certs import Authority
from waiting import until

ROOT = Path(__file__).parents[2]
HANG = 60.0
HOST = "desk.example.com"
V1 = {"A2A-Version": "1.0"}
PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
agent = Agent("Desk", description="Stands behind a proxy.")
pytestmark = pytest.mark.slow


@agent.skill("say", default=True)
async def say(turn: Turn) -> None:
    for word in turn.text.split():
        await turn.artifact(word, name=word)
        await asyncio.sleep(0.3)  # so that a proxy that gathers is seen


def changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def nginx(folder: Path, port: int, behind: int, cert: str, key: str) -> list[str]:
    text = (ROOT / "deploy/nginx.conf").read_text()
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in temporary)
    text = changed(
        text,
        {
            "http {\n": f"http {{\n{paths}",
            "listen 443": f"listen 127.0.0.1:{port}",
            "127.0.0.1:8420": f"127.0.0.1:{behind}",
            "/etc/ssl/desk.example.com.pem": cert,
            "/etc/ssl/desk.example.com.key": key,
            "client_header_timeout 10s": "client_header_timeout 1s",
            "send_timeout 30s": "send_timeout 2s",
        },
    )
    (folder / "nginx.conf").write_text(text)
    own = f"daemon off; pid {folder}/pid; error_log {folder}/error.log;"
    if os.getuid() == 0:
        own += " user root;"
    program = shutil.which("nginx", path=PATH) or "nginx"
    command = [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", own]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    return command


def haproxy(folder: Path, port: int, behind: int, cert: str, key: str) -> list[str]:
    both = folder / "both.pem"
    both.write_text(Path(cert).read_text() + Path(key).read_text())
    text = changed(
        (ROOT / "deploy/haproxy.cfg").read_text(),
        {
            "bind :443": f"bind 127.0.0.1:{port}",
            "127.0.0.1:8420": f"127.0.0.1:{behind}",
            "/etc/ssl/desk.example.com.pem": str(both),
            "maxconn 8000": "maxconn 500",
            "http-request 10s": "http-request 1s",
        },
    )
    (folder / "haproxy.cfg").write_text(text)
    program = shutil.which("haproxy", path=PATH) or "haproxy"
    command = [program, "-db", "-f", str(folder / "haproxy.cfg")]
    subprocess.run([*command, "-c"], check=True, capture_output=True)
    return command


PROXIES = {"nginx": nginx, "haproxy": haproxy}


class Edge:
    def __init__(self, port: int, ca: str) -> None:
        self.port, self._ca = port, ca

    @property
    def trust(self) -> ssl.SSLContext:
        """A new one each time: HTTP/2 clients write into theirs."""
        return ssl.create_default_context(cafile=self._ca)

    def client(self, *, http2: bool = False) -> httpx2.AsyncClient:
        """Asks the proxy by its name, wherever that leads."""
        headers = {**V1, "Host": HOST}
        return httpx2.AsyncClient(
            base_url=f"https://127.0.0.1:{self.port}",
            verify=self.trust,
            headers=headers,
            timeout=HANG,
            http2=http2,
        )

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)


@asynccontextmanager
async def edge(name: str, folder: Path) -> AsyncIterator[Edge]:
    if shutil.which(name, path=PATH) is None:
        pytest.skip(f"{name} is not installed, and `make debian` could not")
    authority = Authority(folder)
    cert, key = authority.issue("edge")
    server = Server(
        store="memory:",
        public_url=f"https://{HOST}",
        trusted_proxies=("127.0.0.1/32",),
        grpc=False,
        insecure=True,
    )
    settings = replace(Settings(), server=server)
    async with served(agent, settings) as url:
        port = own_port()
        behind = int(url.rpartition(":")[2])
        process = subprocess.Popen(  # noqa: ASYNC220  it starts at once
            PROXIES[name](folder, port, behind, cert, key)
        )
        try:
            there = Edge(port, authority.ca)
            async with there.client() as client:

                async def up() -> bool:
                    assert process.poll() is None
                    with suppress(httpx2.TransportError):
                        return (await client.get("/healthz")).status_code == 200
                    return False

                await until(up)
            yield there
        finally:
            process.terminate()
            process.wait(HANG)


def asked(method: str, text: str) -> dict[str, object]:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}


@pytest.mark.parametrize("name", PROXIES)
async def test_calls_streams_cards_and_web_sockets_pass(name: str, tmp_path: Path) -> None:
    async with edge(name, tmp_path) as there:
        for http2 in (False, True):
            async with there.client(http2=http2) as client:
                card = (await client.get("/.well-known/agent-card.json")).json()
                assert card["supportedInterfaces"][0]["url"] == f"https://{HOST}"
                answer = await client.post("/", json=asked("SendMessage", "hello"))
                state = answer.json()["result"]["task"]["status"]["state"]
                assert state == "TASK_STATE_COMPLETED"
                call = asked("SendStreamingMessage", "one two three")
                async with client.stream("POST", "/", json=call) as stream:
                    lines = stream.aiter_lines()
                    seen = [time.monotonic() async for line in lines if "artifactUpdate" in line]
                assert len(seen) == 3
                assert seen[2] - seen[0] > 0.3  # as they came, not all at the end
        async with connect(
            f"wss://{HOST}/iat/ws",
            host="127.0.0.1",
            port=there.port,
            ssl=there.trust,
            server_hostname="localhost",
        ) as web_socket:
            await web_socket.send("{}")
            assert "error" in json.loads(await web_socket.recv())["payload"]


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize("half", [b"", b"P", b"POST / HTTP/1.1\r\nHost: desk.example.com\r\nX: "])
async def test_a_slow_peer_ends_at_the_proxy(name: str, half: bytes, tmp_path: Path) -> None:
    async with edge(name, tmp_path) as there:
        reader, writer = await there.dial()
        writer.write(half)
        async with asyncio.timeout(HANG):
            with suppress(ConnectionError):
                while await reader.read(1000):
                    pass
        writer.transport.abort()


@pytest.mark.parametrize("name", PROXIES)
async def test_one_address_has_its_share_of_connections(name: str, tmp_path: Path) -> None:
    said = f"GET /healthz HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
    held = f"POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 9\r\n\r\n".encode()
    async with edge(name, tmp_path) as there:
        opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def dial(first: bytes) -> None:
            opened.append(await there.dial())
            opened[-1][1].write(first)

        try:
            await asyncio.gather(*(dial(held) for _ in range(100)))

            async def refused() -> bool:
                try:
                    await dial(said)
                    async with asyncio.timeout(HANG):
                        return b"429" in await opened[-1][0].readuntil(b"\r\n\r\n")
                except (OSError, EOFError):  # HAProxy refuses the connection, nginx the request
                    return True

            await until(refused)  # it may not have read all of the hundred yet
        finally:
            for _, writer in opened:
                writer.transport.abort()
