"""Servers are verified: by an authority, or by a pinned key where they are known by an address."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from dragoman.core.errors import ConfigError, PeerUnreachable
from dragoman.xiaoyi.outbound_link import BACKUP, PRIMARY, LinkServer, servers_for
from dragoman.xiaoyi.server_key import check_pin, pin_of, pinned_context
from security.certs import Authority


@asynccontextmanager
async def tls_server(cert: str, key: str) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that notes what it is told. Yields its port."""
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


def der(path: str) -> bytes:
    return x509.load_pem_x509_certificate(Path(path).read_bytes()).public_bytes(Encoding.DER)


async def test_a_server_with_the_pinned_key_is_trusted_and_no_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("one")
    other_cert, other_key = authority.issue("two")
    pin = pin_of(der(cert))
    async with tls_server(cert, key) as (port, _):
        context = await pinned_context("127.0.0.1", port, pin)
        assert context.verify_mode is ssl.CERT_REQUIRED
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.close()
    async with tls_server(other_cert, other_key) as (port, heard):
        with pytest.raises(PeerUnreachable, match="pinned key"):
            await pinned_context("127.0.0.1", port, pin)
        with pytest.raises(ssl.SSLError):  # nor one that takes its place later
            await asyncio.open_connection("127.0.0.1", port, ssl=context)
    assert b"".join(heard) == b""


async def test_a_server_without_a_pin_needs_a_certificate_of_an_authority() -> None:
    assert await LinkServer("wss://127.0.0.1:1").tls() is None


def test_the_backup_server_is_dialled_only_with_its_pin_or_if_the_operator_insists() -> None:
    pin = pin_example()
    assert [each.url for each in servers_for(())] == [PRIMARY]
    assert [(each.url, each.verified) for each in servers_for((), pin)] == [
        (PRIMARY, True),
        (BACKUP, True),
    ]
    insists = servers_for((), backup_without_tls_verification=True)
    assert [(each.url, each.verified) for each in insists] == [(PRIMARY, True), (BACKUP, False)]
    others = servers_for(("wss://127.0.0.1:1",), backup_without_tls_verification=True)
    assert [each.verified for each in others] == [True]


def pin_example() -> str:
    return "sha256/" + "A" * 43 + "="


@pytest.mark.parametrize("pin", ["", "sha256/", "sha256/AAAA", "md5/" + "A" * 44, "sha256/!!"])
def test_what_is_no_pin_is_refused_at_the_start(pin: str) -> None:
    with pytest.raises(ConfigError):
        check_pin(pin)
    if pin:
        with pytest.raises(ConfigError):
            LinkServer("wss://127.0.0.1:1", pin=pin)


def test_an_address_without_a_path_gets_that_of_the_source_document() -> None:
    assert LinkServer("ws://127.0.0.1:1").url == "ws://127.0.0.1:1/openclaw/v1/ws/link"
    assert PRIMARY == "wss://hag.cloud.huawei.com/openclaw/v1/ws/link"
    assert BACKUP == "wss://116.63.174.231/openclaw/v1/ws/link"
    with pytest.raises(ConfigError):
        LinkServer("https://127.0.0.1:1")
