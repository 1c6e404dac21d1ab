"""HTTP/2 frames written by hand: what no well-behaved client would send."""

from __future__ import annotations

import struct

from hpack import Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE, MOST_DATA = 4, 16_000


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame (RFC 9113 §4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def greeting(window: int | None = None) -> bytes:
    """The preface and our settings; `window` is what each answer may send us unasked."""
    said = b"" if window is None else struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
    return PREFACE + frame(SETTINGS, 0, 0, said)


def head(
    port: int, method: str = "GET", path: str = "/healthz", *more: tuple[str, str]
) -> list[tuple[str, str]]:
    """The header list of a request."""
    return [
        (":method", method),
        (":scheme", "http"),
        (":authority", f"127.0.0.1:{port}"),
        (":path", path),
        *more,
    ]


def request(stream: int, headers: list[tuple[str, str]], body: bytes = b"") -> bytes:
    """A whole request in one HEADERS frame and, if it has a body, DATA frames."""
    # Every block is encoded by itself, so that any number of them may be sent in any order.
    block = Encoder().encode(headers)
    flags = END_HEADERS if body else END_HEADERS | END_STREAM
    said = frame(HEADERS, flags, stream, block)
    pieces = [body[at : at + MOST_DATA] for at in range(0, len(body), MOST_DATA)]
    for number, piece in enumerate(pieces, 1):
        said += frame(DATA, END_STREAM if number == len(pieces) else 0, stream, piece)
    return said


def bomb(port: int, repeats: int, stream: int = 1) -> bytes:
    """A small request that unpacks to `repeats` lines of one header: each is a single byte that
    points into the HPACK table."""
    encoder = Encoder()
    name, value = "x-bomb", "b" * 3800
    block = encoder.encode([*head(port, "POST", "/"), (name, value)])
    pointer = encoder.encode([(name, value)])
    assert len(pointer) == 1
    block += pointer * repeats
    pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
    said = b""
    for number, piece in enumerate(pieces):
        kind = HEADERS if number == 0 else CONTINUATION
        flags = END_HEADERS if number == len(pieces) - 1 else 0
        said += frame(kind, flags | (END_STREAM if number == 0 else 0), stream, piece)
    return said


def upgrade(port: int, path: str = "/iat/ws") -> bytes:
    """The handshake of a WebSocket."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


def fragment(size: int, *, first: bool) -> bytes:
    """A piece of a text message that does not end (RFC 6455 §5.4)."""
    return bytes([first, 0xFF]) + struct.pack(">Q", size) + b"\0" * 4 + b"a" * size
