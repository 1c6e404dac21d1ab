"""TLS: server certificates are always verified, and ours is shown where it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from client.our_server import QUICK, make_agent
from dragoman import connect
from dragoman.core.errors import ConfigError, PeerUnreachable
from dragoman.settings import Server, Settings, Tls
from dragoman.testing import served
from security.certs import Authority


def settings(authority: Authority, *, client_ca: str = "") -> Settings:
    cert, key = authority.issue("server")
    server = Server(store="memory:", grpc=True, grpc_port=0, allow_private=True)
    return Settings(server=server, tls=Tls(cert=cert, key=key, client_ca=client_ca))


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-1.0-rest", "a2a-1.0-grpc"])
async def test_the_server_is_verified(tmp_path: Path, dialect: str) -> None:
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    limits = replace(QUICK, retries=0, answer=5)
    async with served(make_agent(), settings(ours), grpc=True) as url:
        async with connect(url, ca=ours.ca, dialect=dialect) as agent:
            assert (await agent.send("hi")).text == "HI"
            assert (await agent.stream("hi").result()).text == "HI"
            card = agent.card
        for ca in ("", other.ca):
            with pytest.raises(PeerUnreachable):
                async with connect(url, ca=ca, dialect=dialect, card=card, limits=limits) as agent:
                    await agent.send("hi")


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-1.0-grpc"])
async def test_our_certificate_is_shown(tmp_path: Path, dialect: str) -> None:
    ours = Authority(tmp_path, "ours")
    mine = ours.issue("client")
    limits = replace(QUICK, retries=0, answer=5)
    async with served(make_agent(), settings(ours, client_ca=ours.ca), grpc=True) as url:
        # The second port is another origin; it may see the certificate only if we say so.
        async with connect(url, ca=ours.ca, certificate=mine, dialect="a2a-1.0") as agent:
            card = agent.card
            assert (await agent.send("hi")).text == "HI"
        (grpc,) = {each.url for each in card.interfaces if each.binding == "GRPC"}
        async with connect(
            url, ca=ours.ca, certificate=mine, dialect=dialect, origins=[grpc]
        ) as agent:
            assert (await agent.send("hi")).text == "HI"
        with pytest.raises(PeerUnreachable):
            async with connect(url, ca=ours.ca, card=card, dialect=dialect, limits=limits) as agent:
                await agent.send("hi")


async def test_http2_is_spoken_where_it_is_offered(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    async with (
        served(make_agent(), settings(ours)) as url,
        connect(url, ca=ours.ca, dialect="a2a-1.0") as agent,
    ):
        await agent.send("hi")
        (pool,) = agent._files._http._guarded._pools.values()  # no other place tells
        assert pool.multiplexes


async def test_wrong_files_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="CA"):
        async with connect("https://127.0.0.1:1", ca=tmp_path / "missing.pem"):
            pass
