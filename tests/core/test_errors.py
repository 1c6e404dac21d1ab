"""The error tree: names, messages, public details."""

from __future__ import annotations

import pytest

from dragoman.core import errors
from dragoman.core.errors import (
    DragomanError,
    PeerRefused,
    PeerUnreachable,
    StoreUnavailable,
    TaskNotFound,
    TooMany,
)

EVERY = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, DragomanError)
]


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_the_default_message_is_the_docstring(cls: type[DragomanError]) -> None:
    error = cls()
    assert error.message == str(error) == (cls.__doc__ or "").strip()
    assert error.message.endswith(".")
    assert "\n" not in error.message
    assert dict(error.public) == {}


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_bases_end_in_error_and_leaves_do_not(cls: type[DragomanError]) -> None:
    # Some leaves have leaves of their own: a kind of the same thing.
    if cls.__name__.endswith("Error"):
        assert cls.__subclasses__() or cls is errors.ConfigError
    assert cls.__doc__


def test_reasons_are_words_for_machines() -> None:
    assert TaskNotFound().reason == "task_not_found"
    assert DragomanError().reason == "dragoman_error"


def test_what_was_said_and_what_may_be_shown() -> None:
    error = TaskNotFound("Gone.", task_id="t1")
    assert (error.message, dict(error.public)) == ("Gone.", {"task_id": "t1"})


def test_a_refusal_keeps_its_code() -> None:
    error = PeerRefused("No.", code=-32050, why="x")
    assert (error.code, dict(error.public)) == (-32050, {"why": "x"})


def test_only_what_passes_by_itself_is_worth_a_retry() -> None:
    assert {cls for cls in EVERY if cls.retry} == {TooMany, StoreUnavailable, PeerUnreachable}
