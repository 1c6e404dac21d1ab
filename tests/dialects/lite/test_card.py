"""Cards of A2A-Lite: valid against the schema of the source document, read however they come."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counts import count
from dialects.strategies import cards
from dragoman.core.card import Card, CardSkill
from dragoman.core.model import Json
from dragoman.dialects.lite import card as lite
from dragoman.dialects.lite import card_schema
from dragoman.dialects.lite.card import (
    CardDetails,
    LiteCard,
    LiteContact,
    LiteLimits,
    body_in,
    body_out,
    card_in,
    card_out,
    modes_in,
    modes_out,
    problem_of,
    safe_id,
    size_in,
    size_out,
)
from dragoman.dialects.lite.wire import LiteMessage, parse, render

SOURCE = json.loads((Path(__file__).parent / "card.schema.json").read_text("utf-8"))
"""The schema as it stands in the source document."""
VALIDATOR = jsonschema.Draft7Validator(SOURCE)
FULL: Json = {
    "protocol": "a2a-lite/1.0",
    "agent": {"id": "kiln", "name": "Kiln", "framework": "other", "version": "1.2"},
    "description": "Fires pots",
    "skills": [
        {"id": "fire", "name": "Fire", "description": "Fires", "inputModes": ["text", "image"]},
        {"id": "glaze", "name": "Glaze", "description": "Glazes", "outputModes": ["file"]},
    ],
    "capabilities": {
        "streaming": False,
        "fileTransfer": True,
        "asyncTasks": True,
        "pushNotifications": False,
    },
    "limits": {"maxFileSize": "10MB", "maxConcurrentTasks": 3},
    "channels": ["matrix:@kiln:loop.test"],
    "contact": {"human": "Ann", "timezone": "UTC+8"},
}
DETAILS = CardDetails(
    "kiln", "other", LiteLimits("10MB", 3), ("matrix:@kiln:loop.test",), LiteContact("Ann", "UTC+8")
)


def places(value: Json, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all members and items of a value."""
    found = []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        found.append((*path, key))
        if isinstance(inner, dict | list):
            found += places(inner, (*path, key))
    return found


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([3.0, 2.5, -0.0, "text", "video", "clawdbot", "a2a-lite/2.11", "a2a-lite/1"])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def almost_cards(draw: st.DrawFn) -> Json:
    """A card of which some members are replaced, added or gone."""
    card = json.loads(json.dumps(FULL))
    for _ in range(draw(st.integers(0, 2))):
        *path, last = draw(st.sampled_from(places(card)))
        inside = card
        for step in path:
            inside = inside[step]
        change = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if change == "replace":
            inside[last] = draw(VALUES)
        elif change == "remove":
            del inside[last]
        elif isinstance(inside, dict):
            inside[draw(st.text(max_size=5))] = draw(VALUES)
        if not places(card):
            break
    return card


@given(value=almost_cards())
@settings(max_examples=count(100, 300, 1000))
def test_our_validator_agrees_with_jsonschema(value: Json) -> None:
    assert (problem_of(value) == "") == VALIDATOR.is_valid(value)


def test_the_schema_is_that_of_the_source_document() -> None:
    assert card_schema.SCHEMA == SOURCE
    assert problem_of(FULL) == ""


def details() -> st.SearchStrategy[CardDetails]:
    return st.builds(
        CardDetails,
        st.text(max_size=80),
        st.sampled_from(["clawdbot", "openclaw", "other"]),
        st.builds(LiteLimits, st.integers(0, 2**40).map(size_out), st.integers(1, 99)),
        st.lists(st.text(max_size=9), max_size=2).map(tuple),
        st.builds(LiteContact, st.text(max_size=9), st.text(max_size=9)),
    )


@given(card=cards, about=details(), files=st.booleans())
@settings(max_examples=count(40, 150, 2000))
def test_every_card_that_we_write_is_valid_and_read_again(
    card: Card, about: CardDetails, files: bool
) -> None:
    told = card_out(card, about, files=files)
    message = parse(render(LiteMessage("card", {}, body_out(told))))
    assert message is not None
    found = body_in(message.body, "someone")
    assert not found.problem
    assert not found.prose
    again = body_out(found.card)
    assert again == body_out(told)
    block = again.partition("```json\n")[2].removesuffix("\n```")
    VALIDATOR.validate(json.loads(block))
    assert again.count("\n```") == 2


def test_a_card_is_prose_and_one_block() -> None:
    skill = CardSkill(
        id="fire", name="Fire", description="", input_modes=("image/png", "text/plain")
    )
    card = Card(name="Kiln", description="Fires `pots`\n```", version="1.2", skills=(skill,))
    prose, *block = body_out(card_out(card, DETAILS, files=True)).split("\n")
    assert prose == (
        "I am Kiln. Fires 'pots' '''. Skills: Fire (text+image → text). Files up to 10MB. "
        "At most 3 tasks at once."
    )
    assert block[0] == "```json"
    assert len(block) == 3


def test_a_channel_without_files_claims_none() -> None:
    skill = CardSkill(id="draw", name="Draw", description="", output_modes=("image/png",))
    told = card_out(Card(name="Kiln", description="", version="1", skills=(skill,)), DETAILS)
    assert told.skills[0].output_modes == ("text",)
    assert told.capabilities == lite.LiteCapabilities(async_tasks=True)
    assert told.limits == LiteLimits(max_concurrent_tasks=3)


def test_a_card_of_another_agent_is_read_with_all_its_members() -> None:
    found = body_in("Hello, I am Kiln.\n```json\n" + json.dumps(FULL, indent=2) + "\n```", "x")
    assert not found.problem
    assert found.card.max_file_size == 10 * 1024 * 1024
    assert found.card.contact == LiteContact("Ann", "UTC+8")
    assert found.card.channels == ("matrix:@kiln:loop.test",)
    canonical = card_in(found.card)
    assert (canonical.name, canonical.version) == ("Kiln", "1.2")
    assert canonical.input_modes == ("text/plain", "image/*")
    assert canonical.output_modes == ("application/octet-stream",)
    assert [skill.id for skill in canonical.skills] == ["fire", "glaze"]


def test_a_card_in_bare_braces_is_read() -> None:
    assert body_in(f"This is me: {json.dumps(FULL)}. Bye!", "x").card.agent.id == "kiln"


@pytest.mark.parametrize(
    "body",
    [
        "I fire pots.",
        "I fire pots.\n```json\nnot json\n```",
        'I fire pots.\n```json\n{"protocol": ' + "[" * 100 + "]" * 100 + "}\n```",
        'I fire pots.\n```json\n{"protocol": "a2a-lite/1.0", "skills": 5}\n```',
        'I fire pots.\n```json\n{"protocol": "' + "x" * 40_000 + '"}\n```',
    ],
    ids=["prose", "no JSON", "too deep", "wrong types", "too long"],
)
def test_a_card_without_a_readable_block_is_its_prose(body: str) -> None:
    found = body_in(body, "@kiln:loop.test")
    assert found.prose
    assert found.card.description == "I fire pots."
    assert found.card.agent.id == "kiln-loop.test"
    assert found.card.skills == ()
    assert card_in(found.card).name == "@kiln:loop.test"


def test_a_card_that_breaks_the_schema_is_read_as_far_as_possible() -> None:
    agent = {"id": "kiln", "name": "Kiln", "framework": "langgraph"}
    skills = [{"id": "fire", "inputModes": ["text", "smell"]}, {"name": "no id"}]
    told = {"protocol": "a2a-lite/1.0", "agent": agent, "skills": skills, "mood": "good"}
    found = body_in("```json\n" + json.dumps(told) + "\n```", "x")
    assert found.problem
    assert found.card.agent.framework == "langgraph"
    assert [skill.id for skill in card_in(found.card).skills] == ["fire"]
    assert card_in(found.card).input_modes == ("text/plain",)


def test_versions_1_x_are_read_as_1_0_and_others_are_not_supported() -> None:
    def supported(protocol: str) -> bool:
        return LiteCard(protocol).supported

    assert supported("a2a-lite/1.0")
    assert supported("a2a-lite/1.17")
    assert not supported("a2a-lite/2.0")
    assert not supported("a2a-lite/0.9")
    assert not supported("a2a-lite/11.0")
    assert not supported("a2a/1.0")
    assert not supported("")


def test_sizes_are_powers_of_1024() -> None:
    sizes = {"10MB": 10 * 1024**2, "512k": 512 * 1024, "1.5 GiB": 3 * 1024**3 // 2, "7": 7, "9b": 9}
    assert {text: size_in(text) for text in sizes} == sizes
    assert [size_in(text) for text in ("", "MB", "ten", "-1MB", "٣MB", "1TB")] == [None] * 6
    assert [size_out(size) for size in (10 * 1024**2, 1536, 1000, 0)] == [
        "10MB",
        "1536B",
        "1000B",
        "0B",
    ]
    assert LiteCard("a2a-lite/1.0").max_file_size is None


def test_modes_are_media_types() -> None:
    assert modes_in(("text", "file", "image", "audio", "video", "smell")) == (
        *("text/plain", "application/octet-stream", "image/*", "audio/*", "video/*"),
    )
    assert modes_out(modes_in(card_schema.MODES)) == card_schema.MODES
    assert modes_out(("application/json", "application/pdf", "Image/PNG")) == (
        "text",
        "file",
        "image",
    )
    assert modes_out(("*/*",)) == card_schema.MODES


def test_an_id_is_safe_in_a_marker_and_a_file_name() -> None:
    assert safe_id("@kiln:loop.test") == "kiln-loop.test"
    assert safe_id("../../etc/passwd") == "etc-passwd"
    assert safe_id("窑") == "agent"
    assert len(safe_id("x" * 100)) == 64


def test_encoded_cards_have_the_members_of_the_schema() -> None:
    assert set(
        msgspec.to_builtins(card_out(Card(name="", description="", version=""), DETAILS))
    ) == set(SOURCE["properties"])
