"""The names of tasks, conversations and messages that come from rooms."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.core.model import AnyPart, Message, Text
from dragoman.core.task_names import fit

from .answers import Origin
from .heard_message import HeardMessage

DIALECT = "lite"


def task_name(origin: Origin) -> str:
    """Returns the name of a task among those of its requester: its id, and the room. Ids of people
    without markers are ours, so the name says which they are."""
    kind = "" if origin.marked else "~"
    name = f"{kind}{origin.id}@{origin.room}"
    if fit(name):
        return name
    return f"{kind}{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def context_of(channel: str, room: str, sender: str) -> str:
    """Returns the conversation that a sender has with an agent in a room."""
    about = repr((channel, room, sender)).encode()
    return f"{DIALECT}-{hashlib.sha256(about).hexdigest()[:24]}"


def message_key(said: HeardMessage) -> str:
    """Returns the idempotency key of a message, which may be heard again after a restart."""
    about = repr((DIALECT, *said.whose, said.chat.id)).encode()
    return hashlib.sha256(about).hexdigest()


def message_in(
    said: HeardMessage,
    asked: Message,
    files: Sequence[AnyPart],
    *,
    context_id: str = "",
    task_id: str = "",
) -> Message:
    """Returns the message to an agent that somebody said in a room: what its session has read, with
    the files that were posted."""
    parts = asked.parts
    if files and parts == (Text(""),):
        parts = ()
    return replace(
        asked,
        message_id=message_key(said)[:32],
        parts=(*parts, *files),
        context_id=context_id,
        task_id=task_id,
    )
