"""Cards of A2A-Lite: what an agent tells when it is asked `[A2A:discover]`.

The body of a card is prose for people, and one JSON block that is valid against the schema of the
source document. Other agents often answer with prose alone; then their skills are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from dragoman.core import json_schema
from dragoman.core.card import Card, CardSkill
from dragoman.core.model import Json
from dragoman.core.nesting import too_deep

from .blocks import split_blocks
from .card_schema import MODES, SCHEMA

PROTOCOL = "a2a-lite/1.0"
MOST_BYTES = 32 * 1024
"""The bytes of the longest card that is read."""
MEDIA_TYPES: dict[str, str] = {
    "text": "text/plain",
    "file": "application/octet-stream",
    "image": "image/*",
    "audio": "audio/*",
    "video": "video/*",
}
"""The media types of the words for modes."""

_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_size = re.compile(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([kmg]?)(?:i?b)?\s*", re.I | re.A)
_protocol = re.compile(r"a2a-lite/(\d{1,9})\.\d{1,9}", re.A)
_opening = re.compile(r"^```[a-z]*[ \t]*\n", re.M)
_closing = re.compile(r"\n```[ \t]*$", re.M)
_unsafe_id = re.compile(r"[^A-Za-z0-9._-]+")


class CardAgent(Struct, frozen=True):
    """The agent of a card."""

    id: str = ""
    name: str = ""
    framework: str = ""
    version: str = ""


class LiteSkill(Struct, frozen=True, rename="camel"):
    """A skill of a card. Its modes are words of `MODES`."""

    id: str = ""
    name: str = ""
    description: str = ""
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class LiteCapabilities(Struct, frozen=True, rename="camel"):
    """The capabilities of an agent. The protocol itself has no streams and no notifications."""

    streaming: bool = False
    file_transfer: bool = False
    async_tasks: bool = False
    push_notifications: bool = False


class LiteLimits(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The limits of an agent."""

    max_file_size: str | UnsetType = UNSET
    """A text such as `10MB`; see `size_in`."""
    max_concurrent_tasks: int | UnsetType = UNSET


class LiteContact(Struct, frozen=True, omit_defaults=True):
    """The person behind an agent."""

    human: str = ""
    timezone: str = ""


class LiteCard(Struct, frozen=True):
    """A card, with the members of the source document. All of them have defaults, since a card that
    lacks one that is required is read nevertheless."""

    protocol: str = ""
    agent: CardAgent = CardAgent()
    skills: tuple[LiteSkill, ...] = ()
    description: str = ""
    capabilities: LiteCapabilities | UnsetType = UNSET
    limits: LiteLimits | UnsetType = UNSET
    channels: tuple[str, ...] = ()
    contact: LiteContact | UnsetType = UNSET

    @property
    def supported(self) -> bool:
        """Whether we speak this version. All versions 1.x are read as 1.0."""
        found = _protocol.fullmatch(self.protocol)
        return found is not None and int(found[1]) == 1

    @property
    def max_file_size(self) -> int | None:
        """The bytes of the largest file that the agent takes, or None if it does not tell."""
        text = self.limits.max_file_size if self.limits is not UNSET else UNSET
        return size_in(text) if text is not UNSET else None


class CardDetails(Struct, frozen=True):
    """What a card of A2A-Lite tells of one of our agents beyond its own card."""

    id: str
    framework: Literal["clawdbot", "openclaw", "other"] = "other"
    limits: LiteLimits | UnsetType = UNSET
    channels: tuple[str, ...] = ()
    """The addresses of the agent, such as `matrix:@kiln:loop.test`."""
    contact: LiteContact | UnsetType = UNSET


class CardReading(Struct, frozen=True):
    """What was understood of the body of a card."""

    card: LiteCard
    prose: bool = False
    """Whether there was no JSON block that could be read, so that the skills are unknown."""
    problem: str = ""
    """Why the block is not valid against the schema, if so."""


def card_out(card: Card, details: CardDetails, *, files: bool = False) -> LiteCard:
    """Returns the card of one of our agents. Without `files`, because the channel carries none, it
    claims no mode but text."""

    def modes(media_types: tuple[str, ...]) -> tuple[str, ...]:
        return modes_out(media_types) if files else ("text",)

    skills = tuple(
        LiteSkill(
            skill.id,
            skill.name,
            skill.description,
            modes(skill.input_modes or card.input_modes),
            modes(skill.output_modes or card.output_modes),
        )
        for skill in card.skills
    )
    limits = details.limits
    if limits is not UNSET and not files:
        limits = replace(limits, max_file_size=UNSET)
    return LiteCard(
        PROTOCOL,
        CardAgent(safe_id(details.id), card.name, details.framework, card.version),
        skills,
        card.description,
        LiteCapabilities(file_transfer=files, async_tasks=True),
        limits,
        details.channels,
        details.contact,
    )


def card_in(card: LiteCard) -> Card:
    """Returns the canonical card of an agent that was met in a room."""
    skills = tuple(
        CardSkill(
            id=skill.id,
            name=skill.name or skill.id,
            description=skill.description,
            input_modes=modes_in(skill.input_modes),
            output_modes=modes_in(skill.output_modes),
        )
        for skill in card.skills
        if skill.id
    )
    taken = tuple(dict.fromkeys(mode for skill in skills for mode in skill.input_modes))
    made = tuple(dict.fromkeys(mode for skill in skills for mode in skill.output_modes))
    return Card(
        name=card.agent.name or card.agent.id,
        description=card.description,
        version=card.agent.version or "0",
        input_modes=taken or (MEDIA_TYPES["text"],),
        output_modes=made or (MEDIA_TYPES["text"],),
        skills=skills,
    )


def body_out(card: LiteCard) -> str:
    """Writes the body of a card: prose, and the JSON block."""
    said = [f"I am {_line(card.agent.name)}.", _sentence(card.description)]
    skills = (f"{_line(skill.name)}{_arrow(skill)}" for skill in card.skills)
    said.append(_sentence("Skills: " + ", ".join(skills)) if card.skills else "")
    if card.limits is not UNSET:
        size, most = card.limits.max_file_size, card.limits.max_concurrent_tasks
        said.append(f"Files up to {size}." if size is not UNSET else "")
        said.append(f"At most {most} tasks at once." if most is not UNSET else "")
    prose = " ".join(filter(None, said))
    # Strings in JSON hold no line ends, so nothing in the block can end it early.
    return f"{prose}\n```json\n{msgspec.json.encode(_plain(card)).decode()}\n```"


def body_in(body: str, sender: str) -> CardReading:
    """Reads the body of a card. `sender` names the agent if the card itself does not."""
    for text in _objects_in(body):
        try:
            value: Json = msgspec.json.decode(text)
            problem = problem_of(value)
            # Not strict: in JSON Schema, 3.0 is an integer.
            card = msgspec.convert(value, LiteCard, strict=False)
        except (msgspec.MsgspecError, RecursionError):
            continue
        return CardReading(card, problem=problem)
    prose = "".join(split_blocks(body, _opening, _closing)[::2]).strip()[:MOST_BYTES]
    agent = CardAgent(safe_id(sender), sender, "other")
    return CardReading(LiteCard(PROTOCOL, agent, description=prose), prose=True)


def problem_of(value: Json) -> str:
    """Returns what is wrong with a card by the schema of the source document, or an empty text."""
    return json_schema.wrong(SCHEMA, value)


def modes_out(media_types: Iterable[str]) -> tuple[str, ...]:
    """Returns the words for some media types, in the order of `MODES`."""
    found = {word for media_type in media_types for word in _modes_of(media_type.lower())}
    return tuple(mode for mode in MODES if mode in found)


def modes_in(modes: Iterable[str]) -> tuple[str, ...]:
    """Returns the media types of some words. Unknown words are ignored."""
    return tuple(MEDIA_TYPES[mode] for mode in modes if mode in MEDIA_TYPES)


def size_in(text: str) -> int | None:
    """Reads a size such as `10MB`, whose units are powers of 1024, or returns None."""
    found = _size.fullmatch(text)
    return int(float(found[1]) * _UNITS[found[2].lower()]) if found else None


def size_out(size: int) -> str:
    """Writes a size, in the largest unit that needs no fraction."""
    for unit in ("g", "m", "k"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit.upper()}B"
    return f"{size}B"


def safe_id(name: str) -> str:
    """Returns an id that is safe in a marker and in the name of a file."""
    return _unsafe_id.sub("-", name).strip("-.")[:64] or "agent"


def _modes_of(media_type: str) -> tuple[str, ...]:
    kind, _, detail = media_type.partition("/")
    if kind == "*":
        return MODES
    if kind in ("text", "image", "audio", "video"):
        return (kind,)
    # Data is written as text.
    return ("text",) if detail.split(";")[0].endswith("json") else ("file",)


def _objects_in(body: str) -> Iterator[str]:
    """Yields the texts that may be the JSON of a card: the blocks, or what stands in braces."""
    blocks = split_blocks(body, _opening, _closing)[1::2]
    bare = body[body.find("{") : body.rfind("}") + 1]
    for text in (*blocks, bare):
        encoded = text.encode("utf-8", "replace")
        if '"protocol"' in text and len(encoded) <= MOST_BYTES and not too_deep(encoded):
            yield text


def _plain(card: LiteCard) -> Json:
    """Returns a card as JSON, without the optional members that are empty."""
    members = msgspec.to_builtins(card).items()
    return {key: value for key, value in members if value or key in SCHEMA["required"]}


def _line(text: str) -> str:
    """Returns a text as one line without backticks, which would begin another block."""
    return " ".join(text.replace("`", "'").split())


def _sentence(text: str) -> str:
    line = _line(text)
    return line if not line or line.endswith((".", "!", "?", "。", "！", "？")) else f"{line}."


def _arrow(skill: LiteSkill) -> str:
    if not skill.input_modes or not skill.output_modes:
        return ""
    return f" ({'+'.join(skill.input_modes)} → {'+'.join(skill.output_modes)})"
