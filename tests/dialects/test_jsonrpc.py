"""JSON-RPC: depth, which golden frames are too small to show."""

from __future__ import annotations

import inspect
import json
import sys

import pytest

from dragoman.dialects.jsonrpc import MAX_DEPTH, Request, request_in, response_in, too_deep
from dragoman.errors import PeerMisbehaved, Unparseable
from dragoman.session import Fault


def request(value: object) -> bytes:
    found = {"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"x": value}}
    return json.dumps(found).encode()


def nested(levels: int) -> object:
    value: object = 1
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


def test_depth_is_counted_from_the_outermost() -> None:
    deepest = nested(MAX_DEPTH - 2)
    assert isinstance(request_in(request(deepest)), Request)
    refused = request_in(request([deepest]))
    assert isinstance(refused, Fault)
    assert isinstance(refused.error, Unparseable)
    assert "64" in refused.error.message


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert isinstance(request_in(request([[{}]] * 1000)), Request)


@pytest.mark.parametrize(
    "text", ["[" * 1000, "{[" * 500 + '"', '\\"[[[' * 100, "\\" * 99 + "[" * 99]
)
def test_brackets_in_strings_are_not_depth(text: str) -> None:
    assert isinstance(request_in(request(text)), Request)


def test_depth_of_what_is_no_json() -> None:
    assert not too_deep(b"]" * 1000 + b"[" * 1000)
    assert too_deep(b'"' + b"[" * 1000)


def test_text_beyond_ascii() -> None:
    assert isinstance(request_in(request("汉字").replace(b'"m"', '"m汉"'.encode())), Request)


def test_a_response_that_is_too_deep() -> None:
    with pytest.raises(PeerMisbehaved, match="64"):
        response_in(request(nested(100)))


def test_too_little_stack_is_a_fault_too() -> None:
    body = request(nested(50))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 40)
    try:
        found = request_in(body)
    finally:
        sys.setrecursionlimit(limit)
    assert isinstance(found, Fault)
    assert isinstance(found.error, Unparseable)
