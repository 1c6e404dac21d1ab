"""The public names: this list is the promise, so a change of it is a change for users."""

from __future__ import annotations

import inspect

import pytest

import dragoman

NAMES = {
    "Agent",
    "Answer",
    "Artifact",
    "ArtifactChunk",
    "Ask",
    "Asked",
    "Backend",
    "Blob",
    "Data",
    "Event",
    "Extension",
    "Hook",
    "Link",
    "Message",
    "Note",
    "Noted",
    "Opened",
    "Part",
    "Provider",
    "Role",
    "Snapshot",
    "Stamped",
    "State",
    "StateChanged",
    "Status",
    "SyncTurn",
    "Task",
    "Text",
    "Turn",
    "__version__",
    "connect",
    "file",
}


def test_the_names_are_these() -> None:
    assert set(dragoman.__all__) == NAMES
    assert len(dragoman.__all__) == len(NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_can_be_imported_and_explains_itself(name: str) -> None:
    value = getattr(dragoman, name)
    if name == "__version__":
        assert value.count(".") == 2
        return
    assert inspect.getdoc(value), f"dragoman.{name} has no docstring"


@pytest.mark.parametrize("name", ["Agent", "Turn", "SyncTurn", "Answer"])
def test_every_public_method_explains_itself(name: str) -> None:
    bare = [
        member
        for member, value in vars(getattr(dragoman, name)).items()
        if not member.startswith("_")
        and (inspect.isroutine(value) or isinstance(value, property | classmethod))
        and not inspect.getdoc(value)
    ]
    assert bare == []
