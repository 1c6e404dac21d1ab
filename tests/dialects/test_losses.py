"""What pairs of dialects lose: the table, and the note on one message."""

import pytest
from msgspec.structs import replace

from dragoman.core.dialect import Dialect, Wire
from dragoman.core.events import Stamped, StateChanged
from dragoman.core.model import Message, Role, State, Text
from dragoman.core.operations import SendMessage
from dragoman.core.session import Call, Update
from dragoman.dialects import DIALECTS
from dragoman.dialects.losses import (
    FEATURES,
    REQUESTS,
    Feature,
    is_plain_text,
    lost_between,
    lost_by,
    lost_from,
    missing_operations,
)

SERVED = [each for each in DIALECTS.values() if each.callee is not None]
EVERY = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


def sent(**about: object) -> Call:
    message = Message(message_id="m", role=Role.USER, parts=(Text("hello"),), **about)  # type: ignore[arg-type]
    return Call(id="1", op=SendMessage(message=message), stream=True)


@pytest.mark.parametrize("feature", FEATURES, ids=lambda each: each.name)
def test_every_sample_has_its_feature(feature: Feature) -> None:
    assert feature.present(feature.sample)


def test_no_two_features_have_one_name() -> None:
    assert len({each.name for each in FEATURES}) == len(FEATURES)


@EVERY
def test_every_dialect_carries_text_and_questions(dialect: Dialect) -> None:
    assert not {"text", "a question", "a file by its content"} & set(lost_by(dialect))


@pytest.mark.parametrize("feature", FEATURES, ids=lambda each: each.name)
@pytest.mark.parametrize("dialect", SERVED, ids=lambda each: each.name)
def test_what_is_declared_is_what_arrives(dialect: Dialect, feature: Feature) -> None:
    assert dialect.callee is not None
    caller, callee = dialect.caller(), dialect.callee()
    asks = isinstance(feature.sample, Call)
    call = feature.sample if asks else sent()
    heard = [signal for frame in caller.send(call) for signal in callee.receive(frame)]
    if not asks:
        # Twice, since the first piece of an artifact may begin it where it was said to append.
        told = [feature.sample, feature.sample]
        if dialect.wire is Wire.CHAT:  # a room hears of results when they are whole
            done = StateChanged(state=State.COMPLETED)
            told.append(Update("1", Stamped("t1", "c1", 4, 0, done)))
        frames = [frame for each in told for frame in callee.send(each)]
        heard = [signal for frame in frames for signal in caller.receive(frame)]
    carries = feature.name not in lost_by(dialect)
    assert any(map(feature.present, heard)) is carries


def test_a_pair_loses_what_either_side_loses() -> None:
    new, old = DIALECTS["a2a-1.0"], DIALECTS["a2a-0.1"]
    lost = {*lost_by(new), *lost_by(old)}
    assert set(lost_between(new, old)) == set(lost_between(old, new)) == lost
    assert "rejected, apart from failed" in lost


def test_a_dialect_that_declares_another_loss_changes_the_table() -> None:
    iat = DIALECTS["iat"]
    deaf = replace(iat, carried=lambda signal: sent() if isinstance(signal, Call) else signal)
    assert lost_by(iat) == ()
    assert "a file by its content" in lost_by(deaf)


def test_only_what_a_message_has_is_lost_from_it() -> None:
    old = DIALECTS["a2a-0.1"]
    assert lost_from(old, sent(references=("t0",), extensions=("urn:x",))) == (
        "the extensions of a message",
        "references to other tasks",
        "the id of a message",
    )
    assert lost_from(DIALECTS["iat"], sent(references=("t0",))) == ()


@EVERY
def test_of_plain_text_no_dialect_loses_more_than_the_id(dialect: Dialect) -> None:
    message = Message(
        message_id="m",
        role=Role.USER,
        parts=(Text("hello"), Text("there")),
        context_id="c",
    )
    op = SendMessage(message=message)
    assert is_plain_text(op)
    lost = lost_from(dialect, Call(id=None, op=op, stream=True))
    assert set(lost) <= {"the id of a message"}


@pytest.mark.parametrize("feature", REQUESTS, ids=lambda each: each.name)
def test_a_message_with_more_than_text_is_not_plain(feature: Feature) -> None:
    assert isinstance(feature.sample, Call)
    assert isinstance(feature.sample.op, SendMessage)
    plain = ("text", "the id of a message", "a send that does not wait")
    assert is_plain_text(feature.sample.op) is (feature.name in plain)


def test_callers_of_older_dialects_have_fewer_operations() -> None:
    assert missing_operations(DIALECTS["a2a-1.0"]) == ()
    assert missing_operations(DIALECTS["a2a-0.1"]) == (
        "list tasks",
        "get the extended card",
    )
    assert "set a webhook" in missing_operations(DIALECTS["iat"])
