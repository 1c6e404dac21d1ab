"""The types and names of members that the wire structs of every A2A version use.

A reader of ProtoJSON accepts a member by its camelCase name or by its snake_case name, so a struct
of 1.0 has two fields for it: `task_id` is taskId on the wire, and its twin `task_id_` is task_id. A
twin is also a second place where peers put a value: REST of 0.3 reads the parts of a message as
`content` and as `parts`. We write only the first of the two.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dragoman.core.model import Json

Flag = bool | None
Word = str | None
Words = tuple[str, ...] | None
Bag = dict[str, Json] | None
Number = int | float | str | None
"""An int32, which ProtoJSON also accepts as a string."""
Name = str | int | None
"""A value of an enum, which ProtoJSON also accepts as a number."""


def json_name(field: str) -> str:
    """Returns the name of a struct's field on the wire: camelCase, except for a twin."""
    if field.endswith("_"):
        return field[:-1]
    head, *rest = field.split("_")
    return head + "".join(word.title() for word in rest)


_ABSENT: Any = None


class NoTwins:
    """The base of structs whose members have one name each.

    The codec that the versions share (`codec`) reads the twin of a member that is empty. Here it
    finds that there is none, at the cost of one look-up in the class.
    """

    __slots__ = ()

    message_id_ = context_id_ = task_id_ = artifact_id_ = page_token_ = ""
    reference_task_ids_: Words = ()
    parts_ = message_ = history_length_ = page_size_ = final = _ABSENT
    last_chunk_ = include_artifacts_ = _ABSENT


class Authentication(Struct, frozen=True, gc=False, omit_defaults=True):
    """How a webhook authenticates us, in every version before 1.0."""

    schemes: Words = None
    """The list is required, so it is written even if it is empty; None is only read."""
    credentials: Word = ""
