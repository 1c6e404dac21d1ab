"""Parts that cannot be meant: refused, in words that say what would be right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dialects.golden import USUAL
from dragoman.core.errors import BadParams
from dragoman.core.session import Call, Fault, Frame, Session, Signal
from dragoman.dialects.a2a import RestCallee, RpcCallee

Part = dict[str, Any]


def asked(way: str, part: Part) -> Signal:
    """What a send with this part is heard as."""
    role = "ROLE_USER" if way == "1.0" else "user"
    params = {"message": {"messageId": "m", "role": role, "parts": [part]}}
    session: Session = RpcCallee()
    method = {"1.0": "SendMessage", "0.3": "message/send"}.get(way, "")
    body: object = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    target = "POST /"
    if way == "0.3-rest":
        session, body, target = RestCallee(), params, "POST /v1/message:send"
    (signal,) = session.receive(Frame(json.dumps(body).encode(), target, USUAL))
    return signal


def refused(way: str, part: Part) -> str:
    """Why a send with this part is refused."""
    signal = asked(way, part)
    assert isinstance(signal, Fault), signal
    assert type(signal.error) is BadParams
    return signal.error.message


@pytest.mark.parametrize("way", ["0.3", "0.3-rest"])
@pytest.mark.parametrize("word", ["type", "kind"])
def test_a_part_of_an_unknown_kind_is_refused_whatever_the_kind_is_called(
    way: str, word: str
) -> None:
    what = refused(way, {word: "image", "text": "x"})
    assert what.startswith("Expected `text`, got `image` - at `$.message.")
    assert what.endswith(f"[0].{word}`")
    assert "Expected `data`" in refused(way, {word: "text", "data": {}})
    assert "Expected `file`" in refused(way, {word: "data", "file": {"uri": "https://x.example"}})


@pytest.mark.parametrize("way", ["0.3", "0.3-rest"])
@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "x"},
        {"kind": "text", "type": "whatever", "text": "x"},
        {"type": "data", "data": {"a": 1}},
        {"type": "file", "file": {"uri": "https://x.example/y"}},
        {"kind": "file", "file": {"uri": "s3://bucket/key"}},
        {"kind": "file", "file": {"bytes": "eA=="}},
    ],
    ids=str,
)
def test_a_part_that_says_what_it_is_is_taken(way: str, part: Part) -> None:
    assert isinstance(asked(way, part), Call)


@pytest.mark.parametrize(
    ("way", "part", "words"),
    [
        ("0.3", {"kind": "file", "file": {"fileWithUri": "https://x"}}, "`uri`, got `fileWithUri`"),
        ("0.3", {"file": {"fileWithBytes": "eA=="}}, "`bytes`, got `fileWithBytes`"),
        ("0.3", {"kind": "file", "file": {}}, "Expected `bytes` or `uri`"),
        ("0.3", {"kind": "file", "file": {"uri": "https://x", "bytes": ""}}, "not both"),
        ("0.3", {"kind": "file", "uri": "https://x"}, '{"uri": "https://..."}'),
        ("0.3-rest", {"file": {}}, "Expected `fileWithBytes` or `fileWithUri`"),
        ("0.3-rest", {"file": {"uri": "https://x", "bytes": ""}}, "not both"),
        ("1.0", {"file": {"uri": "https://x"}}, "Expected `url` or `raw`, got `file`"),
        ("1.0", {"file": None}, "Expected `url` or `raw`, got `file`"),
    ],
    ids=str,
)
def test_a_file_in_the_words_of_another_wire(way: str, part: Part, words: str) -> None:
    assert words in refused(way, part)


@pytest.mark.parametrize("data", [[1], "x", 1, True, None], ids=str)
def test_in_0_3_data_is_an_object(data: object) -> None:
    part = {"kind": "data", "data": data}
    for way in ("0.3", "0.3-rest"):
        assert "Expected an object" in refused(way, part)
    wrapped = {"data": {"value": data}, "metadata": {"data_part_compat": True}}
    assert isinstance(asked("0.3", {"kind": "data", **wrapped}), Call)
    assert isinstance(asked("0.3-rest", {"data": {"data": {"value": data}}}), Call)
    assert isinstance(asked("1.0", {"data": data}), Call)


@pytest.mark.parametrize("uri", ["", "nonsense", "/etc/passwd", "https:", "https://a b", "//x/y"])
def test_a_link_is_an_absolute_uri(uri: str) -> None:
    for way, part in (
        ("0.3", {"kind": "file", "file": {"uri": uri}}),
        ("0.3", {"url": uri}),
        ("0.3-rest", {"file": {"fileWithUri": uri}}),
        ("1.0", {"url": uri}),
    ):
        assert "Expected an absolute URI" in refused(way, part)
