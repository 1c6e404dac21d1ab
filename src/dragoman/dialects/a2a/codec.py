"""Converts messages, artifacts and tasks between the canonical model and the JSON of one version.

A2A 1.0, 0.3 and 0.3 over REST have the same objects with the same members. They differ in the form
of parts, in the names of states and roles, and in places where some peers put a value. A version
passes these differences to `task_codec` and gets its converters. The peers of 0.1 differ in more
(`legacy.v0_1`).

Invalid values raise `Wrong`. Only a request must fulfil everything that the specification requires
(`request_in`): the answers of peers are read more leniently than the requests of callers.

The converters are closures and not methods, because they are the hot path: Python 3.11 calls a
variable of a closure at full speed, and an attribute of an instance 40 ns slower, which is 5 % of a
send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from dragoman.core.model import AnyPart, Artifact, Message, Role, State, Status, Task

from .scalars import Wrong, check_links, convert_each, each, stamp_in, stamp_out

Wire = Any
"""A struct of the `wire` module of a version. Its fields have the same names in all versions, but
there is no common type, because each version has parts of its own."""

M = TypeVar("M")
A = TypeVar("A")
T = TypeVar("T")

# In Python 3.11, accessing a member of an enum costs ten times as much as a global variable.
_AGENT, _UNKNOWN = Role.AGENT, State.UNKNOWN


class TaskCodec(NamedTuple, Generic[M, A, T]):
    """The converters of one version."""

    request_in: Callable[[Wire], Message]
    """Reads the message of a send. Raises `Wrong` if it lacks a required member."""
    message_in: Callable[[Wire], Message]
    message_out: Callable[[Message], M]
    artifact_in: Callable[[Wire], Artifact]
    artifact_out: Callable[[Artifact], A]
    status_out: Callable[[State, int, Message | None], Wire]
    task_in: Callable[[Wire], Task]
    task_out: Callable[[Task], T]
    states_in: Mapping[Any, State]
    states_out: Mapping[State, str]


def task_codec(
    structs: tuple[Callable[..., M], Callable[..., A], Callable[..., Wire], Callable[..., T]],
    part: tuple[Callable[[Wire], AnyPart], Callable[[AnyPart], Wire]],
    roles: tuple[Mapping[Any, Role], Mapping[Role, str]],
    states: tuple[Mapping[Any, State], Mapping[State, str]],
    *,
    role_names: str,
    link: str,
    parts_path: str = ".parts",
    check_parts: Callable[[Any, str], None] | None = None,
) -> TaskCodec[M, A, T]:
    """Returns the converters for these structs: message, artifact, status and task. Their fields
    are in the same order in all versions.

    `part`, `roles` and `states` are pairs for reading and for writing. In error messages,
    `role_names` names the roles, `parts_path` the parts of a message, and `link` the address within
    a part. `check_parts` raises `Wrong` for parts that callers may not send in this version.
    """
    message, artifact, status, task = structs
    part_in, part_out = part
    roles_in, roles_out = roles
    states_in, states_out = states

    def request_in(wire: Wire) -> Message:
        if wire.role not in roles_in:
            raise Wrong(f"Expected {role_names}", ".message.role")
        if not (wire.message_id or wire.message_id_):
            raise Wrong("Expected a message id", ".message.messageId")
        parts = wire.parts or wire.parts_
        if not parts:
            raise Wrong("Expected at least one part", f".message{parts_path}")
        try:
            found = message_in(wire)
            if check_parts is not None:
                check_parts(parts, parts_path)
            check_links(found.parts, parts_path, link)
        except Wrong as wrong:
            raise wrong.under(".message") from None
        return found

    def parts_in(parts: tuple[Wire, ...], path: str) -> tuple[AnyPart, ...]:
        try:  # like `each`, without the call, because every message comes here
            return (part_in(parts[0]),) if len(parts) == 1 else tuple(map(part_in, parts))
        except Wrong:
            # They are converted again to find out which one is wrong. Counting them every time
            # would cost too much.
            return tuple(convert_each(part_in, parts, path))

    def message_in(wire: Wire) -> Message:
        return Message(
            message_id=wire.message_id or wire.message_id_,
            role=roles_in.get(wire.role, _AGENT),
            parts=parts_in(wire.parts or wire.parts_ or (), parts_path),
            context_id=wire.context_id or wire.context_id_,
            task_id=wire.task_id or wire.task_id_,
            metadata=wire.metadata,
            extensions=wire.extensions or (),
            references=wire.reference_task_ids or wire.reference_task_ids_ or (),
        )

    def message_out(found: Message) -> M:
        return message(
            found.message_id,
            roles_out[found.role],
            each(part_out, found.parts),
            found.context_id,
            found.task_id,
            found.metadata,
            found.extensions,
            found.references,
        )

    def artifact_in(wire: Wire) -> Artifact:
        return Artifact(
            artifact_id=wire.artifact_id or wire.artifact_id_,
            parts=parts_in(wire.parts or (), ".parts"),
            name=wire.name or "",
            description=wire.description or "",
            metadata=wire.metadata,
            extensions=wire.extensions or (),
        )

    def artifact_out(found: Artifact) -> A:
        return artifact(
            found.artifact_id,
            each(part_out, found.parts),
            found.name,
            found.description,
            found.metadata,
            found.extensions,
        )

    def status_in(wire: Wire) -> Status:
        found = wire.message or wire.message_
        return Status(
            states_in.get(wire.state, _UNKNOWN),
            stamp_in(wire.timestamp, ".status.timestamp") if wire.timestamp else 0,
            message_in(found) if found is not None else None,
        )

    def status_out(state: State, at: int, found: Message | None) -> Wire:
        return status(
            states_out[state],
            stamp_out(at) if at else "",
            message_out(found) if found is not None else None,
        )

    def task_in(wire: Wire) -> Task:
        return Task(
            id=wire.id,
            context_id=wire.context_id or wire.context_id_,
            status=status_in(wire.status),
            artifacts=each(artifact_in, wire.artifacts or ()),
            history=each(message_in, wire.history or ()),
            metadata=wire.metadata,
        )

    def task_out(found: Task) -> T:
        now = found.status
        return task(
            found.id,
            found.context_id,
            status_out(now.state, now.at, now.message),
            each(artifact_out, found.artifacts) or None,
            each(message_out, found.history) or None,
            found.metadata,
        )

    return TaskCodec(
        request_in,
        *(message_in, message_out, artifact_in, artifact_out),
        *(status_out, task_in, task_out),
        *(states_in, states_out),
    )
