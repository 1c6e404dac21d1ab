"""`Host` of HTTP/1 as RFC 9112 §3.2 wants it, spoken over a plain socket."""

from __future__ import annotations

import asyncio

import pytest

from net.served_peer import RunningServer, open_server


async def status_of(home: RunningServer, *lines: str) -> int:
    """The status of the answer to these header lines."""
    host, _, port = home.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write("\r\n".join((*lines, "Connection: close", "", "")).encode())
        async with asyncio.timeout(60):
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/.well-known/agent-card.json"])
async def test_without_a_host_or_with_two_it_is_a_bad_request(path: str) -> None:
    async with open_server() as home:
        own = home.url.removeprefix("http://")
        assert await status_of(home, f"GET {path} HTTP/1.1", f"Host: {own}") == 200
        assert await status_of(home, f"GET {path} HTTP/1.1") == 400
        # A cache in front and we could each believe another one of them.
        same = f"Host: {own}", f"Host: {own}"
        assert await status_of(home, f"GET {path} HTTP/1.1", *same) == 400
        other = f"Host: {own}", "Host: evil.example"
        assert await status_of(home, f"GET {path} HTTP/1.1", *other) == 400
        assert await status_of(home, f"GET {path} HTTP/1.0") == 200
        assert await status_of(home, f"GET {path} HTTP/1.0", *same) == 400


async def test_a_call_without_a_host_is_not_executed() -> None:
    async with open_server() as home:
        lines = "POST / HTTP/1.1", "Content-Type: application/json", "Content-Length: 0"
        assert await status_of(home, *lines) == 400
        assert not home.peer.asked


async def test_metrics_are_not_shown_to_a_page_with_a_name_of_its_own() -> None:
    async with open_server() as home:
        foreign = "Host: evil.example:8420"
        assert await status_of(home, "GET /metrics HTTP/1.1", foreign) == 421
        assert await status_of(home, "GET /healthz HTTP/1.1", foreign) == 200
        prober = "Host: 10.1.2.3:8420"  # scrapers name an address
        assert await status_of(home, "GET /metrics HTTP/1.1", prober) == 200
