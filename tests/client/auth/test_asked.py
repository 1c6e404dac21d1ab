"""Credentials that a task asks for: what the person is asked, and what goes back."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import Agent, Turn
from dragoman.client.auth import wanted
from dragoman.core.events import Ask, Asked, Snapshot, Stamped, StateChanged
from dragoman.core.model import Data, Message, Role, State, Status, Task, Text
from dragoman.testing import Client


def message(*parts: Any) -> Message:
    return Message(message_id="m", role=Role.AGENT, parts=parts)


def task(state: State, told: Message | None) -> Task:
    return Task(id="t", context_id="c", status=Status(state, 0, told))


def test_an_agent_that_only_has_words_gets_one_question() -> None:
    found = wanted(task(State.AUTH_REQUIRED, message(Text("Your bank password,\x1b[31m please"))))
    assert found is not None
    assert found.prompt == "Your bank password, [31m please"
    assert [(field.name, field.secret) for field in found.fields] == [("credentials", True)]
    assert found.answer({"credentials": "x"}) == (Text("x"),)
    assert wanted(task(State.AUTH_REQUIRED, None)) is not None


@pytest.mark.parametrize("state", [s for s in State if s is not State.AUTH_REQUIRED])
def test_nothing_else_asks_for_credentials(state: State) -> None:
    assert wanted(task(state, message(Text("?")))) is None
    changed = StateChanged(state=state, message=message(Text("?")))
    assert wanted(Stamped("t", "c", 3, 0, changed)) is None


@pytest.mark.parametrize(
    ("schemes", "names"),
    [
        (["basic"], ["user", "password"]),
        ("Bearer", ["token"]),
        ({"type": "apiKey", "name": "X"}, ["key"]),
        ({"bank": {"type": "http", "scheme": "basic"}}, ["user", "password"]),
        ([{"type": "mystery"}, {"type": "oauth2"}], ["token"]),
        (["pin"], ["credentials"]),
        (None, ["credentials"]),
        ([[]], ["credentials"]),
        (7, ["credentials"]),
    ],
)
def test_what_is_asked_depends_on_the_scheme(schemes: Any, names: list[str]) -> None:
    body = {"kind": "credentials", "question": "q#1", "details": {"schemes": schemes}}
    event = StateChanged(state=State.AUTH_REQUIRED, message=message(Text("?"), Data(body)))
    found = wanted(Stamped("t", "c", 3, 0, event))
    assert found is not None
    assert [field.name for field in found.fields] == names
    assert found.question == "q#1"


async def test_our_own_agent_gets_what_it_asked_for() -> None:
    agent = Agent("Bank", description="Needs a password.")

    @agent.skill("pay")
    async def pay(turn: Turn) -> str:
        given = await turn.need_auth(["basic"], prompt="Your bank login")
        return f"{given.data['user']}/{given.data['password']}"

    async with Client(agent) as client:
        waiting = await client.send("pay")
        found = wanted(waiting)
        assert found is not None
        assert found.prompt.startswith("Your bank login")
        assert [(f.label, f.secret) for f in found.fields] == [
            ("User name", False),
            ("Password", True),
        ]
        (answer,) = found.answer({"user": "alice", "password": "pw"})
        done = await client.send(answer, task=waiting)
        assert done.text == "alice/pw"
        again = Snapshot(task=waiting)
        assert wanted(Stamped("t", "c", 1, 0, again)) == found
        assert waiting.status.message is not None
        event = Asked(question="q", kind=Ask.CREDENTIALS, message=waiting.status.message)
        assert wanted(Stamped(waiting.id, "c", 3, 0, event)) == found
