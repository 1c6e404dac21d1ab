"""What an author gives becomes parts (DESIGN §4.1, Values)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import pytest
from msgspec import Struct

from dragoman import Agent, Answer, Blob, Data, Link, State, Text, Turn, file
from dragoman.agent.parts import parts_of
from dragoman.core.errors import AgentMisbehaved
from dragoman.core.nesting import MAX_DEPTH
from dragoman.testing import Client


class Size(Struct):
    width: int
    height: int = 1


@dataclass
class Point:
    x: int
    y: int


class Color(StrEnum):
    RED = "red"


VALUES = [
    pytest.param("words", (Text("words"),), id="str"),
    pytest.param("", (Text(""),), id="empty str"),
    pytest.param(Answer("words"), (Text("words"),), id="Answer"),
    pytest.param(Color.RED, (Text("red"),), id="StrEnum"),
    pytest.param(b"x", (Blob(b"x", media_type="application/octet-stream"),), id="bytes"),
    pytest.param(
        bytearray(b"x"), (Blob(b"x", media_type="application/octet-stream"),), id="bytearray"
    ),
    pytest.param({"a": [1, None]}, (Data({"a": [1, None]}),), id="dict"),
    pytest.param({}, (Data({}),), id="empty dict"),
    pytest.param(Size(2), (Data({"width": 2, "height": 1}),), id="Struct"),
    pytest.param(Point(1, 2), (Data({"x": 1, "y": 2}),), id="dataclass"),
    pytest.param(3, (Data(3),), id="int"),
    pytest.param(2**70, (Data(2**70),), id="large int"),
    pytest.param(1.5, (Data(1.5),), id="float"),
    pytest.param(True, (Data(True),), id="bool"),
    pytest.param(Text("t"), (Text("t"),), id="Text"),
    pytest.param(Link("https://x.example"), (Link("https://x.example"),), id="Link"),
    pytest.param(Data(None), (Data(None),), id="Data of nothing"),
    pytest.param(["a", {"b": 1}], (Text("a"), Data({"b": 1})), id="list"),
    pytest.param(("a", [{"b": 1}, None]), (Text("a"), Data({"b": 1})), id="nested tuple"),
    pytest.param([], (), id="empty list"),
    pytest.param(None, (), id="None"),
]


@pytest.mark.parametrize(("value", "parts"), VALUES)
def test_values_are_parts(value: object, parts: tuple[object, ...]) -> None:
    got = parts_of(value)
    assert got == parts
    assert [type(part) for part in got] == [type(part) for part in parts]


@pytest.mark.parametrize(("value", "parts"), VALUES)
async def test_values_travel_through_a_task(value: object, parts: tuple[object, ...]) -> None:
    agent = Agent("Giver")

    @agent.skill("give")
    async def give(turn: Turn):  # type: ignore[no-untyped-def]
        return value

    @agent.skill("yield")
    async def giving(turn: Turn) -> AsyncGenerator[object, None]:
        yield value

    async with Client(agent) as client:
        for skill in ("give", "yield"):
            task = await client.send("go", skill=skill)
            assert task.state is State.COMPLETED
            assert [a.parts for a in task.artifacts] == ([parts] if parts else [])


def test_a_path_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text("a,b")
    assert parts_of(path) == (Blob(b"a,b", filename="report.csv", media_type="text/csv"),)


async def test_a_file_may_be_dressed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"{}")
    assert file(path, filename="y.json") == Blob(
        b"{}", filename="y.json", media_type="application/json"
    )
    assert file(b"x", media_type="image/png").media_type == "image/png"
    assert file(b"x").media_type == "application/octet-stream"


async def test_a_missing_file_fails_the_task(tmp_path: Path) -> None:
    agent = Agent("Giver")

    @agent.skill("give")
    async def give(turn: Turn) -> Path:
        return tmp_path / "missing"

    async with Client(agent) as client:
        task = await client.send("go")
        assert task.state is State.FAILED
        assert str(tmp_path) not in repr(task)


@pytest.mark.parametrize(
    "value", [{1}, object(), 1j, iter(())], ids=lambda value: type(value).__name__
)
def test_other_values_are_explained(value: object) -> None:
    with pytest.raises(AgentMisbehaved, match=type(value).__name__):
        parts_of(value)


def test_what_json_cannot_say_is_explained() -> None:
    with pytest.raises(AgentMisbehaved, match="JSON"):
        parts_of({"x": object()})


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"k": value}
    return value


def test_what_is_too_deep_to_be_read_again_is_explained() -> None:
    assert parts_of(nested(MAX_DEPTH))
    for value in (nested(MAX_DEPTH + 1), Data(nested(MAX_DEPTH + 1)), nested(900), nested(2000)):
        with pytest.raises(AgentMisbehaved, match=r"nested deeper|JSON"):
            parts_of(value)
    assert parts_of({"rows": [[]] * 200_000})  # much, but not deep


async def test_words_that_are_deep_json_are_only_words() -> None:
    agent = Agent("Desk")

    @agent.skill("count")
    async def count(turn: Turn, words: str) -> int:
        return len(words)

    deep = '{"a":' * 900 + "1" + "}" * 900
    async with Client(agent) as client:
        task = await client.send(deep)
        assert task.state is State.COMPLETED
        assert task.artifacts[0].parts == (Data(len(deep)),)


def test_dates_and_the_like_become_text() -> None:
    (part,) = parts_of({"at": datetime(2026, 4, 1, tzinfo=UTC), "name": Answer("Ada")})
    assert part == Data({"at": "2026-04-01T00:00:00Z", "name": "Ada"})


async def test_data_is_a_copy() -> None:
    """What the author changes afterwards does not change what was said."""
    agent = Agent("Giver")
    shared = {"n": 1}

    @agent.skill("give")
    async def give(turn: Turn) -> None:
        await turn.artifact(shared)
        shared["n"] = 2
        await turn.artifact(shared)

    async with Client(agent) as client:
        task = await client.send("go")
        assert [a.parts for a in task.artifacts] == [(Data({"n": 1}),), (Data({"n": 2}),)]
