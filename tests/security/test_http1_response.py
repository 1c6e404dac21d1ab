"""Our parser of HTTP/1.1 responses: what it takes, h11 takes too and reads in the same way."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.security.outbound.failures import RemoteProtocolError
from dragoman.security.outbound.http1_response import LARGEST_HEAD, ResponseParser


class Read(NamedTuple):
    """One response as a parser sees it."""

    status: int
    fields: dict[str, str]
    body: bytes
    reusable: bool


def ours(pieces: list[bytes], method: str = "GET") -> Read:
    """Reads one response; the connection ends behind the last piece if there must be an end."""
    parser, left = ResponseParser(), [*pieces]
    parser.expect(method)
    while (head := parser.head()) is None:
        parser.receive(left.pop(0) if left else b"")
    body = parser.body()
    while not parser.over:
        parser.receive(left.pop(0) if left else b"")
        body += parser.body()
    return Read(*head, body, parser.reusable and not left)


def theirs(data: bytes, method: str = "GET") -> Read:
    """The same with h11."""
    state = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD)
    state.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    state.send(h11.EndOfMessage())
    state.receive_data(data)
    ended = False
    read, body = None, b""
    while True:
        event = state.next_event()
        if event is h11.NEED_DATA:
            assert not ended
            ended = True
            state.receive_data(b"")
        elif isinstance(event, h11.Response):
            fields: dict[str, str] = {}
            for name, value in event.headers:
                fields[name.decode("latin-1")] = value.decode("latin-1")
            read = event.status_code, fields
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert read is not None
            done = state.their_state is h11.DONE and not state.trailing_data[0]
            return Read(*read, body, done and not ended)


STATUS_LINES = st.sampled_from(
    [
        "HTTP/1.1 200 OK",
        "HTTP/1.1 404 Not Found",
        "HTTP/1.1 204 No Content",
        "HTTP/1.1 304 Not Modified",
        "HTTP/1.1 500",
        "HTTP/1.0 200 OK",
        "HTTP/1.1 200 \xe9\t?",
        "HTTP/2.0 200 OK",
        "HTTP/1.1 099 What",
        "HTTP/1.1  200 OK",
        "http/1.1 200 OK",
    ]
)
FIELDS = st.sampled_from(
    [
        "content-type: text/plain",
        "Content-Length: 5",
        "content-length: 5, 5",
        "content-length: 05",
        "content-length: +5",
        "content-length: 5, 6",
        "content-length:",
        "content-length: 0",
        "content-length: 99999999999999999999",
        "Transfer-Encoding: chunked",
        "transfer-encoding: CHUNKED",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding : chunked",
        "transfer-encoding: \x0bchunked",
        "connection: close",
        "Connection: Keep-Alive, Close",
        "x-empty:",
        "x-fold: a\r\n b",
        " x-space: a",
        "x space: a",
        "x-nul: a\x00b",
        "x-cr: a\rb",
        "no colon",
        ": no name",
    ]
)
CHUNKS = st.sampled_from(
    [
        "5\r\nhello\r\n",
        "05;a=b\r\nhello\r\n",
        "5 \r\nhello\r\n",
        "5\nhello\r\n",
        "5\r\nhello",
        "5\r\nhello!\r\n",
        "-5\r\nhello\r\n",
        "0x5\r\nhello\r\n",
        "A\r\n0123456789\r\n",
        "0\r\n\r\n",
        "0\r\nx-trailer: 1\r\n\r\n",
        "0\r\nbad trailer\r\n\r\n",
        "0;x\r\n\n",
        "\r\n",
        "hello",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
    ]
)
INTERIM = st.sampled_from(
    ["", "", "", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early\r\nlink: x\r\n\r\n"]
)


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """Responses, most of them wrong in some way."""
    newline = draw(st.sampled_from(["\r\n", "\r\n", "\r\n", "\n"]))
    lines = [draw(STATUS_LINES), *draw(st.lists(FIELDS, max_size=4))]
    head = newline.join([*lines, "", ""])
    body = "".join(draw(st.lists(CHUNKS, max_size=4)))
    return (draw(INTERIM) + head + body).encode("latin-1")


@st.composite
def in_pieces(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(data) - 1)), max_size=6)))
    places = [0, *cuts, len(data)]
    return [data[a:b] for a, b in pairwise(places) if data[a:b]]


def compare(data: bytes, pieces: list[bytes], method: str) -> None:
    try:
        found = ours(pieces, method)
    except RemoteProtocolError:
        return
    expected = theirs(data, method)
    assert found.status == expected.status
    assert found.body == expected.body
    for name in ("content-length", "transfer-encoding", "connection"):
        for fields in (found.fields, expected.fields):  # h11 has a form of its own for them
            fields.pop(name, None)
    assert found.fields == expected.fields
    assert expected.reusable or not found.reusable


@given(st.data(), responses(), st.sampled_from(["GET", "POST", "HEAD"]))
def test_what_it_takes_h11_takes_too(data: st.DataObject, whole: bytes, method: str) -> None:
    compare(whole, data.draw(in_pieces(whole)), method)


@given(st.data(), responses(), st.integers(0, 300), st.binary(min_size=1, max_size=2))
def test_what_it_takes_of_broken_bytes_h11_takes_too(
    data: st.DataObject, whole: bytes, place: int, wrong: bytes
) -> None:
    place = min(place, len(whole))
    broken = whole[:place] + wrong + whole[place + len(wrong) :]
    compare(broken, data.draw(in_pieces(broken)), "GET")


GOOD = [
    (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello", True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", b"hello", False),
    (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello", False),
    (b"HTTP/1.1 200\r\ncontent-length: 5, 5\r\n\r\nhello", b"hello", True),
    (b"HTTP/1.1 200 OK\r\n\r\nhello", b"hello", False),
    (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"", True),
    (b"HTTP/1.1 200 OK\nx: a\n b\ncontent-length: 5\n\nhello", b"hello", True),
    (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nx-sum: 1\r\n\r\n",
        b"hello",
        True,
    ),
    (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 9\r\n\r\n"
        b"5\r\nhello\r\n0\r\n\r\n",
        b"hello",
        False,
    ),
]


@pytest.mark.parametrize(("data", "body", "reusable"), GOOD)
def test_responses_are_read_in_one_piece_and_byte_by_byte(
    data: bytes, body: bytes, reusable: bool
) -> None:
    whole = ours([data])
    assert (whole.body, whole.reusable) == (body, reusable)
    assert ours([bytes([byte]) for byte in data]) == whole
    assert theirs(data).body == body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: " + b"y" * 200,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * LARGEST_HEAD + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * LARGEST_HEAD + b"\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
        + b"x: y\r\n" * (LARGEST_HEAD // 4),
    ],
    ids=lambda data: data[:60].decode("latin-1"),
)
def test_broken_responses_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        ours([data] if data else [])
