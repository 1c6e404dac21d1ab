"""Sessions and parsers eat anything: random bytes, and golden frames with something changed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counts import count
from dialects import golden
from dialects.pair import CODECS
from dragoman.core.dialect import Dialect
from dragoman.core.errors import PeerMisbehaved
from dragoman.core.events import Opened, Stamped
from dragoman.core.operations import GetTask, ListTasks, SendMessage, Watch
from dragoman.core.session import Call, Fault, Frame, Introduction, Ping, Result, Update
from dragoman.dialects.a2a.cards.documents import card_in
from dragoman.dialects.sse import SseParser

every_dialect = pytest.mark.parametrize("dialect", CODECS, ids=lambda dialect: dialect.name)
often = settings(max_examples=count(12, 60, 1000))

TARGETS = [
    *("POST /", "POST /message:send", "POST /message:stream", "POST /v1/message:send"),
    *("POST /tasks/t:cancel", "POST /v1/tasks/t/pushNotificationConfigs", "POST /a.b/c"),
    *("GET /tasks?pageSize=x&status=y", "GET /v1/tasks/%ff:cancel?historyLength=1", "DELETE /"),
]

BODIES = [
    golden.frame_in(step["hears"], {}).body
    for path in golden.files()
    for step in json.loads(path.read_text())["steps"]
    if "hears" in step
]
HEADERS = st.fixed_dictionaries(
    {"content-type": st.sampled_from(["application/json", "application/json;x", "text/plain"])},
    optional={
        "a2a-version": st.sampled_from(["1.0", "0.3", "1.0.1", "0.2.5", "1", ".", "x"]) | st.text(),
        "a2a-extensions": st.text(),
    },
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """A golden body with a few bytes changed, or a member of it replaced or gone."""
    body = draw(st.sampled_from(BODIES))
    if draw(st.booleans()):
        for _ in range(draw(st.integers(1, 4))):
            at = draw(st.integers(0, len(body)))
            gone = draw(st.integers(0, 3))
            body = body[:at] + draw(st.binary(max_size=3)) + body[at + gone :]
        return body
    try:
        found = json.loads(body)
    except ValueError:
        return body
    places = list(_places(found))
    if not places:
        return body
    holder, key = draw(st.sampled_from(places))
    if isinstance(holder, dict) and draw(st.booleans()):
        del holder[key]
    else:
        holder[key] = draw(VALUES)
    return json.dumps(found).encode("utf-8", "replace")


def _places(value: Any) -> list[tuple[Any, Any]]:
    inside: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inside = [(value, key) for key in value]
    elif isinstance(value, list):
        inside = [(value, key) for key in range(len(value))]
    return inside + [place for holder, key in inside for place in _places(holder[key])]


@every_dialect
@given(
    body=st.binary(max_size=60) | mangled(),
    headers=HEADERS,
    target=st.sampled_from(TARGETS) | st.text(max_size=20),
)
@often
def test_a_callee_eats_anything(
    dialect: Dialect, body: bytes, headers: dict[str, str], target: str
) -> None:
    session = dialect.callee()
    for signal in session.receive(Frame(body, target, headers)):
        assert isinstance(signal, Call | Fault | Introduction | Ping)
        if isinstance(signal, Fault):
            for frame in session.send(signal):
                told = {} if frame.status == 204 else msgspec.json.decode(frame.body)
                assert frame.status == 204 or golden.error_in(told)["message"] is not None
        elif isinstance(signal, Call) and isinstance(signal.op, SendMessage):
            # Whatever was let in can be said again.
            opened = Stamped("t", "c", 1, 1, Opened(message=signal.op.message))
            (frame,) = session.send(Update(signal.id, opened))
            told = msgspec.json.decode(frame.body)
            if "header" in told:  # IAT answers a notification too, and always names what it answers
                assert told["header"]["parent_id"] == ("null" if signal.silent else signal.id)
            else:
                assert told.get("id") == signal.id


@every_dialect
@pytest.mark.parametrize(
    "call",
    [
        Call(1, GetTask(task_id="t")),
        Call(1, ListTasks()),
        Call(1, Watch(task_id="t"), stream=True),
    ],
    ids=lambda call: type(call.op).__name__,
)
@given(
    body=st.binary(max_size=60) | mangled(),
    status=st.none() | st.integers(200, 599),
    mark=st.text(max_size=4),
)
@often
def test_a_caller_eats_anything(
    dialect: Dialect, call: Call, body: bytes, status: int | None, mark: str
) -> None:
    session = dialect.caller()
    session.send(call)
    for signal in session.receive(Frame(body, status=status, mark=mark)):
        assert isinstance(signal, Result | Update | Fault) or call.stream


@given(chunks=st.lists(st.binary(max_size=30)))
@often
def test_the_sse_parser_eats_anything(chunks: list[bytes]) -> None:
    parser = SseParser(max_size=100)
    try:
        for chunk in chunks:
            parser.feed(chunk)
    except PeerMisbehaved:
        return
    parser.close()


@given(body=st.binary(max_size=60) | mangled())
@often
def test_the_card_reader_eats_anything(body: bytes) -> None:
    try:
        card_in(body)
    except PeerMisbehaved:
        return
