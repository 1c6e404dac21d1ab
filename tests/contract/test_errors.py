"""Every error has a spelling in every dialect, and is heard as what it was if it can be said."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dialects.pair import CODECS, Pair
from dragoman.core import errors
from dragoman.core.dialect import Dialect
from dragoman.core.errors import DragomanError
from dragoman.core.operations import GetTask
from dragoman.core.session import Call, Fault


def tree(cls: type[DragomanError]) -> Iterator[type[DragomanError]]:
    yield cls
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


EVERY = sorted(set(tree(DragomanError)), key=lambda cls: cls.__name__)
every_dialect = pytest.mark.parametrize("dialect", CODECS, ids=lambda dialect: dialect.name)
every_error = pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)

# Their codes are the nearest A2A has; what went wrong inside of us is nobody's business.
A2A = {
    *("DragomanError", "CallError", "TaskFinished", "ExtendedCardOff", "ConfigError"),
    "HookNotFound",
    *("AgentError", "AgentCrashed", "PeerError", "PeerMisbehaved", "StoreError", "Fenced"),
    *("PeerUnreachable", "CardUntrusted"),
    "WorkspaceViolation",
}
# 0.1 has a code for finished tasks, and gives those of later errors another meaning.
A2A_0_1 = A2A - {"TaskFinished"} | {
    *("AgentMisbehaved", "NoExtendedCard", "ExtensionRequired", "VersionUnsupported"),
}
TOLD_AS_ANOTHER: dict[str, set[str]] = {
    "a2a-0.1": A2A_0_1,
    "a2a-go": A2A,
    "a2a-1.0": A2A,
    "a2a-0.3": A2A,
    "a2a-1.0-rest": A2A,
    "a2a-0.3-rest": A2A,
    "iat": set(),
    "iat-flat": set(),
    "iat-ws": set(),
}


def heard(dialect: Dialect, error: DragomanError) -> DragomanError:
    """What the caller hears when the callee says it."""
    wire = Pair(dialect)
    wire.caller_says(Call(1, GetTask(task_id="t")))
    (fault,) = wire.callee_says(Fault(1, error))
    assert isinstance(fault, Fault)
    assert fault.id == 1
    return fault.error


@every_dialect
@every_error
def test_every_error_can_be_said(dialect: Dialect, cls: type[DragomanError]) -> None:
    error = cls(task_id="t1")
    found = heard(dialect, error)
    expected = dialect.carried(Fault(1, error))

    assert isinstance(expected, Fault)
    assert type(found) is type(expected.error)
    assert found.message == expected.error.message
    assert found.message.endswith(error.message)
    assert found.public == {"task_id": "t1"}
    assert (type(found) is not cls) == (cls.__name__ in TOLD_AS_ANOTHER[dialect.name])


WORDS = {
    errors.Unparseable: "Invalid JSON payload",
    errors.Malformed: "Request payload validation error",
    errors.UnknownMethod: "Method not found",
    errors.BadParams: "Invalid parameters",
    errors.AgentCrashed: "Internal error",
    errors.TaskNotFound: "Task not found",
    errors.NotCancelable: "Task cannot be canceled",
    errors.PushUnsupported: "Push Notification is not supported",
    errors.Unsupported: "This operation is not supported",
    errors.ContentTypeUnsupported: "Incompatible content types",
}
"""What the error tables of A2A 0.1 to 1.0 all say."""


@pytest.mark.parametrize("cls", WORDS, ids=lambda cls: cls.__name__)
@every_dialect
def test_the_words_of_the_specification_come_before_ours(
    dialect: Dialect, cls: type[DragomanError]
) -> None:
    if dialect.name.startswith("iat"):
        return  # has no such table
    assert heard(dialect, cls("Ours.")).message == f"{WORDS[cls]}: Ours."
    assert heard(dialect, cls(f"{WORDS[cls]}, again.")).message == f"{WORDS[cls]}, again."


@every_dialect
def test_public_details_of_peers_cannot_break_an_error(dialect: Dialect) -> None:
    error = errors.BadParams("No.", message_id="m")
    error.public = {"message": "a", "self": "b", "code": "c"}
    assert heard(dialect, error).public == error.public


@every_dialect
def test_an_error_without_details_has_none(dialect: Dialect) -> None:
    assert heard(dialect, errors.TaskNotFound()).public == {}
