"""Typed parameters: where they come from, what is refused, and that results keep their word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import pytest
from msgspec import Meta, Struct

from dragoman import Agent, Answer, Blob, Data, State, Turn
from dragoman.core.errors import BadParams
from dragoman.testing import Client


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Place(Struct):
    city: str
    country: str = "JP"


@dataclass
class Guest:
    name: str
    age: int


class Extra(TypedDict):
    kind: str


def agent_of(function: Any) -> Agent:
    agent = Agent("Params")
    agent.skill("plan")(function)
    return agent


async def arguments(function: Any, *what: object) -> dict[str, Any]:
    """What a skill says it got, as data."""
    async with Client(agent_of(function)) as client:
        task = await client.send(*what)
        assert task.state is State.COMPLETED, task.status.message
        part = task.artifacts[0].parts[0]
        assert isinstance(part, Data)
        value = part.value
        assert isinstance(value, dict)
        return value


async def plan(turn: Turn, city: str, days: int = 3) -> dict[str, object]:
    return {"city": city, "days": days}


SOURCES = [
    pytest.param([{"city": "Kyoto", "days": 5}], "Kyoto", 5, id="data"),
    pytest.param([{"city": "Kyoto"}], "Kyoto", 3, id="data with default"),
    pytest.param(["look:", {"city": "Kyoto"}], "Kyoto", 3, id="text and data"),
    pytest.param([Data([1]), {"city": "Kyoto"}], "Kyoto", 3, id="first object"),
    pytest.param([{"city": "Kyoto"}, {"city": "Nara"}], "Kyoto", 3, id="the first of two"),
    pytest.param(['{"city": "Kyoto", "days": 5}'], "Kyoto", 5, id="JSON text"),
    pytest.param(['  {"city": "Kyoto"}\n'], "Kyoto", 3, id="JSON text with space"),
    pytest.param(["Kyoto"], "Kyoto", 3, id="text"),
    pytest.param(["Kyoto", {"days": 5}], "Kyoto", 5, id="text for the missing one"),
    pytest.param(["{not JSON"], "{not JSON", 3, id="text with a brace"),
    pytest.param(["[1, 2]"], "[1, 2]", 3, id="text that is another JSON"),
]


@pytest.mark.parametrize(("what", "city", "days"), SOURCES)
async def test_where_arguments_come_from(what: list[object], city: str, days: int) -> None:
    assert await arguments(plan, *what) == {"city": city, "days": days}


WRONG = [
    pytest.param([{"city": 7}], r"`str`.*`\$\.city`", id="wrong type"),
    pytest.param([{"city": "x", "days": "many"}], r"`int`.*`\$\.days`", id="wrong default type"),
    pytest.param([{"days": 3}], "missing required field `city`", id="missing"),
    pytest.param([{"city": "x", "dyas": 3}], "unknown field `dyas`", id="unknown"),
    pytest.param(['{"city": null}'], r"`\$\.city`", id="null"),
    pytest.param([""], "missing required field `city`", id="empty text"),
    pytest.param([], "missing required field `city`", id="nothing"),
    pytest.param([Blob(b"x")], "missing required field `city`", id="only a file"),
]


@pytest.mark.parametrize(("what", "words"), WRONG)
async def test_what_is_wrong_is_refused_with_its_path_before_a_task_opens(
    what: list[object], words: str
) -> None:
    async with Client(agent_of(plan)) as client:
        with pytest.raises(BadParams, match=words):
            await client.send(*what)
        with pytest.raises(BadParams, match=words):
            await anext(client.stream(*what))
        assert (await client.list()).total == 0


async def rich(
    turn: Turn,
    place: Place,
    guests: list[Guest],
    when: date,
    mood: Mood = Mood.GOOD,
    meal: Literal["tea", "rice"] = "tea",
    stars: Annotated[int, Meta(ge=1, le=5)] = 3,
    notes: list[str] = [],  # noqa: B006  # authors write this, and it must not be shared
) -> dict[str, object]:
    notes.append("seen")
    return {
        "city": place.city,
        "guests": [guest.name for guest in guests],
        "when": when.isoformat(),
        "mood": mood.name,
        "meal": meal,
        "stars": stars,
        "notes": notes,
    }


async def test_rich_types_arrive_as_themselves() -> None:
    sent = {
        "place": {"city": "Kyoto"},
        "guests": [{"name": "Ada", "age": 36}],
        "when": "2026-04-01",
        "mood": "bad",
    }
    for _ in range(2):
        got = await arguments(rich, sent)
        assert got == {
            "city": "Kyoto",
            "guests": ["Ada"],
            "when": "2026-04-01",
            "mood": "BAD",
            "meal": "tea",
            "stars": 3,
            "notes": ["seen"],
        }


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"place": {}}, r"\$\.place"),
        ({"guests": [{"name": "Ada", "age": "old"}]}, r"\$\.guests\[0\]\.age"),
        ({"when": "tomorrow"}, r"\$\.when"),
        ({"mood": "odd"}, r"\$\.mood"),
        ({"meal": "soup"}, r"\$\.meal"),
        ({"stars": 6}, r"\$\.stars"),
    ],
)
async def test_paths_lead_to_what_is_wrong(change: dict[str, object], path: str) -> None:
    sent: dict[str, object] = {"place": {"city": "Kyoto"}, "guests": [], "when": "2026-04-01"}
    async with Client(agent_of(rich)) as client:
        with pytest.raises(BadParams, match=path):
            await client.send({**sent, **change})


async def test_text_fills_an_annotated_string_too() -> None:
    async def ask(turn: Turn, city: Annotated[str, Meta(min_length=2)]) -> dict[str, str]:
        return {"city": city}

    assert await arguments(ask, "Kyoto") == {"city": "Kyoto"}
    async with Client(agent_of(ask)) as client:
        with pytest.raises(BadParams, match=r"\$\.city"):
            await client.send("K")


async def test_text_fills_an_optional_string_if_it_is_the_only_one() -> None:
    async def one(turn: Turn, style: str = "plain", loud: bool = False) -> dict[str, object]:
        return {"style": style, "loud": loud}

    async def two(turn: Turn, style: str = "plain", tone: str = "soft") -> dict[str, object]:
        return {"style": style, "tone": tone}

    assert await arguments(one, "fancy") == {"style": "fancy", "loud": False}
    assert await arguments(two, "fancy") == {"style": "plain", "tone": "soft"}


async def test_text_fits_no_two_strings() -> None:
    async def two(turn: Turn, here: str, there: str) -> dict[str, object]:
        return {"here": here, "there": there}

    async with Client(agent_of(two)) as client:
        with pytest.raises(BadParams, match="missing required field"):
            await client.send("Kyoto")
    assert await arguments(two, "Nara", {"here": "Kyoto"}) == {"here": "Kyoto", "there": "Nara"}


async def test_a_parameter_may_have_any_name() -> None:
    async def probe(turn: Turn, kind: str, type: str, id: int = 1) -> dict[str, object]:
        return {"kind": kind, "type": type, "id": id}

    got = await arguments(probe, {"kind": "a", "type": "b"})
    assert got == {"kind": "a", "type": "b", "id": 1}


async def test_a_parameter_without_annotation_takes_anything() -> None:
    async def probe(turn, thing):  # type: ignore[no-untyped-def]
        return {"thing": thing}

    assert await arguments(probe, {"thing": [1, "x"]}) == {"thing": [1, "x"]}


# Results.


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "x"),
        (int, 3),
        (float, 3),
        (Place, Place("Kyoto")),
        (Place, {"city": "Kyoto"}),
        (list[Place], [Place("Kyoto")]),
        (dict[str, int], {"a": 1}),
        (Guest, Guest("Ada", 36)),
        (Extra, {"kind": "x"}),
        (str | None, None),
        (str, Answer("an answer")),
        (Blob, Blob(b"x")),
        (bytes, b"x"),
        (None, None),
        (Any, 3),
        (object, 3),
    ],
)
async def test_results_that_keep_their_word(annotation: Any, value: object) -> None:
    async def skill(turn: Turn):  # type: ignore[no-untyped-def]
        return value

    skill.__annotations__["return"] = annotation
    async with Client(agent_of(skill)) as client:
        task = await client.send("go")
        assert task.state is State.COMPLETED, task.status.message


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (str, 3, "Expected `str`"),
        (str, None, "Expected `str`"),
        (Place, {"town": "x"}, "city"),
        (list[int], [1, "x"], r"\$\[1\]"),
        (dict[str, int], {"a": "x"}, r"\$\[\.\.\.\]"),
        (Extra, {"kind": 3}, r"\$\.kind"),
    ],
)
async def test_results_that_break_their_word_fail_the_task(
    annotation: Any, value: object, path: str
) -> None:
    async def skill(turn: Turn):  # type: ignore[no-untyped-def]
        return value

    skill.__annotations__["return"] = annotation
    async with Client(agent_of(skill)) as client:
        task = await client.send("go")
        assert task.state is State.FAILED
        assert task.artifacts == ()
        assert task.status.message is not None
        assert re.search(path, task.status.message.text), task.status.message.text
        assert "annotation" in task.status.message.text


def test_output_schemas_follow_the_annotation() -> None:
    async def gives(turn: Turn) -> Place: ...  # type: ignore[empty-body]
    async def gives_kind(turn: Turn) -> Extra: ...  # type: ignore[empty-body]
    async def gives_file(turn: Turn) -> Blob: ...  # type: ignore[empty-body]
    async def gives_files(turn: Turn) -> list[Blob]: ...  # type: ignore[empty-body]
    async def gives_nothing(turn: Turn) -> None: ...

    agent = Agent("Schemas")
    for function in (gives, gives_kind, gives_file, gives_files, gives_nothing):
        agent.skill(function.__name__)(function)
    schemas = {name: skill.params.output_schema for name, skill in agent.skills.items()}
    assert schemas["gives"]["required"] == ["city"]
    assert schemas["gives_kind"]["required"] == ["kind"]
    assert schemas["gives_file"] is None
    assert schemas["gives_files"] is None
    assert schemas["gives_nothing"] is None


def test_nested_types_are_defined_within_the_schema() -> None:
    agent = Agent("Schemas")
    agent.skill("rich")(rich)
    schema = agent.skills["rich"].params.input_schema
    assert schema["properties"]["place"] == {"$ref": "#/$defs/Place"}
    assert set(schema["$defs"]) == {"Place", "Guest", "Mood"}
    assert schema["required"] == ["place", "guests", "when"]
