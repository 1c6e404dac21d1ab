"""Addresses that others gave us: what is called, and what never is."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from dragoman.core.errors import BadParams
from dragoman.core.model import Hook
from dragoman.core.operations import SetHook
from dragoman.security.outbound.address_scopes import TypedHost
from dragoman.security.outbound.guarded_http import (
    GuardedHttp,
    Rules,
    Unreachable,
    parse,
    system_resolver,
)
from waiting import forever
from webhooks.harness import ALICE, QUICK, empty, engine, hook, send, sender
from webhooks.hostile import RESOLVED, URLS
from webhooks.receiver import Heard, Receiver

PUBLIC = "93.184.215.14"


async def resolve(host: str, port: int) -> list[str]:
    """A hostile name server; what it does not know the system may answer."""
    if host in RESOLVED:
        if not RESOLVED[host]:
            raise Unreachable("unknown name")
        return RESOLVED[host]
    return await system_resolver(host, port)


def rules(receiver: Receiver) -> Rules:
    """The canary's port is open: only its address may save it."""
    return Rules(ports=(80, 443, receiver.port))


async def test_the_canary_can_be_reached_at_all() -> None:
    async with Receiver() as canary:
        egress = GuardedHttp(Rules(allow_private=True), resolve)
        reply = await egress.request("POST", f"http://loop.test:{canary.port}/x?y=1", body=b"hi")
        assert (reply.status, canary.connections) == (204, 1)
        assert canary.heard[0].path == "/x?y=1"
        assert canary.heard[0].headers["host"] == f"loop.test:{canary.port}"
        await egress.close()


def test_there_are_enough_hostile_urls() -> None:
    assert len(set(URLS)) == len(URLS) >= 150


async def test_no_hostile_url_is_called() -> None:
    """At registration and, should one slip through, at delivery (issue 3, done when 3)."""
    names_without_address = 0
    async with Receiver() as canary:
        carrier = sender(rules(canary), resolve=resolve)
        async with engine(replace(QUICK, schedule=(0,)), by=carrier) as running:
            task = await send(running, "", skill="wait")
            for n, template in enumerate(URLS):
                url = template.replace("{port}", str(canary.port))
                at = Hook(hook_id=f"h{n}", task_id=task.id, url=url, dialect="a2a-1.0")
                try:
                    await running.call(SetHook(hook=at), ALICE)
                except BadParams:
                    pass
                else:
                    # A name that has no address today may be registered; it has nothing to call.
                    assert "nothing.test" in url, url
                    names_without_address += 1
                    continue
                done = await send(running, "0")
                stored = carrier.sealed(replace(at, task_id=done.id))
                await running.store.set_hook(running.runner.scope_of(ALICE), stored)
            await empty(running)
            dead = await running.store.outbox(dead=True, limit=999)
            assert len(dead) == len(URLS) - names_without_address
            assert all(one.status == 0 and one.error for one in dead)
        assert names_without_address == 1
        assert (canary.connections, canary.heard) == (0, [])


async def test_a_name_that_changes_its_mind_is_never_believed() -> None:
    """Rebinding: public when it is checked, loopback when it is called."""
    asked = 0

    async def rebinding(host: str, port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return [PUBLIC] if asked == 1 else ["127.0.0.1"]

    async with Receiver() as canary:
        carrier = sender(rules(canary), resolve=rebinding)
        push = replace(QUICK, schedule=(0, *[0] * 199), failures=10_000)
        async with engine(push, by=carrier) as running:
            await send(running, "0", hook(f"http://rebind.test:{canary.port}/"))
            await empty(running, 8.0)
            dead = await running.store.outbox(dead=True, limit=9)
            assert {one.attempt for one in dead} == {200}
            assert all("may not be called" in one.error for one in dead)
        assert asked >= 600
        assert canary.connections == 0


async def test_the_checked_address_is_the_connected_one() -> None:
    """The name is resolved once per connection: there is no second answer to believe."""
    asked = 0

    async def once(host: str, port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return ["127.0.0.1"] if asked == 1 else ["0.0.0.0"]

    async with Receiver() as receiver:
        egress = GuardedHttp(Rules(allow_private=True), once)
        reply = await egress.request("POST", f"http://name.test:{receiver.port}/")
        assert (reply.status, asked) == (204, 1)
        await egress.close()


@pytest.mark.parametrize(
    ("url", "port", "authority", "path"),
    [
        ("https://example.com", 443, "example.com", "/"),
        ("HTTP://Example.COM./a?b=c#d", 80, "example.com", "/a?b=c"),
        ("https://xn--bcher-kva.example:8443/%7Ea", 8443, "xn--bcher-kva.example:8443", "/%7Ea"),
        ("http://93.184.215.14/", 80, "93.184.215.14", "/"),
        ("https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/", 443, None, "/"),
        ("https://my_host.example.com/?q", 443, "my_host.example.com", "/?q"),
    ],
)
def test_plain_addresses_are_fine(url: str, port: int, authority: str | None, path: str) -> None:
    target = parse(url, Rules())
    assert (target.port, target.path) == (port, path)
    assert target.authority == authority or authority is None


@pytest.mark.parametrize("port", [1, 22, 25, 53, 110, 143, 445, 3306, 5432, 6379, 9200, 11211])
def test_only_web_ports_are_open(port: int) -> None:
    with pytest.raises(BadParams):
        parse(f"http://example.com:{port}/", Rules())
    assert parse(f"http://example.com:{port}/", Rules(ports=(port,))).port == port


def test_a_list_of_hosts_keeps_all_others_out() -> None:
    listed = Rules(hosts=("hooks.example.com", ".internal.example.com"))
    for host in ("hooks.example.com", "HOOKS.example.com", "a.b.internal.example.com"):
        parse(f"https://{host}/", listed)
    for host in (
        "example.com",
        "xhooks.example.com",
        "internal.example.com",
        "a.hooks.example.com",
    ):
        with pytest.raises(BadParams):
            parse(f"https://{host}/", listed)


METADATA = (
    *("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("[fd00:ec2::254]", "[fd00:ec2::23]", "[fd20:ce::254]", "[fd00:42::42]"),
    "[::ffff:100.100.100.200]",
)
"""Where clouds give their machines credentials, private networks or not."""


@pytest.mark.parametrize("host", METADATA)
def test_metadata_of_clouds_is_closed_whatever_is_allowed(host: str) -> None:
    with pytest.raises(BadParams):
        parse(f"http://{host}/latest/meta-data", Rules(allow_private=True, allow_loopback=True))
    typed = TypedHost(host.strip("[]"), Rules(allow_private=True))
    with pytest.raises(BadParams):
        typed.checked([host.strip("[]")])


def test_the_neighbours_of_metadata_stay_private_addresses() -> None:
    for host in ("100.100.100.201", "[fd00:ec3::254]", "[fd00:42::43]"):
        parse(f"http://{host}/", Rules(allow_private=True))


@pytest.mark.parametrize("url", ["http://169.254.169.254/", "http://0.0.0.0/", "http://[ff02::1]/"])
def test_private_does_not_mean_everything(url: str) -> None:
    with pytest.raises(BadParams):
        parse(url, Rules(allow_private=True))


async def test_an_answer_has_a_size_and_a_time() -> None:
    async def endless(one: Heard) -> tuple[int, dict[str, str]]:
        if one.path == "/slow":
            await forever()
        return 200, {"content-length": "99999999"}

    async with Receiver(endless) as receiver:
        egress = GuardedHttp(Rules(allow_private=True))
        base = f"http://127.0.0.1:{receiver.port}"
        with pytest.raises(Unreachable, match="timeout"):
            await egress.request("GET", f"{base}/slow", seconds=0.1)
        with pytest.raises(Unreachable):
            await egress.request("GET", f"{base}/large", seconds=0.2)
        await egress.close()


async def test_a_large_answer_is_cut() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 200_000)
        await writer.drain()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    egress = GuardedHttp(Rules(allow_private=True))
    reply = await egress.request("GET", f"http://127.0.0.1:{port}/", max_size=1000)
    assert (reply.status, len(reply.body), reply.whole) == (200, 1000, False)
    await egress.close()
    server.close()


async def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as receiver, Receiver() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        egress = GuardedHttp(Rules(allow_private=True))
        await egress.request("POST", receiver.url)
        assert (receiver.connections, proxy.connections) == (1, 0)
        await egress.close()


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "\x00", "é", " a", ""])
async def test_a_header_cannot_begin_another(value: str) -> None:
    async with Receiver() as receiver:
        egress = GuardedHttp(Rules(allow_private=True))
        with pytest.raises(BadParams):
            await egress.request("POST", receiver.url, headers={"x-token": value})
        assert receiver.connections == 0


async def test_tls_asks_for_the_name_and_trusts_no_stranger(tmp_path: Path) -> None:
    """The connection goes to the address, the handshake asks for the name."""
    asked: list[str | None] = []
    context = server_context(tmp_path)
    context.sni_callback = lambda connection, name, given: asked.append(name)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    egress = GuardedHttp(Rules(allow_private=True), resolve)
    with pytest.raises(Unreachable, match="no connection"):
        await egress.request("POST", f"https://loop.test:{port}/", seconds=3)
    assert asked == ["loop.test"]
    await egress.close()
    server.close()


def server_context(folder: Path) -> ssl.SSLContext:
    """A server with a certificate that nobody signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loop.test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context
