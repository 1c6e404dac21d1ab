"""Whether gRPC is served, where the card says it is, and what TLS does to it."""

from __future__ import annotations

import datetime
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import ConfigError
from dragoman.core.peer import Context
from dragoman.engine import Engine
from dragoman.net.grpc.service import GrpcService, asked_for
from dragoman.net.server_context import ServerContext
from dragoman.observability.log import Log
from dragoman.security.authentication import anyone
from dragoman.server.app import App
from dragoman.settings import Limits, Server, Settings, Tls, load
from dragoman.store import open_store

from .conftest import Caller, agent, text


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ServerContext]:
    fd = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY)
    log = Log("info", fd)
    yield ServerContext(Engine(agent, open_store("memory:"), Limits()), anyone, Limits(), log)
    log.close()
    os.close(fd)


def door(context: ServerContext, *, tls: Tls | None = None, **server: Any) -> GrpcService:
    asked = Server(**{"grpc": True, "grpc_port": 0, **server})
    return GrpcService(context, Settings(server=asked, tls=tls or Tls()), grace=0)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


async def test_a_port_that_is_taken_stops_the_start(context: ServerContext, taken: int) -> None:
    with pytest.raises(ConfigError, match=rf"Port {taken} is in use.*--grpc-port"):
        door(context, grpc_port=taken).open()


@pytest.mark.parametrize("missing", ["grpc", "google.protobuf.descriptor_pb2"])
def test_a_missing_package_is_told_with_how_to_get_it(
    context: ServerContext, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("dragoman.dialects.a2a.proto")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("dragoman.net.grpc.server", "dragoman.dialects.a2a.grpc.callee"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=r"pip install 'dragoman\[grpc\]'"):
        door(context).open()


@pytest.mark.slow  # starts processes
def test_everything_else_works_without_its_packages() -> None:
    blocked = "import sys; sys.modules['grpc'] = sys.modules['google.protobuf'] = None; "
    code = (
        blocked + "import dragoman.app, dragoman.cli.serve.serve; from dragoman.dialects import *"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


async def test_the_same_door_as_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_ANN", "right-word-of-ann")
    known = {"ann": Known(secret=Secret(env="TOKEN_OF_ANN"))}
    settings = Settings(
        server=Server(grpc=True, grpc_port=0), auth={"token": Tokens(callers=known)}
    )
    engine = Engine(agent, open_store("memory:"), Limits())
    app = App(agent, engine, settings, Log("error"), "http://127.0.0.1:1")
    await app.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{app.ports['grpc']}") as channel:
        for version in ("1.0", "0.3"):
            caller = Caller(channel, version)
            get = caller.method("GetTask")
            codes = []
            for word in ("", "Bearer wrong", "Bearer right-word-of-ann"):
                metadata = (("authorization", word),) if word else ()
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await get(caller.named("nobody"), metadata=metadata)
                codes.append(caught.value.code().name)
            assert codes == ["UNAUTHENTICATED", "UNAUTHENTICATED", "NOT_FOUND"]
    await app.stop()


@pytest.mark.parametrize(
    ("server", "versions"),
    [
        ({}, []),
        ({"grpc": True}, ["1.0", "0.3"]),
        ({"grpc": False}, []),
        ({"interfaces": ("JSONRPC", "GRPC")}, ["1.0", "0.3"]),
        ({"interfaces": ("GRPC/0.3",)}, ["0.3"]),
        ({"interfaces": ("JSONRPC",), "grpc": True}, ["1.0", "0.3"]),
        ({"interfaces": ("JSONRPC", "GRPC"), "grpc": False}, []),
    ],
)
async def test_grpc_is_served_only_when_it_is_asked_for(
    context: ServerContext, server: dict[str, Any], versions: list[str]
) -> None:
    asked = Settings(server=Server(**{"grpc": None, "grpc_port": 0, **server}))
    app = App(agent, context.peer, asked, context.log, "http://127.0.0.1:1")  # type: ignore[arg-type]
    await app.start()
    assert ("grpc" in app.ports) == bool(versions) == asked_for(asked)
    listed = app.mounts[""].card_at("").interfaces
    assert [each.version for each in listed if each.binding == "GRPC"] == versions
    await app.stop()


async def test_a_version_that_is_not_on_the_card_is_not_served(context: ServerContext) -> None:
    one = door(context, grpc=None, interfaces=("GRPC/1.0",))
    one.open()
    await context.peer.start()  # type: ignore[attr-defined]
    await one.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{one.port}") as channel:
        assert text(await Caller(channel, "1.0").send("hi")) == "HI"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await Caller(channel, "0.3").send("hi")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        shown = await _reflected(channel)
        assert "lf.a2a.v1.A2AService" in shown
        assert "a2a.v1.A2AService" not in shown
    await one.drain()
    await one.stop()
    await context.peer.stop(0)  # type: ignore[attr-defined]


async def _reflected(channel: grpc.aio.Channel) -> list[str]:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    async for answer in stub.ServerReflectionInfo(iter([asked])):
        return [each.name for each in answer.list_services_response.service]
    return []


def test_an_operator_who_names_the_port_or_the_address_means_it() -> None:
    assert load().server.grpc is None
    assert load({"grpc_port": 0}).server.grpc is True
    assert load({"grpc_url": "desk.example:443"}).server.grpc is True
    assert load({}, {"DRAGOMAN_SERVER_GRPC_PORT": "8421"}).server.grpc is True
    assert load({"grpc_port": 0, "grpc": False}).server.grpc is False


@pytest.mark.parametrize(
    ("server", "base", "url"),
    [
        ({}, "http://desk.example:8420", "desk.example:{port}"),
        ({}, "http://[::1]:8420", "[::1]:{port}"),
        ({"grpc_url": "https://desk.example"}, "http://a", "https://desk.example"),
        ({"public_url": "https://a", "grpc_url": "g.example:443"}, "https://a", "g.example:443"),
        ({"grpc_form": "grpc"}, "http://desk.example:8420", "grpc://desk.example:{port}"),
        ({"grpc_form": "http"}, "http://[::1]:8420", "http://[::1]:{port}"),
    ],
)
async def test_where_the_card_says_it_is(
    context: ServerContext, server: dict[str, object], base: str, url: str
) -> None:
    opened = door(context, **server)
    opened.open()
    await opened.start()
    found = opened.interfaces(base)
    wanted = [("GRPC", v, url.format(port=opened.port)) for v in ("1.0", "0.3")]
    assert [(i.binding, i.version, i.url) for i in found] == wanted
    await opened.drain()
    await opened.stop()


@pytest.mark.parametrize(
    "server", [{"public_url": "https://a"}, {"trusted_proxies": ("10.0.0.0/8",)}]
)
def test_behind_a_proxy_the_operator_must_say_where_grpc_is_reached(
    context: ServerContext, server: dict[str, Any]
) -> None:
    """Else it would be served and not be on the card, or be on it at an address nobody knows."""
    with pytest.raises(ConfigError, match="grpc_url"):
        door(context, **server)


class Papers:
    """A CA, and certificates it has signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test CA")])
        self.ca = self._write("ca", self._signed(self.name, self.key, ca=True), self.key)[0]

    def issue(self, name: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._write(name, self._signed(subject, key, alternative=name), key)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        ca: bool = False,
        alternative: str = "",
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if alternative:
            names = x509.SubjectAlternativeName([x509.DNSName(alternative)])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def _write(
        self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> tuple[Path, Path]:
        pem = serialization.Encoding.PEM
        cert_path, key_path = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert_path.write_bytes(certificate.public_bytes(pem))
        key_path.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        return cert_path, key_path


async def test_tls_with_certificates_of_both_sides(context: ServerContext, tmp_path: Path) -> None:
    papers = Papers(tmp_path)
    cert, key = papers.issue("localhost")
    mine, my_key = papers.issue("client.example")
    seen: list[str] = []

    def admit(headers: Mapping[str, str], target: str, certificate: str) -> Context:
        seen.append(certificate)
        return Context(principal=certificate)

    context.admit = admit
    tls = Tls(cert=str(cert), key=str(key), client_ca=str(papers.ca))
    opened = door(context, tls=tls, host="127.0.0.1")
    opened.open()
    await context.peer.start()  # type: ignore[attr-defined]
    await opened.start()
    where = f"localhost:{opened.port}"
    root = papers.ca.read_bytes()
    known = grpc.ssl_channel_credentials(root, my_key.read_bytes(), mine.read_bytes())
    async with grpc.aio.secure_channel(where, known) as channel:
        task = await Caller(channel, "1.0").send("hi")
        assert task.artifacts[0].parts[0].text == "HI"
    assert seen == ["client.example"]
    for stranger in (
        grpc.aio.insecure_channel(where),
        grpc.aio.secure_channel(where, grpc.ssl_channel_credentials(root)),
    ):
        async with stranger as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await Caller(channel, "1.0").send("hi")
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert len(seen) == 1
    await opened.drain()
    await opened.stop()
    await context.peer.stop(0)  # type: ignore[attr-defined]


def test_a_minimum_that_grpc_cannot_keep_is_refused(context: ServerContext, tmp_path: Path) -> None:
    cert, key = Papers(tmp_path).issue("localhost")
    tls = Tls(cert=str(cert), key=str(key), minimum="1.3")
    with pytest.raises(ConfigError, match=r"TLS 1\.3"):
        door(context, tls=tls).open()
