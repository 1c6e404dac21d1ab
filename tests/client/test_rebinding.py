"""The checked address is the called address, also of the host that the user typed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from cli.run import AGENT, dragoman, serving
from client.auth.http_server import LittleHttp, Request, Response, as_json
from client.our_server import QUICK, open_server
from dragoman import Task, connect
from dragoman.client import ClientLimits
from dragoman.core.card import Card, Interface
from dragoman.core.errors import BadParams, PeerUnreachable
from dragoman.security.outbound import guarded_http, socket_stream
from dragoman.security.outbound.failures import ConnectError
from dragoman.security.outbound.guarded_http import Rules, TypedHost

PUBLIC, OTHER = "93.184.215.14", "93.184.215.15"
PRIVATE = "10.1.2.3"
HOST = "agent.example"


class Names:
    """A name server that answers each look-up with the next answer, and the last one for ever."""

    def __init__(self, *answers: Iterable[str]) -> None:
        self.answers = [list(each) for each in answers]
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        assert host == HOST
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


@asynccontextmanager
async def internet(
    monkeypatch: pytest.MonkeyPatch, names: Names, **machines: int
) -> AsyncIterator[list[str]]:
    """Public and private addresses stand for ports of this machine; gives the addresses dialed."""
    ports = {address.replace("_", "."): port for address, port in machines.items()}
    dialed: list[str] = []
    dial = socket_stream.dial

    async def instead(address: str, port: int) -> socket.socket:
        dialed.append(address)
        return await dial("127.0.0.1", ports.get(address) or port)

    monkeypatch.setattr(socket_stream, "dial", instead)
    monkeypatch.setattr(guarded_http, "system_resolver", names)
    yield dialed


def agent_at(port: int) -> LittleHttp:
    """An agent whose card names its own host, on the port of a victim."""

    def answer(request: Request) -> Response:
        interface = {
            "url": f"http://{HOST}:{port}/",
            "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
        }
        return as_json({"name": "Evil", "supportedInterfaces": [interface]}, connection="close")

    return LittleHttp(answer)


@pytest.mark.parametrize("near", ["127.0.0.1", "::1", PRIVATE, "0.0.0.0", "169.254.169.254"])
async def test_a_name_that_leads_elsewhere_later_is_not_called(
    monkeypatch: pytest.MonkeyPatch, near: str
) -> None:
    async with LittleHttp(lambda request: as_json({})) as victim, agent_at(victim.port) as evil:
        names = Names([PUBLIC], [near])
        machines = {PUBLIC.replace(".", "_"): evil.port}
        async with (
            internet(monkeypatch, names, **machines) as dialed,
            connect(f"http://{HOST}:{victim.port}", limits=QUICK) as agent,
        ):
            with pytest.raises(BadParams, match=r"leads to|may not be called"):
                await agent.send("hi")
            with pytest.raises(BadParams, match=r"leads to|may not be called"):
                await agent.stream("hi").result()
        assert dialed == [PUBLIC]
        assert names.asked == 3
        assert victim.heard == []


async def test_a_name_that_leads_here_first_cannot_lead_to_a_stranger_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else its card would come from the stranger, and the call go to this machine."""
    refuse = Response(404, b"", {"connection": "close"})
    async with LittleHttp(lambda request: refuse) as victim, agent_at(victim.port) as evil:
        names = Names(["127.0.0.1"], [PUBLIC], ["127.0.0.1"])
        machines = {PUBLIC.replace(".", "_"): evil.port}
        async with internet(monkeypatch, names, **machines) as dialed:
            with pytest.raises(BadParams, match="led to this machine before"):
                async with connect(f"http://{HOST}:{victim.port}", limits=QUICK):
                    pass
        assert dialed == ["127.0.0.1"]


async def test_a_name_may_move_within_its_network(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_server() as served:
        card = at(f"http://{HOST}:{served.port}/")
        for first, second in ((PUBLIC, OTHER), (PRIVATE, "192.168.7.7"), ("127.0.0.1", "::1")):
            names = Names([first], [second])
            machines = {each.replace(".", "_"): served.port for each in (first, second)}
            with monkeypatch.context() as patch:
                async with internet(patch, names, **machines) as dialed:
                    for _ in range(2):
                        url = f"http://{HOST}:{served.port}"
                        async with connect(url, card=card, limits=QUICK) as agent:
                            assert (await agent.send("hi")).text == "HI"
                assert dialed == [first, second]


async def test_whoever_allows_private_addresses_allows_rebinding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_server() as served, agent_at(served.port) as far:
        names = Names([PUBLIC], ["127.0.0.1"])
        machines = {PUBLIC.replace(".", "_"): far.port}
        async with internet(monkeypatch, names, **machines):
            url = f"http://{HOST}:{served.port}"
            async with connect(url, allow_private=True, limits=QUICK) as agent:
                assert (await agent.send("hi")).text == "HI"


def test_only_the_widest_scope_of_a_name_counts() -> None:
    host = TypedHost(HOST, Rules())
    assert host.checked(["fe80::1", PRIVATE, PUBLIC, "127.0.0.1"]) == [PUBLIC]
    with pytest.raises(BadParams, match="leads to a private network"):
        host.checked([PRIVATE])
    home = TypedHost(HOST, Rules())
    assert home.checked(["fe80::1%eth0", "192.168.1.5", "::1"]) == ["192.168.1.5"]
    with pytest.raises(BadParams, match="may not be called"):
        TypedHost(HOST, Rules()).checked(["0.0.0.0", "fe80::1"])
    assert TypedHost(HOST, Rules(allow_private=True)).checked([PUBLIC, PRIVATE]) == [
        PUBLIC,
        PRIVATE,
    ]


async def test_grpc_too_is_called_where_its_name_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_server() as served:
        port = served.app.ports["grpc"]
        card = replace(at(f"{HOST}:{port}"), interfaces=(grpc_at(f"{HOST}:{port}"),))
        names = Names(["127.0.0.1"], [PUBLIC])
        async with (
            internet(monkeypatch, names),
            connect(f"a2a+grpc://{HOST}:{port}", card=card, limits=QUICK) as agent,
        ):
            assert (await agent.send("hi")).text == "HI"
            assert (await agent.send("again")).text == "AGAIN"
        assert names.asked == 1  # gRPC itself asks nobody


async def test_a_grpc_name_that_moved_is_followed_within_its_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_server() as served:
        port = served.app.ports["grpc"]
        names = Names(["127.0.0.77"], ["127.0.0.1"])
        async with internet(monkeypatch, names):
            url = f"a2a+grpc://{HOST}:{port}"
            async with connect(url, limits=replace(QUICK, connect=5)) as agent:
                assert (await agent.send("hi")).text == "HI"
        assert names.asked == 2
        hostile = Names(["127.0.0.77"], [PUBLIC])
        async with (
            internet(monkeypatch, hostile),
            connect(url, limits=replace(QUICK, connect=5)) as agent,
        ):
            with pytest.raises(BadParams, match="led to this machine before"):
                await agent.send("hi")


async def test_a_slow_address_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    dial = socket_stream.dial

    async def instead(address: str, port: int) -> socket.socket:
        if address == "127.0.0.2":
            await asyncio.Event().wait()
        if address == "127.0.0.3":
            raise OSError("no")
        return await dial(address, port)

    monkeypatch.setattr(socket_stream, "dial", instead)
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = ["127.0.0.3", "127.0.0.2", "127.0.0.1"]
    stream = await socket_stream.connect_socket(found, port, seconds=60)
    await stream.aclose()
    with pytest.raises(ConnectError):
        await socket_stream.connect_socket(["127.0.0.3", "127.0.0.3"], port, seconds=60)
    server.close()


async def test_a_name_server_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(guarded_http, "system_resolver", never)
    for url in (f"http://{HOST}", f"a2a+grpc://{HOST}:1"):
        with pytest.raises(PeerUnreachable, match="cannot be reached"):
            async with connect(url, limits=ClientLimits(connect=0.1, retries=0)) as agent:
                await agent.send("hi")


# This machine.


def at(url: str) -> Card:
    interface = Interface(url=url, binding="JSONRPC", version="1.0")
    return Card(name="x", description="", version="", streaming=True, interfaces=(interface,))


def grpc_at(url: str) -> Interface:
    return Interface(url=url, binding="GRPC", version="1.0")


@pytest.mark.parametrize("typed", ["localhost", "127.0.0.1", "127.0.0.9", "[::1]", "0.0.0.0"])
@pytest.mark.parametrize("named", ["localhost", "127.0.0.1", "0.0.0.0"])
async def test_whoever_types_this_machine_may_call_it_by_every_address(
    typed: str, named: str
) -> None:
    async with open_server() as served:
        card = at(f"http://{named}:{served.port}/")
        async with connect(f"http://{typed}:{served.port}", card=card, limits=QUICK) as agent:
            answer = await agent.send("hi")
            assert isinstance(answer, Task)
            assert answer.text == "HI"


async def test_this_machine_opens_no_private_network() -> None:
    for url in (f"http://{PRIVATE}:1/", "http://169.254.169.254/"):
        with pytest.raises(BadParams, match="may not be called"):
            async with connect("http://localhost:1", card=at(url)):
                pass


async def test_a_stranger_may_not_name_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_server() as served:
        card = at(f"http://localhost:{served.port}/")
        async with connect("https://agent.example", card=card, limits=QUICK) as agent:
            with pytest.raises(BadParams, match="may not be called"):
                await agent.send("hi")


async def test_credentials_for_localhost_are_those_of_its_addresses() -> None:
    def answer(request: Request) -> Response:
        told = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
        return as_json({"task": told})

    async with LittleHttp(answer) as agent:
        interface = Interface(url=agent.url, binding="HTTP+JSON", version="1.0")
        card = replace(at(agent.url), interfaces=(interface,))
        for typed, sent in (("localhost", True), ("127.0.0.2", False)):
            agent.heard.clear()
            url = f"http://{typed}:{agent.port}"
            async with connect(url, card=card, auth="s3cret", limits=QUICK) as found:
                await found.send("hi")
            assert ("authorization" in agent.heard[0].headers) is sent


@pytest.mark.slow  # starts processes
def test_send_to_localhost_reaches_a_default_server(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    with serving("agent.py", "--store", "memory:", cwd=tmp_path) as served:
        for host in ("localhost", "127.0.0.1"):
            url = f"http://{host}:{served.port}"
            done = dragoman("send", url, "hi", cwd=tmp_path)
            assert (done.stdout, done.returncode) == ("HI\n", 0), done.stderr
