"""The bytes that are signed: RFC 8785 by its published vectors, and what of a card is in them."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cards.forge import CARD
from counts import count
from dialects import strategies
from dragoman.dialects.a2a.cards import canonical, documents
from dragoman.dialects.a2a.cards.canonical import Uncanonical, document_in
from dragoman.dialects.a2a.cards.signatures import FORMS, payload
from dragoman.dialects.a2a.proto import POOL

strict = FORMS["strict"].write

NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}
"""RFC 8785 appendix B: the bits of a double, and how it is written."""


@pytest.mark.parametrize(("bits", "text"), NUMBERS.items())
def test_numbers_of_appendix_b(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert strict(number) == text.encode()


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000"])
def test_what_appendix_b_calls_an_error(bits: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    with pytest.raises(ValueError, match="not representable"):
        strict(number)


def test_the_sorting_example_of_3_2_3() -> None:
    text = (
        r'{"\u20ac": "Euro Sign", "\r": "Carriage Return", '
        r'"\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One", '
        r'"\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", '
        r'"\u00f6": "Latin Small Letter O With Diaeresis"}'
    )
    written = json.loads(strict(json.loads(text)))
    assert list(written.values()) == [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]


def test_the_example_of_3_2_4_byte_by_byte() -> None:
    text = (
        r'{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],'
        r' "string": "\u20ac$\u000F\u000aA' + "'" + r'\u0042\u0022\u005c\\\"\/",'
        r' "literals": [null, true, false]}'
    )
    assert strict(json.loads(text)) == bytes.fromhex(
        "7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e756d62657273223a"
        "5b3333333333333333332e333333333333332c31652b33302c342e352c302e3030322c31652d3237"
        "5d2c22737472696e67223a22e282ac245c75303030665c6e4127425c225c5c5c5c5c222f227d"
    )


_KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_TREES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | _KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(_TREES)
@settings(max_examples=count(25, 200))
def test_writing_what_was_written_changes_nothing(tree: Any) -> None:
    once = strict(tree)
    assert strict(json.loads(once, parse_int=float)) == once


# What of a card is in them.


def covered(**members: Any) -> dict[str, Any]:
    return json.loads(payload(members))


REQUIRED: dict[str, Any] = {
    "name": "",
    "description": "",
    "version": "",
    "supportedInterfaces": [],
    "defaultInputModes": [],
    "defaultOutputModes": [],
    "skills": [],
}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {}),
        ({"name": "A"}, {"name": "A"}),
        ({"iconUrl": ""}, {"iconUrl": ""}),
        ({"iconUrl": None}, {}),
        ({"capabilities": {}}, {"capabilities": {}}),
        (
            {"capabilities": {"streaming": False, "extensions": []}},
            {"capabilities": {"streaming": False}},
        ),
        (
            {"capabilities": {"extensions": [{"uri": "u", "required": False, "description": ""}]}},
            {"capabilities": {"extensions": [{"uri": "u"}]}},
        ),
        (
            {"capabilities": {"extensions": [{"uri": "u", "params": {"a": "", "b": None}}]}},
            {"capabilities": {"extensions": [{"uri": "u", "params": {"a": "", "b": None}}]}},
        ),
        ({"provider": {}}, {"provider": {"organization": "", "url": ""}}),
        ({"securitySchemes": {}, "securityRequirements": []}, {}),
        (
            {"securityRequirements": [{"schemes": {"a": {"list": []}}}, {}]},
            {"securityRequirements": [{"schemes": {"a": {}}}, {}]},
        ),
        (
            {"securitySchemes": {"m": {"mtlsSecurityScheme": {"description": ""}, "type": "x"}}},
            {"securitySchemes": {"m": {"mtlsSecurityScheme": {}}}},
        ),
        ({"signatures": [{}], "url": "https://old", "x-more": 1}, {}),
    ],
)
def test_presence_is_protobufs(given: dict[str, Any], kept: dict[str, Any]) -> None:
    assert covered(**given) == {**REQUIRED, **kept}


@pytest.mark.parametrize(
    "members",
    [
        {"name": 5},
        {"skills": {}},
        {"skills": ["plan"]},
        {"capabilities": {"streaming": "yes"}},
        {"capabilities": {"extensions": [{"params": []}]}},
        {"capabilities": {"extensions": [{"params": {"n": 10**400}}]}},
        {"name": "\ud800"},
    ],
)
def test_what_has_no_canonical_form(members: dict[str, Any]) -> None:
    with pytest.raises(Uncanonical):
        payload(members)


def test_integers_beyond_doubles_are_doubles() -> None:
    params = {"n": 2**53 + 1, "m": -(2**70)}
    said = payload({"capabilities": {"extensions": [{"uri": "u", "params": params}]}})
    assert b'{"m":-1.1805916207174113e+21,"n":9007199254740992}' in said


@given(strategies.cards)
@settings(max_examples=count(15, 50))
def test_all_forms_of_one_card_are_covered_alike(card: Any) -> None:
    """The pure, the merged and the old document of a card carry the same signature."""
    pure = payload(document_in(documents.pure_1_0(card)))
    assert payload(document_in(documents.merged(card))) == pure
    assert payload(document_in(documents.legacy(card))) == pure


def test_the_other_forms() -> None:
    document = document_in(documents.pure_1_0(CARD))
    stripped = json.loads(payload(document, "stripped"))
    assert "securityRequirements" not in stripped
    assert stripped["capabilities"]["extensions"] == [
        {"uri": "urn:x:1", "params": {"n": 1, "x": 0.5}}
    ]
    assert "Köln".encode() in payload(document, "stripped")
    assert rb"K\u00f6ln" in payload(document, "ascii")
    assert b'"n":1.0' in payload(document, "ascii")


def test_the_table_is_that_of_the_protobuf_descriptors() -> None:
    """Every field of lf.a2a.v1.AgentCard, all the way down, is in the table, and nothing else."""

    def names(message: Any, depth: int = 0) -> set[str]:
        found = set()
        for field in message.fields:
            found.add(field.json_name)
            inner = field.message_type
            if inner is None or inner.full_name.startswith("google."):
                continue
            if inner.GetOptions().map_entry:
                inner = inner.fields_by_name["value"].message_type
            if inner is not None and depth < 6:
                found |= {f"{field.json_name}.{each}" for each in names(inner, depth + 1)}
        return found

    meant = names(POOL.FindMessageTypeByName("lf.a2a.v1.AgentCard"))
    meant = {each for each in meant if not each.startswith("signatures")}
    assert _names(canonical.CARD) == meant


def _names(kind: Any) -> set[str]:
    found = set()
    for marked, inner in kind.fields.items():
        name = marked.rstrip("*?")
        found |= {name, *(f"{name}.{each}" for each in _names(inner))}
    return found


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'"x"', b"\xff", b'{"a": NaN}', b'{"a": 1, "a": 1}', b"{" * 5000]
)
def test_what_is_no_document(body: bytes) -> None:
    with pytest.raises(Uncanonical):
        document_in(body)
