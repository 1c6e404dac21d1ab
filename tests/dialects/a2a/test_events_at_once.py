"""Events of a stream that arrive together mean the same as one after the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.errors import PeerMisbehaved
from dragoman.core.operations import Watch
from dragoman.core.session import Call, Frame, Session, Steps
from dragoman.dialects.a2a import RpcCaller

STATUS = {"state": "TASK_STATE_WORKING", "timestamp": "2026-01-01T00:00:00.000Z"}
DONE = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
MESSAGE = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}
DEEP = json.loads("[" * 70 + "]" * 70)


def answer(result: Any, id: Any = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}, ensure_ascii=False).encode()


TASK = answer({"task": {"id": "t", "contextId": "c", "status": STATUS, "history": [MESSAGE]}})
WORKING = answer({"statusUpdate": {"taskId": "t", "contextId": "c", "status": STATUS}})
CHUNK = answer({"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": []}}})
LAST = answer({"statusUpdate": DONE})
USUAL = [TASK, WORKING, CHUNK, LAST]
UNUSUAL = [
    answer({"status_update": {"task_id": "t", "status": STATUS}}),
    answer({"statusUpdate": {"taskId": "t", "status": {**STATUS, "message": MESSAGE}}}),
    answer({"statusUpdate": {"taskId": "é", "status": STATUS, "metadata": {"a": [1]}}}),
    answer({"statusUpdate": {"taskId": "t", "status": STATUS, "metadata": {"a": DEEP}}}),
    answer({"statusUpdate": {"taskId": "t", "status": {"timestamp": "noon"}}}),
    answer({"statusUpdate": 1}),
    answer({"message": MESSAGE}),
    answer({"taskId": "t", "status": STATUS}),
    answer({"id": "t", "status": STATUS}),
    answer({}),
    answer(None),
    answer({"statusUpdate": DONE}, id=7),
    answer({"statusUpdate": DONE}, id=None),
    json.dumps(json.loads(WORKING), indent=1).encode(),
    WORKING + b"\n" + WORKING,
    WORKING[:40],
    WORKING.replace(b'"jsonrpc"', b'"\xff"'),
    b'{"id": 1, "error": {"code": -32001, "message": "gone"}}',
    b'{"id": 1, "result": {}, "error": {"code": -32603, "message": "broken"}}',
    b"",
    b"[]",
    b"\xff",
]
MARKS = ["", "1", "17", "x", "²", "9" * 30]
frames = st.builds(
    lambda body, mark: Frame(body, status=200, mark=mark),
    st.sampled_from(USUAL * 3 + UNUSUAL),
    st.sampled_from(MARKS),
)


def watching() -> RpcCaller:
    caller = RpcCaller()
    caller.send(Call(1, Watch(task_id="t"), True))
    return caller


def plain(found: Steps) -> tuple[object, ...]:
    entries, last, error = found
    return entries, last, type(error), str(error)


@given(chunks=st.lists(st.lists(frames, max_size=5), max_size=3))
def test_together_they_mean_the_same(chunks: list[list[Frame]]) -> None:
    together, apart = watching(), watching()
    for chunk in chunks:
        found = plain(together.receive_events(chunk))
        assert found == plain(Session.receive_events(apart, chunk))


@pytest.mark.parametrize("body", UNUSUAL)
def test_one_that_is_unusual_keeps_its_place(body: bytes) -> None:
    chunk = [Frame(each, status=200, mark="3") for each in (TASK, body, CHUNK, LAST, body)]
    together, apart = watching(), watching()
    found = together.receive_events(chunk)
    assert plain(found) == plain(Session.receive_events(apart, chunk))
    assert found[0], "what came before it counts"


@pytest.mark.parametrize(
    "chunk",
    [
        [WORKING + b"\n" + WORKING, b""],
        [WORKING + b" " + WORKING, WORKING[:40], WORKING[40:]],
        [WORKING.replace(b"jsonrpc", b"\xc3"), WORKING.replace(b"jsonrpc", b"\xa9")],
    ],
)
def test_each_is_whole_on_its_own(chunk: list[bytes]) -> None:
    entries, last, error = watching().receive_events([Frame(body, status=200) for body in chunk])
    assert (entries, last, type(error)) == ([], False, PeerMisbehaved)


def test_nothing_counts_behind_the_end() -> None:
    chunk = [Frame(body, status=200, mark=str(seq)) for seq, body in enumerate([*USUAL, *USUAL], 1)]
    entries, last, error = watching().receive_events(chunk)
    assert (len(entries), last, error) == (4, True, None)
    assert [entry.seq for entry in entries] == [1, 2, 3, 4]  # type: ignore[union-attr]
