"""Enforces what the card declares, in one Peer that serves every binding alike.

Switched-off streams, required extensions and media types are decided when an agent is served. One
that declares none of them has no `CardEnforcingPeer` in front of it, and pays nothing.

Media types count only where the author names them, on the agent or on a skill: `Agent("x")` shows
the usual ones on its card and takes whatever comes. A part's type is its `media_type`; without one
text is text/plain, data is application/json, and a file is what its name says, else
application/octet-stream. In a task that is there already data is always taken: it may answer a
question of ours (docs/extensions/work.md).

A caller that lists what it accepts, and nothing of that can come out of the skill, is told so
before a task is opened: A2A has the error for it (-32005) and leaves it to the agent (a2a-wire
§13.1: output should be tailored, no error is mandated).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from functools import cache
from mimetypes import MimeTypes
from typing import Any

from msgspec import Struct

from dragoman.agent import Agent
from dragoman.agent.agent import MODES
from dragoman.core.errors import (
    ContentTypeUnsupported,
    ExtensionRequired,
    TaskNotFound,
    Unsupported,
)
from dragoman.core.model import AnyPart, Data, Text
from dragoman.core.operations import GetExtendedCard, Operation, R, SendMessage, Streamed
from dragoman.core.peer import Batch, Context, Peer

from .authorization import Tells

OCTETS = "application/octet-stream"
_OLD = {"text": "text/*", "data": "application/json", "file": "*/*", "*": "*/*"}
"""The names of modes in the first versions of A2A."""


class Modes(Struct, frozen=True):
    """The media types that go in and come out; an empty list accepts any."""

    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()

    def check(self, op: SendMessage, *, answers: bool = False) -> None:
        """Raises `ContentTypeUnsupported` for a part that the skill cannot read, or if its results
        could not be read."""
        if self.takes:
            for part in op.message.parts:
                if answers and isinstance(part, Data):
                    continue
                found = type_of(part)
                if not fits(found, self.takes):
                    raise ContentTypeUnsupported(
                        f"The agent does not take {found[:80]} here; it takes: "
                        + ", ".join(self.takes),
                        media_type=found[:80],
                    )
        if self.gives and op.accepts and not _meet(self.gives, op.accepts):
            raise ContentTypeUnsupported(
                "Nothing that the agent gives here is accepted; it gives: " + ", ".join(self.gives)
            )


ANY = Modes()


class CardEnforcingPeer:
    """A peer that passes on only what the card allows."""

    def __init__(self, agent: Agent, peer: Peer) -> None:
        self.peer = peer
        self.streaming = agent.streaming
        self.required = required_of(agent)
        self.default = modes_of(agent)
        self.by_skill = modes_by_skill(agent, self.default)
        self.typed = self.default != ANY or any(each != ANY for each in self.by_skill.values())
        self._tells = peer if isinstance(peer, Tells) else None

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the answer, if the card allows the operation."""
        self._extended(op, ctx)
        if self.typed and isinstance(op, SendMessage):
            await self._typed(op, ctx)
        return await self.peer.call(op, ctx)

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields every event, if the card declares streams."""
        self._extended(op, ctx)
        if not self.streaming:
            raise Unsupported("This agent has no streams")
        if self.typed and isinstance(op, SendMessage):
            await self._typed(op, ctx)
        steps = self.peer.stream(op, ctx)
        try:
            async for batch in steps:
                yield batch
        finally:
            await steps.aclose()

    def _extended(self, op: Operation[Any], ctx: Context) -> None:
        """Raises `ExtensionRequired` if a required extension is not active (a2a-wire §12.5); the
        card needs none."""
        for uri in self.required:
            if uri not in ctx.extensions and not isinstance(op, GetExtendedCard):
                raise ExtensionRequired(
                    f"Activate the extension {uri} (A2A-Extensions)", extension=uri
                )

    async def _typed(self, op: SendMessage, ctx: Context) -> None:
        skill, answers = await self._skill(op, ctx)
        self.by_skill.get(skill, self.default).check(op, answers=answers)

    async def _skill(self, op: SendMessage, ctx: Context) -> tuple[str, bool]:
        """Returns the skill that will get the message, and whether its task exists already."""
        task_id = op.message.task_id
        if self._tells is None:
            return "", bool(task_id)  # only a backend itself knows which of its skills will do it
        if task_id:
            return await self._tells.skill_of(ctx, task_id), True
        if op.open_as:  # the caller's name of a task: one it has, or else one to open
            with suppress(TaskNotFound):
                return await self._tells.skill_of(ctx, op.open_as), True
        return self._tells.skill_for(op).id, False


def held(agent: Agent, peer: Peer) -> Peer:
    """Returns the peer behind an enforcing one, or the peer itself if there is nothing to
    enforce."""
    terms = CardEnforcingPeer(agent, peer)
    needed = terms.required or not terms.streaming or terms.typed
    return terms if needed else peer


def required_of(agent: Agent) -> tuple[str, ...]:
    """Returns the extensions that every caller must activate."""
    return tuple(each.uri for each in agent.card().extensions if each.required)


def modes_of(agent: Agent) -> Modes:
    """Returns the media types that the author names for the whole agent; defaults do not count."""
    takes = agent.input_modes if agent.input_modes is not MODES else ()
    gives = agent.output_modes if agent.output_modes is not MODES else ()
    return Modes(takes, gives)


def modes_by_skill(agent: Agent, default: Modes) -> Mapping[str, Modes]:
    """Returns the media types of skills that differ from those of the agent."""
    found = {
        skill.id: Modes(
            skill.input_modes or default.takes,
            skill.output_modes or default.gives,
        )
        for skill in agent.skills.values()
    }
    return {id: modes for id, modes in found.items() if modes != default}


def type_of(part: AnyPart) -> str:
    """Returns the media type of a part, without parameters and in lower case."""
    if part.media_type:
        return _bare(part.media_type)
    if isinstance(part, Text):
        return "text/plain"
    if isinstance(part, Data):
        return "application/json"
    return _by_name().guess_type(part.filename)[0] or OCTETS


@cache
def _by_name() -> MimeTypes:
    """Returns Python's own table; that of the machine would differ from place to place."""
    return MimeTypes()


def fits(media_type: str, modes: Iterable[str]) -> bool:
    """Returns whether a type is one of these, which may end in `/*`."""
    kind = media_type.partition("/")[0]
    return any(mode in (media_type, f"{kind}/*", "*/*") for mode in map(_bare, modes))


def _meet(given: Iterable[str], accepted: Iterable[str]) -> bool:
    """Returns whether two lists, which may hold wildcards, have a type in common."""
    wanted = [_bare(each) for each in accepted]
    return any(
        fits(one, wanted) or any(fits(each, (one,)) for each in wanted) for one in map(_bare, given)
    )


def _bare(mode: str) -> str:
    """Returns a media type without parameters, in lower case, by its present name."""
    bare = mode.partition(";")[0].strip().lower()
    return _OLD.get(bare, bare)
