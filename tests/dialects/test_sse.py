"""Server-sent events, both ways."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.errors import PeerMisbehaved
from dragoman.core.session import Frame
from dragoman.dialects.sse import KEEP_ALIVE, SseParser, event


def read(data: bytes, mark: str = "", name: str = "") -> Frame:
    return Frame(data, status=200, mark=mark, name=name)


def parsed(*chunks: bytes, max_size: int = 1000) -> list[Frame]:
    parser = SseParser(max_size)
    return [found for chunk in chunks for found in parser.feed(chunk)] + parser.close()


def test_an_event_is_an_id_and_one_line_of_data() -> None:
    assert event(b'{"a":1}', "7") == b'id: 7\ndata: {"a":1}\n\n'
    assert event(b"{}") == b"data: {}\n\n"


def test_what_is_written_is_read() -> None:
    assert parsed(event(b"{}", "1"), KEEP_ALIVE, event(b"[]", "2")) == [
        read(b"{}", "1"),
        read(b"[]", "2"),
    ]


def test_only_an_event_ends_with_a_blank_line() -> None:
    """Behind an `id:` httpx-sse dispatches an event at every blank line, also an empty one."""
    written = event(b"{}", "1") + KEEP_ALIVE + KEEP_ALIVE + event(b"[]", "2") + KEEP_ALIVE
    lines = written.split(b"\n")
    assert lines.pop() == b"", "the last line has its end"
    ended = [before for before, line in pairwise(lines) if not line]
    assert ended == [b"data: {}", b"data: []"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b"data: a\r\rdata: b\r\r", [read(b"a"), read(b"b")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [read(b"a"), read(b"b")]),
        (b": ping - now\n\ndata: a\n\n", [read(b"a")]),
        (b"data: a\ndata: b\n\n", [read(b"a\nb")]),
        (b"data: a\n", [read(b"a")]),
        (b"data: a", [read(b"a")]),
        (b"data:a\n\n", [read(b"a")]),
        (b"data:  a\n\n", [read(b" a")]),
        (b"data\n\n", [read(b"")]),
        (b"event: error\ndata: a\n\ndata: b\n\n", [read(b"a", "", "error"), read(b"b")]),
        (b"id: 1\ndata: a\n\ndata: b\n\n", [read(b"a", "1"), read(b"b", "1")]),
        (b"id: 1\n\nid\ndata: b\n\n", [read(b"b")]),
        (b"id: 1\0\ndata: b\n\n", [read(b"b")]),
        (b"retry: 10\nwhat: x\nnothing\ndata: a\n\n", [read(b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [read(b"a")]),
        (b"id: \xff\ndata: \xff\n\n", [read(b"\xff", "\ufffd")]),
        (b"\n\n\n", []),
        (b"", []),
    ],
)
def test_what_is_in_the_wild(text: bytes, wanted: list[Frame]) -> None:
    assert parsed(text) == wanted
    assert parsed(*(text[at : at + 1] for at in range(len(text)))) == wanted


@given(
    text=st.lists(
        st.sampled_from([b"data", b"id", b"event", b":", b" ", b"x", b"\n", b"\r", b"\r\n"])
    ).map(b"".join),
    cuts=st.lists(st.integers(0, 40)),
)
def test_it_does_not_matter_where_chunks_end(text: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    chunks = [text[a:b] for a, b in pairwise(edges)]
    assert parsed(*chunks) == parsed(text)


@pytest.mark.parametrize(
    "chunks",
    [
        [b"data: " + b"x" * 1000],
        [b"data: ", *[b"x" * 10] * 100],
        [b": ", *[b"x" * 10] * 100],
        [b"data: xxxxxxxxx\n"] * 101,
        [b"data\n"] * 1001,
        [b"id: " + b"x" * 1000],
    ],
)
def test_an_event_without_end_is_given_up(chunks: list[bytes]) -> None:
    with pytest.raises(PeerMisbehaved, match="1000"):
        parsed(*chunks)


def test_many_events_are_not_one_large() -> None:
    assert len(parsed(*[b": hello\n", event(b"x" * 500)] * 100)) == 100
