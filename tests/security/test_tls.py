"""TLS on a real socket: which versions are spoken, and who comes through the handshake."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Agent
from dragoman.core.auth_schemes import Certificates, Known, Secret, Tokens
from dragoman.core.errors import ConfigError
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.security import tls as nets_tls
from dragoman.security.access_control import AccessControl, check_exposure
from dragoman.settings import Limits, Server, Settings, Tls
from security.certs import Authority

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def served(tls: Tls) -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
    """A bare app behind TLS: its port, and the scopes it saw."""
    seen: list[dict[str, Any]] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        seen.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello", "more_body": False})

    sock = bind("127.0.0.1", 0)
    port = int(sock.getsockname()[1])
    listener = GranianServer(app, sock, Limits(), tls)
    listener.begin()
    try:
        yield port, seen
    finally:
        listener.refuse()
        await listener.end(1)


async def heard(port: int, context: ssl.SSLContext) -> tuple[str | None, bytes]:
    """The version spoken and what came back; an SSL error if the handshake fails."""
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
        try:
            writer.write(REQUEST)
            answer = await reader.read(65536)
            return writer.get_extra_info("ssl_object").version(), answer
        finally:
            writer.transport.abort()


async def refused(port: int, context: ssl.SSLContext) -> bool:
    """Whether the handshake fails; in TLS 1.3 a client learns it only when it reads."""
    try:
        return (await heard(port, context))[1] == b""
    except OSError:
        return True


def client(authority: Authority, *, most: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca)
    if most is not None:
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = most
    return context


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_versions(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    async with served(Tls(cert=cert, key=key)) as (port, seen):
        version, answer = await heard(port, client(authority))
        assert (version, answer[-5:]) == ("TLSv1.3", b"hello")
        assert seen[0]["scheme"] == "https"
        version, _ = await heard(port, client(authority, most=ssl.TLSVersion.TLSv1_2))
        assert version == "TLSv1.2"
        assert await refused(port, client(authority, most=ssl.TLSVersion.TLSv1_1))
    async with served(Tls(cert=cert, key=key, minimum="1.3")) as (port, _):
        assert await refused(port, client(authority, most=ssl.TLSVersion.TLSv1_2))


async def test_only_holders_of_a_certificate_of_the_client_ca_come_through(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    cert, key = authority.issue("server")
    async with served(Tls(cert=cert, key=key, client_ca=authority.ca)) as (port, seen):
        held = client(authority)
        held.load_cert_chain(*authority.issue("robot", uri="spiffe://acme/robot"))
        _, answer = await heard(port, held)
        assert answer.endswith(b"hello")
        # What docs/guide/security.md says of Granian: it does not tell whose certificate it was.
        assert "tls" not in (seen[0].get("extensions") or {})
        foreign = client(authority)
        foreign.load_cert_chain(*stranger.issue("robot", uri="spiffe://acme/robot"))
        for wrong in (client(authority), foreign):
            assert await refused(port, wrong)
        assert len(seen) == 1


def test_a_locked_key_stops_the_start(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path).issue("server", password=b"open sesame")
    with pytest.raises(ConfigError, match="locked"):
        nets_tls.check(Tls(cert=cert, key=key))


def test_what_grpc_is_given(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    assert nets_tls.pem(Tls()) is None
    pem = nets_tls.pem(Tls(cert=cert, key=key, client_ca=authority.ca))
    assert pem is not None
    assert b"PRIVATE KEY" in pem.key
    assert pem.client_ca == Path(authority.ca).read_bytes()
    assert nets_tls.name_in("CN", ("spiffe://a", "b")) == "spiffe://a"
    assert nets_tls.name_in("CN", ()) == "CN"


def test_wrong_files_stop_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    _, other = authority.issue("other")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("nothing")
    for wrong in (
        Tls(cert=cert),
        Tls(key=key),
        Tls(client_ca=authority.ca),
        Tls(cert=cert, key="nowhere.key"),
        Tls(cert=cert, key=other),
        Tls(cert=str(garbage), key=key),
        Tls(cert=cert, key=key, client_ca=str(garbage)),
    ):
        with pytest.raises(ConfigError, match="tls"):
            AccessControl(Agent("A"), Settings(tls=wrong))
    nets_tls.check(Tls(cert=cert, key=key, client_ca=authority.ca))


def test_certificates_need_a_client_ca() -> None:
    settings = Settings(auth={"certs": Certificates(shared="all")})
    with pytest.raises(ConfigError, match="client_ca"):
        AccessControl(Agent("A"), settings)


def test_what_may_listen_to_the_network() -> None:
    auth: Any = {"t": Tokens(callers={"a": Known(secret=Secret(env="X"))})}
    agent, public = Agent("A"), Server(host="0.0.0.0")
    locked = Agent("A", auth=auth)
    certs = Tls(cert="c", key="k")
    fine = [
        (Agent("A"), Settings()),
        (agent, Settings(server=Server(host="::1"))),
        (agent, Settings(server=replace(public, insecure=True))),
        (locked, Settings(server=public, tls=certs)),
        (agent, Settings(server=public, tls=certs, auth=auth)),
        (locked, Settings(server=replace(public, public_url="https://a.example"))),
        (locked, Settings(server=replace(public, insecure=True))),
    ]
    for who, settings in fine:
        check_exposure(settings, who)
    refused = [
        (agent, Settings(server=public), "lets everyone in"),
        (agent, Settings(server=public, tls=certs), "lets everyone in"),
        (agent, Settings(server=replace(public, public_url="https://a.example")), "everyone"),
        (locked, Settings(server=public), "without TLS"),
        (locked, Settings(server=replace(public, public_url="http://a.example")), "without TLS"),
        (locked, Settings(server=replace(public, host="example.com")), "without TLS"),
    ]
    for who, settings, why in refused:
        with pytest.raises(ConfigError, match=why):
            check_exposure(settings, who)


async def test_over_grpc_a_certificate_says_who_one_is(tmp_path: Path) -> None:
    import grpc

    from dragoman.core.auth_schemes import Held
    from dragoman.dialects.a2a.proto import POOL, writer
    from dragoman.observability.log import Log
    from dragoman.server.app import App, engine_for
    from security.guarded_server import make_agent

    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    scheme = Certificates(callers={"robot": Held(names=("spiffe://acme/robot",))})
    server = Server(store="memory:", grpc=True, grpc_port=0)
    settings = Settings(
        server=server,
        tls=Tls(cert=cert, key=key, client_ca=authority.ca),
        auth={"certs": scheme},
    )
    agent = make_agent()
    app = App(agent, engine_for(agent, settings), settings, Log("error"), "")
    await app.start()
    assert POOL.FindServiceByName("lf.a2a.v1.A2AService")
    request = writer("lf.a2a.v1.ListTasksRequest")({})
    codes = []
    try:
        for name in ("robot", "other"):
            credentials = authority.channel_credentials(name, f"spiffe://acme/{name}")
            where = f"localhost:{app.ports['grpc']}"
            async with grpc.aio.secure_channel(where, credentials) as channel:
                try:
                    call = channel.unary_unary("/lf.a2a.v1.A2AService/ListTasks")
                    await call(request, timeout=60)
                    codes.append("OK")
                except grpc.aio.AioRpcError as error:
                    codes.append(error.code().name)
    finally:
        await app.stop()
    assert codes == ["OK", "UNAUTHENTICATED"]
