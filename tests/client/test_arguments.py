"""Schemas come from the other side: nothing in them is fetched, and none takes for ever."""

from __future__ import annotations

import time

import pytest

from dragoman.client.arguments import check_arguments, fitting
from dragoman.core.errors import BadParams, PeerMisbehaved
from dragoman.core.model import Data, Text

REMOTE = {"$ref": "http://127.0.0.1:9/schema.json"}
EVIL = {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}


def test_a_schema_elsewhere_is_not_fetched() -> None:
    with pytest.raises(PeerMisbehaved, match="schema"):
        check_arguments(REMOTE, {"a": 1}, "x")


def test_an_evil_pattern_takes_no_time() -> None:
    began = time.process_time()
    with pytest.raises(BadParams):
        check_arguments(EVIL, {"a": "a" * 5000 + "!"}, "x")
    assert time.process_time() - began < 30  # backtracking would take years


@pytest.mark.parametrize("schema", [{"type": 7}, {"$ref": "#/nowhere"}])
def test_what_is_no_schema_is_said(schema: object) -> None:
    with pytest.raises(PeerMisbehaved, match="schema"):
        check_arguments(schema, {}, "x")


def test_without_a_schema_everything_goes() -> None:
    check_arguments(None, {"a": 1}, "x")
    check_arguments("nonsense", {"a": 1}, "x")


def test_results() -> None:
    assert fitting({"type": "object"}, [Text("see"), Data({"a": 1})], "x") == {"a": 1}
    assert fitting({"type": "array"}, [Data(1), Data(2)], "x") == [1, 2]
    assert fitting({"type": "array"}, [Text("a")], "x") == ["a"]
    assert fitting(None, [Text("a"), Text("b")], "x") == "ab"
    with pytest.raises(PeerMisbehaved, match="does not say"):
        fitting({"type": "object"}, [Data(1)], "x")
