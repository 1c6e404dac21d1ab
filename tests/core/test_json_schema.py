"""JSON Schemas of tools: what breaks one is said with its place; hostile ones do no harm."""

from __future__ import annotations

import time

import pytest

from dragoman.core import json_schema
from dragoman.core.errors import BadParams
from dragoman.core.model import Json

TRIP: Json = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/stop"}, "maxItems": 3},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"stop": {"type": "object", "properties": {"days": {"type": "integer"}}}},
}


@pytest.mark.parametrize(
    "value", [{"city": "Kyoto"}, {"city": "Kyoto", "stops": [{"days": 1}, {}]}]
)
def test_what_fits_is_not_wrong(value: Json) -> None:
    assert json_schema.wrong(TRIP, value) == ""
    assert json_schema.wrong(None, value) == ""
    assert json_schema.wrong(True, value) == ""


@pytest.mark.parametrize(
    ("value", "place", "word"),
    [
        ({"city": 1}, "['city']", "string"),
        ({"city": ""}, "['city']", "shorter"),
        ({"city": "K", "stops": [{}, {"days": "x"}]}, "['stops'][1]['days']", "integer"),
        ({"city": "K", "stops": [{}] * 4}, "['stops']", "3"),
        ({}, "", "city"),
        ({"city": "K", "more": 1}, "", "more"),
        ([], "", "object"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(value: Json, place: str, word: str) -> None:
    problem = json_schema.wrong(TRIP, value)
    assert word in problem
    assert f"(at {place})" in problem if place else "(at" not in problem


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"type": 1},
        {"properties": []},
        {"pattern": "("},
        {"$ref": "#/$defs/missing"},
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "file:///etc/passwd"},
        "text",
        1,
    ],
)
def test_what_is_no_schema_is_refused_and_nothing_is_fetched(schema: Json) -> None:
    with pytest.raises(BadParams):
        json_schema.check(schema)


def test_a_pattern_cannot_take_for_ever() -> None:
    began = time.monotonic()
    assert json_schema.wrong({"pattern": "^(a+)+$"}, "a" * 50_000 + "!")
    assert time.monotonic() - began < 30  # backtracking would take years


def test_what_is_said_is_short() -> None:
    assert len(json_schema.wrong({"type": "string"}, ["x" * 10_000])) <= json_schema.MOST_CHARS


def test_large_schemas_do_not_fill_the_memory() -> None:
    schema: Json = {"enum": ["x" * json_schema.MOST_KEPT]}
    kept = json_schema._kept_validator.cache_info().currsize
    assert json_schema.wrong(schema, "y")
    assert json_schema._kept_validator.cache_info().currsize == kept
