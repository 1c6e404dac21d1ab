"""Extensions: required ones are enforced, active ones echoed, in every binding."""

from __future__ import annotations

import pytest

from dragoman import Agent, Extension, Turn
from dragoman.core.card import Card
from dragoman.core.errors import ConfigError, ExtensionRequired, TaskNotFound, Unsupported
from dragoman.core.model import Task
from dragoman.core.operations import CancelTask, GetExtendedCard, GetTask, ListTasks, Watch
from dragoman.dialects.a2a.cards.documents import card_in
from semantics.ways import WAYS, Way, said, served

ways = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
BOOK = "https://example.org/ext/booking/v1"
PLAIN = "https://example.org/ext/plain/v1"
CODES = {
    "JSON-RPC 1.0": -32008,
    "JSON-RPC 0.3": -32008,
    "JSON-RPC 0.1": -32004,  # there -32008 meant something else (a2a-wire §9)
    "REST 1.0": 400,
    "REST 0.3": 400,
    "gRPC 1.0": 9,
    "gRPC 0.3": 9,
}


def desk(*extensions: Extension) -> Agent:
    agent = Agent("Desk", extensions=extensions)

    @agent.skill("echo")
    async def echo(turn: Turn) -> list[str]:
        return list(turn.extensions)

    return agent


REQUIRED = Extension(uri=BOOK, description="Books", required=True, params={"a": 1})


@ways
async def test_what_is_required_must_be_active(way: Way) -> None:
    async with served(desk(REQUIRED, Extension(uri=PLAIN))) as server:
        for op, stream in (
            (said("hi"), False),
            (said("hi"), True),
            (Watch(task_id="t"), True),
            (GetTask(task_id="t"), False),
            (CancelTask(task_id="t"), False),
            (ListTasks(), False),
        ):
            for active in ((), (PLAIN,), (BOOK.upper(),)):
                heard = await way.ask(server, op, stream=stream, extensions=active)
                if heard.unasked:
                    continue
                told = Unsupported if way.name == "JSON-RPC 0.1" else ExtensionRequired
                assert type(heard.error) is told, op
                assert heard.code == CODES[way.name]
                assert BOOK in heard.error.message
            heard = await way.ask(server, op, stream=stream, extensions=(BOOK,))
            if getattr(op, "task_id", ""):
                assert type(heard.error) is TaskNotFound
            else:
                assert heard.error is None


@ways
async def test_cards_can_be_read_without(way: Way) -> None:
    async with served(desk(REQUIRED)) as server:
        heard = await way.ask(server, GetExtendedCard())
        assert not isinstance(heard.error, ExtensionRequired)


@ways
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_active_is_echoed(way: Way, stream: bool) -> None:
    async with served(desk(REQUIRED, Extension(uri=PLAIN))) as server:
        active = (PLAIN, "urn:nobody:knows", BOOK)
        heard = await way.ask(server, said("hi"), stream=stream, extensions=active)
        assert heard.error is None
        assert heard.active == f"{PLAIN}, {BOOK}"


@ways
async def test_nothing_is_required_by_default(way: Way) -> None:
    async with served(desk(Extension(uri=PLAIN))) as server:
        heard = await way.ask(server, said("hi"))
        assert isinstance(heard.answer, Task)
        assert heard.active == ""


@ways
async def test_either_header_activates(way: Way) -> None:
    async with served(desk(REQUIRED)) as server:
        for name in ("a2a-extensions", "x-a2a-extensions"):
            heard = await way.ask(server, said("hi"), headers={name: f"{PLAIN},{BOOK}"})
            assert heard.error is None
            assert heard.active == BOOK


async def test_the_card_declares_them() -> None:
    async with served(desk(REQUIRED)) as server:
        for version in ("1.0", "0.3"):
            headers = {"a2a-version": version}
            reply = await server.client.get("/.well-known/agent-card.json", headers=headers)
            card: Card = card_in(reply.content)
            assert REQUIRED in card.extensions


def test_one_of_ours_can_be_required() -> None:
    agent = desk(Extension(uri="urn:dragoman:idempotency:1", required=True))
    found = [each for each in agent.card().extensions if "idempotency" in each.uri]
    assert [each.required for each in found] == [True]


@pytest.mark.parametrize(
    "extensions",
    [
        (Extension(uri=""),),
        (Extension(uri="a b"),),
        (Extension(uri="a,b"),),
        (Extension(uri="x:1"), Extension(uri="x:1")),
    ],
)
def test_wrong_ones_stop_the_start(extensions: tuple[Extension, ...]) -> None:
    with pytest.raises(ConfigError):
        desk(*extensions)
