"""JSON-RPC: depth, which golden frames are too small to show."""

from __future__ import annotations

import inspect
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counts import count
from dragoman.core.errors import PeerMisbehaved, Unparseable
from dragoman.core.nesting import MAX_CONTAINERS, MAX_DEPTH, unfit
from dragoman.core.session import Fault
from dragoman.dialects.jsonrpc import Request, request_in, response_in


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
    assert not unfit(b"]" * 1000 + b"[" * 1000)
    assert "deeper" in unfit(b'"' + b"[" * 1000)


def test_more_brackets_than_any_message_needs_are_refused_before_they_are_decoded() -> None:
    assert isinstance(request_in(request([[]] * (MAX_CONTAINERS - 3))), Request)
    for value in ("[],", '{},"",', "[[]],"):
        body = request(0).replace(b"0", b"[" + value.encode() * MAX_CONTAINERS + b"0]")
        refused = request_in(body)
        assert isinstance(refused, Fault)
        assert isinstance(refused.error, Unparseable)
        assert "arrays and objects" in refused.error.message


def test_brackets_in_a_long_text_are_no_containers() -> None:
    assert isinstance(request_in(request("[]{}" * MAX_CONTAINERS)), Request)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


mixed = st.recursive(
    st.none() | st.text('[]{}"\\\n ab', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('[{"\\'), inner, max_size=3)
    ),
    max_leaves=30,
)


@given(mixed, st.integers(0, MAX_DEPTH + 8), st.booleans())
@settings(max_examples=count(50, 300), deadline=None)
def test_depth_is_counted_whatever_strings_hold(value: object, more: int, object_: bool) -> None:
    for _ in range(more):
        value = {'"[': value} if object_ else [value, "]"]
    body = json.dumps([value, ["[" * 80]]).encode()
    assert bool(unfit(body)) == (1 + depth(value) > MAX_DEPTH)


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
