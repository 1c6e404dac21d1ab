"""What every dialect's sessions keep: golden frames, bad input, limits, declared losses."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from counts import count
from dialects import golden, narrow, strategies
from dialects.pair import CODECS, LINK, ROOM, Pair
from dragoman.core.dialect import Dialect
from dragoman.core.operations import GetTask
from dragoman.core.session import Call, Fault, Frame, Result, Update

every_dialect = pytest.mark.parametrize("dialect", CODECS, ids=lambda dialect: dialect.name)
every_file = pytest.mark.parametrize("path", golden.files(), ids=lambda path: path.stem)
thorough = settings(max_examples=count(8, 40, 200))


@every_file
def test_golden_frames(path: Path) -> None:
    for found, wanted in golden.played(json.loads(path.read_text())):
        assert found == wanted


def test_every_dialect_has_golden_frames_for_both_sides() -> None:
    told = {
        (found["dialect"], found["side"])
        for found in (json.loads(path.read_text()) for path in golden.files())
    }
    assert told == {(d.name, side) for d in (*CODECS, LINK, ROOM) for side in ("caller", "callee")}


SENDS = {"a2a-1.0-rest": "POST /message:send", "a2a-0.3-rest": "POST /v1/message:send"}
"""Where a dialect hears something to do, if not at `POST /`."""

BAD = [
    b"",
    b" ",
    b"null",
    b"[]",
    b"{}",
    b"[{}]",
    b"nonsense",
    b'{"jsonrpc":"2.0","id":1',
    b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":NaN}}',
    b'{"jsonrpc":"2.0","id":1,"method":"message/send","params":[Infinity]}',
    b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":"\xff\xfe"}',
    b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":"\\ud800"}}',
    b'{"jsonrpc":"2.0","id":1,"method":5}',
    b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b"}",
    b"[" * 1000,
    b"[" * 1000 + b"]" * 1000,
    b'{"a":' * 1000 + b"1" + b"}" * 1000,
    b"[" * 200_000 + b"]" * 200_000,
]


@every_dialect
@pytest.mark.parametrize("body", BAD, ids=lambda body: repr(body[:40]))
def test_bad_input_is_a_fault_and_can_be_answered(dialect: Dialect, body: bytes) -> None:
    session = dialect.callee()
    (fault,) = session.receive(Frame(body, SENDS.get(dialect.name, "POST /"), golden.USUAL))
    assert isinstance(fault, Fault)
    (frame,) = session.send(fault)
    told = msgspec.json.decode(frame.body)
    assert golden.error_in(told)["message"]


@every_dialect
@pytest.mark.parametrize("body", BAD, ids=lambda body: repr(body[:40]))
def test_bad_answers_are_faults(dialect: Dialect, body: bytes) -> None:
    session = dialect.caller()
    session.send(Call(1, GetTask(task_id="t")))
    for signal in session.receive(Frame(body)):
        assert signal == Fault(1, signal.error)


@every_dialect
@given(exchange=strategies.exchanges)
@thorough
def test_only_declared_losses_in_exchanges(dialect: Dialect, exchange: tuple[Call, Result]) -> None:
    asked, answer = exchange
    wire = Pair(dialect)
    if not narrow.asks(dialect, asked):
        assert not [heard for heard in wire.caller_says(asked) if isinstance(heard, Call)]
        return
    assert wire.caller_says(asked) == [dialect.carried(asked)]
    assert wire.callee_says(answer) == [dialect.carried(answer)]


@every_dialect
@given(stream=strategies.streams)
@thorough
def test_only_declared_losses_in_streams(dialect: Dialect, stream: tuple[Call, Update]) -> None:
    asked, told = stream
    wire = Pair(dialect)
    if not narrow.asks(dialect, asked):
        return
    assert wire.caller_says(asked) == [dialect.carried(asked)]
    assert wire.callee_says(told) == [dialect.carried(told)]
