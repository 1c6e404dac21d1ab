"""Mutual TLS: the certificate that the user's file names goes into the handshake."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from client.auth.http_server import LittleHttp, Response
from dragoman.client import connect
from dragoman.client.auth import CardAuth
from dragoman.core.card import Card, Interface, MutualTls
from dragoman.core.errors import PeerUnreachable
from dragoman.dialects.a2a.cards.documents import merged
from security.certs import Authority


@pytest.mark.slow  # takes two seconds
async def test_a_server_that_wants_a_certificate_gets_the_users(tmp_path: Path) -> None:
    ca = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ca.issue("server"))
    context.load_verify_locations(ca.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    told = Card(
        name="Vault",
        description="",
        version="1",
        schemes={"tls": MutualTls()},
        security=({"tls": ()},),
        interfaces=(Interface(url="https://127.0.0.1", binding="JSONRPC", version="1.0"),),
    )
    cert, key = ca.issue("alice")
    async with LittleHttp(lambda request: Response(200, merged(told)), context) as server:
        lines = f'["{server.url}"]\ncert = "{cert}"\ncert_key = "{key}"\n'
        (tmp_path / "credentials.toml").write_text(lines)
        (tmp_path / "credentials.toml").chmod(0o600)
        async with (
            CardAuth.of({"DRAGOMAN_CONFIG_DIR": str(tmp_path)}) as auth,
            connect(server.url, auth=auth, ca=ca.ca) as agent,
        ):
            assert agent.card.name == "Vault"
        with pytest.raises(PeerUnreachable):
            async with connect(server.url, auth=CardAuth(), ca=ca.ca):
                pass
        assert len(server.heard) == 1
