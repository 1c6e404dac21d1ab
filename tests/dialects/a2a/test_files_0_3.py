"""File bytes of 0.3 that read as base64: the declared media type says what they are."""

from __future__ import annotations

import base64
import json

import pytest

from dialects.golden import USUAL
from dragoman.core.model import Blob
from dragoman.core.session import Call, Frame, Session
from dragoman.dialects.a2a import RestCallee
from dragoman.dialects.a2a.grpc.callee import GrpcCallee
from dragoman.dialects.a2a.proto import writer

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(16))
CASES = [
    # As sent: only the bytes themselves can be of this type.
    ("text/plain", b"test", b"test"),
    ("text/plain; charset=utf-8", b"abcd", b"abcd"),
    ("text/csv", b"AAAA", b"AAAA"),
    ("application/json", b"1234", b"1234"),
    ("application/json", b"null", b"null"),
    ("application/ld+json", b"true", b"true"),
    # Only what they decode to can be.
    ("image/png", base64.b64encode(PNG), PNG),
    ("application/pdf", base64.b64encode(b"%PDF-1.7 ..."), b"%PDF-1.7 ..."),
    ("application/json", base64.b64encode(b'{"a": 1}'), b'{"a": 1}'),
    # Both can be: the SDKs' way.
    ("text/plain", base64.b64encode(b"Hello!"), b"Hello!"),
    ("", b"test", b"\xb5\xeb-"),
    ("application/octet-stream", b"test", b"\xb5\xeb-"),
    ("application/x-own", base64.b64encode(b"\0\1\2"), b"\0\1\2"),
    # Neither, and what no type helps with: theirs too.
    ("image/png", base64.b64encode(b"x"), b"x"),
    ("text/plain", base64.b64encode("蝴蝶".encode("gbk")), "蝴蝶".encode("gbk")),
    ("text/plain", base64.b64encode("蝴蝶".encode("gbk") * 99), "蝴蝶".encode("gbk") * 99),
    # What is no base64 is nothing but itself.
    ("text/plain", b"not base64", b"not base64"),
    ("image/png", PNG, PNG),
    ("", b"", b""),
]
cases = pytest.mark.parametrize(("media_type", "sent", "meant"), CASES, ids=str)


def rest(media_type: str, sent: bytes) -> tuple[Session, Frame]:
    file = {"fileWithBytes": base64.b64encode(sent).decode(), "mimeType": media_type}
    message = {"messageId": "m", "role": "ROLE_USER", "content": [{"file": file}]}
    body = json.dumps({"message": message}).encode()
    return RestCallee(), Frame(body, "POST /v1/message:send", USUAL)


def grpc(media_type: str, sent: bytes) -> tuple[Session, Frame]:
    file = {"file_with_bytes": sent, "mime_type": media_type}
    message = {"message_id": "m", "role": 1, "content": [{"file": file}]}
    body = writer("a2a.v1.SendMessageRequest")({"request": message})
    return GrpcCallee(), Frame(body, "/a2a.v1.A2AService/SendStreamingMessage")


@pytest.mark.parametrize("wire", [rest, grpc])
@cases
def test_bytes_are_taken_as_they_are_meant(
    wire: object, media_type: str, sent: bytes, meant: bytes
) -> None:
    session, frame = wire(media_type, sent)  # type: ignore[operator]
    (call,) = session.receive(frame)
    assert isinstance(call, Call)
    (part,) = call.op.message.parts  # type: ignore[union-attr]
    assert part == Blob(meant, media_type=media_type)
    told = [note["taken"] for note in session.notes()]
    if not sent or sent in (b"not base64", PNG):
        assert told == []
    else:
        assert told == ["as sent" if meant == sent else "decoded"]


@pytest.mark.parametrize("wire", [rest, grpc])
def test_the_log_can_be_told_which_was_taken(wire: object) -> None:
    session, frame = wire("text/plain", b"test")  # type: ignore[operator]
    session.receive(frame)
    (note,) = session.notes()
    assert note == {
        "what": "file_bytes",
        "part": 0,
        "media_type": "text/plain",
        "taken": "as sent",
    }
    session, frame = wire("text/plain", b"in words")  # type: ignore[operator]
    session.receive(frame)
    assert list(session.notes()) == []
    assert list(RestCallee().notes()) == []
    assert list(GrpcCallee().notes()) == []
